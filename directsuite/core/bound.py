"""The ends of attempts: `asyncio.timeout_at`, made for being many and for being moved.

    attempt ── until(deadline) ─► Bound ── move ─► a later end with every sign of life
                                    │
    one timer of the event loop ◄───┘  at the earliest end of all

Nearly every attempt is over long before its end. A timer of its own would cost it more than all else that is done here:
asyncio compares timers in Python, and keeps those that were cancelled. So there is one for all, which is set when an
end comes before it, and looks for the next one when it runs out.
"""

from __future__ import annotations

import asyncio
from types import TracebackType

NEVER = float("inf")


class Bounds:
    """The ends of all attempts of a suite that are under way, in one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._bounds: set[Bound] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._due = NEVER
        self._closing = False

    def until(self, when: float) -> Bound:
        """An end for the current task's next block, in the event loop's time."""
        return Bound(self, when)

    def close(self) -> None:
        """Break off every block that is under way, and leave no timer behind: not after the last that begins later."""
        self._closing = True
        for bound in self._bounds:
            bound.break_off()
        if not self._bounds:
            self._stop()

    def watch(self, bound: Bound) -> None:
        """See to it that this one ends in time."""
        self._bounds.add(bound)
        if bound.when < self._due:
            self._stop()
            self._due = bound.when
            self._timer = self.loop.call_at(self._due, self._run_out)

    def leave(self, bound: Bound) -> None:
        """Forget this one: its block is over."""
        self._bounds.discard(bound)
        if self._closing and not self._bounds:
            self._stop()

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._due = None, NEVER

    def _run_out(self) -> None:
        due = max(self._due, self.loop.time())  # all that are past, so that many ends take few turns
        self._timer, self._due = None, NEVER
        for bound in [each for each in self._bounds if each.when <= due]:
            self._bounds.discard(bound)
            bound.expire()
        if self._bounds:
            self.watch(min(self._bounds, key=lambda bound: bound.when))


class Bound:
    """Cancels the block under it at its end, and raises TimeoutError there.

    One that is broken off before raises ConnectionAbortedError.

    when: in the event loop's time, or NEVER.
    """

    __slots__ = ("_bounds", "_cancelling", "_error", "_task", "when")

    def __init__(self, bounds: Bounds, when: float) -> None:
        self._bounds = bounds
        self._task: asyncio.Task[object] | None = None
        self._cancelling = 0
        self._error: type[OSError] | None = None
        self.when = when

    @property
    def expired(self) -> bool:
        """Whether the end was reached."""
        return self._error is TimeoutError

    def __enter__(self) -> None:
        task = asyncio.current_task(self._bounds.loop)  # without its loop it would ask for the process's number
        if task is None:
            raise RuntimeError("outside a task nothing can be cancelled")
        self._task = task
        self._cancelling = task.cancelling()
        self._bounds.watch(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._bounds.leave(self)
        task, self._task = self._task, None
        if self._error is None or task is None:
            return
        if task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise self._error from error

    def move(self, when: float) -> None:
        """Let it end at another time; too late where it has ended already."""
        self.when = when
        if self._task is not None and self._error is None:
            self._bounds.watch(self)

    def expire(self) -> None:
        """End the block now: its time is up."""
        self._end(TimeoutError)

    def break_off(self) -> None:
        """End the block now, as one whose connection ended; but not under who does this within the block."""
        if self._task is not asyncio.current_task():
            self._end(ConnectionAbortedError)

    def _end(self, error: type[OSError]) -> None:
        if self._task is not None and self._error is None:
            self._error = error
            self._task.cancel()
