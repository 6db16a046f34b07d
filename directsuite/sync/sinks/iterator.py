"""A sink for an `async for` loop. Requesting the next change acknowledges the previous one: that one is done.

deliver(batch) ──► waiting, one batch per mailbox ──► the loop's body ──► requests the next ──┐
       └──────────────── returns when the batch is acknowledged ◄─────────────────────────────┘
                         raises if the loop is left before
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from types import TracebackType
from typing import Any, Self

import attrs

from directsuite.core.privacy import scrub_class
from directsuite.errors import ClosedError, DirectSuiteError
from directsuite.sync.model import Change, SinkError


class UnacknowledgedError(SinkError):
    """The loop was left before it acknowledged a change. The complete batch will be delivered again."""

    def __init__(self, explanation: str) -> None:
        super().__init__(explanation, is_general=True)


@attrs.define(eq=False, repr=False)
class _Batch:
    changes: Sequence[Change]
    done: asyncio.Future[None]
    reported_count: int = 0

    def fail(self, error: DirectSuiteError) -> None:
        if not self.done.done():
            self.done.set_exception(error)


@scrub_class
class Changes:
    """Changes for one `async for` loop at a time. Pass `deliver` to a synchronisation.

        async with Changes() as changes:
            ...  # a synchronisation that delivers to changes.deliver
            async for change in changes:
                await keep(change)

    If the loop is left by `break` or an exception before it requests the next change, and without `acknowledge`, the
    complete batch is delivered again, for example to another loop. Call `refuse` for a change that cannot be stored,
    and continue with the next. The loop ends when this object is closed.
    """

    def __init__(self) -> None:
        self._waiting: deque[_Batch] = deque()
        self._current: _Batch | None = None
        self._arrived = asyncio.Event()
        self._loop: object | None = None
        self._closed = False

    async def deliver(self, changes: Sequence[Change]) -> None:
        """Wait until all changes are done.

        Raises UnacknowledgedError if the loop is left first, SinkError if it refuses a change, ClosedError if this
        object is closed.
        """
        if self._closed:
            raise ClosedError("The Changes object is closed, so no loop can receive its changes. Create another.")
        if not changes:
            return
        batch = _Batch(changes, asyncio.get_running_loop().create_future())
        self._waiting.append(batch)
        self._arrived.set()
        try:
            await batch.done
        finally:
            self._forget(batch)

    def acknowledge(self) -> None:
        """Mark the current change as done, before the loop requests the next one."""
        batch = self._current
        if batch is not None and batch.reported_count == len(batch.changes):
            self._current = None
            if not batch.done.done():
                batch.done.set_result(None)

    def refuse(self) -> None:
        """Reject the current change. It is quarantined when the loop has accepted others, and delivered again later."""
        self._fail_current(SinkError("The loop over the changes has refused this change."))

    async def aclose(self) -> None:
        """End the loop and all deliveries. The remaining changes will be delivered again."""
        self._closed = True
        self._arrived.set()
        self._fail_current(ClosedError("The Changes object was closed before this change was done."))
        for batch in self._waiting:
            batch.fail(ClosedError("The Changes object was closed before this change was done."))
        self._waiting.clear()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    def __aiter__(self) -> ChangeLoop:
        if self._loop is not None:
            raise RuntimeError(
                "Another loop reads these changes. End it first, because only one can read them at a time."
            )
        self._loop = token = object()
        return ChangeLoop(functools.partial(self._next, token), functools.partial(self._leave, token))

    async def _next(self, token: object) -> Change:
        if self._loop is not token:
            raise StopAsyncIteration
        self.acknowledge()
        while not self._closed:
            if self._current is None and self._waiting:
                self._current = self._waiting.popleft()
            if self._current is not None:
                self._current.reported_count += 1
                return self._current.changes[self._current.reported_count - 1]
            self._arrived.clear()
            await self._arrived.wait()
        raise StopAsyncIteration

    def _leave(self, token: object) -> None:
        if self._loop is token:
            self._loop = None
            self._fail_current(
                UnacknowledgedError(
                    "The loop over the changes was left before this change was done. It will be delivered again."
                )
            )

    def _fail_current(self, error: DirectSuiteError) -> None:
        if self._current is not None:
            self._current.fail(error)
            self._current = None

    def _forget(self, batch: _Batch) -> None:
        if self._current is batch:
            self._current = None
        with contextlib.suppress(ValueError):
            self._waiting.remove(batch)


@scrub_class
class ChangeStream(AsyncIterator[Change]):
    """The changes of a synchronisation that runs while they are read: see `Synchronizer.changes`."""

    def __init__(self, changes: Changes, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """run: synchronises until cancelled, then closes `changes`. Its errors end the stream."""
        self._changes = changes
        self._run = run
        self._loop: ChangeLoop | None = None
        self._running: asyncio.Task[None] | None = None
        self._closed = False

    async def __anext__(self) -> Change:
        if self._closed:
            raise StopAsyncIteration
        if self._loop is None or self._running is None:
            self._loop = aiter(self._changes)
            self._running = asyncio.create_task(self._run())
        with contextlib.suppress(StopAsyncIteration):
            return await anext(self._loop)
        running = self._running
        await self.aclose()
        if not running.cancelled():
            running.result()  # raises the error that ended the synchronisation
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """End the stream and the synchronisation. The last change is not done."""
        self._closed = True
        if self._loop is not None and self._running is not None:
            await self._loop.aclose()
            if not self._running.done():  # otherwise cancelling would hide its error
                self._running.cancel()
                await asyncio.wait([self._running])

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    def refuse(self) -> None:
        """Reject the last change. It is quarantined when the loop has accepted others, and delivered again later."""
        self._changes.refuse()

    def __del__(self) -> None:
        if self._running is not None and not self._running.done():
            with contextlib.suppress(RuntimeError):  # the event loop is closed
                self._running.get_loop().call_soon_threadsafe(self._running.cancel)


class ChangeLoop:
    """One loop over `Changes`. It is left by `aclose`, or when the object is deleted, as after `break`."""

    def __init__(self, ask: Callable[[], Awaitable[Change]], leave: Callable[[], None]) -> None:
        self._ask = ask
        self._leave = leave
        self._thread = threading.get_ident()
        self._events = asyncio.get_running_loop()
        self._is_waiting = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Change:
        if self._is_waiting:
            raise RuntimeError("This loop already waits for the next change. Await one change at a time.")
        self._is_waiting = True
        try:
            return await self._ask()
        finally:
            self._is_waiting = False

    async def aclose(self) -> None:
        """Leave the loop."""
        self._leave()

    def __del__(self) -> None:
        if threading.get_ident() == self._thread:
            self._leave()
            return
        with contextlib.suppress(RuntimeError):  # the event loop is closed
            self._events.call_soon_threadsafe(self._leave)
