"""Calls of operations: every request of the suite is made through `Transport`.

    call ── attempt ─► response
              │ fails
              ├─ NOT_SENT, REJECTED ─────► retried, as the retry policy allows
              ├─ UNKNOWN, repeatable ────► retried, as the retry policy allows
              ├─ UNKNOWN, otherwise ─────► verified: return the response if the operation is proven to have happened,
              │                            otherwise raise OutcomeUnknownError
              └─ FAILED ─────────────────► raise the typed error

NOT_SENT, REJECTED, UNKNOWN and FAILED are outcomes of an attempt (`errors.Outcome`). An operation is repeatable if a
second request does no harm (`operation.Semantics`).

One deadline applies to the complete call: waiting for a token and in queues, all attempts, their bodies, and the
waits between them.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import math
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, TypeVar, cast

from directsuite.core.attempt import Attempt
from directsuite.core.call import NO_DEADLINE, Call, Confirmation, Endpoint, Environment, Options, Receive, StreamReader
from directsuite.core.call_log import CALLS, log_finished
from directsuite.core.credentials import is_permanent_source_failure, record_retry
from directsuite.core.events import (
    CURRENT_GROUP,
    CallFinished,
    CallStarted,
    OutcomeLeftUnknown,
    RetryScheduled,
    ValuesSkipped,
    group_calls,
)
from directsuite.core.operation import Auth, Operation, Semantics, Service
from directsuite.core.outcome import find_failure_reason, find_loggable_code
from directsuite.core.retry import Backoff, RetryPolicy
from directsuite.core.session import make_closed_error
from directsuite.core.upload import RequestBody
from directsuite.errors import (
    AuthenticationError,
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

_MAX_ELEMENT_BYTES = 134_217_728
"""Maximum size of one element of a stream, unless `max_response_bytes` is larger."""
_HINT_JOB_FINDS_OUT = (
    "nothing, because the signing job finds out in this run or the next one, or logs that the document may be signed"
)
_CALL_NUMBERS = itertools.count(1)


class Transport:
    """Calls operations of the four services through one connection pool, in one event loop of one process."""

    def __init__(self, endpoints: Mapping[Service, Endpoint], environment: Environment, *, retry: RetryPolicy) -> None:
        self._endpoints = endpoints
        self._retry = retry
        self.environment = environment
        self.empty_variables: Iterable[str] = ()
        """Names of environment variables that are set but empty, for errors about missing settings."""

    def has_url(self, service: Service) -> bool:
        """Return True if the settings contain a URL for this service."""
        return service in self._endpoints and self._endpoints[service].base_url is not None

    def require_services(self, services: Iterable[Service]) -> None:
        """Raise ConfigurationError if a service has no URL, or has no token or login. The error names all of them.

        The messaging service needs neither token nor login.
        """
        missing: list[str] = []
        for service in services:
            needs_credential = service is not Service.MESSAGING
            missing += _iter_missing_settings(self._endpoints[service], needs_credential=needs_credential)
        if missing:
            raise self._make_missing_setting_error("the suite", missing)

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
        """Make one call. Return the decoded response.

        segments: the values of the path's parameters, in their order.
        prepare: creates the body, within the call's deadline. For sources that may be slow.
        receive: reads a successful response as a stream and returns the result. None: read and decode it completely.
        confirm: verifies whether the operation happened if its outcome is unknown. None: do not verify.

        Raises a DirectSuiteError if the call fails, and exceptions of the caller's source or destination unchanged. If
        the operation may not be repeated, an exception of the destination is the cause of a DirectSuiteError instead.
        """
        call = self._make_call(operation, segments, body, options, receive=receive, confirm=confirm)
        segments = ()  # tracebacks can include `segments`
        with _CallScope(call):
            if prepare is not None:
                call.body = await self._prepare_body(call, prepare)
            try:
                return await Attempt(call).run()  # most calls end here
            except DirectSuiteError as error:
                failure = error
            try:
                return await self._continue_attempts(call, failure)
            except DirectSuiteError as error:
                if error is call.caller_error:
                    raise
                failure = error
            settled = await self._find_proof(call, failure)
            if settled:
                call.is_verified = True
                return settled[0]
            # The traceback does not contain the frames of the attempts.
            raise self._make_final_error(call, failure).with_traceback(None)

    async def stream(
        self,
        operation: Operation[Any],
        *segments: str,
        body: RequestBody | None = None,
        options: Options,
        reader: StreamReader[T],
    ) -> AsyncGenerator[T]:
        """Yield the elements that `reader` finds in a successful response, while it is received.

        Failures are retried only until the headers of a successful response are received. A pause of `attempt_timeout`
        seconds ends the stream with an error. Only `options.timeout` limits its total time.

        Raises a DirectSuiteError if the call fails, among them ResponseDecodeError for an element that is malformed or
        too large.
        """
        env = self.environment
        # A call that keeps its response open returns the attempt, from which the body is read.
        kept_open = cast("Operation[Attempt[Any]]", operation)
        call = self._make_call(kept_open, segments, body, options, keep_open=True)
        segments = ()  # as in `call`
        largest = max(env.max_response_bytes, _MAX_ELEMENT_BYTES)
        attempt: Attempt[Any] = Attempt(call)
        with _CallScope(call):
            try:
                try:
                    await attempt.run()
                except DirectSuiteError as error:
                    attempt = await self._continue_attempts(call, error)
                while chunk := await attempt.read_chunk():
                    for element in reader.feed(chunk):
                        yield element
                    if reader.pending > largest:
                        text = f"one element of the response is larger than {largest} bytes: raise max_response_bytes"
                        raise ResponseDecodeError(text, too_large=True, **operation.error_context)
                for element in reader.finish():
                    yield element
                return
            except DirectSuiteError as error:
                failure = error
            except MismatchError as mismatch:
                failure = attempt.make_decode_error(mismatch)
            finally:
                chunk = b""  # tracebacks can include local variables
                attempt.close()
                if reader.skipped:
                    call.emit(ValuesSkipped, paths=reader.skipped)
            raise self._make_final_error(call, failure).with_traceback(None)

    def _make_missing_setting_error(self, who: str, missing: Iterable[str]) -> ConfigurationError:
        text = f"{who} needs {'; and '.join(dict.fromkeys(missing))}"
        for name in self.empty_variables:
            text = re.sub(rf"\b{re.escape(name)}\b", f"{name} (which is empty)", text)
        return ConfigurationError(text)

    def compute_max_in_flight(self, service: Service) -> int:
        """Return the maximum number of a listing's requests in progress: twice the service's connections."""
        return 2 * self._endpoints[service].limits.connections

    def _make_call(
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
        env = self.environment
        env.session.require_usable(nested=options.nested, essential=options.essential)
        endpoint = self._endpoints[operation.service]
        if endpoint.base_url is None or (endpoint.credentials is None and operation.needs_credential):
            missing = _iter_missing_settings(endpoint, needs_credential=operation.needs_credential)
            raise self._make_missing_setting_error(operation.name, missing)
        deadline = env.session.now() + (env.timeout if options.timeout is None else options.timeout)
        first = number = next(_CALL_NUMBERS)
        if (group := CURRENT_GROUP.get()) is not None:
            first = group.number = group.number or number
        return Call(
            number=number,
            group=first,
            operation=operation,
            endpoint=endpoint,
            environment=env,
            path=operation.build_path(segments),
            body=body,
            options=options,
            receive=receive,
            confirm=confirm,
            keep_open=keep_open,
            detailed=bool(env.events.listeners)
            or env.events.logger.isEnabledFor(logging.DEBUG)
            or CALLS.isEnabledFor(logging.INFO),
            started_at=env.clock.monotonic(),
            deadline=deadline,
            end=deadline,
        )

    async def _prepare_body(self, call: Call[Any], prepare: Callable[[], Awaitable[RequestBody]]) -> RequestBody:
        """Create the body.

        Raises DeadlineExceededError at the deadline, ClosedError if the suite is closed first, and exceptions of the
        source unchanged.
        """
        timeout = asyncio.timeout_at(call.deadline)
        error: DirectSuiteError
        try:
            return await self.environment.session.run(timeout, prepare())
        except (TimeoutError, ConnectionAbortedError) as raised:
            if not timeout.expired():
                raise  # the source itself raised it
            about = call.operation.error_context
            if isinstance(raised, TimeoutError):
                text = "the call's time is up: its source returned no bytes"
                error = DeadlineExceededError(text, outcome=Outcome.NOT_SENT, **about)
            else:
                error = ClosedError("the suite was closed while the call waited", outcome=Outcome.NOT_SENT, **about)
        raise error.set_call(call.number, call.group, call.requests, call.measure_elapsed())

    async def _continue_attempts(self, call: Call[R], failure: DirectSuiteError) -> R:
        if _try_renew_credential(call, failure):
            try:
                return await self._run_attempt(call)
            except DirectSuiteError as error:
                failure = error
        if _may_repeat(call, failure):
            return await self._retry_with_policy(call, failure)
        raise failure

    async def _retry_with_policy(self, call: Call[R], failure: DirectSuiteError) -> R:
        """Make further attempts under the retry policy. tenacity counts the failure so far as attempt 1."""
        env, first, loop = self.environment, [failure], asyncio.get_running_loop()
        # Seconds that a test clock skipped. The event loop's clock does not include them.
        leapt = 0.0

        async def sleep(seconds: float) -> None:
            nonlocal leapt
            if env.session.grace_ended and not call.options.essential:
                raise make_closed_error()
            began = loop.time()
            await env.session.sleep(seconds)
            leapt += max(0.0, began + seconds - loop.time())

        def emit_scheduled(error: BaseException | None, wait: float) -> None:
            _emit_scheduled(call, error, wait)
            if isinstance(error, DirectSuiteError):
                record_retry(error, wait)

        retrying = (call.options.retry or self._retry).make_retry_loop(
            may_repeat=lambda error: _may_repeat(call, error),
            time_left=lambda: call.compute_time_left() - leapt,
            sleep=sleep,
            on_scheduled=emit_scheduled,
            mentions_wait=not call.options.essential,
            await_result=env.session.wait,
        )
        async for attempt in retrying:
            with attempt:
                if first:
                    attempt.retry_state.start_time -= call.measure_elapsed()
                    raise first.pop()
                return await self._run_attempt(call)
        raise AssertionError("The loop of tenacity must end with return or raise.")

    async def _run_attempt(self, call: Call[R]) -> R:
        """Make an attempt, and once per call another one if a new token or session may help.

        tenacity does not count the second one.
        """
        while True:
            try:
                return await Attempt(call).run()
            except ServiceError as failure:
                if not _try_renew_credential(call, failure):
                    raise

    async def _find_proof(self, call: Call[R], failure: DirectSuiteError) -> tuple[R] | None:
        """Return the response, in a tuple, if a failed call is proven to have happened; otherwise None."""
        if isinstance(failure, OutcomeUnknownError):
            return None
        if failure.outcome is Outcome.UNKNOWN and not call.operation.may_repeat:
            return await self._verify_repeatedly(call)
        if not (isinstance(failure, ServiceError) and failure.outcome is Outcome.FAILED and call.is_unknown):
            return None
        # A retry was rejected after an attempt of unknown outcome, perhaps because that attempt succeeded.
        if call.operation.already_done_codes & {failure.status, failure.code}:
            return (call.operation.response(),)  # empty, because the response was lost
        return await self._verify_repeatedly(call)

    async def _verify_repeatedly(self, call: Call[R]) -> tuple[R] | None:
        """Verify whether the operation happened, until there is proof or the settle time or deadline ends.

        Return the lost response, in a tuple, or None without proof.
        """
        confirm = call.confirm
        if confirm is None:
            return None
        now = asyncio.get_running_loop().time()
        deadline = now + self.environment.timeout if call.end == NO_DEADLINE else call.end
        left = deadline - now
        polling = Polling(min(confirm.seconds, left), self.environment)
        # `verify` raises StopPolling, a TimeoutError, if further verification would be useless.
        with contextlib.suppress(TimeoutError, ClosedError):
            async with asyncio.timeout_at(deadline):
                while True:
                    is_last = polling.is_over
                    try:
                        with group_calls(call.group):
                            proven = await confirm.verify()
                    except ClosedError:
                        raise
                    except DirectSuiteError:  # the next verification may succeed
                        saw = False
                    else:
                        if proven is not None:
                            return (proven,)
                        saw = True
                    if is_last:
                        call.has_verified_without_proof = saw and confirm.seconds <= left
                        return None
                    await polling.pause()
        return None

    def _make_final_error(self, call: Call[Any], failure: DirectSuiteError) -> DirectSuiteError:
        """Return the error to raise: `failure`, or one with Outcome.UNKNOWN if any attempt may have had an effect."""
        operation, error = call.operation, failure
        if isinstance(failure, OutcomeUnknownError):
            pass
        elif failure.outcome is Outcome.UNKNOWN and not operation.may_repeat:
            text = f"it may or may not have happened: {failure.explanation}"
            unknown = OutcomeUnknownError(text, how_to_find_out=operation.how_to_find_out, **operation.error_context)
            unknown.looked = call.has_verified_without_proof
            unknown.reason = find_failure_reason(failure)
            unknown.__cause__ = failure
            error = unknown
        elif call.is_unknown and isinstance(failure, TransportError) and failure.outcome is Outcome.NOT_SENT:
            kind = DeadlineExceededError if isinstance(failure, DeadlineExceededError) else ConnectionLostError
            text = f"an earlier attempt was sent, but got no response. Then {failure.explanation}"
            error = kind(text, outcome=Outcome.UNKNOWN, **operation.error_context)
            error.reason, error.advice, error.retry_after = failure.reason, failure.advice, failure.retry_after
            error.__cause__ = failure
        elif call.is_unknown and (failure.outcome is not Outcome.FAILED or operation.semantics is Semantics.IDEMPOTENT):
            # The rejection of a retry does not show whether an earlier attempt succeeded.
            failure.outcome = Outcome.UNKNOWN
        if (
            isinstance(error, OutcomeUnknownError)
            and call.confirm is not None
            and call.confirm.refine_error is not None
        ):
            error = call.confirm.refine_error(error)
        (call.options.retry or self._retry).set_retry_after(error)
        for each in (failure, error):
            if isinstance(each, ServiceError):
                each.mention_message(shown=self.environment.shows_messages)
            # An error of the login already has the operation and attempts of the login.
            if each.operation in (None, operation.name):
                each.operation, each.service = operation.name, operation.service
                each.set_call(call.number, call.group, call.requests, call.measure_elapsed())
        return error


class _CallScope:
    """Context manager for a call in progress: counts it and emits its first and last event."""

    __slots__ = ("_call",)

    def __init__(self, call: Call[Any]) -> None:
        self._call = call

    def __enter__(self) -> None:
        self._call.environment.session.calls += 1
        if self._call.detailed:
            self._call.emit(CallStarted)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        session = self._call.environment.session
        session.calls -= 1
        if session.closed and not session.calls:
            session.idle.set()
        if error is not None:
            self._emit_failed(error)
        elif self._call.detailed:
            self._emit_finished()

    def _emit_failed(self, error: BaseException) -> None:
        operation = self._call.operation
        left = isinstance(error, asyncio.CancelledError | GeneratorExit)
        lost = left and self._call.is_unknown and not operation.may_repeat
        if lost or isinstance(error, OutcomeUnknownError):
            happened, how = False, operation.how_to_find_out
            if isinstance(error, OutcomeUnknownError):
                happened, how = error.happened, error.how_to_find_out
            job_finds_out = self._call.options.job_finds_out
            self._call.emit(
                OutcomeLeftUnknown,
                cancelled=left,
                happened=happened,
                how_to_find_out=_HINT_JOB_FINDS_OUT if job_finds_out else how,
                job_finds_out=job_finds_out,
            )
        self._emit_finished(
            error=None if isinstance(error, GeneratorExit) else type(error).__name__,
            outcome=Outcome.UNKNOWN if lost else getattr(error, "outcome", None),
            cancelled=left,
            code=find_loggable_code(error),
        )

    def _emit_finished(self, **details: Any) -> None:
        call = self._call
        elapsed = call.measure_elapsed()
        details |= {"attempts": call.requests, "elapsed": elapsed, "status": call.status, "verified": call.is_verified}
        log_finished(call.emit(CallFinished, **details))


_VERIFY_BACKOFF = Backoff(0.5, 8.0)


class Polling:
    """Pauses for polling during a number of seconds, each longer than the one before, up to 8 s.

    The last pause ends with the polling time.
    """

    def __init__(self, seconds: float, environment: Environment) -> None:
        self._clock = environment.clock
        self._sleep = environment.session.sleep
        self._end = self._clock.monotonic() + seconds
        self._pauses = 0

    @property
    def is_over(self) -> bool:
        """True if the polling time has ended, so the next request must be the last."""
        return self._clock.monotonic() >= self._end

    async def pause(self) -> None:
        """Wait until the next request is due. Raises ClosedError if the suite is closed first."""
        self._pauses += 1
        await self._sleep(
            min(_VERIFY_BACKOFF.compute_wait(self._pauses), max(0.0, self._end - self._clock.monotonic()))
        )


def _may_repeat(call: Call[Any], error: BaseException) -> bool:
    if not isinstance(error, DirectSuiteError) or call.is_consumed or error is call.caller_error:
        return False
    if isinstance(error, CircuitOpenError | ClosedError):
        return False
    if error.operation not in (None, call.operation.name) and not _is_waiting_for_back_off(call, error):
        return False  # the login or token request of the call failed, and was already retried
    if is_permanent_source_failure(error):
        return False
    if isinstance(error, ResponseDecodeError) and (error.too_large or error.path in call.operation.strict_paths):
        return False  # the next response would be as large, or contain the same unreadable value
    if error.outcome is Outcome.UNKNOWN:
        return call.operation.may_repeat
    return error.outcome in (Outcome.NOT_SENT, Outcome.REJECTED)


def _is_waiting_for_back_off(call: Call[Any], error: DirectSuiteError) -> bool:
    """Return True if a failed login or token request may be sent again when its back-off has ended."""
    cache = call.endpoint.credentials
    if cache is None or not cache.is_builtin or error.retry_after is None:
        return False
    # If the wait is too long, the retry loop says so in the error.
    return call.was_backing_off or error.retry_after >= call.compute_time_left()


def _try_renew_credential(call: Call[Any], failure: DirectSuiteError) -> bool:
    """Return True if another attempt with a new credential may be made.

    The service's next calls use a new credential, also if the body cannot be sent again. If the rejected one cannot be
    replaced, was already replaced once in this call, or is one of several that the service has rejected, the outcome of
    the failure becomes FAILED instead.
    """
    is_rejected = isinstance(failure, AuthenticationError) and failure.outcome is Outcome.REJECTED
    if failure is call.caller_error or not is_rejected:
        return False
    cache, credential = call.endpoint.credentials, call.credential
    if cache is None or credential is None or not cache.renewable:
        failure.outcome = Outcome.FAILED
        if cache is not None:
            failure.advice = cache.explain_rejection()
        return False
    wait, rejections = 0.0, call.endpoint.rejections
    if cache.is_current(credential):
        wait = rejections.record(credential, cache.clock.monotonic())
    if wait or call.has_renewed_credential:
        failure.outcome = Outcome.FAILED
        failure.advice = _ALSO_REJECTED[call.operation.auth]
        if wait:
            name = "session" if call.operation.auth is Auth.SESSION else "token"
            failure.advice += f". The first call after {math.ceil(wait)} s requests another {name}"
        return False
    if rejections.count == 1:
        cache.invalidate(credential.generation)  # also for other services: it may have been revoked
    # A consumed body cannot be sent again, but the next call will use a new credential.
    call.has_renewed_credential = not call.is_consumed
    if call.has_renewed_credential:
        _emit_scheduled(call, failure, 0.0)
    return call.has_renewed_credential


def _emit_scheduled(call: Call[Any], error: BaseException | None, wait: float) -> None:
    call.emit(
        RetryScheduled,
        attempt=call.requests + 1,
        wait=wait,
        error=type(error).__name__,
        reason=find_failure_reason(error),
        status=call.status,
    )


_ALSO_REJECTED = {
    Auth.BEARER: "the token source was called again, but its new token was also rejected. Check that it returns tokens "
    "for this service",
    Auth.SESSION: "a new login succeeded, but its session was also rejected",
}
_READ_BY = "read by DirectSuite.from_env(), but not by Settings.from_env()"
_TOKEN_NEEDED = (
    "a token: pass token=... to the suite, or set DIRECTSUITE_TOKEN, or set DIRECTSUITE_TOKEN_URL, "
    f"DIRECTSUITE_CLIENT_ID and DIRECTSUITE_CLIENT_SECRET ({_READ_BY})"
)
_LOGIN_NEEDED = (
    "a login: pass login=Login(username, password) to the suite, or set DIRECTSUITE_LOGIN_USERNAME and "
    f"DIRECTSUITE_LOGIN_PASSWORD ({_READ_BY})"
)


def _iter_missing_settings(endpoint: Endpoint, *, needs_credential: bool) -> Iterator[str]:
    """Yield the missing settings of a service, each with what to do, as fragments of a sentence."""
    if endpoint.base_url is None:
        name = endpoint.service.url_setting
        yield f"the {endpoint.service} service's URL: set {name} in Settings, or DIRECTSUITE_{name.upper()}"
    if needs_credential and endpoint.credentials is None:
        yield _LOGIN_NEEDED if endpoint.service is Service.REGISTRATION else _TOKEN_NEEDED
