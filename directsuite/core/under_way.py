"""A call from its beginning to its end, as closing counts it and listeners see it."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any

from directsuite.core.call import Call
from directsuite.core.clock import Clock
from directsuite.core.events import CallFinished, CallStarted, OutcomeLeftUnknown
from directsuite.core.session import Lifecycle
from directsuite.errors import Outcome, OutcomeUnknownError


class UnderWay:
    """Counts a call for as long as it lasts, and tells of its beginning and end."""

    __slots__ = ("_call", "_clock", "_lifecycle")

    def __init__(self, call: Call[Any], lifecycle: Lifecycle, clock: Clock) -> None:
        self._call = call
        self._lifecycle = lifecycle
        self._clock = clock

    def __enter__(self) -> None:
        self._lifecycle.calls += 1
        if self._call.detailed:
            self._call.tell(CallStarted)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._lifecycle.calls -= 1
        if self._lifecycle.calls == 0:
            self._lifecycle.idle()
        if error is not None:
            self._tell_failed(error)
        elif self._call.detailed:
            self._call.tell(CallFinished, attempts=self._call.attempts, elapsed=self._elapsed())

    def _tell_failed(self, error: BaseException) -> None:
        call = self._call
        left = isinstance(error, asyncio.CancelledError | GeneratorExit)
        lost = left and call.unknown and not call.operation.may_repeat
        if lost or isinstance(error, OutcomeUnknownError):
            how = error.how_to_find_out if isinstance(error, OutcomeUnknownError) else call.operation.how_to_find_out
            call.tell(OutcomeLeftUnknown, cancelled=left, how_to_find_out=how)
        call.tell(
            CallFinished,
            attempts=call.attempts,
            elapsed=self._elapsed(),
            error=None if isinstance(error, GeneratorExit) else type(error).__name__,
            outcome=Outcome.UNKNOWN if lost else getattr(error, "outcome", None),
            cancelled=left,
        )

    def _elapsed(self) -> float:
        return self._clock.monotonic() - self._call.started_at
