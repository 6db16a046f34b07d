"""One HTTP attempt, within the call's deadline: credential, connection, place in the rate, request, answer.

    admission ──► request ──► answer ──► conclusion

Nothing here retries, and neither may aiohttp: it sends GET, PUT and DELETE a second time when a connection drops,
so a middleware gives that failure another name. Frames hold no URL, header or body in plain sight.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import quote

import aiohttp
from yarl import URL

from directsuite.core.admission import admit, admitted_at_once, refuse_while_open
from directsuite.core.call import Call, Exchanged
from directsuite.core.clock import Clock
from directsuite.core.conclusion import Conclusions
from directsuite.core.download import DestinationError, is_spent
from directsuite.core.events import AttemptStarted
from directsuite.core.failures import is_being_cancelled
from directsuite.core.operation import SESSION_ID, Auth
from directsuite.core.outcome import ConnectionDroppedError, of_exception
from directsuite.core.response import Answer, Incoming, interpret, unreadable
from directsuite.core.sending import SENT_TWICE, Sending
from directsuite.core.session import NEVER, Bound, Lifecycle
from directsuite.core.upload import EMPTY, Outgoing
from directsuite.errors import (
    ConnectFailedError,
    ConnectionLostError,
    DeadlineExceededError,
    DirectSuiteError,
    Outcome,
    OutcomeUnknownError,
    TransportError,
)
from directsuite.wire.codec import Codec
from directsuite.wire.parsing import MismatchError

R = TypeVar("R")


_LONG = 16 * 1024
"""Bytes of an answer that take longer to decode than it takes another call to send its request."""


class Attempts:
    """Makes attempts for the transport, over one HTTP session."""

    def __init__(
        self,
        lifecycle: Lifecycle,
        clock: Clock,
        *,
        timeout: float,
        attempt_timeout: float,
        max_response_bytes: int,
        codec: Codec,
    ) -> None:
        self._lifecycle = lifecycle
        self._suite_timeout = timeout
        self._clock = clock
        self._attempt_timeout = attempt_timeout
        # The deadline is ours; but who can't connect may try again, whatever the operation.
        self._timeout = aiohttp.ClientTimeout(total=None, sock_connect=attempt_timeout)
        self._conclusions = Conclusions(clock, lifecycle, attempt_timeout=attempt_timeout)
        self._max_response_bytes = max_response_bytes
        self._codec = codec

    async def run(self, call: Call[R]) -> R:
        """One request and its answer, within the deadline; every failure leaves it as a typed error."""
        attempt = _Attempt(_outgoing(call), self._lifecycle.bounds.until(call.deadline))
        answer: R | BaseException
        try:
            with attempt.bound:
                answer = await self._exchange(call, attempt)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  raised below, without aiohttp's frames
            answer = self._failure(call, attempt, error)
        if not isinstance(answer, BaseException):
            self._conclusions.succeeded(call)
            return answer
        call.consumed = call.consumed or attempt.spent
        if isinstance(answer, DirectSuiteError) and answer is not call.own:
            self._conclusions.failed(call, answer)
        else:
            self._conclusions.left(call, answer, started=attempt.may_be_acted_upon)
        raise answer

    async def _exchange(self, call: Call[R], attempt: _Attempt) -> R | DirectSuiteError:
        """Admission, request and answer; the connection is given back, unless a stream goes on to read from it."""
        if not admitted_at_once(call):
            await admit(call, self._lifecycle.sleep)
        incoming = Incoming(
            self._lifecycle.reading,
            call.endpoint.limits if call.operation.limited else None,
            is_base64=call.operation.response is bytes,
        )
        try:
            if not call.operation.may_repeat:
                await _two_turns()  # aiohttp notices a kept-alive socket that the server has closed
            incoming.begin(await self._send(call, attempt))
            call.status = incoming.status
            return await self._answer(call, incoming, attempt.bound)
        finally:
            if not call.streams(incoming.status):
                incoming.close()

    def _send(self, call: Call[Any], attempt: _Attempt) -> Awaitable[aiohttp.ClientResponse]:
        """Send the request; what is awaited is the answer's head."""
        operation = call.operation
        http = self._lifecycle.http
        breaker = call.endpoint.limits.breaker
        if not breaker.closed:
            refuse_while_open(call)
            call.probe = breaker.enter()
        call.attempts += 1
        call.sent_at = self._clock.monotonic()
        if call.detailed:
            call.tell(AttemptStarted, attempt=call.attempts)
        if operation.may_repeat:
            self._bound_attempt(call, attempt.bound)
        elif call.proof is not None:
            # Should no answer come, there has to be time left to look whether it happened.
            attempt.bound.move(call.deadline - call.proof.kept_of(call.time_left()))
        if attempt.body is not None and attempt.body.streamed:
            attempt.body.flowing = self._extending(call, attempt.bound)
        return http.request(
            operation.method,
            self._url(call),
            data=attempt.body,
            headers=self._headers(call),
            allow_redirects=False,
            raise_for_status=False,
            auto_decompress=True,
            middlewares=(attempt.sending,) if self._lifecycle.shared or operation.method in SENT_TWICE else (),
            timeout=self._timeout,
            **self._lifecycle.request_options,
        )

    async def _answer(self, call: Call[R], incoming: Incoming, bound: Bound) -> R | DirectSuiteError:
        """What the answer says: the response, or the error that it is."""
        if call.receive is not None and 200 <= incoming.status < 300:
            call.endpoint.limits.breaker.answered()  # others need not wait until all of it has come
            if call.options.timeout is None:
                call.deadline = NEVER  # an answer that flows is bounded by its pauses, not by its length
            self._bound_attempt(call, bound)
            try:
                value = await call.receive(incoming, lambda: self._bound_attempt(call, bound))
            finally:
                call.consumed = call.consumed or is_spent(call.receive)
            self._report(call, Answer(incoming.status, incoming.headers, b""))
            return value
        if not call.operation.may_repeat:
            bound.move(call.deadline)  # now that an answer is coming, nothing has to be kept for looking
        answer = await incoming.read(self._max_response_bytes)
        if call.options.observe is not None:
            self._report(call, answer)
        if len(answer.body) >= _LONG and call.operation.may_repeat:
            incoming.close()
            if call.operation.limited and call.endpoint.limits.exhausted:
                await _two_turns()  # who waited for the connection finds it, and sends, before this is decoded
        return interpret(call.operation, answer, self._max_response_bytes, self._codec, call.tell_skipped)

    def _url(self, call: Call[Any]) -> URL:
        path = call.path
        if call.operation.auth is Auth.SESSION and call.credential is not None:
            path = path.replace(SESSION_ID, quote(call.credential.token.reveal(), safe=""))
        return URL(f"{call.endpoint.base_url}/{path}" if path else str(call.endpoint.base_url), encoded=True)

    def _headers(self, call: Call[Any]) -> Mapping[str, str]:
        headers = call.operation.headers
        if call.operation.auth is Auth.BEARER and call.credential is not None:
            headers = {**headers, "Authorization": f"Bearer {call.credential.token.reveal()}"}
        return headers if call.options.headers is None else {**headers, **call.options.headers}

    def _bound_attempt(self, call: Call[Any], bound: Bound) -> None:
        """From here on the attempt, or the next sign of life of a stream, has `attempt_timeout` seconds."""
        bound.move(min(self._lifecycle.bounds.loop.time() + self._attempt_timeout, call.deadline))

    def _extending(self, call: Call[Any], bound: Bound) -> Callable[[], None]:
        """What a streamed body calls while it flows: its pauses bound it, and its length only where the caller does."""
        time = self._lifecycle.bounds.loop.time
        pause = min(self._attempt_timeout, self._suite_timeout)

        def flowing() -> None:
            """The connection has taken more of the body."""
            if call.status is not None or bound.expired:
                return
            call.endpoint.limits.breaker.flows(probe=call.probe)
            if call.options.timeout is None:
                call.deadline = max(call.deadline, time() + pause)
            if call.operation.may_repeat:
                self._bound_attempt(call, bound)
            elif call.options.timeout is None and call.proof is None:
                bound.move(call.deadline)

        return flowing

    async def next_chunk(self, call: Call[Any], incoming: Incoming) -> bytes:
        """The next piece of a streamed answer, empty at its end; every failure leaves it as a typed error."""
        attempt = _Attempt(None, self._lifecycle.bounds.until(call.deadline))
        failure: BaseException
        try:
            with attempt.bound:
                self._bound_attempt(call, attempt.bound)
                return await incoming.chunk()
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  as in run
            failure = self._failure(call, attempt, error)
        raise failure

    def _failure(self, call: Call[Any], attempt: _Attempt, error: BaseException) -> BaseException:
        """The typed error for what an attempt raised; what isn't the network's, such as a broken source, as it is."""
        if isinstance(error, asyncio.CancelledError):
            if is_being_cancelled():
                return error.with_traceback(None)  # without aiohttp's frames, which hold URL and headers
            error = ConnectionDroppedError(error)  # nobody cancelled this call: somebody ended what it waited for
        if isinstance(error, DirectSuiteError):
            return error
        if attempt.body is not None and attempt.body.failure is not None:
            return _own(call, attempt.body.failure)
        if isinstance(error, DestinationError):
            return _not_kept(call, error)
        if isinstance(error, MismatchError):
            return unreadable(call.operation, error)
        if attempt.bound.expired:
            return self._out_of_time(call, attempt)
        if isinstance(error, RuntimeError) and self._lifecycle.closed:  # aiohttp's word for a reader whose session went
            error = ConnectionDroppedError(error)
        return of_exception(error, call.operation, started=_begun(call, attempt)) or error

    def _out_of_time(self, call: Call[Any], attempt: _Attempt) -> DirectSuiteError:
        call.timed_out, call.unfed = True, attempt.unfed
        sent = call.sent_at is not None and _begun(call, attempt)
        if call.status is not None:
            seen = "its answer was not received whole"
        elif call.unfed:
            seen = "its source gave nothing more" if sent else "its source gave nothing"
        elif sent:
            seen = "no answer came"
        else:
            seen = "nothing was sent" if call.sent_at is None else "no connection was made"
        about: dict[str, Any] = {"operation": call.operation.name, "service": call.operation.service}
        about["outcome"] = Outcome.UNKNOWN if sent else Outcome.NOT_SENT
        if self._lifecycle.bounds.loop.time() < call.deadline:
            kind = ConnectionLostError if sent else ConnectFailedError
            return kind(f"{seen} in the time of one attempt", **about)
        error = DeadlineExceededError(f"the call's time is up: {seen}", **about)
        error.retry_after = None if sent else call.endpoint.limits.rate.wait() or None
        return error

    def _report(self, call: Call[Any], answer: Answer) -> None:
        if call.options.observe is not None:
            elapsed = self._clock.monotonic() - call.started_at
            call.options.observe(Exchanged(answer=answer, elapsed=elapsed, attempts=call.attempts))


