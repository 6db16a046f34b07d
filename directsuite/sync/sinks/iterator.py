"""A sink for an `async for` loop. Requesting the next change acknowledges the previous one: that one is done.

deliver(batch) ──► waiting, one batch per mailbox ──► the loop's body ──► requests the next ──┐
       └──────────────── returns when the batch is acknowledged ◄─────────────────────────────┘
                         is cancelled if the loop is left before
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from types import TracebackType
from typing import Any, Self

import attrs

from directsuite.core.privacy import scrub_class
from directsuite.sync.commits import Deliver
from directsuite.sync.model import Change, SinkError


@attrs.define(eq=False, repr=False)
class _Batch:
    changes: Sequence[Change]
    done: asyncio.Future[None]
    reported_count: int = 0


class _WaitingChanges:
    # Separate from the stream: the synchronisation refers to it, and must not keep a stream alive that was left.

    def __init__(self) -> None:
        self.batches = deque[_Batch]()
        """The first one is current once a change of it was returned."""
        self.arrived = asyncio.Event()

    async def deliver(self, changes: Sequence[Change]) -> None:
        if not changes:
            return
        batch = _Batch(changes, asyncio.get_running_loop().create_future())
        self.batches.append(batch)
        self.arrived.set()
        try:
            await batch.done
        finally:
            with contextlib.suppress(ValueError):
                self.batches.remove(batch)

    def acknowledge(self) -> None:
        if self.batches and self.batches[0].reported_count == len(self.batches[0].changes):
            self._end_current(None)

    def refuse(self) -> None:
        if self.batches and self.batches[0].reported_count:
            text = "The loop over the changes rejected this change with changes.refuse(). It will be sent again later."
            self._end_current(SinkError(text))

    def _end_current(self, error: SinkError | None) -> None:
        done = self.batches.popleft().done
        if done.done():
            return
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)


@scrub_class
class ChangeStream(AsyncIterator[Change]):
    """The changes of a synchronisation that runs while they are read: see `Synchronizer.changes`."""

    def __init__(self, run: Callable[[Deliver], Coroutine[Any, Any, None]]) -> None:
        """run: synchronises until cancelled, and delivers the changes. Its errors end the stream."""
        self._run = run
        self._waiting = _WaitingChanges()
        self._running: asyncio.Task[None] | None = None
        self._is_requested = False
        self._closed = False

    async def __anext__(self) -> Change:
        if self._is_requested:
            raise RuntimeError("This loop already waits for the next change. Await one change at a time.")
        if self._closed:
            raise StopAsyncIteration
        self._waiting.acknowledge()
        if self._running is None:
            arrived = self._waiting.arrived
            self._running = asyncio.create_task(self._run(self._waiting.deliver))
            self._running.add_done_callback(lambda _: arrived.set())
        self._is_requested = True
        try:
            while not self._waiting.batches and not self._running.done():
                self._waiting.arrived.clear()
                await self._waiting.arrived.wait()
        finally:
            self._is_requested = False
        if self._running.done():
            self._closed = True
            if not self._running.cancelled():
                self._running.result()  # raises the error that ended the synchronisation
            raise StopAsyncIteration
        batch = self._waiting.batches[0]
        batch.reported_count += 1
        return batch.changes[batch.reported_count - 1]

    async def aclose(self) -> None:
        """End the stream and the synchronisation. The batch of the last change is yielded again later."""
        self._closed = True
        if self._running is not None and not self._running.done():  # otherwise cancelling would hide its error
            self._running.cancel()
            await asyncio.wait([self._running])

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    def refuse(self) -> None:
        """Reject the last change. Its batch, including the changes before it, is yielded again in parts.

        It is quarantined when the loop has accepted others, and delivered again later.
        """
        self._waiting.refuse()

    def __del__(self) -> None:
        if self._running is not None and not self._running.done():
            with contextlib.suppress(RuntimeError):  # the event loop is closed
                self._running.get_loop().call_soon_threadsafe(self._running.cancel)
