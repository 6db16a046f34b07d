"""How much of a service one suite may use at once: connections, and requests per second; nothing while it is down.

    try_admit ─► True, or else await admit ─► begin ─► the request ─► report, release

Connections and rate are ours rather than the connector's, so that a call that still waits here provably has sent
nothing. Both are fair: first come, first served. The circuit breaker keeps a service that is down from being asked
again and again:

    closed ── so many attempts in a row without a response ──► open ── pause over ──► one probe ── response ──► closed
                                                                 ▲                      │ no response, or none yet
                                                                 └──────────────────────┘

Any response closes it, also an error: it shows that the service is there. A probe that hangs does not delay the next.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from directsuite.core.clock import Clock
from directsuite.core.events import CircuitClosed, CircuitOpened, Event, ServicePaused
from directsuite.core.operation import Operation
from directsuite.core.retry import MAX_RETRY_AFTER
from directsuite.errors import CircuitOpenError, DeadlineExceededError, Outcome


class RateLimiter(Protocol):
    """The rate of a service's requests."""

    interval: float
    """Seconds between two requests, where there is no burst."""

    def wait(self) -> float:
        """Seconds until a request that came now might go."""
        ...

    def try_acquire(self) -> bool:
        """Take the next place in the rate. Return False where it is not there yet."""
        ...

    def pause(self, seconds: float) -> bool:
        """Hold every request back for so many seconds. Return False where a longer pause holds already."""
        ...


class SharedLimits(Protocol):
    """Limits that suites in several processes keep together, by the name of a service."""

    @property
    def connections(self) -> int | None:
        """To one service, of this process; None for as many as its settings allow."""
        ...

    def rate_limiter(self, service: str, *, per_second: float, burst: int, clock: Clock) -> RateLimiter:
        """The rate of requests to a service."""
        ...


class Rate:
    """Requests per second with a burst, after the generic cell rate algorithm (GCRA). interval: seconds between two."""

    def __init__(self, per_second: float, burst: int, clock: Clock) -> None:
        self.interval = 1.0 / per_second
        self._tolerance = self.interval * max(0, burst - 1)
        self._clock = clock
        self._arrival = float("-inf")
        self._held_until = float("-inf")

    def wait(self) -> float:
        """Seconds until a request that came now might go."""
        return max(0.0, self._arrival - self._tolerance - self._clock.monotonic())

    def try_acquire(self) -> bool:
        """Take the next place in the rate. Return False where it is not there yet."""
        now = self._clock.monotonic()
        if self._arrival - self._tolerance > now:
            return False
        self._arrival = max(self._arrival, now) + self.interval
        return True

    def pause(self, seconds: float) -> bool:
        """Hold requests back for so many seconds, then let them go one after the other, without a burst."""
        until = self._clock.monotonic() + seconds
        if until <= self._held_until:
            return False
        self._held_until = until
        self._arrival = max(self._arrival, until + self._tolerance)
        return True


