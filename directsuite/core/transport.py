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
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any, TypeVar, cast

from directsuite.core.attempt import Attempts
from directsuite.core.call import Call, Endpoint, Options, Proof, Receive, StreamReader
from directsuite.core.clock import Clock
from directsuite.core.events import Events, RetryScheduled
from directsuite.core.operation import Auth, Operation, Semantics, Service
from directsuite.core.outcome import asks_for_new_credential
from directsuite.core.response import Incoming, unreadable
from directsuite.core.retry import Backoff, RetryPolicy
from directsuite.core.session import NEVER, Lifecycle
from directsuite.core.under_way import UnderWay
from directsuite.core.upload import RequestBody
from directsuite.errors import (
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
from directsuite.wire.codec import Codec
from directsuite.wire.parsing import MismatchError

R = TypeVar("R")
T = TypeVar("T")

_LARGEST_ELEMENT = 134_217_728
"""Bytes of a stream that may be kept until they are a whole element; `max_response_bytes` if that is more."""
_NUMBERS = itertools.count(1)


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
        events: Events,
        codec: Codec,
    ) -> None:
        self._endpoints = endpoints
        self.lifecycle = lifecycle
        self.clock = clock
        self.timeout = timeout
        self.codec = codec
        self._max_response_bytes = max_response_bytes
        self._attempts = Attempts(
            lifecycle,
            clock,
            timeout=timeout,
            attempt_timeout=attempt_timeout,
            max_response_bytes=max_response_bytes,
            codec=codec,
        )
        self._retry = retry
        self.events = events

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
        segments = ()  # the frame may stand in a traceback, and holds nothing of what was asked
        with UnderWay(call, self.lifecycle, self.clock):
            try:
                return await self._attempts.run(call)  # most calls end here, without any retry machinery
            except DirectSuiteError as error:
                failure = error
            try:
                return await self._more_attempts(call, failure)
            except DirectSuiteError as error:
                if error is call.own:
                    raise
                failure = error
            settled = await self._settle(call, failure)
            if settled:
                return settled[0]
            raise self._verdict(call, failure).with_traceback(None)  # the caller's line, without the way through here

    def looking(self, seconds: float) -> Looking:
        """The rhythm of looking for so many seconds; its pauses raise ClosedError where the suite ends."""
        return Looking(seconds, self.clock, self.lifecycle.sleep)

    def window(self, service: Service) -> int:
        """How many requests a listing keeps under way: twice the service's connections."""
        return 2 * self._endpoints[service].limits.connections

    async def stream(
        self,
        operation: Operation[Any],
        *segments: str,
        body: RequestBody | None = None,
        options: Options,
        reader: StreamReader[T],
    ) -> AsyncGenerator[T]:
        """What `reader` finds in a good answer while it comes. Failures before its first byte are tried again.

        No total time-out unless `options.timeout` is set: a pause of `attempt_timeout` seconds ends it.
        """
        opened: list[Incoming] = []

        async def keep(incoming: Incoming, _alive: Callable[[], None]) -> bytes:
            """Leave the answer to the reader of the stream."""
            opened.append(incoming)
            return b""

        call = self._begin(cast("Operation[bytes]", operation), segments, body, options, keep, None)
        segments = ()  # the frame may stand in a traceback, and holds nothing of what was asked
        call.keep_open = True
        with UnderWay(call, self.lifecycle, self.clock):
            try:
                try:
                    await self._attempts.run(call)
                except DirectSuiteError as error:
                    await self._more_attempts(call, error)
                while chunk := await self._attempts.next_chunk(call, opened[-1]):
                    for element in reader.feed(chunk):
                        yield element
                    if reader.pending > max(self._max_response_bytes, _LARGEST_ELEMENT):
                        raise _too_large(operation, max(self._max_response_bytes, _LARGEST_ELEMENT))
                reader.finish()
                return
            except DirectSuiteError as error:
                failure = error
            except MismatchError as mismatch:
                failure = unreadable(operation, mismatch)
            finally:
                chunk = b""  # the frame may stand in a traceback, and holds nothing of what was answered
                for incoming in opened:
                    incoming.close()
                if reader.skipped:
                    call.tell_skipped(reader.skipped)
            raise self._verdict(call, failure).with_traceback(None)

    def _begin(
        self,
        operation: Operation[R],
        segments: tuple[str, ...],
        body: RequestBody | None,
        options: Options,
        receive: Receive[R] | None,
        proof: Proof[R] | None,
    ) -> Call[R]:
        self.lifecycle.check(within_a_call=options.within_a_call)
        endpoint = self._endpoints[operation.service]
        if endpoint.base_url is None or (operation.needs_credential and endpoint.credentials is None):
            raise _incomplete(operation, endpoint)
        path = operation.filled(segments)
        timeout = options.timeout if options.timeout is not None else self.timeout
        now = self.lifecycle.bounds.loop.time()
        started_at = self.clock.monotonic()
        return Call(
            number=next(_NUMBERS),
            events=self.events,
            detailed=self.events.detailed,
            operation=operation,
            endpoint=endpoint,
            path=path,
            body=body,
            options=options,
            policy=options.retry or self._retry,
            receive=receive,
            proof=proof,
            started_at=started_at,
            tried_at=started_at,
            deadline=now + timeout,
            retry_until=now + timeout,
        )

    async def _more_attempts(self, call: Call[R], failure: DirectSuiteError) -> R:
        """After a first one that failed: at once where it only wanted a fresh credential, then by the retry policy."""
        if self._renews(call, failure):
            try:
                return await self._attempt(call)
            except DirectSuiteError as error:
                failure = error
        if call.may_repeat(failure):
            return await self._again(call, failure)
        raise failure

    async def _again(self, call: Call[R], failure: DirectSuiteError) -> R:
        """Attempts after a first failure, which tenacity is told of as its attempt 1."""
        known = [failure]

        def scheduled(wait: float) -> None:
            """Tell of the next attempt."""
            call.tell(RetryScheduled, attempt=call.attempts + 1, wait=wait)

        retrying = call.policy.retrying(
            may_repeat=call.may_repeat,
            time_left=call.time_left,
            sleep=self.lifecycle.sleep,
            scheduled=scheduled,
            answer=self.lifecycle.wait,
        )
        async for attempt in retrying:
            with attempt:
                if known:
                    attempt.retry_state.start_time -= self.clock.monotonic() - call.started_at
                    raise known.pop()
                return await self._attempt(call)
        raise AssertionError("tenacity's loop ends by return or raise")

    async def _attempt(self, call: Call[R]) -> R:
        """One attempt, and a second one outside the retry budget where it only wanted a fresh token or session."""
        while True:
            try:
                call.begin_attempt(self.clock.monotonic())
                return await self._attempts.run(call)
            except ServiceError as refusal:
                if not self._renews(call, refusal):
                    raise

    def _renews(self, call: Call[Any], failure: DirectSuiteError) -> bool:
        """Whether the attempt failed for want of a fresh credential, which the next one is going to have."""
        if failure is call.own or not asks_for_new_credential(failure):
            return False
        cache = call.endpoint.credentials
        if cache is None or call.credential is None or call.renewed or not cache.renewable:
            failure.outcome = Outcome.FAILED
            return False
        cache.invalidate(call.credential.generation)
        call.renewed = not call.consumed  # a body that is consumed can't be sent again: the next call has the fresh one
        return call.renewed

    async def _settle(self, call: Call[R], failure: DirectSuiteError) -> tuple[R] | None:
        """The response of a call that turns out to have happened, or None: by proof, never by doing it again."""
        if isinstance(failure, OutcomeUnknownError):
            return None
        if failure.outcome is Outcome.UNKNOWN and not call.operation.may_repeat:
            return await self._look_for_proof(call)
        refused = isinstance(failure, ServiceError) and failure.outcome is Outcome.FAILED
        if not (refused and call.unknown):
            return None
        # A repeat was refused after a first attempt of unknown outcome: perhaps because that one had done it.
        if isinstance(failure, ServiceError) and call.operation.done_answers & {failure.status, failure.code}:
            return (call.operation.response(),)
        return await self._look_for_proof(call)

    async def _look_for_proof(self, call: Call[R]) -> tuple[R] | None:
        return await look_for_proof(call, self.clock, self.lifecycle.sleep, timeout=self.timeout)

    def _verdict(self, call: Call[Any], failure: DirectSuiteError) -> DirectSuiteError:
        """What the caller is told: no error says more, or less, than is known."""
        about: dict[str, Any] = {"operation": call.operation.name, "service": call.operation.service}
        error = failure
        if isinstance(failure, OutcomeUnknownError):
            pass
        elif failure.outcome is Outcome.UNKNOWN and not call.operation.may_repeat:
            text = f"it may or may not have happened: {failure.explanation}"
            unknown = OutcomeUnknownError(text, how_to_find_out=call.operation.how_to_find_out, **about)
            unknown.looked = call.looked
            unknown.__cause__ = failure
            error = unknown
        elif call.unknown and isinstance(failure, TransportError) and failure.outcome is Outcome.NOT_SENT:
            # So much for the last attempt; an earlier one may have been acted upon.
            kind = DeadlineExceededError if isinstance(failure, DeadlineExceededError) else ConnectionLostError
            text = f"an earlier attempt was sent and not answered; then {failure.explanation}"
            error = kind(text, outcome=Outcome.UNKNOWN, **about)
            error.retry_after = failure.retry_after
            error.__cause__ = failure
        elif call.unknown and (
            failure.outcome is not Outcome.FAILED or call.operation.semantics is Semantics.IDEMPOTENT
        ):
            failure.outcome = Outcome.UNKNOWN  # what refuses the repeat says nothing of the attempt before
        if isinstance(error, OutcomeUnknownError) and call.proof is not None and call.proof.verdict is not None:
            error = call.proof.verdict(error)
        for told in (failure, error):
            if told.operation in (None, call.operation.name):  # a login's error keeps its own figures
                told.operation, told.service = call.operation.name, call.operation.service
                told.attempts = call.attempts
                told.elapsed = self.clock.monotonic() - call.started_at
        return error


