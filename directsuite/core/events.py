"""Events of a suite: listeners receive them immediately, and the suite logs them.

Events never contain a secret, a body, or a value that a caller put into a path.

    AttemptFailed ──► INFO  GetUIDs: an attempt failed (call 7, attempt 1, ServerError, HTTP 500, outcome unknown, …)

The level WARNING is for what a person should look at. Failed attempts and pauses are INFO, because the call is
repeated, or raises an error that the program handles.

Only the fields in FIELDS are logged. Each log record also has them in the dictionary `record.directsuite`, as have the
records of the logger `directsuite.calls` (module `call_log`).
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import inspect
import logging
from collections.abc import Callable, Generator, Iterable, Mapping
from contextvars import ContextVar
from logging import DEBUG, INFO, WARNING
from typing import Literal, TypeGuard, cast

import attrs

from directsuite.errors import ConfigurationError, FailureReason, InvalidArgumentError, Outcome
from directsuite.wire.models import ValueSemantics


@attrs.frozen(kw_only=True, repr=False, eq=False)
class Event(ValueSemantics):
    """An event of a suite. The base class of all events."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class CallEvent(Event):
    """An event of one call."""

    call: int
    """The number of the call in this process. All events of a call have the same number."""
    group: int | None = None
    """The number of the first call of the same method (`sign_pdf`), block (`group_calls`, `stored`) or document of a
    SigningJob. It may be the call itself. None in an event that a test made.
    """
    operation: str
    """The name of the operation in the specification."""
    service: str
    method: str
    path: str
    """The path template below the base URL, without the values of its parameters."""
    host: str
    """The host of the base URL."""
    port: int


@attrs.frozen(kw_only=True, repr=False, eq=False)
class CallStarted(CallEvent):
    """A call started."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class AttemptStarted(CallEvent):
    """A request is about to be sent."""

    attempt: int
    """The number of the attempt in its call, from 1."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class AttemptSucceeded(CallEvent):
    """A request got a successful response."""

    attempt: int
    status: int
    elapsed: float
    """The time since AttemptStarted, in seconds."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class AttemptFailed(CallEvent):
    """An attempt failed."""

    attempt: int
    """The number of the attempt in its call. 0 if no request was sent, for example because the circuit is open."""
    error: str
    """The name of the error's class."""
    reason: FailureReason | None = None
    """Why the connection could not be made, or was lost. None for other causes."""
    status: int | None
    """The HTTP status. None if no response arrived."""
    outcome: Outcome | None
    """Whether the request was sent and took effect, as far as that is known. See Outcome for a 401."""
    elapsed: float
    """The time in seconds since the request was sent, or else since the attempt started."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class RetryScheduled(CallEvent):
    """Another attempt follows an AttemptFailed, also one with a new token or session after a 401."""

    attempt: int
    """The number that the next attempt has if its request is sent."""
    wait: float
    """The time until the next attempt, in seconds. 0 before an attempt with a new token or session."""
    error: str | None = None
    """The name of the class of the error after which the call is repeated."""
    reason: FailureReason | None = None
    """The reason in the AttemptFailed."""
    status: int | None = None
    """The HTTP status of the last attempt. None if no response arrived."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class OutcomeLeftUnknown(CallEvent):
    """A call ended without a result, and its side effect may have happened, or is known to have happened."""

    cancelled: bool
    """True if the caller was cancelled before the response arrived. It then gets no OutcomeUnknownError."""
    happened: bool = False
    """True if the side effect is known to have happened, so that only its result is lost."""
    how_to_find_out: str
    """How a user can find out whether the side effect happened, or that a signing job finds out, as text."""
    job_finds_out: bool = False
    """True for a call of a signing job. The job, or its next run, finds out whether the side effect happened.

    It cannot find out if the source has changed, is missing or cannot be read in the next run, or if the stored
    document cannot be downloaded. If the document fails or starts again, its log line says that it may be signed.
    """


