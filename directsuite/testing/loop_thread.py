"""An event loop in a separate thread."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

T = TypeVar("T")


class LoopThread:
    """`with LoopThread() as thread:` runs an event loop until the block ends."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._started_event = threading.Event()
        self._end_event = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="directsuite-sandbox", daemon=True)

    def __enter__(self) -> Self:
        self._runner.get_loop()  # raises errors here
        self._thread.start()
        self._started_event.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with contextlib.suppress(RuntimeError):  # the loop may have ended by SystemExit
            self._runner.get_loop().call_soon_threadsafe(self._end_event.set)
        self._thread.join()

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the thread. Return its result or raise its exception."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._runner.get_loop()).result()

    def _run(self) -> None:
        try:
            with self._runner:
                self._runner.run(self._wait_for_end())
        finally:
            self._started_event.set()

    async def _wait_for_end(self) -> None:
        self._started_event.set()
        await self._end_event.wait()
