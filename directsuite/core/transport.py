"""The one way to the network.

    call ── attempt ─► response
              │ fails
              ├─ NOT_SENT, REJECTED ─────► again, as the retry policy says
              ├─ UNKNOWN, may repeat ────► again
              ├─ UNKNOWN, has effects ───► settle: look for proof, else OutcomeUnknownError
              └─ FAILED ─────────────────► the typed error

One deadline holds over token wait, queue, attempts, bodies and back-off.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from types import TracebackType
from typing import Any, TypeVar, cast

import attrs

from directsuite.core.attempt import Attempt, Environment, History
from directsuite.core.call import Call, Confirmation, Endpoint, Options, Receive, StreamReader
from directsuite.core.clock import Clock
from directsuite.core.events import CallFinished, CallStarted, OutcomeLeftUnknown, RetryScheduled, ValuesSkipped
from directsuite.core.operation import Operation, Semantics, Service
from directsuite.core.outcome import asks_for_new_credential, unreadable
from directsuite.core.retry import Backoff, RetryPolicy
from directsuite.core.session import NEVER
from directsuite.core.upload import RequestBody
from directsuite.errors import (
    CircuitOpenError,
    ClosedError,
    ConfigurationError,
    ConnectionLostError,
    DeadlineExceededError,
    DirectSuiteError,
    Outcome,
    OutcomeUnknownError,
    ResponseDecodeError,
    ServiceError,
    TransportError,
)
from directsuite.wire.parsing import MismatchError

R = TypeVar("R")
T = TypeVar("T")

_LARGEST_ELEMENT = 134_217_728
"""Bytes of a stream that may be kept until they are a whole element; `max_response_bytes` if that is more."""
_NUMBERS = itertools.count(1)


class Transport:
    """Calls operations of the four services over one pool of connections, from one event loop and process."""

    def __init__(self, endpoints: Mapping[Service, Endpoint], environment: Environment, *, retry: RetryPolicy) -> None:
        self._endpoints = endpoints
        self._retry = retry
        self.environment = environment
        self.timeout = environment.timeout
        self.codec = environment.codec

    def has(self, service: Service) -> bool:
        """Return True if the settings give a URL for this service."""
        return service in self._endpoints and self._endpoints[service].base_url is not None

    def require(self, service: Service) -> None:
        """Raise ConfigurationError unless this service has its URL, and the token or login that its calls carry."""
        endpoint = self._endpoints[service]
        if endpoint.base_url is None or (service is not Service.MESSAGING and endpoint.credentials is None):
            raise _incomplete("the suite", endpoint)

    async def call(
        self,
        operation: Operation[R],
        *segments: str,
        body: RequestBody | None = None,
        options: Options,
        prepare: Callable[[], Awaitable[RequestBody]] | None = None,
        receive: Receive[R] | None = None,
        confirm: Confirmation[R] | None = None,
    ) -> R:
        """Make one call. Return the response, or raise a typed error.

        prepare: makes the body, within the call's deadline. For bodies from files and other sources that may be slow.
        """
        call = self._call(operation, segments, body, options, receive=receive, confirm=confirm)
        segments, history = (), History(call.deadline)  # `segments` are gone, for tracebacks expose local variables
        with _UnderWay(call, history, self.environment):
            if prepare is not None:
                call = attrs.evolve(call, body=await self._prepare_body(call, prepare))
            try:
                return await Attempt(self.environment, call, history).run()  # most calls end here
            except DirectSuiteError as error:
                failure = error
            try:
                return await self._more_attempts(call, history, failure)
            except DirectSuiteError as error:
                if error is history.own_error:
                    raise
                failure = error
            settled = await self._settle(call, history, failure)
            if settled:
                return settled[0]
            raise self._verdict(call, history, failure).with_traceback(None)  # the caller's line, without the way here

    async def stream(
        self,
        operation: Operation[Any],
        *segments: str,
        body: RequestBody | None = None,
        options: Options,
        reader: StreamReader[T],
    ) -> AsyncGenerator[T]:
        """What `reader` finds in a good answer while it comes. Failures before its first byte are tried again.

        A stream has no total time-out unless `options.timeout` is set: a pause of `attempt_timeout` seconds ends it.
        """
        env = self.environment
        kept_open = cast("Operation[Attempt[Any]]", operation)  # such a call gives the attempt, whose answer goes on
        call = self._call(kept_open, segments, body, options, keep_open=True)
        segments, history = (), History(call.deadline)  # as in `call`
        largest = max(env.max_response_bytes, _LARGEST_ELEMENT)
        attempt: Attempt[Any] | None = None
        with _UnderWay(call, history, env):
            try:
                try:
                    attempt = await Attempt(env, call, history).run()
                except DirectSuiteError as error:
                    attempt = await self._more_attempts(call, history, error)
                while chunk := await attempt.next_chunk():
                    for element in reader.feed(chunk):
                        yield element
                    if reader.pending > largest:
                        raise _too_large(operation, largest)
                for element in reader.finish():
                    yield element
                return
            except DirectSuiteError as error:
                failure = error
            except MismatchError as mismatch:
                failure = unreadable(operation, mismatch)
            finally:
                chunk = b""  # tracebacks expose local variables
                if attempt is not None:
                    attempt.close()
                if reader.skipped:
                    env.events.emit(call.event(ValuesSkipped, paths=reader.skipped))
            raise self._verdict(call, history, failure).with_traceback(None)

    def polling(self, seconds: float) -> Polling:
        """Pauses for verifying during so many seconds; they raise ClosedError where the suite is closed."""
        return Polling(seconds, self.environment.clock, self.environment.session.sleep)

    def window(self, service: Service) -> int:
        """How many requests a listing keeps under way: twice the service's connections."""
        return 2 * self._endpoints[service].limits.connections

    def _call(
        self,
        operation: Operation[R],
        segments: tuple[str, ...],
        body: RequestBody | None,
        options: Options,
        *,
        receive: Receive[R] | None = None,
        confirm: Confirmation[R] | None = None,
        keep_open: bool = False,
    ) -> Call[R]:
        """The call, where it may be made here and now with the settings that there are."""
        env = self.environment
        env.session.check(within_a_call=options.within_a_call)
        endpoint = self._endpoints[operation.service]
        if endpoint.base_url is None or (operation.needs_credential and endpoint.credentials is None):
            raise _incomplete(operation.name, endpoint)
        timeout = options.timeout if options.timeout is not None else env.timeout
        return Call(
            number=next(_NUMBERS),
            operation=operation,
            endpoint=endpoint,
            path=operation.filled(segments),
            body=body,
            options=options,
            receive=receive,
            confirm=confirm,
            keep_open=keep_open,
            detailed=bool(env.events.listeners) or env.events.logger.isEnabledFor(logging.DEBUG),
            started_at=env.clock.monotonic(),
            deadline=env.session.timeouts.loop.time() + timeout,
        )

    async def _prepare_body(self, call: Call[Any], prepare: Callable[[], Awaitable[RequestBody]]) -> RequestBody:
        """Make the body of a call. Raise DeadlineExceededError if its source takes more than the call's time."""
        timeout = self.environment.session.timeouts.timeout_at(call.deadline)
        error: DirectSuiteError
        try:
            with timeout:
                return await prepare()
        except (TimeoutError, ConnectionAbortedError):
            about = call.operation.about
            if timeout.expired:
                text = "the call's time is up: its source gave nothing"
                error = DeadlineExceededError(text, outcome=Outcome.NOT_SENT, **about)
            elif timeout.aborted:
                error = ClosedError("the suite was closed while the call waited", outcome=Outcome.NOT_SENT, **about)
            else:
                raise  # the source's own
        error.elapsed = self.environment.clock.monotonic() - call.started_at
        raise error

    async def _more_attempts(self, call: Call[R], history: History, failure: DirectSuiteError) -> R:
        """After a first one that failed: at once where it only wanted a fresh credential, then by the retry policy."""
        if _renews(call, history, failure):
            try:
                return await self._attempt(call, history)
            except DirectSuiteError as error:
                failure = error
        if _may_repeat(call, history, failure):
            return await self._again(call, history, failure)
        raise failure

    async def _again(self, call: Call[R], history: History, failure: DirectSuiteError) -> R:
        """Attempts after a first failure, which tenacity is told of as its attempt 1."""
        env, first, loop = self.environment, [failure], asyncio.get_running_loop()
        leapt = 0.0  # seconds that a clock of tests passed over, of which the loop's deadline knows nothing

        async def sleep(seconds: float) -> None:
            nonlocal leapt
            began = loop.time()
            await env.session.sleep(seconds)
            leapt += max(0.0, began + seconds - loop.time())

        def scheduled(wait: float) -> None:
            env.events.emit(call.event(RetryScheduled, attempt=history.requests + 1, wait=wait))

        retrying = (call.options.retry or self._retry).retrying(
            may_repeat=lambda error: _may_repeat(call, history, error),
            time_left=lambda: call.time_left() - leapt,
            sleep=sleep,
            scheduled=scheduled,
            answer=env.session.wait,
        )
        async for attempt in retrying:
            with attempt:
                if first:
                    attempt.retry_state.start_time -= env.clock.monotonic() - call.started_at
                    raise first.pop()
                return await self._attempt(call, history)
        raise AssertionError("tenacity's loop ends by return or raise")

    async def _attempt(self, call: Call[R], history: History) -> R:
        """One attempt, and a second one outside the retry budget where it only wanted a fresh token or session."""
        while True:
            try:
                return await Attempt(self.environment, call, history).run()
            except ServiceError as refusal:
                if not _renews(call, history, refusal):
                    raise

    async def _settle(self, call: Call[R], history: History, failure: DirectSuiteError) -> tuple[R] | None:
        """The response of a call that turns out to have happened, or None: by proof, never by doing it again."""
        if isinstance(failure, OutcomeUnknownError):
            return None
        if failure.outcome is Outcome.UNKNOWN and not call.operation.may_repeat:
            return await self._confirm(call, history)
        refused = isinstance(failure, ServiceError) and failure.outcome is Outcome.FAILED
        if not (refused and history.is_unknown):
            return None
        # A repeat was refused after a first attempt of unknown outcome: perhaps because that one had done it.
        if isinstance(failure, ServiceError) and call.operation.done_answers & {failure.status, failure.code}:
            return (call.operation.response(),)
        return await self._confirm(call, history)

    async def _confirm(self, call: Call[R], history: History) -> tuple[R] | None:
        """The response that the lost answer would have given, or None. Within the call's deadline."""
        confirm = call.confirm
        if confirm is None:
            return None
        now = asyncio.get_running_loop().time()
        deadline = now + self.timeout if history.deadline == NEVER else history.deadline
        left = deadline - now
        polling = self.polling(min(confirm.seconds, left))
        with contextlib.suppress(TimeoutError):  # `verify` may raise it, too, when asking on would show no more
            async with asyncio.timeout_at(deadline):
                while True:
                    is_last = polling.is_over
                    try:
                        proven = await confirm.verify()
                    except ClosedError:
                        return None
                    except DirectSuiteError:  # the next time may show more
                        saw = False
                    else:
                        if proven is not None:
                            return (proven,)
                        saw = True
                    if is_last:
                        history.looked = saw and confirm.seconds <= left
                        return None
                    try:
                        await polling.pause()
                    except ClosedError:
                        return None
        return None

    def _verdict(self, call: Call[Any], history: History, failure: DirectSuiteError) -> DirectSuiteError:
        """The error that the caller gets, which says no more, and no less, than is known."""
        operation, error = call.operation, failure
        if isinstance(failure, OutcomeUnknownError):
            pass
        elif failure.outcome is Outcome.UNKNOWN and not operation.may_repeat:
            text = f"it may or may not have happened: {failure.explanation}"
            unknown = OutcomeUnknownError(text, how_to_find_out=operation.how_to_find_out, **operation.about)
            unknown.looked = history.looked
            unknown.__cause__ = failure
            error = unknown
        elif history.is_unknown and isinstance(failure, TransportError) and failure.outcome is Outcome.NOT_SENT:
            # So much for the last attempt; an earlier one may have been acted upon.
            kind = DeadlineExceededError if isinstance(failure, DeadlineExceededError) else ConnectionLostError
            text = f"an earlier attempt was sent and not answered; then {failure.explanation}"
            error = kind(text, outcome=Outcome.UNKNOWN, **operation.about)
            error.retry_after = failure.retry_after
            error.__cause__ = failure
        elif history.is_unknown and (
            failure.outcome is not Outcome.FAILED or operation.semantics is Semantics.IDEMPOTENT
        ):
            failure.outcome = Outcome.UNKNOWN  # what refuses the repeat says nothing of the attempt before
        if isinstance(error, OutcomeUnknownError) and call.confirm is not None and call.confirm.verdict is not None:
            error = call.confirm.verdict(error)
        for each in (failure, error):
            if each.operation in (None, operation.name):  # a login's error keeps its own figures
                each.operation, each.service = operation.name, operation.service
                each.attempts = history.requests
                each.elapsed = self.environment.clock.monotonic() - call.started_at
        return error


