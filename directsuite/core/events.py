"""What happens in a suite, told as it happens, and written to its log: the source of metrics and traces, too.

    Event
    ├── CallEvent                one call of an operation: its number, operation, method and path template
    │   ├── CallStarted
    │   ├── AttemptStarted       an HTTP request is about to be sent
    │   ├── AttemptSucceeded
    │   ├── AttemptFailed
    │   ├── RetryScheduled
    │   ├── OutcomeLeftUnknown   a side effect may or may not have happened, or did and its result is lost
    │   ├── ValuesSkipped        values of a response could not be read
    │   └── CallFinished
    ├── Renewed                  a new bearer token or registration session is in use
    │   ├── TokenRefreshed
    │   └── SessionRenewed
    ├── RenewalFailed
    ├── ServicePaused            a service asked, with Retry-After, to be left alone for a while
    ├── CircuitOpened            a service is down: calls fail at once, save one probe after each pause
    └── CircuitClosed            it is back

No event holds a secret, a body, or anything that a caller put into a path: names, numbers and templates only.

    AttemptFailed ──► WARNING  GetUIDs: an attempt failed (call 7, attempt 1, ServerError, HTTP 500, outcome unknown, …)

Only the fields of FIELDS are ever logged: a field that an event gets later stays out of every log until it is listed.
Each record also carries them as one dictionary, `record.directsuite`, for structured logging.
"""

from __future__ import annotations

import asyncio
import enum
import inspect
import logging
from collections.abc import Callable, Iterable, Mapping
from logging import DEBUG, INFO, WARNING
from typing import cast

import attrs

from directsuite.errors import ConfigurationError, InvalidArgumentError, Outcome
from directsuite.wire.models import ValueSemantics


@attrs.frozen(kw_only=True, repr=False, eq=False)
class Event(ValueSemantics):
    """Something that happened in a suite."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class CallEvent(Event):
    """What happened in one call."""

    call: int
    """Its number in this process, which all its events share."""
    operation: str
    """The specification's name."""
    service: str
    method: str
    path: str
    """The template below the service's base URL, its parameters not filled in."""
    host: str
    """Of the base URL."""
    port: int


@attrs.frozen(kw_only=True, repr=False, eq=False)
class CallStarted(CallEvent):
    """A call began."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class AttemptStarted(CallEvent):
    """Credential, connection and place in the rate are there: a request is about to be sent."""

    attempt: int
    """From 1."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class AttemptSucceeded(CallEvent):
    """A request was answered as it should be."""

    attempt: int
    status: int
    elapsed: float
    """Seconds since AttemptStarted."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class AttemptFailed(CallEvent):
    """An attempt failed."""

    attempt: int
    """0 where no request could be sent yet."""
    error: str
    """The name of the error's class."""
    status: int | None
    """HTTP status; None where no answer came."""
    outcome: Outcome | None
    """What is known of the effect."""
    elapsed: float
    """Seconds."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class RetryScheduled(CallEvent):
    """Another attempt will be made."""

    attempt: int
    """Its number."""
    wait: float
    """Seconds until then."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class OutcomeLeftUnknown(CallEvent):
    """A call with side effects ended, and it is not known whether they happened, or only that they did."""

    cancelled: bool
    """The caller left before the answer came, and so gets no OutcomeUnknownError that would say so."""
    happened: bool = False
    """It did happen, and only its result is lost."""
    how_to_find_out: str
    """Where to look."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class ValuesSkipped(CallEvent):
    """Values of a response could not be read: fields have their defaults, and elements of lists are left out.

    The raw value of a field is in the `extra` of its object.
    """

    paths: Mapping[str, int]
    """The number of these values by their JSON path without indices, such as `$.messages[].sentDate`."""

    def __hash__(self) -> int:
        return hash((self.call, *sorted(self.paths.items())))


@attrs.frozen(kw_only=True, repr=False, eq=False)
class CallFinished(CallEvent):
    """A call ended."""

    attempts: int
    elapsed: float
    """Seconds, all attempts together."""
    error: str | None = None
    """The name of the error's class; None after success."""
    outcome: Outcome | None = None
    """Of a failure, where it is known."""
    cancelled: bool = False
    """The caller left, or left a stream early."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class Renewed(Event):
    """A new credential is in use."""

    generation: int
    """Its number, from 1."""
    expires_in: float | None
    """Seconds; None where that isn't known."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class TokenRefreshed(Renewed):
    """A new bearer token is in use, for signing and fax."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class SessionRenewed(Renewed):
    """A new registration session is in use."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class RenewalFailed(Event):
    """No new credential could be had."""

    error: str
    """The name of the error's class."""
    back_off: float
    """Seconds until another try."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class ServicePaused(Event):
    """A service asked, with Retry-After, that nobody calls it for so many seconds."""

    service: str
    seconds: float


@attrs.frozen(kw_only=True, repr=False, eq=False)
class CircuitOpened(Event):
    """A service is taken to be down."""

    service: str
    failures: int
    """Attempts in a row without an answer."""
    seconds: float
    """Until a probe is let through."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class CircuitClosed(Event):
    """A service that was down answers again."""

    service: str


