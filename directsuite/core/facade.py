"""What the facades of all services share: options, raw answers, and what they may use of the core."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Generic, Self, TypeVar

import attrs

from directsuite.core.call import NO_MORE, Confirmation, Exchanged, Options, Receive
from directsuite.core.clock import Clock
from directsuite.core.events import Event
from directsuite.core.operation import Operation
from directsuite.core.privacy import scrub_class
from directsuite.core.retry import RetryPolicy
from directsuite.core.transport import Transport
from directsuite.core.upload import RequestBody
from directsuite.wire.models import Model

R = TypeVar("R")
T = TypeVar("T")


@attrs.frozen(kw_only=True, repr=False)
class RawResponse(Generic[T]):
    """A method's value with the HTTP answer that it came in."""

    value: T
    status: int
    headers: Mapping[str, str]
    elapsed: float
    """Seconds, all attempts together."""
    attempts: int

    def __repr__(self) -> str:
        return f"RawResponse(status={self.status}, elapsed={self.elapsed:.3f}, attempts={self.attempts})"


@attrs.frozen
class Runtime:
    """What services, synchronisations, jobs and commands use of a suite's core beside its calls."""

    clock: Clock
    sleep: Callable[[float], Awaitable[None]]
    """Lets so many seconds pass by the clock. Raises ClosedError where the suite is closed before."""
    emit: Callable[[Event], None]
    """Tells the suite's listeners, and its log, of an event."""
    is_closed: Callable[[], bool]
    """Gives True once closing has begun."""

    @classmethod
    def of(cls, transport: Transport) -> Self:
        """What the facades of a transport use."""
        env, session = transport.environment, transport.environment.session
        return cls(env.clock, session.sleep, env.events.emit, lambda: session.closed)


class NothingMoreToSeeError(TimeoutError):
    """Raised by a Confirmation's `verify` when asking on would show no more: for the transport its time is over."""


class Facade:
    """One service, for people: a method per operation. Cheap to make, shared by any number of tasks."""

    def __init__(self, transport: Transport, options: Options | None = None) -> None:
        self._transport = transport
        self._options = options or Options()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        scrub_class(cls)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of a suite that is {self._transport.environment.session.state}>"

    def with_options(self, *, timeout: float | None = None, retry: RetryPolicy | None = None) -> Self:
        """The same facade with another timeout (seconds for each whole call) or retry policy."""
        options = self._options
        if timeout is not None:
            options = attrs.evolve(options, timeout=timeout)
        return self._with(options if retry is None else attrs.evolve(options, retry=retry))

    def time_limit(self, timeout: float | None = None) -> float:
        """Return the seconds that a complete call has if it is given this timeout. For the package's own use.

        Raises InvalidArgumentError.
        """
        seconds = self._timed(timeout).timeout
        return self._transport.timeout if seconds is None else seconds

    @property
    def runtime(self) -> Runtime:
        """The suite's clock, sleep and events, for the package's own use."""
        return Runtime.of(self._transport)

    @property
    def with_raw_response(self) -> RawView:
        """The same methods, each giving a RawResponse: the value with status, headers, elapsed time and attempts."""
        return RawView(self)

    def _with(self, options: Options) -> Self:
        facade = copy.copy(self)
        facade._options = options
        return facade

    def observed(self, observe: Callable[[Exchanged], object]) -> Self:
        """Return a view that also calls `observe` with how each of its calls went; see `Options`.

        For the package's own use. An observer that the facade already has is called first.
        """
        earlier = self._options.observe

        def observe_both(exchanged: Exchanged) -> object:
            """Return NO_MORE if one of them does."""
            results = (None if earlier is None else earlier(exchanged), observe(exchanged))
            return NO_MORE if NO_MORE in results else None

        return self._with(attrs.evolve(self._options, observe=observe if earlier is None else observe_both))

    def _within_a_call(self) -> Self:
        """A view for looks at what became of a call: not refused while a closing suite waits for that call."""
        return self._with(attrs.evolve(self._options, within_a_call=True))

    def requiring(self, paths: frozenset[str]) -> Self:
        """Return a view in which values at these paths are errors if they cannot be read. For the package's own use."""
        return self._with(attrs.evolve(self._options, strict_paths=paths))

    def _call(
        self,
        operation: Operation[R],
        *segments: str,
        body: RequestBody | None = None,
        timeout: float | None = None,
        prepare: Callable[[], Awaitable[RequestBody]] | None = None,
        receive: Receive[R] | None = None,
        confirm: Confirmation[R] | None = None,
    ) -> Coroutine[Any, Any, R]:
        if self._options.strict_paths:
            operation = attrs.evolve(operation, strict_paths=self._options.strict_paths)
        return self._transport.call(
            operation,
            *segments,
            body=body,
            options=self._timed(timeout),
            prepare=prepare,
            receive=receive,
            confirm=confirm,
        )

    def _body(self, request: Model | list[Model]) -> RequestBody:
        """The body of a request."""
        return RequestBody.of(self._transport.codec.encode(request))

    def _timed(self, timeout: float | None) -> Options:
        return self._options if timeout is None else attrs.evolve(self._options, timeout=timeout)


class RawView:
    """A facade's methods by name, for their raw answers: `suite.signing.with_raw_response.get_doc_info(...)`.

    The answer is that of the method's last request. Iterators make many, and have no raw form.
    """

    def __init__(self, facade: Facade) -> None:
        self._facade = facade

    def __getattr__(self, name: str) -> Callable[..., Awaitable[RawResponse[Any]]]:
        if name.startswith("_") or not inspect.iscoroutinefunction(getattr(type(self._facade), name, None)):
            raise AttributeError(f"{type(self._facade).__name__} has no awaitable method {name!r}")

        async def call(*args: Any, **kwargs: Any) -> RawResponse[Any]:
            seen: list[Exchanged] = []
            calling = getattr(self._facade.observed(seen.append), name)(*args, **kwargs)
            args, kwargs = (), {}  # the frame may stand in a traceback, and holds nothing of what was asked
            value = await calling
            if not seen:
                raise ValueError(f"{name} answered without a request: there is no raw answer")
            return RawResponse(
                value=value,
                status=seen[-1].answer.status,
                headers=seen[-1].answer.headers,
                elapsed=seen[-1].elapsed,
                attempts=seen[-1].attempts,
            )

        call.__name__ = name
        return call