class Limits:
    """The limits of one service, shared by everything in a suite that calls it.

    rate: of its requests, where it is not this suite's own.
    """

    def __init__(
        self,
        service: str,
        *,
        connections: int,
        requests_per_second: float,
        burst: int,
        circuit_failures: int,
        circuit_pause: float,
        clock: Clock,
        emit: Callable[[Event], None],
        rate: RateLimiter | None = None,
    ) -> None:
        self.connections = connections
        self.rate: RateLimiter = Rate(requests_per_second, burst, clock) if rate is None else rate
        self.breaker = CircuitBreaker(service, failures=circuit_failures, pause=circuit_pause, clock=clock, emit=emit)
        self._service = service
        self._emit = emit
        self._free = connections
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._queue = asyncio.Lock()
        self._queued = 0
        self._last_failure = ""

    def try_admit(self, *, connect: bool) -> bool:
        """Admit a request if it may go at once; return False if it has to wait. connect: with a connection."""
        if self._queued or (connect and not self._free) or not self.breaker.is_closed or not self.rate.try_acquire():
            return False
        self._free -= connect
        return True

    async def admit(
        self, operation: Operation[Any], *, time_left: Callable[[], float], sleep: Callable[[float], Awaitable[None]]
    ) -> None:
        """Wait until a request may go; a limited operation then has a connection, for one `release`.

        Raises DeadlineExceededError where it can't go within the time left (seconds), CircuitOpenError, and what sleep
        raises.
        """
        self.refuse_while_open(operation)
        if operation.limited:
            await self._connect()
        try:
            await self.acquire_rate(operation, time_left=time_left, sleep=sleep)
        except BaseException:
            if operation.limited:
                self.release()
            raise

    async def acquire_rate(
        self, operation: Operation[Any], *, time_left: Callable[[], float], sleep: Callable[[float], Awaitable[None]]
    ) -> None:
        """Wait until the rate has a place for a request.

        A place is taken when it is there, not when a request queues for it: one that leaves the queue takes none along.
        """
        if not self._queued and self.rate.try_acquire():
            return
        _refuse_wait(operation, self.rate.wait() + self._queued * self.rate.interval, time_left())
        self._queued += 1
        try:
            async with self._queue:
                while not self.rate.try_acquire():  # more than once where the service asks for a pause meanwhile
                    wait = self.rate.wait()
                    _refuse_wait(operation, wait, time_left())
                    await sleep(wait)
        finally:
            self._queued -= 1

    def refuse_while_open(self, operation: Operation[Any]) -> None:
        """Raise CircuitOpenError while the service is taken to be down."""
        wait = self.breaker.wait()
        if wait is None:
            return
        error = CircuitOpenError(
            f"the {self._service} service has not answered for many attempts in a row, and is left alone; "
            f"the last one: {self._last_failure}",
            operation=operation.name,
            service=operation.service,
            outcome=Outcome.NOT_SENT,
        )
        error.retry_after = wait
        raise error

    def begin(self, operation: Operation[Any]) -> int:
        """Begin a request that was admitted: its number as the circuit breaker's probe, or 0."""
        if self.breaker.is_closed:
            return 0
        self.refuse_while_open(operation)
        return self.breaker.enter()

    def report(self, *, answered: bool | None, probe: int, explanation: str = "") -> None:
        """Say how a request ended: with an answer, without one, or so that it says nothing of the service (None).

        explanation: of the error with which it ended.
        """
        if answered:
            self.breaker.record_success()
        elif answered is None:
            self.breaker.record_abandoned(probe=probe)
        else:
            self._last_failure = explanation
            self.breaker.record_failure(probe=probe)

    def pause(self, seconds: float) -> None:
        """Hold calls of the service back for so many seconds, as it asked for."""
        seconds = min(seconds, MAX_RETRY_AFTER)
        if seconds > 0 and self.rate.pause(seconds):
            self._emit(ServicePaused(service=self._service, seconds=seconds))

    @property
    def is_exhausted(self) -> bool:
        """No connection is left; right after a `release` this means that a call waited for it."""
        return not self._free

    def release(self) -> None:
        """Give a connection back: to the call that has waited longest."""
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        self._free += 1

    async def _connect(self) -> None:
        """Wait for one of the service's connections; each is given back by one `release`."""
        if self._free:
            self._free -= 1
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            await waiter
        except BaseException:
            if waiter.done() and not waiter.cancelled():
                self.release()  # it was given to a call that just left
            else:
                with contextlib.suppress(ValueError):
                    self._waiting.remove(waiter)
            raise


class CircuitBreaker:
    """The breaker of one service. failures: in a row, 0 for no breaker at all. pause: seconds between probes."""

    def __init__(
        self, service: str, *, failures: int, pause: float, clock: Clock, emit: Callable[[Event], None]
    ) -> None:
        self._service = service
        self._failures = failures
        self._pause = pause
        self._clock = clock
        self._emit = emit
        self._in_a_row = 0
        self._probe_at: float | None = None
        """The time of the next probe; None while the circuit is closed."""
        self._probe = 0
        """The number of the last probe, 0 if it has ended."""
        self._probes = 0

    @property
    def is_closed(self) -> bool:
        """All attempts may be made."""
        return self._probe_at is None

    def wait(self) -> float | None:
        """Seconds after which to ask again while the circuit is open; None where an attempt may be made now."""
        if self._probe_at is None:
            return None
        left = self._probe_at - self._clock.monotonic()
        return left if left > 0 else None

    def enter(self) -> int:
        """Begin an attempt, which `wait` allows. Return its number as a probe, 0 if the circuit is closed.

        The next probe may begin one pause later, even if this one has not ended: it may hang.
        """
        if self._probe_at is None:
            return 0
        self._probes += 1
        self._probe = self._probes
        self._probe_at = self._clock.monotonic() + self._pause
        return self._probe

    def record_success(self) -> None:
        """An attempt got an answer."""
        self._in_a_row = 0
        if self._probe_at is not None:
            self._probe_at, self._probe = None, 0
            self._emit(CircuitClosed(service=self._service))

    def record_failure(self, *, probe: int) -> None:
        """An attempt got none. probe: its number, 0 where it was none."""
        self._in_a_row += 1
        if not self._failures or self._in_a_row < self._failures:
            return
        if self._probe_at is not None and not (probe and probe == self._probe):
            return  # late word of attempts that began before it opened says nothing new
        self._probe = 0
        self._probe_at = self._clock.monotonic() + self._pause
        self._emit(CircuitOpened(service=self._service, failures=self._in_a_row, seconds=self._pause))

    def record_abandoned(self, *, probe: int) -> None:
        """Record an attempt that ended without showing anything of the service, because its caller left, for example.

        If it was the last probe, another may begin immediately.
        """
        if probe and probe == self._probe:
            self._probe, self._probe_at = 0, self._clock.monotonic()


def _refuse_wait(operation: Operation[Any], wait: float, time_left: float) -> None:
    """Raise DeadlineExceededError where so many seconds of waiting don't fit into those that are left."""
    if wait < time_left:
        return
    error = DeadlineExceededError(
        "the service's limit of requests, or the pause that it asked for, leaves no place within the deadline",
        operation=operation.name,
        service=operation.service,
        outcome=Outcome.NOT_SENT,
    )
    error.retry_after = wait
    raise error
