"""Async iterators over many answers: in order, fetched ahead of the reader, never more than a bounded number."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from types import TracebackType
from typing import Any, TypeVar

from directsuite.core.discreet import discreet

T = TypeVar("T")
K = TypeVar("K")


class Listing(AsyncGenerator[T, None]):
    """An async generator that is its own context manager: leaving `async with` ends it and its requests at once.

    async with box.iter_messages() as messages:
        async for message in messages: ...
    """

    def __init__(self, generator: AsyncGenerator[T, None]) -> None:
        self._generator = generator

    @discreet
    async def __anext__(self) -> T:
        return await self._generator.__anext__()

    @discreet
    async def asend(self, value: None) -> T:
        """As for any async generator."""
        return await self._generator.asend(value)

    @discreet
    async def athrow(self, *args: Any) -> T:
        """As for any async generator."""
        return await self._generator.athrow(*args)

    async def aclose(self) -> None:
        """End the listing and its requests."""
        await self._generator.aclose()

    async def __aenter__(self) -> Listing[T]:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._generator.aclose()


async def fetched_ahead(
    keys: Iterable[K], fetch: Callable[[K], Coroutine[Any, Any, T]], *, window: int
) -> AsyncGenerator[T, None]:
    """The answers for `keys`, in their order, with up to `window` requests ahead of the reader.

    A failure is raised at its own place in the order; ending the generator cancels what is still under way.
    """
    waiting: deque[asyncio.Task[T]] = deque()
    remaining = iter(keys)

    def top_up() -> None:
        """Start requests until the window is full."""
        while len(waiting) < window:
            try:
                key = next(remaining)
            except StopIteration:
                return
            waiting.append(asyncio.create_task(fetch(key)))

    try:
        top_up()
        while waiting:
            answer = await waiting.popleft()
            top_up()
            yield answer
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
