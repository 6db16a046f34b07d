"""Limits that suites in several processes share through PostgreSQL.

async with SharedLimits(conninfo, processes=4, connections=20) as shared:
    async with ds.DirectSuite(settings, shared_limits=shared) as suite:
        ...

A slot is the permission to send one request at a given time. Each process leases slots from PostgreSQL:

    try_acquire ◄── leased slots ◄── take_slots, one row for all processes (GCRA)
     │                                 └─ if PostgreSQL fails: this process's share of the rate
     └─ a slot that is older than its slack lapses
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Self

from directsuite.core.checks import AT_LEAST_ONE
from directsuite.core.clock import Clock
from directsuite.core.limits import LocalRateLimiter
from directsuite.core.privacy import scrub_class
from directsuite.core.retry import MAX_RETRY_AFTER
from directsuite.durable.database import Tables, load_statements
from directsuite.durable.postgres import PostgresDatabase
from directsuite.errors import ConfigurationError, DirectSuiteError
from directsuite.sync.model import StoreError
from directsuite.wire.models import Secret

__all__ = ["SharedLimits"]

_SQL = load_statements("directsuite.sync", "shared_limits")
_TABLES = Tables("rate", _SQL["rate_tables"])

_TIMEOUT = 2.0  # seconds for PostgreSQL to respond; without slots, no request is sent
_RETRY_DELAY = 1.0  # seconds after a failure of PostgreSQL
_MAX_LEASE_AHEAD = 1.0  # seconds; slots further ahead would delay the effect of a pause
_MAX_AHEAD = MAX_RETRY_AFTER + 60.0  # seconds; a later time was stored while a clock was ahead
_MAX_LEASE = 5  # slots
_MIN_WAIT = 0.005  # seconds until PostgreSQL may have responded
_SLACK = 0.05  # seconds for which a slot may be used late, if the burst permits


@scrub_class
class SharedLimits:
    """Limits that suites in several processes share: `DirectSuite(shared_limits=...)`.

    The settings' requests_per_second and burst then apply to all processes together, and must be the same in each. A
    response that requests a pause pauses all processes. Open it before the suite, in the same event loop.

    conninfo: as for `PostgresStore`. Connections are opened at the first call of a service.
    processes: their maximum number. If PostgreSQL fails, each uses an equal share of the rate.
    connections: the total for one service, divided equally among the processes. None: max_connections in each.
    name: identifies the group of processes, if several groups use the database.

    Raises ConfigurationError if an argument is invalid or psycopg is not installed.
    """

    def __init__(
        self, conninfo: str | Secret, *, processes: int, connections: int | None = None, name: str = "directsuite"
    ) -> None:
        self._database = PostgresDatabase(conninfo, error=StoreError, max_connections=2, timeout=_TIMEOUT)
        del conninfo  # a traceback may show the variables of this frame
        AT_LEAST_ONE.require("processes", processes)
        AT_LEAST_ONE.allow_none().require("connections", connections)
        if connections is not None and connections < processes:
            raise ConfigurationError(f"connections must be at least {processes}, the number of processes")
        self._processes = processes
        self.connections = None if connections is None else connections // processes
        """The maximum number of connections of this process to each service. None: use the settings."""
        self._name = name
        self._rates: list[SharedRate] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    def rate_limiter(self, service: str, *, per_second: float, burst: int, clock: Clock) -> SharedRate:
        """Return the rate limiter of a service. Called by the suite."""
        name, processes = f"{self._name} {service}", self._processes
        rate = SharedRate(self._database, name, per_second, burst, processes, clock)
        self._rates.append(rate)
        return rate

    async def aclose(self) -> None:
        """Cancel requests to PostgreSQL, and close the connections."""
        for rate in self._rates:
            await rate.cancel()
        self._rates.clear()
        await self._database.aclose()
        # A later suite may use these limits.
        self._database = PostgresDatabase(
            self._database.conninfo, error=StoreError, max_connections=2, timeout=_TIMEOUT
        )


class SharedRate:
    """A rate limiter that all processes with the same `name` share.

    Any second has at most per_second + burst requests, apart from PostgreSQL's response time. To compensate for that, a
    burst of 1 counts as 2.

    processes: as for `SharedLimits`.
    """

    def __init__(
        self, database: PostgresDatabase, name: str, per_second: float, burst: int, processes: int, clock: Clock
    ) -> None:
        self._database = database
        self.interval = 1.0 / per_second
        self._name = name
        self._lease_size = 1
        self._clock = clock
        # Part of the burst permits the late use of slots, the rest their early use.
        early = self.interval * max(1, burst - 1)
        self._slack = min(early, max(_SLACK, 2 * self.interval))
        self._tolerance = early - self._slack
        self._share = LocalRateLimiter(per_second / processes, 1, self._clock)
        self._slots = deque[float]()
        self._last_slot_at = float("-inf")
        self._paused_until = float("-inf")
        self._ask_at = float("-inf")
        self.is_lost = False
        """True while PostgreSQL fails, so that this process uses its share of the rate."""
        self._is_prepared = False
        self._asking: asyncio.Task[None] | None = None
        self._pushing = set[asyncio.Task[None]]()

    def try_acquire(self) -> bool:
        """Consume a slot if one is available now. Return False if none is."""
        now = self._clock.monotonic()
        while self._slots and self._slots[0] + self._slack < now:
            self._slots.popleft()
        if self.is_lost:
            goes = self._share.try_acquire()
        elif goes := bool(self._slots) and self._slots[0] <= now:
            self._slots.popleft()
        if not goes or (self._lease_size > 1 and len(self._slots) <= self._lease_size // 2):
            self._request_slots(now)
        return goes

    def seconds_until_slot(self) -> float:
        """Return the estimated seconds until the next slot. It may take longer."""
        now = self._clock.monotonic()
        if self.is_lost:
            return self._share.seconds_until_slot()
        if self._slots:
            return max(0.0, self._slots[0] - now)
        self._request_slots(now)
        return max(_MIN_WAIT, self._ask_at - now)

    def pause(self, seconds: float) -> bool:
        """Block all requests, here immediately, in other processes in the background.

        Return False if a pause at least as long is already in effect.
        """
        if not self._share.pause(seconds):
            return False
        self._paused_until = self._ask_at = self._clock.monotonic() + seconds
        self._slots.clear()
        task = asyncio.ensure_future(self._push_back(seconds))
        self._pushing.add(task)
        task.add_done_callback(self._pushing.discard)
        return True

    async def cancel(self) -> None:
        """Cancel requests to PostgreSQL."""
        tasks = [*self._pushing, *([] if self._asking is None else [self._asking])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _push_back(self, seconds: float) -> None:
        try:
            await self._prepare()
            values = {"rate": self._name, "seconds": seconds + self._tolerance}
            await self._database.execute(_SQL["push_back"], values)
        except DirectSuiteError:
            self._mark_lost()  # the service pauses other processes itself

    def _request_slots(self, now: float) -> None:
        # The lease grows only while this process uses all its slots.
        if now >= self._ask_at and (self._asking is None or self._asking.done()):
            goes_on = now <= self._last_slot_at + self._slack
            self._lease_size = min(2 * self._lease_size, _MAX_LEASE) if goes_on else 1
            self._asking = asyncio.ensure_future(self._lease_slots(self._lease_size))

    async def _lease_slots(self, slots: int) -> None:
        try:
            await self._prepare()
            values = {"rate": self._name, "slots": slots, "spacing": self.interval, "tolerance": self._tolerance}
            values["longest"] = _MAX_LEASE_AHEAD
            ((wait,),) = await self._database.execute(_SQL["take_slots"], values)
            if -wait > _MAX_AHEAD:
                longest = {"rate": self._name, "longest": _MAX_AHEAD + self._tolerance}
                await self._database.execute(_SQL["correct_rate"], longest)
                ((wait,),) = await self._database.execute(_SQL["take_slots"], values)
        except DirectSuiteError:
            self._mark_lost()
            return
        now = self._clock.monotonic()
        self.is_lost = False
        if now < self._paused_until:
            return
        if wait < 0:
            self._ask_at = max(self._ask_at, now - wait - _MAX_LEASE_AHEAD)
            return
        self._slots.extend(now + wait + number * self.interval for number in range(slots))
        self._last_slot_at = self._slots[-1]

    def _mark_lost(self) -> None:
        self.is_lost = True
        self._slots.clear()
        self._ask_at = max(self._ask_at, self._clock.monotonic() + _RETRY_DELAY)

    async def _prepare(self) -> None:
        if not self._is_prepared:
            await self._database.transaction(lambda transaction: transaction.ensure(_TABLES))
            self._is_prepared = True