@attrs.frozen(kw_only=True, repr=False, eq=False)
class ValuesSkipped(CallEvent):
    """Some values of a response could not be read.

    A field gets its default value, and its raw value is in the `extra` of its object. An element of a list is left out.
    """

    paths: Mapping[str, int]
    """The number of these values for each JSON path without indices, such as `$.messages[].sentDate`."""

    def __hash__(self) -> int:
        return hash((self.call, *sorted(self.paths.items())))


@attrs.frozen(kw_only=True, repr=False, eq=False)
class CallFinished(CallEvent):
    """A call ended."""

    attempts: int
    """The number of requests that were sent. If none failed before it was sent, that is one more than the number of
    RetryScheduled events.
    """
    elapsed: float
    """The time of all attempts and pauses, in seconds."""
    error: str | None = None
    """The name of the error's class. None after success, or if the caller closed a stream early."""
    status: int | None = None
    """The HTTP status of the last request, which may be 200 for a failure. None if it got no response."""
    code: int | str | None = None
    """The service's error code, if it is a short number or a code of OAuth. Otherwise None."""
    outcome: Outcome | None = None
    """The outcome after a failure. None if it is not known or the call succeeded."""
    cancelled: bool = False
    """True if the caller was cancelled, or closed a stream early."""
    verified: bool = False
    """True if the response was lost, and the call succeeded because its side effect was verified."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class Renewed(Event):
    """A new credential is in use."""

    generation: int
    """The number of the credential, from 1."""
    expires_in: float | None
    """The lifetime in seconds. None if it is not known."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class TokenRefreshed(Renewed):
    """A new bearer token for signing and fax is in use."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class SessionRenewed(Renewed):
    """A new registration session is in use."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class RenewalFailed(Event):
    """A new credential could not be fetched."""

    error: str
    """The name of the error's class."""
    reason: str | None = None
    """Why it failed, as text. None if your own token source raised an exception, whose text may contain a secret."""
    cause: str | None = None
    """The name of the class of the exception that the token source raised, unless that is `error`. Otherwise None."""
    credential: Literal["token", "session"] = "token"
    back_off: float
    """The time until the next try, in seconds."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class ServicePaused(Event):
    """A service asked for a pause with the header Retry-After. All requests to it wait."""

    service: str
    seconds: float


@attrs.frozen(kw_only=True, repr=False, eq=False)
class CircuitOpened(Event):
    """A service does not respond. Calls to it fail immediately, except one probe after each pause."""

    service: str
    failures: int
    """The number of consecutive attempts without a response."""
    seconds: float
    """The time until a probe is allowed, in seconds."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class CircuitClosed(Event):
    """A service that was down responds again."""

    service: str


Listener = Callable[[Event], None]
"""A function that receives each event, in the task in which it happened. It must not block."""


