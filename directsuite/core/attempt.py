"""One HTTP attempt, within the call's deadline: credential, connection, place in the rate, request, answer.

    admission ──► request ──► answer ──► conclusion

Nothing here retries, and neither may aiohttp: it sends GET, PUT and DELETE a second time when a connection drops,
so a middleware gives that failure another name. Frames hold no URL, header or body in plain sight.
"""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar
from urllib.parse import quote

import aiohttp
from yarl import URL

from directsuite.core.admission import admit, limited, refuse_while_open
from directsuite.core.answer import Answer, Incoming, interpret, unreadable
from directsuite.core.body import EMPTY, Outgoing
from directsuite.core.call import Call, Exchanged
from directsuite.core.clock import Clock
from directsuite.core.conclusion import Conclusions
from directsuite.core.destination import DestinationError
from directsuite.core.events import AttemptStarted
from directsuite.core.lifecycle import Lifecycle
from directsuite.core.limits import Limits
from directsuite.core.operation import SESSION_ID, Auth
from directsuite.core.outcome import ConnectionDroppedError, of_exception
from directsuite.errors import (
    ConnectFailedError,
    ConnectionLostError,
    DeadlineExceededError,
    DirectSuiteError,
    Outcome,
    OutcomeUnknownError,
)
from directsuite.wire.mismatch import MismatchError

R = TypeVar("R")


class Sending:
    """One attempt's client middleware: a dropped connection is reported, not silently sent again.

    begun: whether anything of a request may have left, once aiohttp was asked to send it. A body knows that best; of a
    request without one, aiohttp writes all it has when it makes the response object.
    """

    def __init__(self, outgoing: Outgoing | None) -> None:
        self._outgoing = outgoing
        self._written = False

    @property
    def begun(self) -> bool:
        """Whether anything of the request may have left."""
        return self._written if self._outgoing is None else self._outgoing.started

    async def __call__(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        """Send, once."""
        request.headers.pop("Cookie", None)  # of a session of the user's: they would go from one mailbox to another
        try:
            return await handler(request)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError):
            raise
        except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
            raise ConnectionDroppedError(error) from None
        finally:
            self._written = request.response is not None


