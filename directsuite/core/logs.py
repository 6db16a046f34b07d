"""Events as lines of the standard logging: what is written, how, and at which level.

    AttemptFailed ──► WARNING  GetUIDs: an attempt failed (call 7, attempt 1, ServerError, HTTP 500, outcome unknown, …)

Only the fields of FIELDS are ever written: a field that an event gets later stays out of every log until it is listed.
Each record also carries them as one dictionary, `record.directsuite`, for structured logging.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Mapping
from logging import DEBUG, INFO, WARNING

from directsuite.core.events import (
    AttemptFailed,
    AttemptStarted,
    AttemptSucceeded,
    CallFinished,
    CallStarted,
    CircuitClosed,
    CircuitOpened,
    Event,
    NullElementsSkipped,
    OutcomeLeftUnknown,
    RenewalFailed,
    RetryScheduled,
    ServicePaused,
    SessionRenewed,
    TokenRefreshed,
)
from directsuite.errors import Outcome

FIELDS: Mapping[str, str] = {
    "operation": "",
    "service": "",
    "method": "",
    "path": "",
    "host": "",
    "port": "",
    "call": "call {}",
    "attempt": "attempt {}",
    "attempts": "attempts {}",
    "error": "{}",
    "status": "HTTP {}",
    "outcome": "outcome {}",
    "cancelled": "the caller left",
    "elapsed": "after {:.3f} s",
    "wait": "in {:.1f} s",
    "generation": "number {}",
    "expires_in": "good for {:.0f} s",
    "back_off": "next try in {:.0f} s",
    "failures": "{} in a row",
    "seconds": "for {:.1f} s",
    "elements": "{} of them",
    "how_to_find_out": "to find out: {}",
}
"""The fields of events that are written, in the order of a line, each with its phrase; without one it is in the
dictionary only. What is None or False has no phrase."""

LINES: Mapping[type[Event], tuple[int, str]] = {
    CallStarted: (DEBUG, "a call began"),
    AttemptStarted: (DEBUG, "a request is about to be sent"),
    AttemptSucceeded: (DEBUG, "an attempt succeeded"),
    AttemptFailed: (WARNING, "an attempt failed"),
    RetryScheduled: (INFO, "another attempt is made"),
    OutcomeLeftUnknown: (WARNING, "it may or may not have happened"),
    NullElementsSkipped: (INFO, "elements of the answer's lists were null, and passed over"),
    CallFinished: (DEBUG, "the call ended"),
    TokenRefreshed: (INFO, "a new token is in use"),
    SessionRenewed: (INFO, "a new session is in use"),
    RenewalFailed: (WARNING, "no new token or session could be had"),
    ServicePaused: (WARNING, "the service asked for a pause"),
    CircuitOpened: (WARNING, "the service is down: calls of it fail at once"),
    CircuitClosed: (INFO, "the service is back"),
}
"""The level of each kind of event, and what its line says."""


class LogListener:
    """Writes events to a logger. Costs one look-up where the event's level is off."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger

    def __call__(self, event: Event) -> None:
        """Write one line."""
        level, words = LINES.get(type(event), (DEBUG, type(event).__name__))
        if not self._logger.isEnabledFor(level):
            return
        written = {name: value for name in FIELDS if (value := _plain(getattr(event, name, None))) is not None}
        subject = written.get("operation") or written.get("service") or "directsuite"
        phrases = [FIELDS[name].format(value) for name, value in written.items() if FIELDS[name] and value is not False]
        details = f" ({', '.join(phrases)})" if phrases else ""
        extra = {"directsuite": {"event": type(event).__name__, **written}}
        self._logger.log(_lowered(event, level), "%s: %s%s", subject, words, details, extra=extra)


def _lowered(event: Event, level: int) -> int:
    """The level, or INFO for a failed attempt that is news to nobody: the caller left, or is told by the error."""
    if isinstance(event, AttemptFailed) and (event.outcome is Outcome.FAILED or event.error == "CancelledError"):
        return min(level, INFO)
    return level


def _plain(value: object) -> str | int | float | bool | None:
    """The value as structured logging takes it; of what is no number or text, only its type."""
    if isinstance(value, enum.Enum):
        value = value.value
    return value if value is None or isinstance(value, str | int | float) else type(value).__name__