Listener = Callable[[Event], None]
"""Called with each event, at once, in the task in which it happened: it should be quick, and not block."""


class Events:
    """Tells every event to every listener, and the standard logging. A listener that raises harms nobody."""

    def __init__(self, listeners: Iterable[Listener], logger: logging.Logger) -> None:
        self.listeners: tuple[Listener, ...] = ()
        self._log: Listener = LogListener(logger)
        self.logger = logger
        for listener in listeners:
            self.add(listener)

    def add(self, listener: Listener) -> None:
        """Call this listener with every event from now on."""
        argument: object = listener
        if not callable(argument) or inspect.iscoroutinefunction(argument):
            raise ConfigurationError("a listener is a plain function that takes an event, not a coroutine function")
        self.listeners = (*self.listeners, listener)

    def remove(self, listener: Listener) -> None:
        """Call this listener no more. Nothing happens where it was never added."""
        self.listeners = tuple(each for each in self.listeners if each != listener)

    def emit(self, event: Event) -> None:
        """Call every listener with this event, and write it to the log."""
        for listener in (self._log, *self.listeners):
            try:
                listener(event)
            except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  a call must not fail for its listeners
                self.logger.warning("a listener raised %s", type(error).__name__)


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
    "happened": "",
    "elapsed": "after {:.3f} s",
    "wait": "in {:.1f} s",
    "generation": "number {}",
    "expires_in": "good for {:.0f} s",
    "back_off": "next try in {:.0f} s",
    "failures": "{} in a row",
    "seconds": "for {:.1f} s",
    "paths": "{}",
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
    OutcomeLeftUnknown: (WARNING, "it may or may not have happened"),  # unless the event knows that it did
    ValuesSkipped: (INFO, "values of the response could not be read, and were skipped"),
    CallFinished: (DEBUG, "the call ended"),
    TokenRefreshed: (INFO, "a new token is in use"),
    SessionRenewed: (INFO, "a new session is in use"),
    RenewalFailed: (WARNING, "no new token or session could be had"),
    ServicePaused: (WARNING, "the service asked for a pause"),
    CircuitOpened: (WARNING, "the service is down: calls of it fail at once"),
    CircuitClosed: (INFO, "the service is back"),
}
"""The level of each kind of event, and what its line says."""

_HAPPENED = "it happened, but its result could not be had"


class LogListener:
    """Writes events to a logger. Costs one look-up where the event's level is off."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger

    def __call__(self, event: Event) -> None:
        """Write one line."""
        level, words = LINES.get(type(event), (DEBUG, type(event).__name__))
        if isinstance(event, OutcomeLeftUnknown) and event.happened:
            words = _HAPPENED
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
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {count}" for name, count in cast("Mapping[str, int]", value).items())
    return value if value is None or isinstance(value, str | int | float) else type(value).__name__


Progress = Callable[[int, int | None], None]
"""Called with the bytes of the document that are done, and all there are, or None where that isn't known.

A plain function. It is called with 0 when an attempt begins, then after each piece, which is 256 KB at most; a second
attempt begins at 0 again. What it raises ends the call, and comes out as it is or, of a change that has happened, as
the cause.
"""


class Meter:
    """Counts the bytes of one attempt after the other. total: bytes there will be, None where that isn't known."""

    def __init__(self, progress: Progress | None, total: int | None = None) -> None:
        refuse_progress(progress)
        self._progress = progress
        self.total = total
        self._done = 0

    def begin(self) -> None:
        """An attempt begins."""
        self._done = 0
        self.tell()

    def advance(self, count: int) -> None:
        """So many more bytes are done."""
        self._done += count
        if count:
            self.tell()

    def end(self) -> None:
        """All are done; a total that was estimated is corrected."""
        if self.total not in (None, self._done):
            self.total = self._done
            self.tell()

    def tell(self) -> None:
        """Call the callback, where there is one."""
        if self._progress is not None:
            self._progress(self._done, self.total)


def refuse_progress(progress: Progress | None) -> None:
    """Raise InvalidArgumentError for a callback that nobody would await."""
    if inspect.iscoroutinefunction(progress):
        raise InvalidArgumentError("give a plain function, not an async one", parameter="progress")
