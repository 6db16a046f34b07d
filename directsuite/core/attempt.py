"""One HTTP attempt of a call, within the call's deadline.

    _admit ──► _send ──► _read ──► run

`_admit` waits for a credential, a connection slot and the rate limit. `run` reports the result to the service's limits,
the listeners and the call.

This module never retries, and `_send_once` prevents the retries of aiohttp. Local variables never contain a URL, header
or body, because tracebacks can include them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from typing import Any, Generic, TypeVar, cast
from urllib.parse import quote

import aiohttp
from yarl import URL

from directsuite.core.call import NO_DEADLINE, SKIP_DECODING, Call, ExchangeInfo
from directsuite.core.call_log import log_request, log_response
from directsuite.core.clock import is_being_cancelled
from directsuite.core.credentials import Credential, Rejections, TokenCache
from directsuite.core.download import DestinationError, is_exhausted
from directsuite.core.events import AttemptFailed, AttemptStarted, AttemptSucceeded, ValuesSkipped
from directsuite.core.operation import SESSION_ID, Auth
from directsuite.core.outcome import (
    ConnectionDroppedError,
    ErrorScope,
    convert_exception,
    find_error_scope,
    find_failure_reason,
    find_unsupported_encoding,
    interpret,
    make_decode_error,
    parse_large,
)
from directsuite.core.session import BufferedResponse, ResponseStream
from directsuite.core.upload import EMPTY_BODY, RequestPayload, do_nothing
from directsuite.errors import (
    ConnectFailedError,
    ConnectionLostError,
    DeadlineExceededError,
    DirectSuiteError,
    FailureReason,
    Outcome,
    OutcomeUnknownError,
    ResponseDecodeError,
    ServiceError,
    TransportError,
)
from directsuite.wire.parsing import MismatchError

R = TypeVar("R")

_AIOHTTP_RETRIED_METHODS = frozenset({"GET", "PUT", "DELETE"})
"""Methods that aiohttp retries. Other requests are sent without the middleware, which costs time."""
_MIN_EARLY_RELEASE_BYTES = 16 * 1024
"""Responses of at least this size release their connection before they are decoded, because decoding takes longer than
another call needs to send its request.
"""
_MIN_BYTES_IN_TURNS = 256 * 1024
"""Responses of at least this size are decoded in parts, between which the event loop has a turn."""
# Share of `attempt_timeout` that counts as all of it, because the timeout is measured on a different clock.
_FULL_ATTEMPT_SHARE = 0.99
_GATEWAY_STATUSES = (502, 503, 504)
"""Statuses that a gateway sends if the service behind it does not respond."""
_MISSING_CREDENTIALS = {
    Auth.BEARER: ("the token source had not returned a token", "fetch of a token"),
    Auth.SESSION: ("the login had not ended", "login"),
}
"""What a call lacks if its time is up while it waits for its credential, and the name of what failed before."""


class Attempt(Generic[R]):
    """One request and its response."""

    __slots__ = (
        "_began_at",
        "_call",
        "_env",
        "_limits",
        "_payload",
        "_probe",
        "_response",
        "_sent_at",
        "_status",
        "_timeout",
        "_written",
    )  # fmt: skip

    def __init__(self, call: Call[R]) -> None:
        # An earlier attempt was streaming its response. The deadline of the call applies again.
        if call.end == NO_DEADLINE:
            call.end = call.deadline
        self._env = call.environment
        self._call = call
        self._limits = call.endpoint.limits
        self._timeout: asyncio.Timeout
        self._payload = (
            None
            if call.operation.method == "GET"
            else RequestPayload(call.body or EMPTY_BODY, call.operation.content_type)
        )
        self._response: ResponseStream | None = None
        self._began_at = call.environment.clock.monotonic()
        self._sent_at: float | None = None
        self._status: int | None = None
        self._probe = 0
        self._written = False

    async def run(self) -> R:
        """Make the request. Return the decoded response, or this attempt itself if the call keeps the response open.

        The caller of an open response reads it with `read_chunk` and releases it with `close`.

        Raises a DirectSuiteError if the network fails or the service rejects the request, and exceptions of the
        caller's source, destination or callback unchanged. If the operation may not be repeated, an exception of the
        destination is the cause of a DirectSuiteError instead.
        """
        result: R | BaseException
        run = self._env.session.run
        is_admitted = self._try_admit()
        try:
            if not is_admitted:
                self._timeout = asyncio.timeout_at(self._call.end)
                await run(self._timeout, self._admit())
            self._timeout = asyncio.timeout_at(self._compute_expiry())
            result = await run(self._timeout, self._exchange())
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  raised below, without aiohttp's frames
            result = self._convert_error(error)
        if isinstance(result, BaseException):
            self._record_failure(result)
            raise result
        self._limits.breaker.record_result(has_response=True, probe=self._probe)
        self._record_accepted_credential()
        if self._call.detailed:
            event = self._call.emit(
                AttemptSucceeded, attempt=self._call.requests, status=self._status, elapsed=self._measure_elapsed()
            )
            log_response(event, result)
        return result

    async def read_chunk(self) -> bytes:
        """Return the next bytes of a response that is kept open, or b"" at its end or after `run` failed.

        Raises a DirectSuiteError if the connection is lost, or no bytes arrive within `attempt_timeout`.
        """
        if self._response is None:
            return b""
        self._timeout, self._payload = asyncio.timeout_at(self._compute_pause_end()), None
        failure: BaseException
        try:
            return await self._env.session.run(self._timeout, self._response.read_chunk())
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  as in run
            failure = self._convert_error(error)
        raise failure

    def make_decode_error(self, mismatch: MismatchError) -> ResponseDecodeError:
        """Return the typed error for a part of the response that does not fit the operation."""
        headers: Mapping[str, str] = {} if self._response is None else self._response.headers
        return make_decode_error(self._call.operation, mismatch, headers)

    def close(self) -> None:
        """Release the connection of a response that was kept open."""
        if self._response is not None:
            self._response.close()

    async def _exchange(self) -> R | DirectSuiteError:
        operation = self._call.operation
        self._response = response = ResponseStream(
            self._env.session.open_responses,
            self._limits if operation.uses_connection_slot else None,
            is_base64=operation.response is bytes,
        )
        is_kept = False
        try:
            if not operation.may_repeat:
                # Lets aiohttp notice that the server has closed an idle connection.
                await _yield_twice()
            response.begin(await self._send())
            self._status = self._call.status = response.status
            result = await self._read(response)
            is_kept = result is self
            return result
        finally:
            if self._payload is not None:
                # Otherwise the payload and this attempt would form a reference cycle.
                self._payload.on_progress = do_nothing
            if not is_kept:
                response.close()

    def _try_admit(self) -> bool:
        """Admit the request, or return False if it must wait or the circuit is not closed."""
        call = self._call
        if call.operation.needs_credential:
            cache = call.endpoint.credentials
            credential = None if cache is None else cache.peek(call.endpoint.rejections.unusable_generation)
            if credential is None:
                return False
            self._call.credential = credential
        return self._limits.try_admit(needs_slot=call.operation.uses_connection_slot)

    async def _admit(self) -> None:
        """Wait for a credential, a connection slot and the rate limit.

        Raises CircuitOpenError, DeadlineExceededError, ClosedError, or the error of a failed fetch of a token.
        """
        call, limits = self._call, self._limits
        operation = call.operation
        limits.breaker.raise_if_open(operation)
        cache, was_good = call.endpoint.credentials, False
        if cache is not None and operation.needs_credential:
            was_good = cache.is_current(await _load_credential(call, cache))
            limits.breaker.raise_if_open(operation)
        sleep, time_left = self._env.session.sleep, call.compute_time_left
        if operation.uses_connection_slot:
            await limits.acquire_slot()
        try:
            await limits.acquire_rate(operation, time_left=time_left, sleep=sleep)
            if (
                was_good
                and cache is not None
                and call.credential
                and not cache.is_current(call.credential, call.endpoint.rejections.unusable_generation)
            ):
                # The credential was rejected or has expired while the call waited.
                await _load_credential(call, cache)
                await limits.acquire_rate(operation, time_left=time_left, sleep=sleep)
        except BaseException:
            if operation.uses_connection_slot:
                limits.release()
            raise

    def _send(self) -> Awaitable[aiohttp.ClientResponse]:
        """Register the request as started, and return an awaitable that sends it.

        Raises CircuitOpenError if the circuit has opened since the request was admitted.
        """
        call, session = self._call, self._env.session
        operation, payload, http = call.operation, self._payload, session.http
        self._probe = self._limits.breaker.start_request(operation)
        call.requests += 1
        call.status = None
        self._sent_at = self._env.clock.monotonic()
        if call.detailed:
            log_request(call, call.emit(AttemptStarted, attempt=call.requests))
        if payload is not None:
            payload.on_progress = self._record_upload_progress

        return http.request(
            operation.method,
            self._build_url(),
            data=payload,
            headers=self._build_headers(),
            allow_redirects=False,
            raise_for_status=False,
            auto_decompress=True,
            middlewares=(self._send_once,) if session.shared or operation.method in _AIOHTTP_RETRIED_METHODS else (),
            timeout=self._env.client_timeout,
            **session.request_options,
        )

    async def _send_once(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        """A client middleware that raises ConnectionDroppedError if the connection ends before the response.

        aiohttp retries GET, PUT and DELETE after its own exceptions, but not after this one.
        """
        # Cookies of a session supplied by the user would be sent from one mailbox to another.
        request.headers.pop("Cookie", None)
        try:
            return await handler(request)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError):
            raise
        except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
            raise ConnectionDroppedError(error) from None
        finally:
            # Used for a request without a body: aiohttp creates the response object when it writes the request.
            self._written = request.response is not None

    async def _read(self, response: ResponseStream) -> R | DirectSuiteError:
        """Return the value of the response, the error that it reports, or this attempt if the call keeps it open."""
        call, env = self._call, self._env
        is_good = 200 <= response.status < 300
        if (
            is_good
            and "Content-Encoding" in response.headers
            and (problem := find_unsupported_encoding(response.headers)) is not None
        ):
            return ResponseDecodeError(problem, **call.operation.error_context)
        if is_good and (call.receive is not None or call.keep_open):
            # Other calls must not wait until this response is received completely.
            self._limits.breaker.record_result(has_response=True, probe=self._probe)
            if call.options.timeout is None:
                # Only the pauses of a streamed response are limited, not its duration.
                call.end = NO_DEADLINE
            self._extend_timeout()
            headers_only = BufferedResponse(response.status, response.headers, b"")
            if call.receive is None:
                self._notify_observer(headers_only)
                return cast("R", self)
            response.enlarge_reads()
            try:
                value = await call.receive(response, self._extend_timeout)
            finally:
                call.is_consumed = call.is_consumed or is_exhausted(call.receive)
            self._notify_observer(headers_only)
            return value
        if not call.operation.may_repeat:
            # No time must be reserved for verification any more.
            env.session.reschedule(self._timeout, call.end)
        received = await response.read(env.max_response_bytes)
        if call.options.observe is not None and self._notify_observer(received) is SKIP_DECODING and is_good:
            return call.operation.response()
        if len(received.body) >= _MIN_EARLY_RELEASE_BYTES and call.operation.may_repeat:
            response.close()
            if call.operation.uses_connection_slot and self._limits.has_no_free_slot:
                # Lets the call that waited for the connection send its request before decoding.
                await _yield_twice()
        parsed = None
        if len(received.body) >= _MIN_BYTES_IN_TURNS and call.operation.may_repeat:
            # A complete response is not discarded because decoding it takes long.
            env.session.reschedule(self._timeout, NO_DEADLINE)
            parsed = await parse_large(call.operation, received, env.codec)
        return interpret(call.operation, received, env.max_response_bytes, env.codec, self._emit_skipped, parsed)

    def _build_url(self) -> URL:
        call, credential = self._call, self._call.credential
        path = call.path
        if credential is not None and call.operation.auth is Auth.SESSION:
            path = path.replace(SESSION_ID, quote(credential.token.reveal(), safe=""))
        return URL(f"{call.endpoint.base_url}/{path}" if path else str(call.endpoint.base_url), encoded=True)

    def _build_headers(self) -> Mapping[str, str]:
        call, credential = self._call, self._call.credential
        headers = call.operation.headers
        if credential is not None and call.operation.auth is Auth.BEARER:
            headers = {**headers, "Authorization": f"Bearer {credential.token.reveal()}"}
        return headers if call.options.headers is None else {**headers, **call.options.headers}

    def _compute_expiry(self) -> float:
        """Return the time at which the attempt times out without progress, on the event loop's clock.

        If the operation may not be repeated, it is the deadline, less the time reserved for verification.
        """
        call, env, deadline = self._call, self._env, self._call.end
        if call.operation.may_repeat:
            return min(env.session.now() + env.attempt_timeout, deadline)
        if call.confirm is not None:
            # Time must be left to verify whether the operation happened.
            return deadline - call.confirm.compute_reserve(call.compute_time_left())
        return deadline

    def _compute_pause_end(self) -> float:
        return min(self._env.session.now() + self._env.attempt_timeout, self._call.end)

    def _extend_timeout(self) -> None:
        self._env.session.reschedule(self._timeout, self._compute_pause_end())

    def _record_upload_progress(self) -> None:
        """Extend the attempt's timeout, because the connection has accepted more of a streamed body.

        If the call has no timeout, also extend its deadline. If the operation may not be repeated, the attempt's
        timeout is extended only with the deadline, and not if the call has a verification.
        """
        call, env = self._call, self._env
        if self._status is not None or self._timeout.expired():
            return
        if call.options.timeout is None:
            pause = min(env.attempt_timeout, env.timeout)
            self._call.end = max(self._call.end, env.session.now() + pause)
        if call.operation.may_repeat:
            self._extend_timeout()
        elif call.options.timeout is None and call.confirm is None:
            env.session.reschedule(self._timeout, self._call.end)

    @property
    def _has_begun(self) -> bool:
        return self._status is not None or self._is_written

    @property
    def _is_written(self) -> bool:
        return self._written if self._payload is None else self._payload.started

    @property
    def _waiting_on_source(self) -> bool:
        return self._payload is not None and self._payload.waiting_on_source

    def _record_failure(self, error: BaseException) -> None:
        call, payload = self._call, self._payload
        call.is_consumed = call.is_consumed or (payload is not None and payload.exhausted)
        outcome: Outcome | None
        if isinstance(error, DirectSuiteError) and error is not call.caller_error:
            outcome = error.outcome
            # Before the request is sent, the error may be that of a login.
            if self._sent_at is not None:
                has_response = self._has_service_response(error)
                self._limits.breaker.record_result(
                    has_response=has_response, probe=self._probe, explanation=error.explanation
                )
                if isinstance(error, ServiceError):
                    if error.status in (429, 503) and error.retry_after is not None:
                        self._limits.pause(error.retry_after)
                    if find_error_scope(error) is ErrorScope.ITEM:
                        self._record_accepted_credential()
        else:
            self._limits.breaker.record_result(has_response=None, probe=self._probe)
            # The service cannot process a part of the body.
            broken = payload is not None and payload.failure is not None
            is_sent = self._sent_at is not None and self._is_written and not broken
            outcome = Outcome.UNKNOWN if is_sent else Outcome.NOT_SENT
        call.is_unknown = call.is_unknown or outcome is Outcome.UNKNOWN
        event = call.emit(
            AttemptFailed,
            attempt=0 if self._sent_at is None else call.requests,
            error=type(error).__name__,
            reason=find_failure_reason(error),
            status=self._status,
            outcome=outcome,
            elapsed=self._measure_elapsed(),
        )
        log_response(event, error)

    def _record_accepted_credential(self) -> None:
        credential, rejections = self._call.credential, self._call.endpoint.rejections
        if rejections.count and credential is not None and credential.generation >= rejections.newest_generation:
            self._call.endpoint.rejections = Rejections()

    def _has_service_response(self, error: DirectSuiteError) -> bool | None:
        """Return True if the service responded, False if it did not respond or only a gateway responded.

        Return None if neither is certain, for example because the attempt ended early, the caller was slow, or the
        suite was closed.
        """
        silent = isinstance(error, ConnectFailedError | ConnectionLostError | DeadlineExceededError)
        if self._timeout.expired():
            full_time = self._measure_elapsed() >= _FULL_ATTEMPT_SHARE * self._env.attempt_timeout
            silent = silent and self._status is None and not self._waiting_on_source and full_time
        silent = silent and not self._env.session.closed
        is_own = isinstance(error, ServiceError) and (error.code is not None or error.retry_after is not None)
        if silent or (isinstance(error, ServiceError) and error.status in _GATEWAY_STATUSES and not is_own):
            return False
        return True if self._status is not None else None

    def _convert_error(self, error: BaseException) -> BaseException:
        """Return the typed error for an exception of the network. Return other exceptions unchanged."""
        call, closed = self._call, self._env.session.closed
        if isinstance(error, asyncio.CancelledError):
            if is_being_cancelled():
                # aiohttp's frames contain the URL and headers.
                return error.with_traceback(None)
            # Something that this task was waiting for was cancelled.
            error = ConnectionDroppedError(error)
        if isinstance(error, DirectSuiteError):
            return error
        if self._payload is not None and self._payload.failure is not None:
            return self._record_caller_error(self._payload.failure)
        if isinstance(error, DestinationError):
            return self._destination_failed(error)
        if isinstance(error, MismatchError):
            return self.make_decode_error(error)
        if self._timeout.expired() and not isinstance(error, ConnectionAbortedError):  # it means: the session is closed
            return self._make_timeout_error()
        # aiohttp raises RuntimeError in a reader if the session is closed.
        if isinstance(error, RuntimeError) and closed:
            error = ConnectionDroppedError(error)
        return convert_exception(error, call.operation, started=self._has_begun) or error

    def _make_timeout_error(self) -> DirectSuiteError:
        operation = self._call.operation
        sent = self._sent_at is not None and self._has_begun
        reason: FailureReason | None = None
        if self._status is not None:
            seen, reason = "its response was not received completely", "timed out after connecting"
        elif self._waiting_on_source:
            seen = "its source returned no more bytes" if sent else "its source returned no bytes"
        elif sent:
            seen, reason = "no response was received", "timed out after connecting"
        elif self._sent_at is not None:
            seen, reason = "no connection was made", "timed out while connecting"
        elif operation.needs_credential and self._call.credential is None:
            return self._make_credential_timeout_error()
        else:
            seen = "nothing was sent"
        about, outcome = operation.error_context, Outcome.UNKNOWN if sent else Outcome.NOT_SENT
        if self._env.session.now() < self._call.end:
            kind = ConnectionLostError if sent else ConnectFailedError
            limit = "the attempt timeout" if operation.may_repeat else "the time of the request"
            failure = kind(f"{seen} within {limit}", outcome=outcome, **about)
            failure.reason = reason
            return failure
        error = DeadlineExceededError(f"the call's time is up: {seen}", outcome=outcome, **about)
        error.reason = reason
        error.retry_after = None if sent else self._limits.rate.seconds_until_slot() or None
        return error

    def _make_credential_timeout_error(self) -> DeadlineExceededError:
        """Return the error of a call whose time is up while it waits for a token or session."""
        call, cache = self._call, self._call.endpoint.credentials
        seen, name = _MISSING_CREDENTIALS[call.operation.auth]
        failure, wait = (cache and cache.find_failure()) or (None, 0.0)
        if failure is not None:
            last = f"The last one failed: {failure.explanation}"
            seen = f"the next {name} is due in {wait:.0f} s. {last}" if wait else f"a {name} is in progress. {last}"
        error = DeadlineExceededError(
            f"the call's time is up: {seen}", outcome=Outcome.NOT_SENT, **call.operation.error_context
        )
        error.retry_after = wait or self._limits.rate.seconds_until_slot() or None
        error.reason = find_failure_reason(failure)
        error.__cause__ = failure
        return error

    def _record_caller_error(self, error: Exception) -> Exception:
        """Record an error of the caller's source, destination or callback, and return it.

        A DirectSuiteError without an operation is not recorded, but handled like the other failures of this call.
        """
        if not isinstance(error, DirectSuiteError) or error.operation is not None:
            self._call.caller_error = error
        return error

    def _destination_failed(self, failure: DestinationError) -> Exception:
        call, reason = self._call, failure.reason
        if call.operation.may_repeat:  # otherwise the error must not suggest that nothing happened
            return self._record_caller_error(reason)
        error: TransportError
        if failure.is_partly_read:
            text = f"the operation succeeded, but {failure.explanation}"
            how = call.operation.how_to_find_out
            error = OutcomeUnknownError(text, how_to_find_out=how, happened=True, **call.operation.error_context)
        else:
            text = f"{failure.explanation} before the response was read"
            error = TransportError(text, outcome=Outcome.UNKNOWN, **call.operation.error_context)
        error.__cause__ = reason
        return error

    def _notify_observer(self, response: BufferedResponse) -> object:
        call = self._call
        if call.options.observe is None:
            return None
        return call.options.observe(
            ExchangeInfo(response=response, elapsed=call.measure_elapsed(), attempts=call.requests)
        )

    def _emit_skipped(self, paths: Mapping[str, int]) -> None:
        self._call.emit(ValuesSkipped, paths=paths)

    def _measure_elapsed(self) -> float:
        return self._env.clock.monotonic() - (self._began_at if self._sent_at is None else self._sent_at)


async def _yield_twice() -> None:
    """Yield to the event loop: once for callbacks that are ready, once for callbacks that these schedule."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


