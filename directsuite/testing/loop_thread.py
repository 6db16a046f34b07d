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
        self._thread = threading.Thread(target=self._run, name="directsuite-sandbox", daemon=True)

    def __enter__(self) -> Self:
        self._runner.get_loop()  # raises errors here
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with contextlib.suppress(RuntimeError):  # the loop may have ended by SystemExit
            loop = self._runner.get_loop()
            loop.call_soon_threadsafe(loop.stop)
        self._thread.join()

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the thread. Return its result or raise its exception."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._runner.get_loop()).result()

    def _run(self) -> None:
        with self._runner:
            self._runner.get_loop().run_forever()
