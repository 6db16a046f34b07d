"""Async iterators over many responses, in order, with a limited number of requests in progress."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from directsuite.core.privacy import scrub_class
from directsuite.errors import TransportError

T = TypeVar("T")
K = TypeVar("K")

INTERRUPTED_TEXT = (
    "The listing is not complete: an earlier step was cancelled or raised an error, and it cannot be continued. "
    "Call the method again to start a new listing."
)


@scrub_class
class Listing(AsyncGenerator[T, None], AbstractAsyncContextManager["Listing[T]", None]):
    """An async generator that is also a context manager. Leaving `async with` closes it and cancels its requests.

    async with box.iter_messages() as messages:
        async for message in messages: ...

    If a step raises or is cancelled, for example by `asyncio.timeout` around `anext`, the listing ends. Further steps
    then raise TransportError, so that the listing does not look complete. After `aclose`, further steps raise
    StopAsyncIteration.
    """

    def __init__(self, generator: AsyncGenerator[T, None]) -> None:
        self._generator = generator
        self._is_interrupted = False

    async def __anext__(self) -> T:
        return await self._step(self._generator.__anext__())

    async def asend(self, value: None) -> T:
        """Return the next item. Raises TransportError if an earlier step failed or was cancelled."""
        return await self._step(self._generator.asend(value))

    async def athrow(self, *args: Any) -> T:
        """Throw an exception into the generator. Raises TransportError if an earlier step failed or was cancelled."""
        return await self._step(self._generator.athrow(*args))

    async def aclose(self) -> None:
        """Close the listing and cancel its requests."""
        self._is_interrupted = False
        await self._generator.aclose()

    async def _step(self, step: Awaitable[T]) -> T:
        try:
            return await step
        except StopAsyncIteration:
            if not self._is_interrupted:
                raise
        except BaseException:
            # If another step is in progress, only this one fails, with RuntimeError.
            self._is_interrupted = not getattr(self._generator, "ag_running", False)
            raise
        raise TransportError(INTERRUPTED_TEXT)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()


class Prefetch(AbstractAsyncContextManager["Prefetch[K, T]", None], Generic[K, T]):
    """An async iterator over the results of `fetch` for each of `keys`, in the order of the keys.

    keys: each is read when its fetch starts, but none before the first step.
    fetch: returns the result for a key.
    window: maximum number of fetches in progress, including results that the reader has not yet received.
    has_room: returns True if one more fetch may start. If none is in progress, one always may.

    If a fetch fails, later ones are cancelled, and its error is raised after the earlier results. Leaving `async with`
    cancels the fetches in progress.

    This is not an async generator, because the event loop would close it together with the generator that uses it.
    """

    def __init__(
        self,
        keys: Iterable[K],
        fetch: Callable[[K], Coroutine[Any, Any, T]],
        *,
        window: int,
        has_room: Callable[[], bool] = lambda: True,
    ) -> None:
        self._keys = iter(keys)
        self._fetch = fetch
        self._window = window
        self._has_room = has_room
        self._tasks: deque[asyncio.Task[T]] = deque()
        self._ended = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        self._start_fetches()
        if not self._tasks:
            raise StopAsyncIteration
        if self._tasks[0].done() and not self._tasks[-1].done():
            # A reader of many available results would otherwise block the requests in progress.
            await asyncio.sleep(0)
        result = await self._tasks[0]
        self._tasks.popleft()
        self._start_fetches()
        return result

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended = True
        ahead = list(self._tasks)
        self._tasks.clear()
        for task in ahead:
            task.cancel()
        await asyncio.gather(*ahead, return_exceptions=True)

    def _start_fetches(self) -> None:
        while not self._ended and len(self._tasks) < self._window and (not self._tasks or self._has_room()):
            try:
                key = next(self._keys)
            except StopIteration:
                return
            task = asyncio.create_task(self._fetch(key))
            task.add_done_callback(self._handle_fetch_done)
            self._tasks.append(task)

    def _handle_fetch_done(self, task: asyncio.Task[T]) -> None:
        if not (task.cancelled() or task.exception()):
            self._start_fetches()
            return
        self._ended = True
        if task in self._tasks:
            for useless in itertools.islice(self._tasks, self._tasks.index(task) + 1, None):
                useless.cancel()
