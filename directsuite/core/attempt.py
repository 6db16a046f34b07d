"""One HTTP attempt, within the call's deadline: credential, connection, place in the rate, request, answer.

    _admit ──► _send ──► _read ──► run tells the service's limits, the listeners and the History how it ended

Nothing here retries, and neither may aiohttp: it sends GET, PUT and DELETE a second time when a connection drops,
so a middleware gives that failure another name. Local variables never hold a URL, header or body, because tracebacks
expose them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from typing import Any, Generic, TypeVar, cast
from urllib.parse import quote

import aiohttp
import attrs
from yarl import URL

from directsuite.core.call import NO_MORE, Call, Exchanged
from directsuite.core.clock import Clock
from directsuite.core.credentials import Credential, TokenCache
from directsuite.core.download import DestinationError, is_spent
from directsuite.core.events import AttemptFailed, AttemptStarted, AttemptSucceeded, Events, ValuesSkipped
from directsuite.core.failures import is_being_cancelled
from directsuite.core.operation import SESSION_ID, Auth
from directsuite.core.outcome import (
    ConnectionDroppedError,
    find_unsupported_encoding,
    interpret,
    of_exception,
    unreadable,
)
from directsuite.core.response import Answer, ResponseStream
from directsuite.core.session import NEVER, Session
from directsuite.core.upload import EMPTY, nothing
from directsuite.errors import (
    ConnectFailedError,
    ConnectionLostError,
    DeadlineExceededError,
    DirectSuiteError,
    Outcome,
    OutcomeUnknownError,
    ResponseDecodeError,
    ServiceError,
    TransportError,
)
from directsuite.wire.codec import Codec
from directsuite.wire.parsing import MismatchError

R = TypeVar("R")

_SENT_TWICE = frozenset({"GET", "PUT", "DELETE"})
"""Methods that aiohttp sends again by itself; requests of others need no middleware, which costs some time."""
_LONG = 16 * 1024
"""Bytes of an answer that take longer to decode than it takes another call to send its request."""
_NEARLY = 0.99  # of a time-out, whose clock is another
_GATEWAY = (502, 503, 504)
"""Statuses that somebody in front of the service gives for it."""


@attrs.frozen(kw_only=True)
class Environment:
    """What all attempts of a suite share."""

    session: Session
    clock: Clock
    events: Events
    codec: Codec
    timeout: float
    """Seconds for a whole call, where it does not say."""
    attempt_timeout: float
    """Seconds for an attempt of an operation that may be repeated, and for a pause of a stream."""
    max_response_bytes: int
    client_timeout: aiohttp.ClientTimeout
    """For aiohttp. The deadline is ours; but a call that can't connect may try again, whatever the operation."""


@attrs.define(eq=False)
class History:
    """What the attempts of a call have shown so far. Each adds to it."""

    deadline: float
    """In the event loop's time. A request that flows moves it on, and an answer that flows has NEVER."""
    requests: int = 0
    """HTTP requests made."""
    is_unknown: bool = False
    """An attempt may have been acted upon."""
    is_consumed: bool = False
    """The body can't be sent again, or the destination can't take another answer."""
    own_error: Exception | None = None
    """What a source, destination or callback of the caller's raised: perhaps an error of ours, but of another call."""
    credential: Credential | None = None
    """The last attempt's."""
    is_renewed: bool = False
    """The one replay with a fresh credential was made."""
    looked: bool = False
    """Confirmation was looked for in vain, for the whole settle time."""