class _UnderWay:
    """Counts a call for as long as it lasts, and tells of its beginning and end."""

    __slots__ = ("_call", "_env", "_history")

    def __init__(self, call: Call[Any], history: History, environment: Environment) -> None:
        self._call = call
        self._history = history
        self._env = environment

    def __enter__(self) -> None:
        self._env.session.calls += 1
        if self._call.detailed:
            self._env.events.emit(self._call.event(CallStarted))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        session = self._env.session
        session.calls -= 1
        if session.calls == 0:
            session.idle()
        if error is not None:
            self._tell_failed(error)
        elif self._call.detailed:
            self._tell_finished()

    def _tell_failed(self, error: BaseException) -> None:
        operation = self._call.operation
        left = isinstance(error, asyncio.CancelledError | GeneratorExit)
        lost = left and self._history.is_unknown and not operation.may_repeat
        if lost or isinstance(error, OutcomeUnknownError):
            happened, how = False, operation.how_to_find_out
            if isinstance(error, OutcomeUnknownError):
                happened, how = error.happened, error.how_to_find_out
            self._env.events.emit(
                self._call.event(OutcomeLeftUnknown, cancelled=left, happened=happened, how_to_find_out=how)
            )
        self._tell_finished(
            error=None if isinstance(error, GeneratorExit) else type(error).__name__,
            outcome=Outcome.UNKNOWN if lost else getattr(error, "outcome", None),
            cancelled=left,
        )

    def _tell_finished(self, **details: Any) -> None:
        elapsed = self._env.clock.monotonic() - self._call.started_at
        self._env.events.emit(
            self._call.event(CallFinished, attempts=self._history.requests, elapsed=elapsed, **details)
        )


