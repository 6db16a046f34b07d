"""One call of an operation: its arguments and state, its options, its service and its confirmation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, Protocol, TypeVar

import aiohttp
import attrs
from yarl import URL

from directsuite.core.checks import POSITIVE
from directsuite.core.clock import Clock
from directsuite.core.credentials import Credential, Rejections, TokenCache
from directsuite.core.events import CallEvent, Events
from directsuite.core.limits import Limits
from directsuite.core.operation import Operation, Semantics, Service
from directsuite.core.retry import RetryPolicy
from directsuite.core.session import BufferedResponse, ResponseStream, Session
from directsuite.core.upload import RequestBody
from directsuite.errors import InvalidArgumentError, Outcome, OutcomeUnknownError
from directsuite.wire.codec import Codec

R = TypeVar("R")
E = TypeVar("E", bound=CallEvent)
T_co = TypeVar("T_co", covariant=True)

NO_DEADLINE = float("inf")

SETTLE_TIMEOUT = 30.0
"""The default of the settle time: seconds after which a request of unknown outcome can no longer take effect."""
# Time for the request of the last verification.
_LAST_VERIFICATION_SECONDS = 1.0
_MAX_RESERVED_SHARE = 2 / 3

Receive = Callable[[ResponseStream, Callable[[], None]], Awaitable[R]]
"""Reads a successful response as a stream. It calls its second argument whenever it makes progress, which extends the
timeout of the attempt.
"""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class Confirmation(Generic[R]):
    """The verification after an unknown outcome: finds out whether the operation happened."""

    verify: Callable[[], Awaitable[R | None]]
    """Returns the response if the operation is proven to have happened, otherwise None."""
    seconds: float = 0.0
    """How long to repeat the verification, because the request may still arrive. 0: verify once."""
    reserve: float | None = None
    """Seconds of the call's time to reserve for verification. None: `seconds`, and time for the last request."""
    refine_error: Callable[[OutcomeUnknownError], OutcomeUnknownError] | None = None
    """Returns the error to raise, to which it may add what the verification found. None: raise the error unchanged."""

    def compute_reserve(self, time_left: float) -> float:
        """Return the seconds to reserve for verification: at most two thirds of `time_left`."""
        seconds = self.seconds + _LAST_VERIFICATION_SECONDS if self.reserve is None else self.reserve
        return min(seconds, time_left * _MAX_RESERVED_SHARE)


class StreamReader(Protocol[T_co]):
    """Parses a response incrementally, while it is received."""

    @property
    def pending(self) -> int:
        """The number of buffered bytes that do not form a complete element yet."""
        ...

    @property
    def skipped(self) -> Mapping[str, int]:
        """The number of values that could not be read, by JSON path."""
        ...

    def feed(self, piece: bytes) -> Iterator[T_co]:
        """Yield the elements that `piece` completes. Raises MismatchError if the response is malformed."""
        ...

    def finish(self) -> Iterable[T_co]:
        """Return the elements that are complete only at the end of the response.

        Raises the error that the response reports, or MismatchError if it is malformed.
        """
        ...


@attrs.frozen(kw_only=True, repr=False, eq=False)
class ExchangeInfo:
    """The raw response of a call, for `Options.observe`. The body of a streamed response is empty."""

    response: BufferedResponse
    elapsed: float
    """Seconds from the start of the call until this response."""
    attempts: int


SKIP_DECODING = object()
"""Sentinel that an observer returns if the response need not be decoded."""


def validate_timeout(timeout: object) -> None:
    """Raise InvalidArgumentError unless `timeout` is None or a finite number of seconds greater than 0."""
    if timeout is not None and not POSITIVE.predicate(timeout):
        raise InvalidArgumentError(
            "give a number of seconds greater than 0, or None for the default", parameter="timeout"
        )


def _validate_policy(retry: object) -> None:
    if retry is not None and not isinstance(retry, RetryPolicy):
        raise InvalidArgumentError("give a RetryPolicy, or None for the suite's", parameter="retry")


@attrs.frozen(kw_only=True, repr=False, eq=False)
class Options:
    """Options that a facade's `with_options`, or a single call, can set."""

    timeout: float | None = attrs.field(default=None, validator=lambda _, __, timeout: validate_timeout(timeout))
    """Timeout of the complete call, in seconds. None: that of the suite."""
    retry: RetryPolicy | None = attrs.field(default=None, validator=lambda _, __, retry: _validate_policy(retry))
    """The retry policy of the call. None: that of the suite."""
    observe: Callable[[ExchangeInfo], object] | None = None
    """Called with each response before it is decoded. If it returns SKIP_DECODING for a successful response, the call
    returns an empty response.
    """
    strict_paths: frozenset[str] = frozenset()
    """The JSON paths at which an unreadable value is an error; see `Operation.strict_paths`."""
    job_finds_out: bool = False
    """True for a request of a signing job that finds out itself whether the request took effect."""
    nested: bool = False
    """True if the call is a step of another call. It is then allowed while closing waits for the calls in progress."""
    essential: bool = False
    """True for a login, the request of a token, and the deletion that a block must not omit. They are allowed until
    closing ends the connections.
    """
    headers: Mapping[str, str] | None = attrs.field(default=None, repr=False)
    """Headers to add to those of the operation."""