class Attempt(Generic[R]):
    """One request and its answer."""

    __slots__ = (
        "_began_at",
        "_call",
        "_env",
        "_history",
        "_limits",
        "_payload",
        "_probe",
        "_response",
        "_sent_at",
        "_status",
        "_timeout",
        "_written",
    )  # fmt: skip

    def __init__(self, environment: Environment, call: Call[R], history: History) -> None:
        if history.deadline == NEVER:  # what flowed has ended: until an answer flows again, the call's own time holds
            history.deadline = call.deadline
        self._env = environment
        self._call = call
        self._history = history
        self._limits = call.endpoint.limits
        self._timeout = environment.session.timeouts.timeout_at(history.deadline)
        self._payload = (
            None if call.operation.method == "GET" else (call.body or EMPTY).open(call.operation.content_type)
        )
        self._response: ResponseStream | None = None
        self._began_at = environment.clock.monotonic()
        self._sent_at: float | None = None
        self._status: int | None = None
        self._probe = 0
        self._written = False

    async def run(self) -> R:
        """Make the request, and give what its answer says. Every failure of the network leaves it as a typed error.

        Of a call that keeps its answer open, this attempt itself is what it gives, for `next_chunk`.
        """
        answer: R | BaseException
        try:
            with self._timeout:
                answer = await self._exchange()
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  raised below, without aiohttp's frames
            answer = self._error_for(error)
        if isinstance(answer, BaseException):
            self._record_failure(answer)
            raise answer
        self._limits.report(answered=True, probe=self._probe)
        if self._call.detailed:
            self._emit(AttemptSucceeded, attempt=self._history.requests, status=self._status, elapsed=self._elapsed())
        return answer

    async def next_chunk(self) -> bytes:
        """The next piece of an answer that is kept open, empty at its end. Raises as `run` does."""
        self._timeout, self._payload = self._env.session.timeouts.timeout_at(self._history.deadline), None
        failure: BaseException
        try:
            with self._timeout:
                self._extend()
                return b"" if self._response is None else await self._response.chunk()
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  as in run
            failure = self._error_for(error)
        raise failure

    def close(self) -> None:
        """Let go of an answer that was kept open."""
        if self._response is not None:
            self._response.close()

    async def _exchange(self) -> R | DirectSuiteError:
        """Admission, request and answer; the connection is given back, unless the answer is kept open."""
        operation = self._call.operation
        if not self._is_admitted_at_once():
            await self._admit()
        self._response = response = ResponseStream(
            self._env.session.reading,
            self._limits if operation.limited else None,
            is_base64=operation.response is bytes,
        )
        is_kept = False
        try:
            if not operation.may_repeat:
                await _two_turns()  # aiohttp notices a kept-alive socket that the server has closed
            response.begin(await self._send())
            self._status = response.status
            answer = await self._read(response)
            is_kept = answer is self
            return answer
        finally:
            if self._payload is not None:
                self._payload.flowing = nothing  # else the two would hold each other
            if not is_kept:
                response.close()

    def _is_admitted_at_once(self) -> bool:
        """Return True, with all that the request needs, where nothing has to be waited for."""
        call = self._call
        if call.operation.needs_credential:
            cache = call.endpoint.credentials
            credential = None if cache is None else cache.at_once()
            if credential is None:
                return False
            self._history.credential = credential
        return self._limits.try_admit(connect=call.operation.limited)

    async def _admit(self) -> None:
        """Wait for a credential, a connection and a place in the rate. Where that fails, nothing was sent."""
        operation, history, limits = self._call.operation, self._history, self._limits
        limits.refuse_while_open(operation)
        cache, was_good = self._call.endpoint.credentials, False
        if cache is not None and operation.needs_credential:
            history.credential = await _current(cache)
            was_good = cache.holds(history.credential)
        sleep, time_left = self._env.session.sleep, self._call.time_left
        await limits.admit(operation, time_left=time_left, sleep=sleep)
        try:
            if was_good and cache is not None and history.credential and not cache.holds(history.credential):
                history.credential = await _current(cache)  # refused or expired while the call waited
                await limits.acquire_rate(operation, time_left=time_left, sleep=sleep)
        except BaseException:
            if operation.limited:
                limits.release()
            raise

    def _send(self) -> Awaitable[aiohttp.ClientResponse]:
        """Send the request; what is awaited is the answer's head."""
        call, history, session = self._call, self._history, self._env.session
        operation, payload, http = call.operation, self._payload, session.http
        self._probe = self._limits.begin(operation)
        history.requests += 1
        self._sent_at = self._env.clock.monotonic()
        if call.detailed:
            self._emit(AttemptStarted, attempt=history.requests)
        if operation.may_repeat:
            self._extend()
        elif call.confirm is not None:
            # Should no answer come, there has to be time left to verify whether it happened.
            self._timeout.reschedule(history.deadline - call.confirm.reserve_from(call.time_left()))
        if payload is not None:
            payload.flowing = self._request_flows

        return http.request(
            operation.method,
            self._url(),
            data=payload,
            headers=self._headers(),
            allow_redirects=False,
            raise_for_status=False,
            auto_decompress=True,
            middlewares=(self._send_once,) if session.shared or operation.method in _SENT_TWICE else (),
            timeout=self._env.client_timeout,
            **session.request_options,
        )

    def __deepcopy__(self, memo: object) -> Attempt[Any]:
        """This attempt itself: aioresponses copies the arguments of a request, of which `_send_once` is one."""
        return self

    async def _send_once(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        """A client middleware: a dropped connection is reported, not silently sent again."""
        request.headers.pop("Cookie", None)  # of a session of the user's: they would go from one mailbox to another
        try:
            return await handler(request)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError):
            raise
        except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
            raise ConnectionDroppedError(error) from None
        finally:
            self._written = request.response is not None  # made when aiohttp writes a request that has no body

    async def _read(self, response: ResponseStream) -> R | DirectSuiteError:
        """What the answer says: the response, or the error that it is."""
        call, history, env = self._call, self._history, self._env
        is_good = 200 <= response.status < 300
        if is_good and (problem := find_unsupported_encoding(response.headers)) is not None:
            return ResponseDecodeError(problem, **call.operation.about)
        if is_good and (call.receive is not None or call.keep_open):
            self._limits.report(answered=True, probe=self._probe)  # others need not wait until all of it has come
            if call.options.timeout is None:
                history.deadline = NEVER  # an answer that flows is bounded by its pauses, not by its length
            self._extend()
            if call.receive is None:
                self._show(Answer(response.status, response.headers, b""))
                return cast("R", self)
            try:
                value = await call.receive(response, self._extend)
            finally:
                history.is_consumed = history.is_consumed or is_spent(call.receive)
            self._show(Answer(response.status, response.headers, b""))
            return value
        if not call.operation.may_repeat:
            self._timeout.reschedule(history.deadline)  # no time has to be kept for verifying any more
        answer = await response.read(env.max_response_bytes)
        if self._show(answer) is NO_MORE and is_good:
            return call.operation.response()
        if len(answer.body) >= _LONG and call.operation.may_repeat:
            response.close()
            if call.operation.limited and self._limits.is_exhausted:
                await _two_turns()  # who waited for the connection finds it, and sends, before this is decoded
        return interpret(call.operation, answer, env.max_response_bytes, env.codec, self._tell_skipped)

    def _url(self) -> URL:
        call, credential = self._call, self._history.credential
        path = call.path
        if call.operation.auth is Auth.SESSION and credential is not None:
            path = path.replace(SESSION_ID, quote(credential.token.reveal(), safe=""))
        return URL(f"{call.endpoint.base_url}/{path}" if path else str(call.endpoint.base_url), encoded=True)

    def _headers(self) -> Mapping[str, str]:
        call, credential = self._call, self._history.credential
        headers = call.operation.headers
        if call.operation.auth is Auth.BEARER and credential is not None:
            headers = {**headers, "Authorization": f"Bearer {credential.token.reveal()}"}
        return headers if call.options.headers is None else {**headers, **call.options.headers}

    def _extend(self) -> None:
        """From here on the attempt, or the next sign of life of a stream, has `attempt_timeout` seconds."""
        self._timeout.extend(self._env.attempt_timeout, self._history.deadline)

    def _request_flows(self) -> None:
        """The connection has taken more of a streamed body: its pauses bound it, its length only if the caller says."""
        call, env = self._call, self._env
        if self._status is not None or self._timeout.expired:
            return
        if call.options.timeout is None:
            pause = min(env.attempt_timeout, env.timeout)
            self._history.deadline = max(self._history.deadline, env.session.timeouts.loop.time() + pause)
        if call.operation.may_repeat:
            self._extend()
        elif call.options.timeout is None and call.confirm is None:
            self._timeout.reschedule(self._history.deadline)

    @property
    def _has_begun(self) -> bool:
        """Anything of the request may have left: it has where an answer came."""
        return self._status is not None or self._is_written

    @property
    def _is_written(self) -> bool:
        return self._written if self._payload is None else self._payload.started

    @property
    def _is_unfed(self) -> bool:
        """There is a connection, and the caller's source gives nothing to send on it."""
        return self._payload is not None and self._payload.waiting

    def _record_failure(self, error: BaseException) -> None:
        """Tell the limits, the history and the listeners how the attempt failed, or that the caller left."""
        history, payload = self._history, self._payload
        history.is_consumed = history.is_consumed or (payload is not None and payload.spent)
        outcome: Outcome | None
        if isinstance(error, DirectSuiteError) and error is not history.own_error:
            outcome = error.outcome
            if self._sent_at is not None:  # what refuses the call's login is no word of this service
                answered = self._is_answered(error)
                self._limits.report(answered=answered, probe=self._probe, explanation=error.explanation)
                if isinstance(error, ServiceError) and error.status in (429, 503) and error.retry_after is not None:
                    self._limits.pause(error.retry_after)
        else:
            self._limits.report(answered=None, probe=self._probe)
            broken = payload is not None and payload.failure is not None  # nobody can act on a part of a body
            outcome = Outcome.UNKNOWN if self._sent_at is not None and self._is_written and not broken else None
            outcome = outcome or Outcome.NOT_SENT
        history.is_unknown = history.is_unknown or outcome is Outcome.UNKNOWN
        self._emit(
            AttemptFailed,
            attempt=0 if self._sent_at is None else history.requests,
            error=type(error).__name__,
            status=self._status,
            outcome=outcome,
            elapsed=self._elapsed(),
        )

    def _is_answered(self, error: DirectSuiteError) -> bool | None:
        """Return True if the service answered, None if the failure says nothing of it, as a caller's own slowness."""
        silent = isinstance(error, ConnectFailedError | ConnectionLostError | DeadlineExceededError)
        if self._timeout.expired:
            full_time = self._elapsed() >= _NEARLY * self._env.attempt_timeout
            silent = silent and self._status is None and not self._is_unfed and full_time
        silent = silent and not self._env.session.closed
        if silent or (isinstance(error, ServiceError) and _is_from_a_gateway(error)):
            return False
        return True if self._status is not None else None

    def _error_for(self, error: BaseException) -> BaseException:
        """The typed error for what was raised; what isn't the network's, such as a broken source, as it is."""
        call, closed = self._call, self._env.session.closed
        if isinstance(error, asyncio.CancelledError):
            if is_being_cancelled():
                return error.with_traceback(None)  # without aiohttp's frames, which hold URL and headers
            error = ConnectionDroppedError(error)  # nobody cancelled this call: somebody ended what it waited for
        if isinstance(error, DirectSuiteError):
            return error
        if self._payload is not None and self._payload.failure is not None:
            return self._callers_own(self._payload.failure)
        if isinstance(error, DestinationError):
            return self._not_kept(error)
        if isinstance(error, MismatchError):
            return unreadable(call.operation, error)
        if self._timeout.expired:
            return self._out_of_time()
        if isinstance(error, RuntimeError) and closed:  # aiohttp's word for a reader whose session went
            error = ConnectionDroppedError(error)
        return of_exception(error, call.operation, started=self._has_begun) or error

    def _out_of_time(self) -> DirectSuiteError:
        sent = self._sent_at is not None and self._has_begun
        if self._status is not None:
            seen = "its answer was not received whole"
        elif self._is_unfed:
            seen = "its source gave nothing more" if sent else "its source gave nothing"
        elif sent:
            seen = "no answer came"
        else:
            seen = "nothing was sent" if self._sent_at is None else "no connection was made"
        about, outcome = self._call.operation.about, Outcome.UNKNOWN if sent else Outcome.NOT_SENT
        if self._env.session.timeouts.loop.time() < self._history.deadline:
            kind = ConnectionLostError if sent else ConnectFailedError
            return kind(f"{seen} in the time of one attempt", outcome=outcome, **about)
        error = DeadlineExceededError(f"the call's time is up: {seen}", outcome=outcome, **about)
        error.retry_after = None if sent else self._limits.rate.wait() or None
        return error

    def _callers_own(self, error: Exception) -> Exception:
        """What the caller's source, destination or callback raised; an error of another call says nothing of this."""
        if not isinstance(error, DirectSuiteError) or error.operation is not None:
            self._history.own_error = error
        return error

    def _not_kept(self, failure: DestinationError) -> Exception:
        """The error for an answer that could not be written to its destination: an effect must not seem undone."""
        call, reason = self._call, failure.reason
        if call.operation.may_repeat:
            return self._callers_own(reason)
        error: TransportError
        if failure.read:
            text = f"it happened, but its answer could not be kept ({type(reason).__name__})"
            how = call.operation.how_to_find_out
            error = OutcomeUnknownError(text, how_to_find_out=how, happened=True, **call.operation.about)
        else:
            text = (
                f"its destination or progress failed before anything of the answer was read ({type(reason).__name__})"
            )
            error = TransportError(text, outcome=Outcome.UNKNOWN, **call.operation.about)
        error.__cause__ = reason
        return error

    def _show(self, answer: Answer) -> object:
        call = self._call
        if call.options.observe is None:
            return None
        elapsed = self._env.clock.monotonic() - call.started_at
        return call.options.observe(Exchanged(answer=answer, elapsed=elapsed, attempts=self._history.requests))

    def _tell_skipped(self, paths: Mapping[str, int]) -> None:
        self._emit(ValuesSkipped, paths=paths)

    def _emit(self, kind: Any, **details: Any) -> None:
        self._env.events.emit(self._call.event(kind, **details))

    def _elapsed(self) -> float:
        """Seconds since the request was sent, or the attempt began."""
        return self._env.clock.monotonic() - (self._began_at if self._sent_at is None else self._sent_at)


async def _two_turns() -> None:
    """Let the event loop do what is to be done by now, and what follows from that."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


def _is_from_a_gateway(failure: ServiceError) -> bool:
    return failure.status in _GATEWAY and failure.code is None and failure.retry_after is None


async def _current(cache: TokenCache) -> Credential:
    """The current credential; where none can be had, nothing of the call was sent, whatever became of the login."""
    try:
        return await cache.current()
    except OutcomeUnknownError as error:
        # Only the token's outcome is unknown. Of the call itself nothing was sent, and its error has to say so.
        failure = TransportError(
            f"no token could be had: {error.explanation} {error.how_to_find_out}",
            operation=error.operation,
            service=error.service,
            outcome=Outcome.NOT_SENT,
        )
        failure.attempts, failure.elapsed, failure.__cause__ = error.attempts, error.elapsed, error
    except DirectSuiteError as error:
        if error.outcome is Outcome.UNKNOWN:
            error.outcome = Outcome.NOT_SENT
        raise
    raise failure
