"""A call under way, and what it may be given: records, no behaviour."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Generic, Protocol, TypeVar

import attrs
from yarl import URL

from directsuite.core.checks import POSITIVE
from directsuite.core.credentials import Credential, TokenCache
from directsuite.core.events import CallEvent, Events, NullElementsSkipped
from directsuite.core.limits import Limits
from directsuite.core.operation import Operation, Service
from directsuite.core.response import Answer, Incoming
from directsuite.core.retry import RetryPolicy
from directsuite.core.session import NEVER
from directsuite.core.upload import RequestBody
from directsuite.errors import (
    CircuitOpenError,
    ClosedError,
    DirectSuiteError,
    InvalidArgumentError,
    Outcome,
    OutcomeUnknownError,
    ResponseDecodeError,
)

R = TypeVar("R")
T_co = TypeVar("T_co", covariant=True)

SETTLE = 30.0
"""Seconds for which a request of unknown outcome may still arrive."""
_SPARE = 1.0  # seconds beyond the settle time, so that its last look finds some
_MOST_OF_IT = 2 / 3

Receive = Callable[[Incoming, Callable[[], None]], Awaitable[R]]
"""Reads a good answer itself, instead of whole; its second argument is called at every sign of life."""


@attrs.frozen(kw_only=True)
class Proof(Generic[R]):
    """Where to look for proof that an operation with an unknown outcome happened.

    look: gives the response where it did, None where nothing shows it (yet). seconds: how long to go on looking, since
    the request may still be on its way; 0 for one look. reserve: seconds of the call's time that its request has to
    leave for that; None for as many as looking takes. verdict: what the caller is told instead, by one who saw more.
    """

    look: Callable[[], Awaitable[R | None]]
    seconds: float = 0.0
    reserve: float | None = None
    verdict: Callable[[OutcomeUnknownError], OutcomeUnknownError] | None = None

    def kept_of(self, time_left: float) -> float:
        """Seconds, of those that a call has left, that are kept for looking."""
        wanted = self.seconds + _SPARE if self.reserve is None else self.reserve
        return min(wanted, time_left * _MOST_OF_IT)


class StreamReader(Protocol[T_co]):
    """Reads an answer while it comes."""

    @property
    def pending(self) -> int:
        """Bytes that it keeps since they are not whole yet."""
        ...

    @property
    def skipped(self) -> int:
        """How many elements of lists it has passed over, since they were null."""
        ...

    def feed(self, piece: bytes) -> Iterator[T_co]:
        """What is whole by now. Raises MismatchError."""
        ...

    def finish(self) -> None:
        """Raise the error that the answer turns out to be, at its end."""
        ...


@attrs.frozen(kw_only=True)
class Exchanged:
    """How a call went, for those who ask for the raw answer. elapsed: seconds."""

    answer: Answer
    elapsed: float
    attempts: int


def refuse_timeout(timeout: object) -> None:
    """Raise InvalidArgumentError for a timeout that is no time."""
    if timeout is not None and not POSITIVE.fits(timeout):
        raise InvalidArgumentError("give seconds, more than 0, or None for the default", parameter="timeout")


def _refuse_policy(retry: object) -> None:
    if retry is not None and not isinstance(retry, RetryPolicy):
        raise InvalidArgumentError("give a RetryPolicy, or None for the suite's", parameter="retry")


@attrs.frozen(kw_only=True)
class Options:
    """What a facade's `with_options`, or a single call, may set. timeout: seconds for the whole call.

    within_a_call: made for another call, such as its login, and so not refused while a closing suite waits for that.
    headers: of the request, beside those that the operation has.
    """

    timeout: float | None = attrs.field(default=None, validator=lambda _, __, timeout: refuse_timeout(timeout))
    retry: RetryPolicy | None = attrs.field(default=None, validator=lambda _, __, retry: _refuse_policy(retry))
    observe: Callable[[Exchanged], None] | None = None
    within_a_call: bool = False
    headers: Mapping[str, str] | None = attrs.field(default=None, repr=False)


@attrs.define(kw_only=True)
class Endpoint:
    """One service as the transport sees it. host, port: of its base URL, for events."""

    service: Service
    base_url: str | None
    limits: Limits
    credentials: TokenCache | None = None
    host: str = attrs.field(init=False)
    port: int = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        url = URL(self.base_url or "")
        self.host, self.port = url.host or "", url.port or 0


@attrs.define(kw_only=True, eq=False)
class Call(Generic[R]):
    """One call under way.

    number: in this process. detailed: whether anybody wants to know of what goes well. deadline: in the event loop's
    time; NEVER while an answer flows that only its pauses bound. retry_until: the same for the beginning of another
    attempt. unknown: an attempt may have been acted upon. renewed: the one replay with a fresh credential was made.
    consumed: the body can't be sent again. keep_open: the reader of a stream closes the answer. looked: proof was
    looked for in vain, for the whole settle time. own: what a source, a destination or a callback of the caller's
    raised: perhaps an error of ours, but of another call.

    Of the attempt under way: tried_at, when it began (monotonic seconds); sent_at, from when something may have left,
    None before; status, the answer's; probe, its number as the circuit breaker's probe, 0 for none; timed_out, whether
    our own bound ended it; unfed, whether that was while the caller's source gave nothing.
    """

    number: int
    events: Events
    detailed: bool
    operation: Operation[R]
    endpoint: Endpoint
    path: str = attrs.field(repr=False)
    body: RequestBody | None
    options: Options
    policy: RetryPolicy
    receive: Receive[R] | None
    proof: Proof[R] | None
    started_at: float
    deadline: float
    retry_until: float
    attempts: int = 0
    unknown: bool = False
    renewed: bool = False
    consumed: bool = False
    keep_open: bool = False
    looked: bool = False
    own: Exception | None = None
    credential: Credential | None = None
    tried_at: float = 0.0
    sent_at: float | None = None
    status: int | None = None
    probe: int = 0
    timed_out: bool = False
    unfed: bool = False

    def begin_attempt(self, now: float) -> None:
        """Forget the attempt before."""
        self.tried_at, self.sent_at, self.status, self.probe = now, None, None, 0
        self.timed_out = self.unfed = False
        if self.deadline == NEVER:  # what flowed has ended: until an answer flows again, the call's own time holds
            self.deadline = self.retry_until

    def tell(self, kind: type[CallEvent], **details: Any) -> None:
        """Emit an event of this call."""
        operation, endpoint = self.operation, self.endpoint
        event = kind(
            call=self.number,
            operation=operation.name,
            service=operation.service.value,
            method=operation.method,
            path=operation.path,
            host=endpoint.host,
            port=endpoint.port,
            **details,
        )
        self.events.emit(event)

    def tell_skipped(self, elements: int) -> None:
        """Emit the event of so many elements of lists that were null."""
        self.tell(NullElementsSkipped, elements=elements)

    def streams(self, status: int) -> bool:
        """Whether an answer of this status is left open for the reader of a stream."""
        return self.keep_open and 200 <= status < 300

    def may_repeat(self, error: BaseException) -> bool:
        """Whether another attempt may be made after this failure."""
        if not isinstance(error, DirectSuiteError) or self.consumed or error is self.own:
            return False
        if isinstance(error, CircuitOpenError | ClosedError):
            return False
        if error.operation not in (None, self.operation.name):
            return False  # its login failed, which had tries of its own
        if isinstance(error, ResponseDecodeError) and error.too_large:
            return False  # a repeat would be as large
        if error.outcome is Outcome.UNKNOWN:
            return self.operation.may_repeat
        return error.outcome in (Outcome.NOT_SENT, Outcome.REJECTED)

    def time_left(self) -> float:
        """Seconds in which another attempt has to begin."""
        return self.retry_until - asyncio.get_running_loop().time()
