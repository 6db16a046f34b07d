"""A sandbox in a separate thread, for tests without an event loop."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, Self, TypeVar

from directsuite.sandbox.server import Sandbox

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from types import TracebackType

T = TypeVar("T")
_CALL_TIMEOUT = 30.0  # seconds that the sandbox may take for anything it is asked


class SandboxThread:
    """A running sandbox, a context manager; `call` runs its coroutine methods and waits for them."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="sandbox")
        self.sandbox = Sandbox(port=0)

    @property
    def root(self) -> str:
        """The URL that all paths of the OpenAPI document start from."""
        return self.sandbox.signing_url.removesuffix("/signing")

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The coroutine's result, from the sandbox's loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(_CALL_TIMEOUT)

    def __enter__(self) -> Self:
        self._thread.start()
        self.call(self.sandbox.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.call(self.sandbox.__aexit__(None, None, None))
        self.call(self._loop.shutdown_default_executor())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CALL_TIMEOUT)
        self._loop.close()