class Events:
    """Sends each event to all listeners and to the log. An exception of a listener is only logged."""

    def __init__(self, listeners: Iterable[Listener], logger: logging.Logger) -> None:
        self.listeners: tuple[Listener, ...] = ()
        self.logger = logger
        for listener in listeners:
            self.add(listener)

    def add(self, listener: Listener) -> None:
        """Add a listener for all later events. Raises ConfigurationError if it is async or not callable."""
        argument: object = listener
        if not callable(argument) or inspect.iscoroutinefunction(argument):
            raise ConfigurationError(
                "a listener must be a plain function with an event as its parameter, not a coroutine function"
            )
        self.listeners = (*self.listeners, listener)

    def remove(self, listener: Listener) -> None:
        """Remove a listener, also if it was added several times. Has no effect if it was not added."""
        self.listeners = tuple(each for each in self.listeners if each != listener)

    def emit(self, event: Event, *, logged: Event | None = None) -> None:
        """Write an event to the log, then send it to all listeners. Log their exceptions without raising them.

        logged: the event to write to the log. None: the same event.
        """
        receivers: list[tuple[Listener, Event]] = [(self._write_to_log, event if logged is None else logged)]
        receivers += [(listener, event) for listener in self.listeners]
        for listener, each in receivers:
            try:
                listener(each)
            except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  a listener must not break a call
                name = getattr(listener, "__qualname__", type(listener).__name__)
                kind = type(error).__name__
                with contextlib.suppress(Exception):  # the log itself may have failed
                    self.logger.warning("the listener %s raised %s for the event %s", name, kind, type(each).__name__)

    def _write_to_log(self, event: Event) -> None:
        level, words = LINES.get(type(event), (DEBUG, type(event).__name__))
        if isinstance(event, OutcomeLeftUnknown):
            level = INFO if event.job_finds_out else level
            words = _HAPPENED_TEXT if event.happened else words
        elif isinstance(event, RenewalFailed):
            words = f"no new {event.credential} was received"
        if not self.logger.isEnabledFor(level):
            return
        hidden = set[str]() if is_group_logged(event) else {"group"}
        if is_unsent(event):
            words = NOT_SENT_TEXT
            hidden |= {"attempt", "outcome"} if event.outcome is Outcome.NOT_SENT else {"attempt"}
        if isinstance(event, RetryScheduled) and event.attempt == 1:
            hidden.add("attempt")  # misleading after several attempts without a request
        written = make_log_fields(event)
        subject = written.get("operation") or written.get("service") or "directsuite"
        subject = "token" if subject == "oauth" else subject  # the operation of this service
        phrases = [
            text.format(written[name])
            for name, text in FIELDS.items()
            if text and written.get(name, False) is not False and name not in hidden
        ]
        details = f" ({', '.join(phrases)})" if phrases else ""
        self.logger.log(level, "%s: %s%s", subject, words, details, extra={"directsuite": written})


def make_log_fields(event: Event) -> dict[str, str | int | float | bool]:
    """Return the dictionary `record.directsuite` for an event."""
    values = {name: value for name in FIELDS if (value := getattr(event, name, None)) is not None}
    return {"event": type(event).__name__, **{name: _to_plain_value(value) for name, value in values.items()}}


def is_group_logged(event: Event) -> bool:
    """Return True if the log lines about an event contain its group: not if the call is single."""
    if not isinstance(event, CallEvent) or event.group is None:
        return False
    return event.group != event.call or CURRENT_GROUP.get() is not None


def is_unsent(event: Event) -> TypeGuard[AttemptFailed]:
    """Return True if an attempt failed before its request was sent."""
    return isinstance(event, AttemptFailed) and not event.attempt


@attrs.define(eq=False)
class CallGroup:
    """A group of calls; see `group_calls`."""

    number: int | None = None
    """The number of the first call, which all calls have as `group`. None before the first call."""


CURRENT_GROUP: ContextVar[CallGroup | None] = ContextVar("group", default=None)


@contextlib.contextmanager
def group_calls(number: int | None = None) -> Generator[CallGroup]:
    """Make the calls in a `with` block a group: they have the same `group` in logs, events and errors.

        with directsuite.group_calls() as group:
            document = await suite.signing.save(pdf)
            signed = await suite.signing.sign_and_pull(document, signature)
        print(group.number)

    Calls of tasks that are created in the block belong to the group, those of other tasks do not. A group within
    another one, such as that of a document in a SigningJob, is part of the outer group.

    number: the number of an existing group, to which the calls are added. None: create a group.
    """
    outer = CURRENT_GROUP.get()
    if outer is not None:
        yield outer  # nothing to undo, so two blocks may end in any order
        return
    group = CallGroup(number)
    CURRENT_GROUP.set(group)
    try:
        yield group
    finally:
        CURRENT_GROUP.set(None)


def get_group() -> int | None:
    """Return the number of the current group. None outside a group, and before its first call."""
    group = CURRENT_GROUP.get()
    return None if group is None else group.number


NOT_SENT_TEXT = "not sent"
VERIFIED_TEXT = "verified after a lost response"