@attrs.define(kw_only=True, repr=False, eq=False)
class Endpoint:
    """One service: its base URL, limits and credentials."""

    service: Service
    base_url: str | None
    limits: Limits
    credentials: TokenCache | None = None
    rejections: Rejections = attrs.field(factory=Rejections, init=False)
    host: str = attrs.field(init=False)
    """The host name of the base URL, for events."""
    port: int = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        url = URL(self.base_url or "")
        if self.base_url is not None and not self.base_url.isascii():
            # A request line must be ASCII.
            self.base_url = str(url)
        self.host, self.port = url.host or "", url.port or 0


@attrs.frozen(kw_only=True, repr=False, eq=False)
class Environment:
    """The objects and settings that all attempts of a suite share."""

    session: Session
    clock: Clock
    events: Events
    codec: Codec
    timeout: float
    """Default timeout of a complete call, in seconds."""
    attempt_timeout: float
    """Timeout in seconds of one attempt of an operation that may be repeated, and of a pause in a streamed body."""
    settle: float
    """Default settle time, in seconds."""
    max_response_bytes: int
    shows_messages: bool
    """True if the texts of errors contain the service's own messages."""
    client_timeout: aiohttp.ClientTimeout
    """Limits only connecting, with FreshConnector also DNS and the proxy; `attempt` enforces the deadline. A failure to
    connect can be retried for every operation.
    """


@attrs.define(kw_only=True, repr=False, eq=False)
class Call(Generic[R]):
    """One call of an operation: its arguments, and the state that its attempts share."""

    number: int
    """The number of the call, unique in this process."""
    group: int
    """The number of the first call of its group, which may be this one."""
    operation: Operation[R]
    endpoint: Endpoint
    environment: Environment = attrs.field(repr=False)
    path: str = attrs.field(repr=False)
    body: RequestBody | None
    options: Options
    receive: Receive[R] | None
    confirm: Confirmation[R] | None
    keep_open: bool
    """True if the caller reads the response as a stream and closes it."""
    detailed: bool
    """True if events about successful steps must also be emitted, for listeners or the log."""
    started_at: float
    """The time at which the call started, in monotonic seconds."""
    deadline: float
    """The time before which another attempt must begin, on the event loop's clock."""
    end: float
    """The time at which the current attempt must end, on the event loop's clock: at first the deadline.

    If `Options.timeout` is None, progress of a streamed request extends it, and a streamed response sets it to
    NO_DEADLINE.
    """
    requests: int = 0
    """The number of HTTP requests made."""
    status: int | None = None
    """The HTTP status of the last request. None if it got no response."""
    is_unknown: bool = False
    """True if the service may have processed an attempt that failed."""
    is_consumed: bool = False
    """True if the body cannot be sent again, or the destination cannot accept another response."""
    caller_error: Exception | None = None
    """The exception raised by the caller's source, destination or callback, or None. A DirectSuiteError here belongs to
    a different call.
    """
    is_verified: bool = False
    """True if the response was lost, but the side effect is proven."""
    credential: Credential | None = None
    """The credential of the last attempt, if any."""
    was_backing_off: bool = False
    """True if the last attempt needed a new credential during the back-off after an earlier fetch."""
    has_renewed_credential: bool = False
    """True if the call has used its only replay with a new credential."""
    has_verified_without_proof: bool = False
    """True if verification ran for the complete settle time (`Confirmation.seconds`) without proof that the operation
    happened.
    """

    def emit(self, kind: type[E], **details: Any) -> E:
        """Emit an event about this call. Return the event as it is logged.

        details: the fields that the kind adds to those of CallEvent.
        """
        operation, endpoint = self.operation, self.endpoint
        event = kind(
            call=self.number,
            group=self.group,
            operation=operation.name,
            service=operation.service.value,
            method=operation.method,
            path=operation.path,
            host=endpoint.host,
            port=endpoint.port,
            **details,
        )
        logged = event
        if operation.semantics is Semantics.SAFE and details.get("outcome") is Outcome.UNKNOWN:
            no_outcome: dict[str, Any] = {"outcome": None}  # a read has no effect that could be unknown
            logged = attrs.evolve(event, **no_outcome)
        self.environment.events.emit(event, logged=logged)
        return logged

    def measure_elapsed(self) -> float:
        """Return the seconds since the call started."""
        return self.environment.clock.monotonic() - self.started_at

    def compute_time_left(self) -> float:
        """Return the seconds until the deadline, negative after it."""
        return self.deadline - self.environment.session.now()
