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
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any, Generic, TypeVar, cast

import attrs
from aiohttp import ClientTimeout
from yarl import URL

from directsuite.core.attempt import Answer, Incoming, interpret, no_hidden_replay
from directsuite.core.body import EMPTY, Outgoing, RequestBody
from directsuite.core.clock import Clock
from directsuite.core.credentials import Credential, TokenCache
from directsuite.core.destination import DestinationError
from directsuite.core.lifecycle import Lifecycle
from directsuite.core.limits import Limits
from directsuite.core.operation import Auth, Operation, Service
from directsuite.core.outcome import asks_for_new_credential, of_exception
from directsuite.core.retry import RetryPolicy
from directsuite.errors import (
    ConfigurationError,
    ConnectFailedError,
    ConnectionLostError,
    DeadlineExceededError,
    DirectSuiteError,
    Outcome,
    OutcomeUnknownError,
    ResponseDecodeError,
    ServiceError,
)
from directsuite.wire.mismatch import MismatchError

R = TypeVar("R")

Receive = Callable[[Incoming, Callable[[], None]], Awaitable[R]]
"""Reads a good answer itself, instead of whole; its second argument is called at every sign of life."""

Proof = Callable[[], Awaitable[R | None]]
"""Looks for proof that an operation with an unknown outcome happened: the response, or None."""

_MIDDLEWARES = (no_hidden_replay,)
_NO_TIMEOUT = ClientTimeout(total=None)  # the deadline is ours


@attrs.frozen(kw_only=True)
class Exchanged:
    """How a call went, for those who ask for the raw answer. elapsed: seconds."""

    answer: Answer
    elapsed: float
    attempts: int


@attrs.frozen(kw_only=True)
class Options:
    """What a facade's `with_options`, or a single call, may set. timeout: seconds for the whole call."""

    timeout: float | None = None
    retry: RetryPolicy | None = None
    observe: Callable[[Exchanged], None] | None = None


@attrs.define(kw_only=True)
class Endpoint:
    """One service as the transport sees it."""

    service: Service
    base_url: str | None
    limits: Limits
    credentials: TokenCache | None = None


@attrs.define(kw_only=True, eq=False)
class Call(Generic[R]):
    """One call under way. deadline: in the event loop's time. unknown: an attempt may have been acted upon."""

    operation: Operation[R]
    endpoint: Endpoint
    segments: tuple[str, ...] = attrs.field(repr=False)
    body: RequestBody | None
    options: Options
    policy: RetryPolicy
    receive: Receive[R] | None
    proof: Proof[R] | None
    started_at: float
    deadline: float | None
    attempts: int = 0
    unknown: bool = False
    renewed: bool = False
    consumed: bool = False
    keep_open: bool = False
    credential: Credential | None = None

    def may_repeat(self, error: BaseException) -> bool:
        """Whether another attempt may be made after this failure."""
        if not isinstance(error, DirectSuiteError) or self.consumed:
            return False
        if isinstance(error, ResponseDecodeError) and error.too_large:
            return False  # a repeat would be as large
        if error.outcome is Outcome.UNKNOWN:
            return self.operation.semantics.may_repeat
        return error.outcome in (Outcome.NOT_SENT, Outcome.REJECTED)


