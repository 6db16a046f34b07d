"""Limits that the suites of all processes of a fleet share, through PostgreSQL.

async with SharedLimits(conninfo, processes=4, connections=20) as shared:
    async with ds.DirectSuite(settings, shared_limits=shared) as suite:
        ...

Requests a second are slots in PostgreSQL, of which each process leases some at a time:

    try_acquire ◄── slots leased, each with its time ◄── take_slots, one row for all (GCRA)
     ▲                                                     └─ no answer: this process's share, until there is one
     └──── none is used later than its slack allows: it lapses
"""

from __future__ import annotations

import asyncio
from collections import deque
from types import TracebackType
from typing import Self

from directsuite.core.checks import AT_LEAST_ONE
from directsuite.core.clock import Clock, SystemClock
from directsuite.core.limits import LocalRateLimiter
from directsuite.core.privacy import scrub_class
from directsuite.core.retry import MAX_RETRY_AFTER
from directsuite.durable.postgres import Connections, PostgresDatabase
from directsuite.errors import ConfigurationError, DirectSuiteError
from directsuite.secret import Secret, as_secret
from directsuite.sync import sql
from directsuite.sync.model import StoreError

__all__ = ["SharedLimits"]

_TIMEOUT = 2.0  # seconds for an answer of PostgreSQL, while which nobody goes
_RETRY_DELAY = 1.0  # seconds until PostgreSQL is asked again after none
_MAX_LEASE_AHEAD = (
    1.0  # seconds ahead of which no place is leased, for the pause that a service asks for may come before
)
_MAX_AHEAD = MAX_RETRY_AFTER + 60.0  # seconds: a request that is due later was scheduled by a clock that was ahead
_MIN_WAIT = 0.005  # seconds in which PostgreSQL may have answered
_SLACK = 0.05  # seconds after its time in which a place is used, where the burst leaves room for it


@scrub_class
class SharedLimits:
    """What suites in several processes may do together, service by service: `DirectSuite(shared_limits=...)`.

    The settings' requests_per_second and burst hold for all processes together then, and are the same in each; an
    answer that asks one process for a pause pauses all. conninfo: as PostgresStore has it; connections to PostgreSQL
    are made when a service is first called. processes: how many there are at most; where PostgreSQL doesn't answer,
    each keeps to its part of the rate. connections: to one service, of all processes together, of which each has an
    equal part; None for max_connections in each. name: of those who share, where one database has several. Open it
    before the suite; it belongs to one event loop. Raises ConfigurationError.
    """

    def __init__(
        self, conninfo: str | Secret, *, processes: int, connections: int | None = None, name: str = "directsuite"
    ) -> None:
        self._conninfo = as_secret(conninfo)
        del conninfo  # this frame may stand in a traceback
        AT_LEAST_ONE.require("processes", processes)
        AT_LEAST_ONE.allow_none().require("connections", connections)
        if connections is not None and connections < processes:
            raise ConfigurationError("connections has to be one or more for each process")
        Connections(self._conninfo, error=StoreError)
        self._processes = processes
        self.connections = None if connections is None else connections // processes
        """To one service, of this process."""
        self._name = name
        self._rates: list[SharedRate] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    def rate_limiter(self, service: str, *, per_second: float, burst: int, clock: Clock) -> SharedRate:
        """Places for requests to a service. For the suite."""
        rate = SharedRate(
            self._conninfo,
            f"{self._name} {service}",
            per_second=per_second,
            burst=burst,
            processes=self._processes,
            clock=clock,
        )
        self._rates.append(rate)
        return rate

    async def aclose(self) -> None:
        """Give everything back, and close the connections to PostgreSQL."""
        for part in self._rates:
            await part.aclose()