class _Attempt:
    """What an attempt has under way: its body, what watches over the sending of that, and its end."""

    __slots__ = ("body", "bound", "sending")

    def __init__(self, body: Outgoing | None, bound: Bound) -> None:
        self.body = body
        self.sending = Sending(body)
        self.bound = bound

    @property
    def spent(self) -> bool:
        """Whether the body can't be sent again."""
        return self.body is not None and self.body.spent

    @property
    def unfed(self) -> bool:
        """Whether there is a connection, and nothing to send on it from the caller's source."""
        return self.body is not None and self.body.waiting

    @property
    def may_be_acted_upon(self) -> bool:
        """Whether something has left, and goes on coming: nobody can act on a part of a body."""
        return self.sending.begun and (self.body is None or self.body.failure is None)


def _outgoing(call: Call[Any]) -> Outgoing | None:
    if call.operation.method == "GET":
        return None
    return (call.body or EMPTY).open(call.operation.content_type)


def _begun(call: Call[Any], attempt: _Attempt) -> bool:
    """Whether anything of the request may have left: it has where an answer came."""
    return call.status is not None or attempt.sending.begun


async def _two_turns() -> None:
    """Let the event loop do what is to be done by now, and what follows from that."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


def _own(call: Call[Any], error: Exception) -> Exception:
    """What the caller's own source, destination or callback raised; an error of another call says nothing of this."""
    if not isinstance(error, DirectSuiteError) or error.operation is not None:
        call.own = error
    return error


def _not_kept(call: Call[Any], failure: DestinationError) -> Exception:
    """What to say of an answer that could not be written to its destination: an effect must not seem undone."""
    reason = failure.reason
    if call.operation.may_repeat:
        return _own(call, reason)
    about: dict[str, Any] = {"operation": call.operation.name, "service": call.operation.service}
    error: TransportError
    if failure.read:
        text = f"it happened, but its answer could not be kept ({type(reason).__name__})"
        error = OutcomeUnknownError(text, how_to_find_out=call.operation.how_to_find_out, **about)
        error.happened = True
    else:
        text = f"its destination or progress failed before anything of the answer was read ({type(reason).__name__})"
        error = TransportError(text, outcome=Outcome.UNKNOWN, **about)
    error.__cause__ = reason
    return error