def _too_large(operation: Operation[Any], limit: int) -> ResponseDecodeError:
    text = f"one element of the answer is larger than {limit} bytes: raise max_response_bytes"
    return ResponseDecodeError(text, too_large=True, operation=operation.name, service=operation.service)


def _incomplete(operation: Operation[Any], endpoint: Endpoint) -> ConfigurationError:
    if endpoint.base_url is None:
        name = "message" if operation.service is Service.MESSAGING else operation.service.value
        return ConfigurationError(
            f"{operation.name} needs the {operation.service} service's URL: set {name}_url in Settings, "
            f"or DIRECTSUITE_{name.upper()}_URL"
        )
    if operation.auth is Auth.BEARER:
        return ConfigurationError(f"{operation.name} needs a token: DirectSuite(token=...), or DIRECTSUITE_TOKEN")
    return ConfigurationError(
        f"{operation.name} needs a login: DirectSuite(login=Login(username, password)), "
        "or DIRECTSUITE_LOGIN_USERNAME and DIRECTSUITE_LOGIN_PASSWORD"
    )


_BACKOFF = Backoff(0.5, 8.0)  # seconds between looks


class Looking:
    """The rhythm of looking for so many seconds: pauses twice as long each time, and a last look at the end."""

    def __init__(self, seconds: float, clock: Clock, sleep: Callable[[float], Awaitable[None]]) -> None:
        self._clock = clock
        self._sleep = sleep
        self._end = clock.monotonic() + seconds
        self._looks = 0

    @property
    def over(self) -> bool:
        """Whether the time to look is over."""
        return self._clock.monotonic() >= self._end

    async def pause(self) -> None:
        """Return when it is time to look again."""
        self._looks += 1
        await self._sleep(min(_BACKOFF.after(self._looks), max(0.0, self._end - self._clock.monotonic())))


async def look_for_proof(
    call: Call[R], clock: Clock, sleep: Callable[[float], Awaitable[None]], *, timeout: float
) -> tuple[R] | None:
    """The response that the lost answer would have given, or None. Within the call's deadline.

    timeout: seconds for the looking of a stream, which has no deadline.
    """
    if call.proof is None:
        return None
    now = asyncio.get_running_loop().time()
    deadline = now + timeout if call.deadline == NEVER else call.deadline
    left = deadline - now
    looking = Looking(min(call.proof.seconds, left), clock, sleep)
    with contextlib.suppress(TimeoutError):  # a look's own too: it knows that looking on shows no more
        async with asyncio.timeout_at(deadline):
            while True:
                over = looking.over
                try:
                    proven = await call.proof.look()
                except ClosedError:
                    return None
                except DirectSuiteError:  # the next look may see more
                    saw = False
                else:
                    if proven is not None:
                        return (proven,)
                    saw = True
                if over:
                    call.looked = saw and call.proof.seconds <= left
                    return None
                try:
                    await looking.pause()
                except ClosedError:
                    return None
    return None
