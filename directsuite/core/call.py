"""What a call is given, and what it may be given: frozen records."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, Protocol, TypeVar

import attrs
from yarl import URL

from directsuite.core.checks import POSITIVE
from directsuite.core.credentials import TokenCache
from directsuite.core.events import CallEvent
from directsuite.core.limits import Limits
from directsuite.core.operation import Operation, Service
from directsuite.core.response import Answer, ResponseStream
from directsuite.core.retry import RetryPolicy
from directsuite.core.upload import RequestBody
from directsuite.errors import InvalidArgumentError, OutcomeUnknownError

R = TypeVar("R")
T_co = TypeVar("T_co", covariant=True)

SETTLE_TIMEOUT = 30.0
"""Seconds for which a request of unknown outcome may still arrive."""
_SPARE = 1.0  # seconds beyond the settle time, so that the last request finds some
_MOST_OF_IT = 2 / 3

Receive = Callable[[ResponseStream, Callable[[], None]], Awaitable[R]]
"""Reads a good answer itself, instead of whole; its second argument is called at every sign of life."""


@attrs.frozen(kw_only=True)
class Confirmation(Generic[R]):
    """How to find out whether an operation of unknown outcome happened."""

    verify: Callable[[], Awaitable[R | None]]
    """Gives the response where it did, None where nothing shows it (yet)."""
    seconds: float = 0.0
    """How long to go on verifying, since the request may still be on its way; 0 for once."""
    reserve: float | None = None
    """Seconds of the call's time that its request has to leave for that; None for as many as it takes."""
    verdict: Callable[[OutcomeUnknownError], OutcomeUnknownError] | None = None
    """Gives the error that the caller gets instead, where verifying has seen more."""

    def reserve_from(self, time_left: float) -> float:
        """Seconds, of those that a call has left, that are reserved for verifying."""
        seconds = self.seconds + _SPARE if self.reserve is None else self.reserve
        return min(seconds, time_left * _MOST_OF_IT)


class StreamReader(Protocol[T_co]):
    """Reads an answer while it comes."""

    @property
    def pending(self) -> int:
        """Bytes that it keeps since they are not whole yet."""
        ...

    @property
    def skipped(self) -> Mapping[str, int]:
        """The number of values that it could not read, by their JSON path."""
        ...

    def feed(self, piece: bytes) -> Iterator[T_co]:
        """What is whole by now. Raises MismatchError."""
        ...

    def finish(self) -> Iterable[T_co]:
        """Return what only the end of the response has shown. Raises the error that the response turns out to be."""
        ...


@attrs.frozen(kw_only=True)
class Exchanged:
    """How a call went, for those who ask for the raw answer."""

    answer: Answer
    elapsed: float
    """Seconds."""
    attempts: int


NO_MORE = object()
"""What an observer gives that knows the answer already."""


def refuse_timeout(timeout: object) -> None:
    """Raise InvalidArgumentError for a timeout that is no time."""
    if timeout is not None and not POSITIVE.fits(timeout):
        raise InvalidArgumentError("give seconds, more than 0, or None for the default", parameter="timeout")


def _refuse_policy(retry: object) -> None:
    if retry is not None and not isinstance(retry, RetryPolicy):
        raise InvalidArgumentError("give a RetryPolicy, or None for the suite's", parameter="retry")


@attrs.frozen(kw_only=True)
class Options:
    """What a facade's `with_options`, or a single call, may set."""

    timeout: float | None = attrs.field(default=None, validator=lambda _, __, timeout: refuse_timeout(timeout))
    """Seconds for the whole call."""
    retry: RetryPolicy | None = attrs.field(default=None, validator=lambda _, __, retry: _refuse_policy(retry))
    observe: Callable[[Exchanged], object] | None = None
    """Called with each answer before it is decoded; NO_MORE from it gives the operation's empty response instead."""
    strict_paths: frozenset[str] = frozenset()
    """Those of the operations; see `Operation.strict_paths`."""
    within_a_call: bool = False
    """It is made for another call, such as its login: not refused while a closing suite waits for that one."""
    headers: Mapping[str, str] | None = attrs.field(default=None, repr=False)
    """Of the request, beside those that the operation has."""


@attrs.define(kw_only=True)
class Endpoint:
    """One service as the transport sees it."""

    service: Service
    base_url: str | None
    limits: Limits
    credentials: TokenCache | None = None
    host: str = attrs.field(init=False)
    """Of the base URL, for events."""
    port: int = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        url = URL(self.base_url or "")
        if self.base_url is not None and not self.base_url.isascii():
            self.base_url = str(url)  # percent-encoded, as it has to be in a request line
        self.host, self.port = url.host or "", url.port or 0


@attrs.frozen(kw_only=True, eq=False)
class Call(Generic[R]):
    """One call of an operation, as it was asked for."""

    number: int
    """In this process, for events."""
    operation: Operation[R]
    endpoint: Endpoint
    path: str = attrs.field(repr=False)
    body: RequestBody | None
    options: Options
    receive: Receive[R] | None
    confirm: Confirmation[R] | None
    keep_open: bool
    """A reader of a stream closes the answer."""
    detailed: bool
    """Some listener wants to know of what goes well."""
    started_at: float
    """Monotonic seconds."""
    deadline: float
    """In the event loop's time. Another attempt has to begin before it."""

    def event(self, kind: type[CallEvent], **details: Any) -> CallEvent:
        """An event of this call."""
        operation, endpoint = self.operation, self.endpoint
        return kind(
            call=self.number,
            operation=operation.name,
            service=operation.service.value,
            method=operation.method,
            path=operation.path,
            host=endpoint.host,
            port=endpoint.port,
            **details,
        )

    def time_left(self) -> float:
        """Seconds in which another attempt has to begin."""
        return self.deadline - asyncio.get_running_loop().time()
