"""Requests a second that all processes of a fleet share: places in PostgreSQL, leased some at a time.

    go ◄── places leased, each with its time ◄── take_places, one row for all (GCRA)
     ▲                                              └─ no answer: this process's share, until there is one
     └──── none is used later than its slack allows: it lapses

It is what `directsuite.core.limits` calls places.
"""

from __future__ import annotations

import asyncio
from collections import deque
from types import TracebackType
from typing import Self

from directsuite.core.clock import Clock, SystemClock
from directsuite.core.limits import Rate
from directsuite.durable.postgres import Connection, Connections, ensure_part
from directsuite.errors import DirectSuiteError
from directsuite.secret import Secret
from directsuite.sync.model import StoreError

_VERSION = 1
_TABLES = (
    "CREATE UNLOGGED TABLE directsuite.rate (name text PRIMARY KEY, arrival timestamptz NOT NULL)",
    # A crash empties a table that isn't logged: the row is made wherever it is missing.
    """
    CREATE FUNCTION directsuite.take_places(
        rate_name text, places integer, spacing float8, tolerance float8, longest float8
    ) RETURNS float8 LANGUAGE plpgsql AS $$
    DECLARE
        next_arrival timestamptz;
        this_moment timestamptz;
        wait float8;
    BEGIN
        INSERT INTO directsuite.rate VALUES (rate_name, clock_timestamp()) ON CONFLICT DO NOTHING;
        SELECT arrival INTO next_arrival FROM directsuite.rate WHERE name = rate_name FOR UPDATE;
        this_moment := clock_timestamp();
        wait := extract(epoch FROM next_arrival - this_moment) - tolerance;
        IF wait > longest THEN
            RETURN -wait;
        END IF;
        next_arrival := greatest(next_arrival, this_moment) + make_interval(secs => places * spacing);
        UPDATE directsuite.rate SET arrival = next_arrival WHERE name = rate_name;
        RETURN greatest(wait, 0);
    END $$
    """,
)
_TAKE = "SELECT directsuite.take_places(%s::text, %s::integer, %s::float8, %s::float8, %s::float8)"
_PUSH_BACK = """
    INSERT INTO directsuite.rate AS r VALUES (%s, clock_timestamp() + make_interval(secs => %s))
    ON CONFLICT (name) DO UPDATE SET arrival = greatest(r.arrival, excluded.arrival) RETURNING name
"""

_TIMEOUT = 2.0  # seconds for an answer of PostgreSQL, while which nobody goes
_AGAIN = 1.0  # seconds until PostgreSQL is asked again after none
_LONGEST = 1.0  # seconds ahead of which no place is leased, for the pause that a service asks for may come before
_SOON = 0.005  # seconds in which PostgreSQL may have answered
_SLACK = 0.05  # seconds after its time in which a place is used, where the burst leaves room for it


class SharedRate:
    """So many requests per second, and a burst, for all processes that give the same name. One event loop each.

    In any second no more than per_second + burst go, to within the time that PostgreSQL takes to answer; a burst of 1
    counts as 2, since PostgreSQL takes some. conninfo: as PostgresStore has it. processes: how many share it; where
    PostgreSQL doesn't answer, this one keeps to its part of per_second. lease: places taken at a time at most, by a
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
        self._connections = Connections(conninfo, error=StoreError, most=2, timeout=_TIMEOUT)
        del conninfo  # this frame may stand in a traceback
        self.interval = 1.0 / per_second
        self._name = name
        self._most = lease
        self._lease = 1
        self._clock = clock or SystemClock()
        # Of what the burst allows, some is for places that are used late, and the rest for those taken early.
        early = self.interval * max(1, burst - 1)
        self._slack = min(early, max(_SLACK, 2 * self.interval))
        self._tolerance = early - self._slack
        self._share = Rate(per_second / processes, 1, self._clock)
        self._places = deque[float]()
        self._last = float("-inf")
        self._held_until = float("-inf")
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
        while self._places and self._places[0] + self._slack < now:
            self._places.popleft()
        goes = False
        if self._places and not self._is_lost:
            goes = self._places[0] <= now
            if goes:
                self._places.popleft()
        elif self._is_lost:
            goes = self._share.try_acquire()
        if not goes or (self._lease > 1 and len(self._places) <= self._lease // 2):
            self._ask(now)
        return goes

    def wait(self) -> float:
        """Seconds until a request that came now might go, as far as is known; it may be more."""
        now = self._clock.monotonic()
        if self._is_lost:
            return self._share.wait()
        if self._places:
            return max(0.0, self._places[0] - now)
        self._ask(now)
        return max(_SOON, self._ask_at - now)

    async def take(self) -> None:
        """Return when a request may go."""
        while not self.try_acquire():
            await self._clock.sleep(self.wait())

    def pause(self, seconds: float) -> bool:
        """Let nobody go for so many seconds, in any process; begun here, and at once there. Whether that is news."""
        news = self._hold_here(seconds)
        if news:
            task = asyncio.ensure_future(self._push_back(seconds))
            self._pushing.add(task)
            task.add_done_callback(self._pushing.discard)
        return news

    async def push_back(self, seconds: float) -> None:
        """As `hold`, for an answer of 429 or 503; returns when the other processes' next leases know."""
        self._hold_here(seconds)
        await self._push_back(seconds)

    async def aclose(self) -> None:
        """Give up what is under way, and close the connections."""
        tasks = [*self._pushing, *([] if self._asking is None else [self._asking])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._connections.aclose()

    def _hold_here(self, seconds: float) -> bool:
        until = self._clock.monotonic() + seconds
        if until <= self._held_until:
            return False
        self._held_until = self._ask_at = until
        self._places.clear()
        self._share.pause(seconds)
        return True

    async def _push_back(self, seconds: float) -> None:
        try:
            await self._prepare()
            await self._connections.fetch(_PUSH_BACK, (self._name, seconds + self._tolerance))
        except DirectSuiteError:
            self._lose()  # others learn it from the service itself, as this one did

    def _ask(self, now: float) -> None:
        """Have places leased, unless that is under way or was in vain just now.

        Who asks as soon as his last one is there gets more at a time: who doesn't would let them lapse.
        """
        if now >= self._ask_at and (self._asking is None or self._asking.done()):
            goes_on = now <= self._last + self._slack
            self._lease = min(2 * self._lease, self._most) if goes_on else 1
            self._asking = asyncio.ensure_future(self._lease_places(self._lease))

    async def _lease_places(self, places: int) -> None:
        try:
            await self._prepare()
            asked = (self._name, places, self.interval, self._tolerance, _LONGEST)
            ((wait,),) = await self._connections.fetch(_TAKE, asked)
        except DirectSuiteError:
            self._lose()
            return
        now = self._clock.monotonic()
        self._is_lost = False
        if now < self._held_until:
            return
        if wait < 0:
            self._ask_at = max(self._ask_at, now - wait - _LONGEST)
            return
        self._places.extend(now + wait + number * self.interval for number in range(places))
        self._last = self._places[-1]

    def _lose(self) -> None:
        self._is_lost = True
        self._places.clear()
        self._ask_at = max(self._ask_at, self._clock.monotonic() + _AGAIN)

    async def _prepare(self) -> None:
        if self._is_prepared:
            return

        async def prepare(connection: Connection) -> None:
            """The table and its function."""
            await ensure_part(connection, "rate", _VERSION, _TABLES, error=StoreError)

        await self._connections.run(prepare)
        self._is_prepared = True
