"""Ends a coroutine at its n-th wait: each point at which its task really gives way.

    interrupted(coroutine, at=n) ── n-th wait ─► its way of ending ─► how it ended

What a wait is, the coroutine itself says: everything that it yields to the event loop passes through here.
"""

from __future__ import annotations

import asyncio
import functools
import types
from collections.abc import Callable, Coroutine, Generator
from enum import Enum
from typing import Any

import attrs

from tests.core.virtual_time import VirtualTimeLoop

STUCK_SECONDS = 100_000.0
"""The virtual seconds after which a call counts as hanging."""
_LATE_SECONDS = 5000.0  # virtual seconds, more than any deadline in these tests


class InterruptMode(Enum):
    """A way of interrupting a call, and the time."""

    CANCELLED = "cancelled while it waits"
    CANCELLED_LATE = "cancelled when what it waits for has just come"
    CANCELLED_AGAIN = "cancelled twice at once, and at each wait after that"
    CANCELLED_BEFORE_ITS_DEADLINE = "cancelled, and its deadline passes, in one turn of the loop"
    CANCELLED_AFTER_ITS_DEADLINE = "its deadline passes, and it is cancelled, in one turn of the loop"
    TIMED_OUT = "its caller's time is up"
    TIMED_OUT_AT_ITS_DEADLINE = "its caller's time and its own are up in one turn of the loop"

    def __str__(self) -> str:
        return self.name.lower().replace("_", " ")

    @property
    def cancels(self) -> bool:
        return self not in (InterruptMode.TIMED_OUT, InterruptMode.TIMED_OUT_AT_ITS_DEADLINE)

    @property
    def passes_deadline(self) -> bool:
        return self in (
            InterruptMode.CANCELLED_BEFORE_ITS_DEADLINE,
            InterruptMode.CANCELLED_AFTER_ITS_DEADLINE,
            InterruptMode.TIMED_OUT_AT_ITS_DEADLINE,
        )


@attrs.frozen(kw_only=True)
class InterruptResult:
    """The result of an interrupted run.

    has_reached_wait: True if there was an n-th await. was_interrupted: True if the task was still running.
    has_expired: True if the caller's timeout expired. cancel_requests: the number of pending cancellation requests.
    """

    has_reached_wait: bool
    was_interrupted: bool
    value: object = None
    error: BaseException | None = None
    has_expired: bool = False
    cancel_requests: int = 0


class Interrupter:
    """Runs a coroutine, and interrupts it at its n-th await."""

    def __init__(self, at: int, way: InterruptMode) -> None:
        self._at = at
        self._way = way
        self._waits = 0
        self._struck = False
        self._outer = asyncio.timeout(None)

    async def run(self, coroutine: Coroutine[Any, Any, object]) -> InterruptResult:
        value, error = None, None
        try:
            async with self._outer:
                value = await self._step_through(coroutine)
        except BaseException as raised:  # noqa: BLE001  it is what is looked for
            error = raised.with_traceback(None)
        return InterruptResult(
            has_reached_wait=self._waits >= self._at,
            was_interrupted=self._struck,
            value=value,
            error=error,
            has_expired=self._outer.expired(),
            cancel_requests=_get_current_task().cancelling(),
        )

    @types.coroutine
    def _step_through(self, coroutine: Coroutine[Any, Any, object]) -> Generator[Any, Any, object]:
        step: Callable[[], Any] = functools.partial(coroutine.send, None)
        while True:
            try:
                awaited = step()
            except StopIteration as end:
                return end.value
            self._waits += 1
            if self._waits == self._at or (self._waits > self._at and self._way is InterruptMode.CANCELLED_AGAIN):
                self._interrupt(awaited)
            try:
                sent = yield awaited
            except BaseException as thrown:  # noqa: BLE001  it is the coroutine's to deal with
                step = functools.partial(coroutine.throw, thrown)
            else:
                step = functools.partial(coroutine.send, sent)

    def _interrupt(self, awaited: asyncio.Future[Any] | None) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        cancel = functools.partial(self._cancel, _get_current_task())
        self._struck = not self._way.cancels
        if self._way is InterruptMode.TIMED_OUT_AT_ITS_DEADLINE:
            self._outer.reschedule(loop.time() + _LATE_SECONDS)
        elif self._way is InterruptMode.TIMED_OUT:
            self._outer.reschedule(loop.time())
        if self._way.passes_deadline:
            loop._elapse(_LATE_SECONDS)
        if self._way is InterruptMode.CANCELLED_LATE and awaited is not None:
            awaited.add_done_callback(lambda _: cancel())  # before the task's own, which wakes it
        elif self._way is InterruptMode.CANCELLED_AFTER_ITS_DEADLINE:
            loop.call_at(loop.time(), cancel)
        elif self._way.cancels:
            loop.call_soon(cancel)
            if self._way is InterruptMode.CANCELLED_AGAIN:
                loop.call_soon(cancel)

    def _cancel(self, task: asyncio.Task[Any]) -> None:
        self._struck = task.cancel() or self._struck


def _get_current_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task


async def run_interrupted(coroutine: Coroutine[Any, Any, object], *, at: int, way: InterruptMode) -> InterruptResult:
    running = asyncio.create_task(Interrupter(at, way).run(coroutine), name="interrupted")
    done, _ = await asyncio.wait([running], timeout=STUCK_SECONDS)
    assert done, f"it hangs after it was {way.value}, at wait {at}"
    return running.result()