class Transport:
    """Calls operations of the four services over one pool of connections, from one event loop and process."""

    def __init__(
        self,
        endpoints: Mapping[Service, Endpoint],
        lifecycle: Lifecycle,
        *,
        clock: Clock,
        timeout: float,
        attempt_timeout: float,
        max_response_bytes: int,
        retry: RetryPolicy,
    ) -> None:
        self._endpoints = endpoints
        self._lifecycle = lifecycle
        self._clock = clock
        self._timeout = timeout
        self._attempt_timeout = attempt_timeout
        self._max_response_bytes = max_response_bytes
        self._retry = retry

    async def call(
        self,
        operation: Operation[R],
        *segments: str,
        body: RequestBody | None = None,
        options: Options,
        receive: Receive[R] | None = None,
        proof: Proof[R] | None = None,
    ) -> R:
        """The whole life of one call: the response, or a typed error."""
        call = self._begin(operation, segments, body, options, receive, proof)
        with self._lifecycle.under_way():
            try:
                return await self._attempt(call)  # most calls end here, without any retry machinery
            except DirectSuiteError as error:
                failure = error
            try:
                return await self._again(call, failure)
            except DirectSuiteError as error:
                failure = error
            settled = await self._settle(call, failure)
            if settled:
                return settled[0]
        raise self._verdict(call, failure)

    async def stream(
        self, operation: Operation[Any], *segments: str, body: RequestBody | None = None, options: Options
    ) -> AsyncGenerator[bytes]:
        """A good answer's body in pieces. Failures before its first byte are tried again, later ones raised.

        No total time-out unless `options.timeout` is set: a pause of `attempt_timeout` seconds ends it.
        """
        opened: list[Incoming] = []

        async def keep(incoming: Incoming, _alive: Callable[[], None]) -> bytes:
            """Leave the answer to the reader of the stream."""
            opened.append(incoming)
            return b""

        call = self._begin(cast("Operation[bytes]", operation), segments, body, options, keep, None)
        call.keep_open = True
        with self._lifecycle.under_way():
            try:
                try:
                    await self._attempt(call)
                except DirectSuiteError as error:
                    await self._again(call, error)
                while chunk := await self._next_chunk(call, opened[-1]):
                    yield chunk
            except DirectSuiteError as error:
                failure = self._verdict(call, error)
            else:
                return
            finally:
                for incoming in opened:
                    incoming.close()
        raise failure

    def _begin(
        self,
        operation: Operation[R],
        segments: tuple[str, ...],
        body: RequestBody | None,
        options: Options,
        receive: Receive[R] | None,
        proof: Proof[R] | None,
    ) -> Call[R]:
        self._lifecycle.check()
        endpoint = self._endpoints[operation.service]
        _refuse_incomplete(operation, endpoint)
        operation.check(segments)
        streamed = receive is not None and operation.semantics.may_repeat  # bounded by its pauses, not by its length
        timeout = options.timeout if options.timeout is not None or streamed else self._timeout
        return Call(
            operation=operation,
            endpoint=endpoint,
            segments=segments,
            body=body,
            options=options,
            policy=options.retry or self._retry,
            receive=receive,
            proof=proof,
            started_at=self._clock.monotonic(),
            deadline=None if timeout is None else asyncio.get_running_loop().time() + timeout,
        )

    async def _again(self, call: Call[R], failure: DirectSuiteError) -> R:
        """More attempts after a first failure, which tenacity is told of as its attempt 1."""
        known = [failure]
        retrying = call.policy.retrying(
            may_repeat=call.may_repeat, time_left=lambda: self._time_left(call), sleep=self._clock.sleep
        )
        async for attempt in retrying:
            with attempt:
                if known:
                    raise known.pop()
                return await self._attempt(call)
        raise AssertionError("tenacity's loop ends by return or raise")

    async def _attempt(self, call: Call[R]) -> R:
        """One attempt, and a second one outside the retry budget where it only wanted a fresh token or session."""
        try:
            return await self._exchange(call)
        except ServiceError as refusal:
            if not asks_for_new_credential(refusal):
                raise
            if not self._renewable(call):
                refusal.outcome = Outcome.FAILED
                raise
        call.renewed = True
        return await self._attempt(call)

    async def _exchange(self, call: Call[R]) -> R:
        """One request and its answer, within the deadline; every failure leaves it as a typed error."""
        outgoing = self._outgoing(call)
        bound = asyncio.timeout_at(call.deadline)
        value: R | DirectSuiteError
        try:
            async with bound:
                value = await self._send_and_receive(call, outgoing, bound)
        except Exception as error:  # noqa: BLE001  sorted out below; what isn't about the network is raised as it is
            value = self._failure(call, outgoing, bound, error)
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
                return await call.receive(incoming, lambda: self._bound_attempt(call, bound))
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
            call.credential = await endpoint.credentials.current()
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
            return Incoming(
                await self._lifecycle.http.request(
                    operation.method,
                    self._url(call),
                    data=outgoing,
                    headers=self._headers(call),
                    allow_redirects=False,
                    middlewares=_MIDDLEWARES,
                    timeout=_NO_TIMEOUT,
                    ssl=self._lifecycle.tls,
                    proxy=self._lifecycle.proxy,
                ),
                endpoint.limits.release if limited else _nothing,
            )
        except BaseException:
            if limited:
                endpoint.limits.release()
            raise

    async def _wait_for_rate(self, call: Call[Any]) -> None:
        rate = call.endpoint.limits.rate
        if rate.wait() >= self._time_left(call):
            error = DeadlineExceededError(
                "the limit of requests per second leaves no place within the deadline",
                operation=call.operation.name,
                service=call.operation.service,
                outcome=Outcome.NOT_SENT,
            )
            error.retry_after = rate.wait()
            raise error
        if wait := rate.take():
            await self._clock.sleep(wait)

    def _url(self, call: Call[Any]) -> URL:
        session_id = call.credential.token if call.credential is not None else None
        return URL(f"{call.endpoint.base_url}/{call.operation.target(call.segments, session_id)}", encoded=True)

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

    async def _next_chunk(self, call: Call[Any], incoming: Incoming) -> bytes:
        bound = asyncio.timeout_at(call.deadline)
        failure: DirectSuiteError
        try:
            async with bound:
                self._bound_attempt(call, bound)
                return await incoming.chunk()
        except Exception as error:  # noqa: BLE001  as in _exchange
            failure = self._failure(call, None, bound, error)
        raise failure

    def _failure(
        self, call: Call[Any], outgoing: Outgoing | None, bound: asyncio.Timeout, error: Exception
    ) -> DirectSuiteError:
        """The typed error for what an attempt raised; what isn't the network's, such as a broken source, is raised."""
        started = outgoing is None or outgoing.started
        if call.body is not None and not call.body.replayable and started:
            call.consumed = True
        if isinstance(error, DirectSuiteError):
            return error
        if outgoing is not None and outgoing.failure is not None:
            raise outgoing.failure from None
        if isinstance(error, DestinationError):
            raise error.reason from None
        if isinstance(error, MismatchError):
            text = f"the answer does not fit the operation: {error}"
            return ResponseDecodeError(
                text, path=error.path, operation=call.operation.name, service=call.operation.service
            )
        if bound.expired():
            return self._out_of_time(call, sent=call.attempts > 0 and started)
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
                return ConnectFailedError("no connection within attempt_timeout", outcome=outcome, **about)
            return ConnectionLostError("no answer within attempt_timeout", outcome=outcome, **about)
        what = "no answer came" if sent else "nothing was sent"
        return DeadlineExceededError(f"the call's time is up: {what}", outcome=outcome, **about)

    def _renewable(self, call: Call[Any]) -> bool:
        cache = call.endpoint.credentials
        if cache is None or call.credential is None or call.renewed or not cache.renewable:
            return False
        cache.invalidate(call.credential.generation)
        return True

    def _time_left(self, call: Call[Any]) -> float:
        """Seconds in which another attempt has to begin; for a stream without a deadline, the usual ones."""
        if call.deadline is not None:
            return call.deadline - asyncio.get_running_loop().time()
        return call.started_at + self._timeout - self._clock.monotonic()

    def _report(self, call: Call[Any], answer: Answer) -> None:
        if call.options.observe is not None:
            elapsed = self._clock.monotonic() - call.started_at
            call.options.observe(Exchanged(answer=answer, elapsed=elapsed, attempts=call.attempts))

    async def _settle(self, call: Call[R], failure: DirectSuiteError) -> tuple[R] | None:
        """The response of a call that turns out to have happened, or None: never by doing it again."""
        if not call.unknown or not isinstance(failure, ServiceError) or failure.outcome is not Outcome.FAILED:
            return None
        if call.operation.done_answers & {failure.status, failure.code}:
            return (call.operation.response(),)
        proven = await call.proof() if call.proof is not None else None
        return None if proven is None else (proven,)

    def _verdict(self, call: Call[Any], failure: DirectSuiteError) -> DirectSuiteError:
        """What the caller is told: no error says more, or less, than is known."""
        about: dict[str, Any] = {"operation": call.operation.name, "service": call.operation.service}
        error = failure
        if failure.outcome is Outcome.UNKNOWN and not call.operation.semantics.may_repeat:
            text = f"it may or may not have happened: {failure.explanation}"
            error = OutcomeUnknownError(text, how_to_find_out=call.operation.how_to_find_out, **about)
            error.__cause__ = failure
        elif isinstance(failure, ConnectFailedError) and call.unknown:
            text = f"an earlier attempt was sent and not answered; then {failure.explanation}"
            error = ConnectionLostError(text, outcome=Outcome.UNKNOWN, **about)
            error.__cause__ = failure
        elif isinstance(failure, DeadlineExceededError) and call.unknown:
            failure.outcome = Outcome.UNKNOWN
        if error.operation in (None, call.operation.name):  # a login's error keeps its own figures
            error.attempts = call.attempts
            error.elapsed = self._clock.monotonic() - call.started_at
        return error


def _refuse_incomplete(operation: Operation[Any], endpoint: Endpoint) -> None:
    if endpoint.base_url is None:
        name = "message" if operation.service is Service.MESSAGING else operation.service.value
        raise ConfigurationError(
            f"{operation.name} needs the {operation.service} service's URL: set {name}_url in Settings, "
            f"or DIRECTSUITE_{name.upper()}_URL"
        )
    if operation.auth is Auth.BEARER and endpoint.credentials is None:
        raise ConfigurationError(f"{operation.name} needs a token: DirectSuite(token=...), or DIRECTSUITE_TOKEN")
    if operation.auth is Auth.SESSION and endpoint.credentials is None:
        raise ConfigurationError(
            f"{operation.name} needs a login: DirectSuite(login=Login(username, password)), "
            "or DIRECTSUITE_LOGIN_USERNAME and DIRECTSUITE_LOGIN_PASSWORD"
        )


def _nothing() -> None:
    return None
