"""Async iterators over many answers: in order, fetched ahead of the reader, never more than a bounded number."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from directsuite.core.privacy import scrub_class
from directsuite.errors import TransportError

T = TypeVar("T")
K = TypeVar("K")

INTERRUPTED = (
    "The listing is not complete: an earlier step was cancelled or raised an error, and it cannot be continued. "
    "Call the method again to start a new listing."
)


@scrub_class
class Listing(AsyncGenerator[T, None]):
    """An async generator that is its own context manager: leaving `async with` ends it and its requests at once.

    async with box.iter_messages() as messages:
        async for message in messages: ...

    A step that raises ends the listing, also if it was cancelled, as by `asyncio.timeout` around `anext`. A further
    step then raises TransportError: an interrupted listing never looks like a complete one. After `aclose` it ends
    like any generator that was closed.
    """

    def __init__(self, generator: AsyncGenerator[T, None]) -> None:
        self._generator = generator
        self._is_interrupted = False

    async def __anext__(self) -> T:
        try:
            return await self._generator.__anext__()
        except BaseException as error:
            self._note_end(error)
            raise

    async def asend(self, value: None) -> T:
        """As for any async generator."""
        try:
            return await self._generator.asend(value)
        except BaseException as error:
            self._note_end(error)
            raise

    async def athrow(self, *args: Any) -> T:
        """As for any async generator."""
        try:
            return await self._generator.athrow(*args)
        except BaseException as error:
            self._note_end(error)
            raise

    async def aclose(self) -> None:
        """End the listing and its requests."""
        self._is_interrupted = False
        await self._generator.aclose()

    def _note_end(self, error: BaseException) -> None:
        """Note that a step raised. Raise TransportError if the generator only ends because an earlier step did."""
        if not isinstance(error, StopAsyncIteration):
            # A second step at the same time raises RuntimeError, and the first one continues.
            self._is_interrupted = not getattr(self._generator, "ag_running", False)
        elif self._is_interrupted:
            raise TransportError(INTERRUPTED) from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()


def _always() -> bool:
    return True


class Prefetch(Generic[K, T]):
    """The answers for `keys`, in their order, with up to `window` requests ahead of the reader.

    has_room: whether one more may be ahead; at least one always is. Keys are taken when their request begins, the first
    at the first step. A failure is raised at its own place in the order, and nothing is fetched after it. Leaving
    `async with` cancels what is still under way.

    No async generator, since a loop that ends would close that and the one around it at the same time.
    """

    def __init__(
        self,
        keys: Iterable[K],
        fetch: Callable[[K], Coroutine[Any, Any, T]],
        *,
        window: int,
        has_room: Callable[[], bool] = _always,
    ) -> None:
        self._keys = iter(keys)
        self._fetch = fetch
        self._window = window
        self._has_room = has_room
        self._ahead: deque[asyncio.Task[T]] = deque()
        self._ended = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        self._top_up()
        if not self._ahead:
            raise StopAsyncIteration
        if self._ahead[0].done() and not self._ahead[-1].done():
            await asyncio.sleep(0)  # a reader who finds much there would keep the event loop from what is under way
        answer = await self._ahead[0]
        self._ahead.popleft()
        self._top_up()
        return answer

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended = True
        ahead = list(self._ahead)
        self._ahead.clear()
        for task in ahead:
            task.cancel()
        await asyncio.gather(*ahead, return_exceptions=True)

    def _top_up(self) -> None:
        """Start requests until the window is full."""
        while not self._ended and len(self._ahead) < self._window and (not self._ahead or self._has_room()):
            try:
                key = next(self._keys)
            except StopIteration:
                return
            task = asyncio.create_task(self._fetch(key))
            task.add_done_callback(self._came)
            self._ahead.append(task)

    def _came(self, task: asyncio.Task[T]) -> None:
        """An answer may make room for another request; a failure makes all after it useless."""
        if not (task.cancelled() or task.exception()):
            self._top_up()
            return
        self._ended = True
        if task in self._ahead:
            for useless in itertools.islice(self._ahead, self._ahead.index(task) + 1, None):
                useless.cancel()
