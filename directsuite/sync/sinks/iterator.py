"""A sink for an `async for` loop. Requesting the next change acknowledges the previous one: that one is done.

deliver(batch) ──► waiting, one batch per mailbox ──► the loop's body ──► requests the next ──┐
       └──────────────── returns when the batch is acknowledged ◄─────────────────────────────┘
                         is cancelled if the loop is left before
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
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


_Batches = asyncio.Queue[_Batch | None]
"""The waiting batches. None: the synchronisation has ended."""


def _make_deliver(batches: _Batches) -> Deliver:
    # It does not refer to the stream: the synchronisation must not keep a stream alive that was left.
    async def deliver(changes: Sequence[Change]) -> None:
        if changes:
            batch = _Batch(changes, asyncio.get_running_loop().create_future())
            batches.put_nowait(batch)
            await batch.done

    return deliver


@scrub_class
class ChangeStream(AsyncIterator[Change]):
    """The changes of a synchronisation that runs while they are read: see `Synchronizer.changes`."""

    def __init__(self, run: Callable[[Deliver], Coroutine[Any, Any, None]]) -> None:
        """run: synchronises until cancelled, and delivers the changes. Its errors end the stream."""
        self._run = run
        self._batches = _Batches()
        self._batch: _Batch | None = None
        """The batch of the last change, until it has ended."""
        self._running: asyncio.Task[None] | None = None
        self._is_requested = False
        self._closed = False

    async def __anext__(self) -> Change:
        if self._is_requested:
            raise RuntimeError("This loop already waits for the next change. Await one change at a time.")
        if self._closed:
            raise StopAsyncIteration
        if self._batch is not None and self._batch.reported_count == len(self._batch.changes):
            self._end_batch(None)
        if self._running is None:
            batches = self._batches
            self._running = asyncio.create_task(self._run(_make_deliver(batches)))
            self._running.add_done_callback(lambda _: batches.put_nowait(None))
        self._is_requested = True
        try:
            while self._batch is None or self._batch.done.done():
                self._batch = await self._batches.get()
                if self._batch is None:
                    self._closed = True
                    if not self._running.cancelled():
                        self._running.result()  # raises the error that ended the synchronisation
                    raise StopAsyncIteration
        finally:
            self._is_requested = False
        self._batch.reported_count += 1
        return self._batch.changes[self._batch.reported_count - 1]

    async def aclose(self) -> None:
        """End the stream and the synchronisation. The batch of the last change is yielded again later."""
        self._closed = True
        if self._running is not None and not self._running.done():  # otherwise cancelling would hide its error
            self._running.cancel()
            await asyncio.wait([self._running])

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    def refuse(self) -> None:
        """Reject the last change. Its batch, including the changes before it, is yielded again in parts.

        It is quarantined when the loop has accepted others, and delivered again later.
        """
        text = "The loop over the changes rejected this change with changes.refuse(). It will be sent again later."
        self._end_batch(SinkError(text))

    def _end_batch(self, error: SinkError | None) -> None:
        batch, self._batch = self._batch, None
        if batch is None or batch.done.done():  # the delivery was cancelled
            return
        if error is None:
            batch.done.set_result(None)
        else:
            batch.done.set_exception(error)

    def __del__(self) -> None:
        if self._running is not None and not self._running.done():
            with contextlib.suppress(RuntimeError):  # the event loop is closed
                self._running.get_loop().call_soon_threadsafe(self._running.cancel)
