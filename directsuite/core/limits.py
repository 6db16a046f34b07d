"""How much of a service one suite may use at once: connections, and requests per second.

Both are ours rather than the connector's, so that a call that still waits here provably has sent nothing. Both are
fair: first come, first served.

The circuit breaker:

    closed ── so many attempts in a row without an answer ──► open ── pause over ──► one probe ── answered ──► closed
                                                                ▲                      │ not answered
                                                                └──────────────────────┘

Any answer closes it, a refusal too: what counts is that somebody is there.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Protocol

from directsuite.core.clock import Clock
from directsuite.core.events import CircuitClosed, CircuitOpened, Event, ServicePaused
from directsuite.core.retry import LONGEST_RETRY_AFTER


class Places(Protocol):
    """Places for requests, one after the other. interval: seconds between two, where there is no burst."""

    interval: float

    def wait(self) -> float:
        """Seconds until a request that came now might go."""
        ...

    def go(self) -> bool:
        """Take the next place, if it is there."""
        ...

    def hold(self, seconds: float) -> bool:
        """Let nobody go for so many seconds. Whether that is news."""
        ...


class SharedLimits(Protocol):
    """Limits that suites in several processes keep together, by the name of a service.

    connections: to one service, of this process; None for as many as its settings allow.
    """

    @property
    def connections(self) -> int | None: ...

    def places(self, service: str, *, per_second: float, burst: int, clock: Clock) -> Places:
        """Places for requests to a service."""
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

    def go(self) -> bool:
        """Take the next place, if it is there."""
        now = self._clock.monotonic()
        if self._arrival - self._tolerance > now:
            return False
        self._arrival = max(self._arrival, now) + self.interval
        return True

    def hold(self, seconds: float) -> bool:
        """Let nobody go for so many seconds, and then one after the other, without a burst. Whether that is news."""
        until = self._clock.monotonic() + seconds
        if until <= self._held_until:
            return False
        self._held_until = until
        self._arrival = max(self._arrival, until + self._tolerance)
        return True


class Limits:
    """The limits of one service, shared by everything in a suite that calls it.

    rate: the places for its requests, where they are not this suite's own.
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
        tell: Callable[[Event], None],
        rate: Places | None = None,
    ) -> None:
        self.connections = connections
        self.rate: Places = Rate(requests_per_second, burst, clock) if rate is None else rate
        self.breaker = Breaker(service, failures=circuit_failures, pause=circuit_pause, clock=clock, tell=tell)
        self._service = service
        self._tell = tell
        self._free = connections
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._queue = asyncio.Lock()
        self._queued = 0

    async def connect(self) -> None:
        """Wait for one of the service's connections; each is given back by one `release`."""
        if self._free:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                self.release()  # it was given to who just left
            else:
                with contextlib.suppress(ValueError):
                    self._waiting.remove(turn)
            raise

    def release(self) -> None:
        """Give a connection back: to who has waited longest."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1

    @property
    def exhausted(self) -> bool:
        """Whether no connection is left; right after a `release`, whether somebody waited for it."""
        return not self._free

    def go(self, *, connect: bool = False) -> bool:
        """Whether a request may go at once, which it then does. connect: with a connection."""
        if self._queued or (connect and not self._free) or not self.rate.go():
            return False
        self._free -= connect
        return True

    async def turn(self, check_wait: Callable[[float], None], sleep: Callable[[float], Awaitable[None]]) -> None:
        """Return when a request may go. check_wait: given the seconds that this takes at least, it may raise.

        A place is taken when it is there, not when somebody queues for it: who leaves the queue takes none along.
        """
        check_wait(self.rate.wait() + self._queued * self.rate.interval)
        self._queued += 1
        try:
            async with self._queue:
                while not self.rate.go():  # more than once where the service asks for a pause meanwhile
                    wait = self.rate.wait()
                    check_wait(wait)
                    await sleep(wait)
        finally:
            self._queued -= 1

    def pause(self, seconds: float) -> None:
        """Let nobody call the service for so many seconds, as it asked for."""
        seconds = min(seconds, LONGEST_RETRY_AFTER)
        if seconds > 0 and self.rate.hold(seconds):
            self._tell(ServicePaused(service=self._service, seconds=seconds))


class Breaker:
    """The breaker of one service. failures: in a row, 0 for no breaker at all. pause: seconds between probes."""

    def __init__(
        self, service: str, *, failures: int, pause: float, clock: Clock, tell: Callable[[Event], None]
    ) -> None:
        self._service = service
        self._failures = failures
        self._pause = pause
        self._clock = clock
        self._tell = tell
        self._in_a_row = 0
        self._probe_at: float | None = None
        self._probe = 0
        self._probes = 0
        self._probed_at = 0.0

    @property
    def closed(self) -> bool:
        """Whether all attempts may be made."""
        return self._probe_at is None

    def wait(self) -> float | None:
        """Seconds after which to ask again while the circuit is open; None where an attempt may be made now."""
        if self._probe_at is None:
            return None
        if self._probe:
            return self._pause
        left = self._probe_at - self._clock.monotonic()
        return left if left > 0 else None

    def enter(self) -> int:
        """Begin an attempt, which `wait` allows: its number as the probe, which nobody else makes meanwhile, or 0."""
        if self._probe_at is None:
            return 0
        self._probes += 1
        self._probe = self._probes
        self._probed_at = self._clock.monotonic()
        return self._probe

    def answered(self) -> None:
        """An attempt got an answer."""
        self._in_a_row = 0
        if self._probe_at is not None:
            self._probe_at, self._probe = None, 0
            self._tell(CircuitClosed(service=self._service))

    def unanswered(self, *, probe: int) -> None:
        """An attempt got none. probe: its number, 0 where it was none."""
        self._in_a_row += 1
        if not self._failures or self._in_a_row < self._failures:
            return
        if self._probe_at is not None and not (probe and probe == self._probe):
            return  # late word of attempts that began before it opened says nothing new
        self._probe = 0
        self._probe_at = self._clock.monotonic() + self._pause
        self._tell(CircuitOpened(service=self._service, failures=self._in_a_row, seconds=self._pause))

    def flows(self, *, probe: int) -> None:
        """The body of an attempt is being taken. One that takes longer than a pause leaves the probe to another."""
        if probe and self._clock.monotonic() - self._probed_at >= self._pause:
            self.abandoned(probe=probe)

    def abandoned(self, *, probe: int) -> None:
        """An attempt ended without telling anything about the service, such as by its caller's leaving."""
        if probe and probe == self._probe:
            self._probe = 0
