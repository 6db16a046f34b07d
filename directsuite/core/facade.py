"""The base class of all facades, with options and raw responses.

A facade is the public object for one service, with one method per operation. A view is a copy with other options.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Generic, Self, TypeVar

import attrs

from directsuite.core.call import SKIP_DECODING, Confirmation, Environment, ExchangeInfo, Options, Receive
from directsuite.core.checks import DURATION
from directsuite.core.operation import Operation
from directsuite.core.privacy import scrub_class
from directsuite.core.retry import RetryPolicy
from directsuite.core.transport import Transport
from directsuite.core.upload import RequestBody
from directsuite.errors import InvalidArgumentError
from directsuite.wire.models import Model

R = TypeVar("R")
T = TypeVar("T")


@attrs.frozen(kw_only=True, repr=False)
class RawResponse(Generic[T]):
    """The return value of a method, with details of the HTTP response that contained it."""

    value: T
    status: int
    headers: Mapping[str, str]
    elapsed: float
    """The time of all attempts together, in seconds."""
    attempts: int

    def __repr__(self) -> str:
        return f"RawResponse(status={self.status}, elapsed={self.elapsed:.3f}, attempts={self.attempts})"


class StopPolling(TimeoutError):  # noqa: N818  named like StopIteration
    """Raised by `Confirmation.verify` if more requests would show nothing new. It ends the verification."""


class Facade:
    """The public interface of one service, with one method per operation.

    Creating one costs little. Any number of tasks may share it.
    """

    def __init__(self, transport: Transport, options: Options | None = None) -> None:
        self._transport = transport
        self._options = options or Options()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        scrub_class(cls)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of a suite that is {self.environment.session.state}>"

    def with_options(self, *, timeout: float | None = None, retry: RetryPolicy | None = None) -> Self:
        """Return a view with a different timeout or retry policy.

        timeout: seconds for each complete call. None: unchanged.
        retry: the retry policy. None: unchanged.

        Raises InvalidArgumentError if either is invalid.
        """
        given = {"timeout": timeout, "retry": retry}
        return self._evolve(**{name: value for name, value in given.items() if value is not None})

    def resolve_timeout(self, timeout: float | None = None) -> float:
        """Return the timeout of a complete call in seconds. For internal use.

        timeout: timeout of the call, in seconds. None: that of the facade or the suite.

        Raises InvalidArgumentError if it is not positive.
        """
        seconds = self._options_with_timeout(timeout).timeout
        return self.environment.timeout if seconds is None else seconds

    def start_timeout(self, timeout: float | None) -> Callable[[], float | None]:
        """Return a function that returns the seconds left of a timeout that starts now. For internal use.

        timeout: as for `resolve_timeout`. If the facade has none either, the function returns None.
        """
        seconds, now = self._options_with_timeout(timeout).timeout, asyncio.get_running_loop().time
        if seconds is None:
            return lambda: None
        end = now() + seconds
        return lambda: max(0.001, end - now())

    def resolve_settle(self, settle: float | None = None) -> float:
        """Return the settle time in seconds. For internal use.

        settle: settle time of the call, in seconds. None: that of the suite.

        Raises InvalidArgumentError if it is negative or not a number.
        """
        if settle is not None and not (DURATION.predicate(settle) and settle >= 0):
            text = "give a number of seconds, 0 or more, or None for the default"
            raise InvalidArgumentError(text, parameter="settle")
        return self.environment.settle if settle is None else settle

    @property
    def environment(self) -> Environment:
        """The suite's clock, session and events. For internal use."""
        return self._transport.environment

    @property
    def with_raw_response(self) -> RawResponses:
        """The same methods, each returning a RawResponse: the value with status, headers, elapsed time and attempts."""
        return RawResponses(self)

    def _evolve(self, **options: Any) -> Self:
        """Return a view with other values of these fields of Options."""
        facade = copy.copy(self)
        facade._options = attrs.evolve(self._options, **options)
        return facade

    def with_observer(self, observe: Callable[[ExchangeInfo], object]) -> Self:
        """Return a view that also calls `observe` with each response before it is decoded. For internal use.

        observe: may return SKIP_DECODING. The call then returns an empty response.

        An existing observer is called first.
        """
        earlier = self._options.observe

        def observe_both(exchanged: ExchangeInfo) -> object:
            results = (None if earlier is None else earlier(exchanged), observe(exchanged))
            return SKIP_DECODING if SKIP_DECODING in results else None

        return self._evolve(observe=observe if earlier is None else observe_both)

    def _as_nested(self) -> Self:
        """Return a view for calls made by another call, which are allowed while closing waits for that call."""
        return self._evolve(nested=True)

    def with_strict_paths(self, paths: frozenset[str]) -> Self:
        """Return a view whose calls raise an error if a value at any of `paths` cannot be read. For internal use."""
        return self._evolve(strict_paths=paths)

    def with_job_finds_out(self) -> Self:
        """Return a view for a signing job, which finds out whether a request took effect. For internal use."""
        return self._evolve(job_finds_out=True)

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
            options=self._options if timeout is None else self._options_with_timeout(timeout),
            prepare=prepare,
            receive=receive,
            confirm=confirm,
        )

    def _encode_body(self, request: Model | list[Model]) -> RequestBody:
        return RequestBody.from_bytes(self.environment.codec.encode(request))

    def _options_with_timeout(self, timeout: float | None) -> Options:
        return self._options if timeout is None else attrs.evolve(self._options, timeout=timeout)


class RawResponses:
    """The methods of a facade, returning raw responses: `suite.signing.with_raw_response.get_doc_info(...)`.

    The details are those of the last request of the method. Iterators are not available. A method raises ValueError if
    it succeeds without a request.
    """

    def __init__(self, facade: Facade) -> None:
        self._facade = facade

    def __getattr__(self, name: str) -> Callable[..., Awaitable[RawResponse[Any]]]:
        if name.startswith("_") or not inspect.iscoroutinefunction(getattr(type(self._facade), name, None)):
            raise AttributeError(f"{type(self._facade).__name__} has no awaitable method {name!r}")

        async def call(*args: Any, **kwargs: Any) -> RawResponse[Any]:
            seen: list[ExchangeInfo] = []
            calling = getattr(self._facade.with_observer(seen.append), name)(*args, **kwargs)
            args, kwargs = (), {}  # tracebacks can include local variables
            value = await calling
            if not seen:
                raise ValueError(f"{name} sent no request, so no raw response is available")
            return RawResponse(
                value=value,
                status=seen[-1].response.status,
                headers=seen[-1].response.headers,
                elapsed=seen[-1].elapsed,
                attempts=seen[-1].attempts,
            )

        call.__name__ = name
        return call