async def _load_credential(call: Call[Any], cache: TokenCache) -> Credential:
    """Set the call's credential to the current one, and return it, or raise the error of a failed fetch.

    If the outcome of the error is UNKNOWN, it becomes NOT_SENT, because only the login was sent. The error of a login
    or token request also says that the call was not sent, unless an earlier attempt of it was.
    """
    call.credential = None  # that of an earlier attempt; None shows that the call waits for one
    call.was_backing_off = cache.is_backing_off
    try:
        call.credential = await cache.get_current(call.endpoint.rejections.unusable_generation)
        return call.credential
    except OutcomeUnknownError as error:
        failure = TransportError(
            f"no token was received: {error.explanation.rstrip('.')}. What to do: {error.how_to_find_out}",
            operation=error.operation,
            service=error.service,
            outcome=Outcome.NOT_SENT,
        )
        failure.reason = error.reason
        failure.set_call(error.call, error.group, error.attempts, error.elapsed).__cause__ = error
    except DirectSuiteError as error:
        if error.outcome is Outcome.UNKNOWN:
            error.outcome = Outcome.NOT_SENT
        if cache.is_builtin and error.operation is not None and not call.requests:
            error.explanation = f"{error.explanation.rstrip('.')}; {call.operation.name} was not sent"
        raise
    raise failure
