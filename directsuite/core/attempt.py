"""One HTTP attempt, within the call's deadline: credential, connection, place in the rate, request, answer.

Nothing here retries, and neither may aiohttp: it sends GET, PUT and DELETE a second time when a connection drops,
so a middleware gives that failure another name. Frames hold no URL, header or body in plain sight.
"""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar
from urllib.parse import quote

import aiohttp
from yarl import URL

from directsuite.core.answer import Answer, Incoming, interpret, unreadable
from directsuite.core.body import EMPTY, Outgoing
from directsuite.core.call import Call, Exchanged
from directsuite.core.clock import Clock
from directsuite.core.credentials import Credential, TokenCache
from directsuite.core.destination import DestinationError
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


async def no_hidden_replay(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """A client middleware: a dropped connection is reported, not silently sent again."""
    try:
        return await handler(request)
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError):
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise ConnectionDroppedError(error) from None


_MIDDLEWARES = (no_hidden_replay,)
_NO_TIMEOUT = aiohttp.ClientTimeout(total=None)  # the deadline is ours


class Attempts:
    """Makes attempts for the transport, over one HTTP session."""

    def __init__(self, lifecycle: Lifecycle, clock: Clock, *, attempt_timeout: float, max_response_bytes: int) -> None:
        self._lifecycle = lifecycle
        self._clock = clock
        self._attempt_timeout = attempt_timeout
        self._max_response_bytes = max_response_bytes

    async def run(self, call: Call[R]) -> R:
        """One request and its answer, within the deadline; every failure leaves it as a typed error."""
        outgoing = self._outgoing(call)
        bound = asyncio.timeout_at(call.deadline)
        value: R | DirectSuiteError
        try:
            async with bound:
                value = await self._send_and_receive(call, outgoing, bound)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if not self._lifecycle.closed or (task is not None and task.cancelling()):
                raise
            # Closing ended aiohttp's own work; nobody cancelled this call.
            value = self._failure(call, outgoing, bound, ConnectionDroppedError(error))
        except Exception as error:  # noqa: BLE001  sorted out below; what isn't about the network is raised as it is
            value = self._failure(call, outgoing, bound, error)
        finally:
            call.consumed = call.consumed or (outgoing is not None and outgoing.spent)
        if not isinstance(value, DirectSuiteError):
            return value
        call.unknown = call.unknown or value.outcome is Outcome.UNKNOWN
        raise value

    async def _send_and_receive(
        self, call: Call[R], outgoing: Outgoing | None, bound: asyncio.Timeout
    ) -> R | DirectSuiteError:
        incoming = await self._send(call, outgoing, bound)
        received = call.receive is not None and 200 <= incoming.status < 300
        try:
            if call.receive is not None and received:
                if call.options.timeout is None:
                    call.deadline = None  # an answer that flows is bounded by its pauses, not by its length
                self._bound_attempt(call, bound)
                value = await call.receive(incoming, lambda: self._bound_attempt(call, bound))
                self._report(call, Answer(incoming.status, incoming.headers, b""))
                return value
            answer = await incoming.read(self._max_response_bytes)
            self._report(call, answer)
            return interpret(call.operation, answer, self._max_response_bytes)
        finally:
            if not (received and call.keep_open):
                incoming.close()

    async def _send(self, call: Call[Any], outgoing: Outgoing | None, bound: asyncio.Timeout) -> Incoming:
        """Wait for a credential, a connection and a place in the rate; then send, up to the answer's head."""
        endpoint, operation = call.endpoint, call.operation
        if endpoint.credentials is not None and operation.auth in (Auth.BEARER, Auth.SESSION):
            call.credential = await _credential(endpoint.credentials)
        # Login waits for no connection: those who hold them may be waiting for it.
        limited = operation.auth is not Auth.NONE
        if limited:
            await endpoint.limits.connect()
        try:
            await self._wait_for_rate(call)
            if not operation.semantics.may_repeat:
                # Two turns of the loop let aiohttp notice a kept-alive socket that the server has closed meanwhile.
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            call.attempts += 1
            if operation.semantics.may_repeat:
                self._bound_attempt(call, bound)
            elif call.proof is not None and call.deadline is not None:
                # Should no answer come, there has to be time left to look whether it happened.
                bound.reschedule(call.deadline - min(call.proof.seconds, call.time_left() / 2))
            incoming = Incoming(
                await self._lifecycle.http.request(
                    operation.method,
                    self._url(call),
                    data=outgoing,
                    headers=self._headers(call),
                    allow_redirects=False,
                    middlewares=_MIDDLEWARES,
                    timeout=_NO_TIMEOUT,
                    **self._lifecycle.request_options,
                ),
                lambda: self._closed(incoming, endpoint.limits if limited else None),
            )
            self._lifecycle.reading.add(incoming)
            return incoming
        except BaseException:
            if limited:
                endpoint.limits.release()
            raise

    def _closed(self, incoming: Incoming, limits: Limits | None) -> None:
        self._lifecycle.reading.discard(incoming)
        if limits is not None:
            limits.release()

    async def _wait_for_rate(self, call: Call[Any]) -> None:
        rate = call.endpoint.limits.rate
        wait = rate.wait()
        if wait and wait >= call.time_left():
            error = DeadlineExceededError(
                "the limit of requests per second leaves no place within the deadline",
                operation=call.operation.name,
                service=call.operation.service,
                outcome=Outcome.NOT_SENT,
            )
            error.retry_after = wait
            raise error
        if wait := rate.take():
            await self._clock.sleep(wait)

    def _url(self, call: Call[Any]) -> URL:
        base = f"{call.endpoint.base_url}/"
        if call.operation.auth is not Auth.SESSION or call.credential is None:
            return URL(base + call.path, encoded=True)
        return URL(base + call.path.replace(SESSION_ID, quote(call.credential.token.reveal(), safe="")), encoded=True)

    def _headers(self, call: Call[Any]) -> dict[str, str]:
        headers = {} if call.operation.content_type is None else {"Content-Type": call.operation.content_type.value}
        if call.operation.auth is Auth.BEARER and call.credential is not None:
            headers["Authorization"] = f"Bearer {call.credential.token.reveal()}"
        return headers

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
        failure: DirectSuiteError
        try:
            async with bound:
                self._bound_attempt(call, bound)
                return await incoming.chunk()
        except Exception as error:  # noqa: BLE001  as in run
            failure = self._failure(call, None, bound, error)
        raise failure

    def _failure(
        self, call: Call[Any], outgoing: Outgoing | None, bound: asyncio.Timeout, error: Exception
    ) -> DirectSuiteError:
        """The typed error for what an attempt raised; what isn't the network's, such as a broken source, is raised."""
        started = outgoing is None or outgoing.started
        if isinstance(error, DirectSuiteError):
            return error
        if outgoing is not None and outgoing.failure is not None:
            if isinstance(outgoing.failure, DirectSuiteError):
                return outgoing.failure
            raise outgoing.failure from None
        if isinstance(error, DestinationError):
            return _not_kept(call, error.reason)
        if isinstance(error, MismatchError):
            return unreadable(call.operation, error)
        if bound.expired():
            return self._out_of_time(call, sent=call.attempts > 0 and started)
        if isinstance(error, RuntimeError) and self._lifecycle.closed:  # aiohttp's word for a reader whose session went
            error = ConnectionDroppedError(error)
        failure = of_exception(error, call.operation, started=started)
        if failure is None:
            raise error
        return failure

    def _out_of_time(self, call: Call[Any], *, sent: bool) -> DirectSuiteError:
        loop = asyncio.get_running_loop()
        about: dict[str, Any] = {"operation": call.operation.name, "service": call.operation.service}
        outcome = Outcome.UNKNOWN if sent else Outcome.NOT_SENT
        if call.deadline is None or loop.time() < call.deadline:
            if not sent:
                return ConnectFailedError("no connection in the time of one attempt", outcome=outcome, **about)
            return ConnectionLostError("no answer in the time of one attempt", outcome=outcome, **about)
        what = "no answer came" if sent else "nothing was sent"
        return DeadlineExceededError(f"the call's time is up: {what}", outcome=outcome, **about)

    def _report(self, call: Call[Any], answer: Answer) -> None:
        if call.options.observe is not None:
            elapsed = self._clock.monotonic() - call.started_at
            call.options.observe(Exchanged(answer=answer, elapsed=elapsed, attempts=call.attempts))


async def _credential(cache: TokenCache) -> Credential:
    """The current credential; where none can be had, nothing of the call was sent, whatever became of the login."""
    try:
        return await cache.current()
    except DirectSuiteError as error:
        if error.outcome is Outcome.UNKNOWN:
            error.outcome = Outcome.NOT_SENT
        raise


def _not_kept(call: Call[Any], reason: OSError) -> DirectSuiteError:
    """What to say of a good answer that could not be written to its destination: an effect must not seem undone."""
    if call.operation.semantics.may_repeat:
        raise reason from None
    text = f"it happened, but its answer could not be kept ({type(reason).__name__})"
    about: dict[str, Any] = {"operation": call.operation.name, "service": call.operation.service}
    error = OutcomeUnknownError(text, how_to_find_out=call.operation.how_to_find_out, **about)
    error.__cause__ = reason
    return error