_BACKOFF = Backoff(0.5, 8.0)  # seconds between requests that verify


class Polling:
    """Pauses for asking again and again during so many seconds: ever longer ones, the last of them up to the end."""

    def __init__(self, seconds: float, clock: Clock, sleep: Callable[[float], Awaitable[None]]) -> None:
        self._clock = clock
        self._sleep = sleep
        self._end = clock.monotonic() + seconds
        self._pauses = 0

    @property
    def is_over(self) -> bool:
        """The time is over, so that asking now is the last time."""
        return self._clock.monotonic() >= self._end

    async def pause(self) -> None:
        """Return when it is time to ask again."""
        self._pauses += 1
        await self._sleep(min(_BACKOFF.after(self._pauses), max(0.0, self._end - self._clock.monotonic())))


def _may_repeat(call: Call[Any], history: History, error: BaseException) -> bool:
    """Return True if another attempt may be made after this failure."""
    if not isinstance(error, DirectSuiteError) or history.is_consumed or error is history.own_error:
        return False
    if isinstance(error, CircuitOpenError | ClosedError):
        return False
    if error.operation not in (None, call.operation.name):
        return False  # its login failed, which had tries of its own
    if isinstance(error, ResponseDecodeError) and error.too_large:
        return False  # a repeat would be as large
    if isinstance(error, ResponseDecodeError) and error.path in call.operation.strict_paths:
        return False  # the service has a value that cannot be read
    if error.outcome is Outcome.UNKNOWN:
        return call.operation.may_repeat
    return error.outcome in (Outcome.NOT_SENT, Outcome.REJECTED)