FIELDS: Mapping[str, str] = {
    "operation": "",
    "service": "",
    "method": "",
    "path": "",
    "host": "",
    "port": "",
    "call": "call {}",
    "group": "group {}",
    "attempt": "attempt {}",
    "attempts": "attempts {}",
    "error": "{}",
    "reason": "{}",
    "cause": "the token source raised {}",
    "credential": "",
    "status": "HTTP {}",
    "code": "code {}",
    "outcome": "outcome {}",
    "cancelled": "cancelled by the caller",
    "verified": VERIFIED_TEXT,
    "happened": "",
    "job_finds_out": "",
    "elapsed": "after {:.3f} s",
    "wait": "in {:.1f} s",
    "generation": "number {}",
    "expires_in": "valid for {:.0f} s",
    "back_off": "next try in {:.0f} s",
    "failures": "{} failures in a row",
    "seconds": "for {:.1f} s",
    "paths": "{}",
    "how_to_find_out": "what to do: {}",
}
"""The fields of events that are logged, in the order of a log line, each with its phrase.

A field without a phrase, or with the value False, is in the dictionary only. A field that is None is left out.
"""

LINES: Mapping[type[Event], tuple[int, str]] = {
    CallStarted: (DEBUG, "a call started"),
    AttemptStarted: (DEBUG, "a request is about to be sent"),
    AttemptSucceeded: (DEBUG, "an attempt succeeded"),
    AttemptFailed: (INFO, "an attempt failed"),  # NOT_SENT_TEXT if no request was sent
    RetryScheduled: (INFO, "another attempt is scheduled"),
    # INFO if a job finds out. _HAPPENED_TEXT if the event has `happened`.
    OutcomeLeftUnknown: (WARNING, "it may or may not have happened"),
    ValuesSkipped: (INFO, "values of the response could not be read, and were skipped"),
    CallFinished: (DEBUG, "the call ended"),
    TokenRefreshed: (INFO, "a new token is in use"),
    SessionRenewed: (INFO, "a new session is in use"),
    RenewalFailed: (WARNING, "no new token was received"),  # or "session"
    ServicePaused: (INFO, "the service asked for a pause"),
    CircuitOpened: (WARNING, "the service is down: calls to it fail immediately"),
    CircuitClosed: (INFO, "the service responds again"),
}
"""The level and the text of the log line for each class of event."""

_HAPPENED_TEXT = "it happened, but its result is not available"


def _to_plain_value(value: object) -> str | int | float | bool:
    if isinstance(value, enum.Enum):
        value = value.value
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {count}" for name, count in cast("Mapping[str, int]", value).items())
    # The value of another type may be confidential.
    return value if isinstance(value, str | int | float) else type(value).__name__


Progress = Callable[[int, int | None], None]
"""A plain function that receives the progress of a document: the bytes transferred, and the total or None if unknown.

It is called with 0 when an attempt starts, then after each piece of at most 256 KB. If it raises, the call ends with
its exception. If the side effect of the call has already happened, the exception is the cause of the call's error
instead.
"""


class ProgressReporter:
    """Counts the bytes of each attempt, and reports them to the user's callback `progress`, if any.

    total: expected number of bytes. None if unknown.
    """

    def __init__(self, progress: Progress | None, total: int | None = None) -> None:
        validate_progress(progress)
        self._progress = progress
        self.total = total
        self.failure: Exception | None = None
        """The exception that the callback raised, if any."""
        self._bytes_done = 0

    def begin(self) -> None:
        """Start an attempt: reset the count and report 0 bytes."""
        self._bytes_done = 0
        self.report()

    def advance(self, count: int) -> None:
        """Add `count` bytes and report the progress. Does nothing if `count` is 0."""
        self._bytes_done += count
        if count:
            self.report()

    def end(self) -> None:
        """Finish an attempt. If the total was wrong, correct it and report the progress again."""
        if self.total not in (None, self._bytes_done):
            self.total = self._bytes_done
            self.report()

    def report(self) -> None:
        """Report the progress to the callback, if any. Raises its exceptions."""
        if self._progress is not None:
            try:
                self._progress(self._bytes_done, self.total)
            except Exception as error:
                self.failure = error
                raise


def validate_progress(progress: Progress | None) -> None:
    """Raise InvalidArgumentError if the callback is an async function."""
    if inspect.iscoroutinefunction(progress):
        raise InvalidArgumentError("give a plain function, not an async one", parameter="progress")
