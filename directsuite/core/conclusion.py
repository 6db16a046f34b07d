"""What follows from the end of an attempt: for the service's circuit breaker and rate, and for those who listen."""

from __future__ import annotations

from typing import Any

from directsuite.core.call import Call
from directsuite.core.clock import Clock
from directsuite.core.events import AttemptFailed, AttemptSucceeded
from directsuite.core.session import Lifecycle
from directsuite.errors import (
    ConnectFailedError,
    ConnectionLostError,
    DeadlineExceededError,
    DirectSuiteError,
    Outcome,
    ServiceError,
)

_NEARLY = 0.99  # of a time-out, whose clock is another
_GATEWAY = (502, 503, 504)
"""Statuses that somebody in front of the service gives for it."""


class Conclusions:
    """Draws them. attempt_timeout: seconds of silence that say something of the service."""

    def __init__(self, clock: Clock, lifecycle: Lifecycle, *, attempt_timeout: float) -> None:
        self._clock = clock
        self._lifecycle = lifecycle
        self._attempt_timeout = attempt_timeout

    def succeeded(self, call: Call[Any]) -> None:
        """The attempt was answered as it should be."""
        call.endpoint.limits.breaker.answered()
        if call.detailed:
            call.tell(AttemptSucceeded, attempt=call.attempts, status=call.status, elapsed=self._elapsed(call))

    def failed(self, call: Call[Any], failure: DirectSuiteError) -> None:
        """The attempt ended in a typed error."""
        if call.sent_at is not None:
            self._tell_breaker(call, failure)
        call.unknown = call.unknown or failure.outcome is Outcome.UNKNOWN
        told = call.sent_at is not None and isinstance(failure, ServiceError) and failure.status in (429, 503)
        if told and failure.retry_after is not None:  # what refuses the call's login is no word of this service
            call.endpoint.limits.pause(failure.retry_after)
        self._tell_failed(call, failure, failure.outcome)

    def left(self, call: Call[Any], reason: BaseException, *, started: bool) -> None:
        """The caller left, or something of the caller's own failed. started: the body began to be sent."""
        call.endpoint.limits.breaker.abandoned(probe=call.probe)
        sent = call.sent_at is not None and started
        call.unknown = call.unknown or sent
        self._tell_failed(call, reason, Outcome.UNKNOWN if sent else Outcome.NOT_SENT)

    def _tell_breaker(self, call: Call[Any], failure: DirectSuiteError) -> None:
        breaker = call.endpoint.limits.breaker
        silent = isinstance(failure, ConnectFailedError | ConnectionLostError | DeadlineExceededError)
        own = call.status is not None or call.unfed or self._elapsed(call) < _NEARLY * self._attempt_timeout
        if (call.timed_out and own) or self._lifecycle.closed:
            silent = False  # a caller's own slowness, or short time, or leaving, says nothing of the service
        if silent or (isinstance(failure, ServiceError) and _from_a_gateway(failure)):
            breaker.unanswered(probe=call.probe)
        elif call.status is not None:
            breaker.answered()
        else:
            breaker.abandoned(probe=call.probe)

    def _tell_failed(self, call: Call[Any], error: BaseException, outcome: Outcome | None) -> None:
        call.tell(
            AttemptFailed,
            attempt=0 if call.sent_at is None else call.attempts,
            error=type(error).__name__,
            status=call.status,
            outcome=outcome,
            elapsed=self._elapsed(call),
        )

    def _elapsed(self, call: Call[Any]) -> float:
        return self._clock.monotonic() - (call.tried_at if call.sent_at is None else call.sent_at)


def _from_a_gateway(failure: ServiceError) -> bool:
    return failure.status in _GATEWAY and failure.code is None and failure.retry_after is None