class Attempts:
    """Makes attempts for the transport, over one HTTP session."""

    def __init__(self, lifecycle: Lifecycle, clock: Clock, *, attempt_timeout: float, max_response_bytes: int) -> None:
        self._lifecycle = lifecycle
        self._clock = clock
        self._attempt_timeout = attempt_timeout
        # The deadline is ours; but who can't connect may try again, whatever the operation.
        self._timeout = aiohttp.ClientTimeout(total=None, sock_connect=attempt_timeout)
        self._conclusions = Conclusions(clock, attempt_timeout=attempt_timeout)
        self._max_response_bytes = max_response_bytes

    async def run(self, call: Call[R]) -> R:
        """One request and its answer, within the deadline; every failure leaves it as a typed error."""
        outgoing = self._outgoing(call)
        sending = Sending(outgoing)
        bound = asyncio.timeout_at(call.deadline)
        call.begin_attempt(self._clock.monotonic())
        failure: Exception
        try:
            async with bound:
                incoming = await self._send(call, outgoing, sending, bound)
                value = await self._answer(call, incoming, bound)
            if not isinstance(value, DirectSuiteError):
                self._conclusions.succeeded(call)
                return value
            failure = value
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if not self._lifecycle.closed or (task is not None and task.cancelling()):
                self._conclusions.left(call, error, started=sending.begun)
                error.with_traceback(None)  # without aiohttp's frames, which hold URL and headers
                raise
            # Closing ended aiohttp's own work; nobody cancelled this call.
            failure = self._failure(call, outgoing, sending, bound, ConnectionDroppedError(error))
        except Exception as error:  # noqa: BLE001  sorted out here, and raised below without aiohttp's frames
            failure = self._failure(call, outgoing, sending, bound, error)
        finally:
            call.consumed = call.consumed or (outgoing is not None and outgoing.spent)
        if isinstance(failure, DirectSuiteError):
            self._conclusions.failed(call, failure)
        else:
            self._conclusions.left(call, failure, started=sending.begun)
        raise failure

    async def _answer(self, call: Call[R], incoming: Incoming, bound: asyncio.Timeout) -> R | DirectSuiteError:
        """What the answer says: the response, or the error that it is."""
        received = call.receive is not None and 200 <= incoming.status < 300
        try:
            if call.receive is not None and received:
                if call.options.timeout is None:
                    call.deadline = None  # an answer that flows is bounded by its pauses, not by its length
                self._bound_attempt(call, bound)
                value = await call.receive(incoming, lambda: self._bound_attempt(call, bound))
                self._report(call, Answer(incoming.status, incoming.headers, b""))
                return value
            if not call.operation.semantics.may_repeat:
                bound.reschedule(call.deadline)  # now that an answer is coming, nothing has to be kept for looking
            answer = await incoming.read(self._max_response_bytes)
            self._report(call, answer)
            return interpret(call.operation, answer, self._max_response_bytes)
        finally:
            if not (received and call.keep_open):
                incoming.close()

    async def _send(
        self, call: Call[Any], outgoing: Outgoing | None, sending: Sending, bound: asyncio.Timeout
    ) -> Incoming:
        """Wait for a credential, a connection and a place in the rate; then send, up to the answer's head."""
        operation = call.operation
        await admit(call, self._lifecycle.sleep)
        try:
            if not operation.semantics.may_repeat:
                # Two turns of the loop let aiohttp notice a kept-alive socket that the server has closed meanwhile.
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            http = self._lifecycle.http
            refuse_while_open(call)
            call.probe = call.endpoint.limits.breaker.enter()
            call.attempts += 1
            call.sent_at = self._clock.monotonic()
            if call.events.detailed:
                call.tell(AttemptStarted, attempt=call.attempts)
            if operation.semantics.may_repeat:
                self._bound_attempt(call, bound)
            elif call.proof is not None and call.deadline is not None:
                # Should no answer come, there has to be time left to look whether it happened.
                bound.reschedule(call.deadline - call.proof.kept_of(call.time_left()))
            incoming = Incoming(
                await http.request(
                    operation.method,
                    self._url(call),
                    data=outgoing,
                    headers=self._headers(call),
                    allow_redirects=False,
                    raise_for_status=False,
                    auto_decompress=True,
                    middlewares=(sending,),
                    timeout=self._timeout,
                    **self._lifecycle.request_options,
                ),
                lambda: self._closed(incoming, call.endpoint.limits if limited(call) else None),
            )
            call.status = incoming.status
            self._lifecycle.reading.add(incoming)
            return incoming
        except BaseException:
            if limited(call):
                call.endpoint.limits.release()
            raise

    def _closed(self, incoming: Incoming, limits: Limits | None) -> None:
        self._lifecycle.reading.discard(incoming)
        if limits is not None:
            limits.release()

    def _url(self, call: Call[Any]) -> URL:
        base = f"{call.endpoint.base_url}/" if call.path else str(call.endpoint.base_url)
        if call.operation.auth is not Auth.SESSION or call.credential is None:
            return URL(base + call.path, encoded=True)
        return URL(base + call.path.replace(SESSION_ID, quote(call.credential.token.reveal(), safe="")), encoded=True)

    def _headers(self, call: Call[Any]) -> dict[str, str]:
        headers = {} if call.operation.content_type is None else {"Content-Type": call.operation.content_type.value}
        if call.operation.auth is Auth.BEARER and call.credential is not None:
            headers["Authorization"] = f"Bearer {call.credential.token.reveal()}"
        return headers if call.options.headers is None else {**headers, **call.options.headers}

    def _outgoing(self, call: Call[Any]) -> Outgoing | None:
        if call.operation.method == "GET":
            return None
        return (call.body or EMPTY).open(call.operation.content_type)

    def _bound_attempt(self, call: Call[Any], bound: asyncio.Timeout) -> None:
        """From here on the attempt, or the next sign of life of a stream, has `attempt_timeout` seconds."""
        end = asyncio.get_running_loop().time() + self._attempt_timeout
        bound.reschedule(end if call.deadline is None else min(end, call.deadline))

    async def next_chunk(self, call: Call[Any], incoming: Incoming) -> bytes:
        """The next piece of a streamed answer, empty at its end; every failure leaves it as a typed error."""
        bound = asyncio.timeout_at(call.deadline)
        failure: Exception
        try:
            async with bound:
                self._bound_attempt(call, bound)
                return await incoming.chunk()
        except Exception as error:  # noqa: BLE001  as in run
            failure = self._failure(call, None, None, bound, error)
        raise failure

    def _failure(
        self,
        call: Call[Any],
        outgoing: Outgoing | None,
        sending: Sending | None,
        bound: asyncio.Timeout,
        error: Exception,
    ) -> Exception:
        """The typed error for what an attempt raised; what isn't the network's, such as a broken source, as it is."""
        started = sending is None or sending.begun
        if isinstance(error, DirectSuiteError):
            return error
        if outgoing is not None and outgoing.failure is not None:
            return outgoing.failure
        if isinstance(error, DestinationError):
            return _not_kept(call, error.reason)
        if isinstance(error, MismatchError):
            return unreadable(call.operation, error)
        if bound.expired():
            return self._out_of_time(call, sent=call.sent_at is not None and started)
        if isinstance(error, RuntimeError) and self._lifecycle.closed:  # aiohttp's word for a reader whose session went
            error = ConnectionDroppedError(error)
        return of_exception(error, call.operation, started=started) or error

    def _out_of_time(self, call: Call[Any], *, sent: bool) -> DirectSuiteError:
        loop = asyncio.get_running_loop()
        call.timed_out = True
        about: dict[str, Any] = {"operation": call.operation.name, "service": call.operation.service}
        outcome = Outcome.UNKNOWN if sent else Outcome.NOT_SENT
        if call.deadline is None or loop.time() < call.deadline:
            if not sent:
                return ConnectFailedError("no connection in the time of one attempt", outcome=outcome, **about)
            return ConnectionLostError("no answer in the time of one attempt", outcome=outcome, **about)
        what = "no answer came" if sent else "nothing was sent"
        error = DeadlineExceededError(f"the call's time is up: {what}", outcome=outcome, **about)
        error.retry_after = None if sent else call.endpoint.limits.rate.wait() or None
        return error

    def _report(self, call: Call[Any], answer: Answer) -> None:
        if call.options.observe is not None:
            elapsed = self._clock.monotonic() - call.started_at
            call.options.observe(Exchanged(answer=answer, elapsed=elapsed, attempts=call.attempts))


def _not_kept(call: Call[Any], reason: OSError) -> Exception:
    """What to say of a good answer that could not be written to its destination: an effect must not seem undone."""
    if call.operation.semantics.may_repeat:
        return reason
    text = f"it happened, but its answer could not be kept ({type(reason).__name__})"
    about: dict[str, Any] = {"operation": call.operation.name, "service": call.operation.service}
    error = OutcomeUnknownError(text, how_to_find_out=call.operation.how_to_find_out, **about)
    error.happened = True
    error.__cause__ = reason
    return error