class SharedRate:
    """So many requests per second, and a burst, for all processes that give the same name. One event loop each.

    In any second no more than per_second + burst go, to within the time that PostgreSQL takes to answer; a burst of 1
    counts as 2, since PostgreSQL takes some. conninfo: as PostgresStore has it. processes: how many share it; where
    PostgreSQL doesn't answer, this one keeps to its part of per_second. lease: slots taken at a time at most, by a
    process that uses them all. Raises ConfigurationError.
    """

    def __init__(
        self,
        conninfo: str | Secret,
        name: str,
        *,
        per_second: float,
        burst: int,
        processes: int,
        lease: int = 5,
        clock: Clock | None = None,
    ) -> None:
        self._database = PostgresDatabase(Connections(conninfo, error=StoreError, max_connections=2, timeout=_TIMEOUT))
        del conninfo  # this frame may stand in a traceback
        self.interval = 1.0 / per_second
        self._name = name
        self._max_lease = lease
        self._lease_size = 1
        self._clock = clock or SystemClock()
        # Of what the burst allows, some is for slots that are used late, and the rest for those taken early.
        early = self.interval * max(1, burst - 1)
        self._slack = min(early, max(_SLACK, 2 * self.interval))
        self._tolerance = early - self._slack
        self._share = LocalRateLimiter(per_second / processes, 1, self._clock)
        self._slots = deque[float]()
        self._last_slot_at = float("-inf")
        self._paused_until = float("-inf")
        self._ask_at = float("-inf")
        self._is_lost = False
        self._is_prepared = False
        self._asking: asyncio.Task[None] | None = None
        self._pushing = set[asyncio.Task[None]]()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    @property
    def is_lost(self) -> bool:
        """Whether PostgreSQL gave no answer, and this process keeps to its share."""
        return self._is_lost

    def try_acquire(self) -> bool:
        """Take the next place, if it is there."""
        now = self._clock.monotonic()
        while self._slots and self._slots[0] + self._slack < now:
            self._slots.popleft()
        goes = False
        if self._slots and not self._is_lost:
            goes = self._slots[0] <= now
            if goes:
                self._slots.popleft()
        elif self._is_lost:
            goes = self._share.try_acquire()
        if not goes or (self._lease_size > 1 and len(self._slots) <= self._lease_size // 2):
            self._request_slots(now)
        return goes

    def seconds_until_slot(self) -> float:
        """Seconds until a request that came now might go, as far as is known; it may be more."""
        now = self._clock.monotonic()
        if self._is_lost:
            return self._share.seconds_until_slot()
        if self._slots:
            return max(0.0, self._slots[0] - now)
        self._request_slots(now)
        return max(_MIN_WAIT, self._ask_at - now)

    async def acquire(self) -> None:
        """Return when a request may go."""
        while not self.try_acquire():
            await self._clock.sleep(self.seconds_until_slot())

    def pause(self, seconds: float) -> bool:
        """Let nobody go for so many seconds, in any process; begun here, and at once there. Whether that is news."""
        news = self._pause_locally(seconds)
        if news:
            task = asyncio.ensure_future(self._push_back(seconds))
            self._pushing.add(task)
            task.add_done_callback(self._pushing.discard)
        return news

    async def push_back(self, seconds: float) -> None:
        """As `pause`, for an answer of 429 or 503; returns when the other processes' next leases know."""
        self._pause_locally(seconds)
        await self._push_back(seconds)

    async def aclose(self) -> None:
        """Give up what is under way, and close the connections."""
        tasks = [*self._pushing, *([] if self._asking is None else [self._asking])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._database.aclose()

    def _pause_locally(self, seconds: float) -> bool:
        until = self._clock.monotonic() + seconds
        if until <= self._paused_until:
            return False
        self._paused_until = self._ask_at = until
        self._slots.clear()
        self._share.pause(seconds)
        return True

    async def _push_back(self, seconds: float) -> None:
        try:
            await self._prepare()
            values = {"rate": self._name, "seconds": seconds + self._tolerance}
            await self._database.execute(sql.PUSH_BACK, values)
        except DirectSuiteError:
            self._mark_lost()  # others learn it from the service itself, as this one did

    def _request_slots(self, now: float) -> None:
        """Have slots leased, unless that is under way or was in vain just now.

        Who asks as soon as his last one is there gets more at a time: who doesn't would let them lapse.
        """
        if now >= self._ask_at and (self._asking is None or self._asking.done()):
            goes_on = now <= self._last_slot_at + self._slack
            self._lease_size = min(2 * self._lease_size, self._max_lease) if goes_on else 1
            self._asking = asyncio.ensure_future(self._lease_slots(self._lease_size))

    async def _lease_slots(self, slots: int) -> None:
        try:
            await self._prepare()
            slot = {"slots": slots, "spacing": self.interval, "tolerance": self._tolerance, "longest": _MAX_LEASE_AHEAD}
            values = slot | {"rate": self._name}
            ((wait,),) = await self._database.execute(sql.TAKE_SLOTS, values)
            if -wait > _MAX_AHEAD:
                longest = {"rate": self._name, "longest": _MAX_AHEAD + self._tolerance}
                await self._database.execute(sql.CORRECT_RATE, longest)
                ((wait,),) = await self._database.execute(sql.TAKE_SLOTS, values)
        except DirectSuiteError:
            self._mark_lost()
            return
        now = self._clock.monotonic()
        self._is_lost = False
        if now < self._paused_until:
            return
        if wait < 0:
            self._ask_at = max(self._ask_at, now - wait - _MAX_LEASE_AHEAD)
            return
        self._slots.extend(now + wait + number * self.interval for number in range(slots))
        self._last_slot_at = self._slots[-1]

    def _mark_lost(self) -> None:
        self._is_lost = True
        self._slots.clear()
        self._ask_at = max(self._ask_at, self._clock.monotonic() + _RETRY_DELAY)

    async def _prepare(self) -> None:
        if not self._is_prepared:
            await self._database.transaction(lambda transaction: transaction.ensure(sql.RATE_TABLES))
            self._is_prepared = True