def _renews(call: Call[Any], history: History, failure: DirectSuiteError) -> bool:
    """Return True if the attempt failed for want of a fresh credential, which the next one is going to have."""
    if failure is history.own_error or not asks_for_new_credential(failure):
        return False
    cache = call.endpoint.credentials
    if cache is None or history.credential is None or history.is_renewed or not cache.renewable:
        failure.outcome = Outcome.FAILED
        return False
    cache.invalidate(history.credential.generation)
    history.is_renewed = not history.is_consumed  # else the body can't be sent again: the next call has the fresh one
    return history.is_renewed


def _too_large(operation: Operation[Any], limit: int) -> ResponseDecodeError:
    text = f"one element of the answer is larger than {limit} bytes: raise max_response_bytes"
    return ResponseDecodeError(text, too_large=True, operation=operation.name, service=operation.service)


def _incomplete(who: str, endpoint: Endpoint) -> ConfigurationError:
    service = endpoint.service
    if endpoint.base_url is None:
        name = "message" if service is Service.MESSAGING else service.value
        return ConfigurationError(
            f"{who} needs the {service} service's URL: set {name}_url in Settings, or DIRECTSUITE_{name.upper()}_URL"
        )
    if service is Service.REGISTRATION:
        return ConfigurationError(
            f"{who} needs a login: DirectSuite(login=Login(username, password)), "
            "or DIRECTSUITE_LOGIN_USERNAME and DIRECTSUITE_LOGIN_PASSWORD"
        )
    return ConfigurationError(f"{who} needs a token: DirectSuite(token=...), or DIRECTSUITE_TOKEN")
