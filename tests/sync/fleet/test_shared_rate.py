"""A shared rate of requests, and the share of each process if PostgreSQL fails."""

from __future__ import annotations

import asyncio
import bisect
import contextlib
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

import pytest

from directsuite.core.clock import Clock, SystemClock
from directsuite.sync.shared_limits import SharedLimits, SharedRate

if TYPE_CHECKING:
    from tests.sync.fleet.postgres_server import PostgresServer

NOWHERE = "host=127.0.0.1 port=1 user=tester"


class FakeClock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0.001)


@contextlib.asynccontextmanager
async def open_rate(
    conninfo: str,
    name: str = "x",
    *,
    clock: Clock | None = None,
    burst: int = 5,
    processes: int = 2,
    per_second: int = 100,
) -> AsyncGenerator[SharedRate]:
    clock = clock or SystemClock()
    async with SharedLimits(conninfo, processes=processes) as shared:
        yield shared.rate_limiter(name, per_second=per_second, burst=burst, clock=clock)


async def acquire(rate: SharedRate, clock: Clock) -> None:
    while not rate.try_acquire():
        await clock.sleep(rate.seconds_until_slot())


async def times_of(rate: SharedRate, clock: FakeClock, count: int) -> list[float]:
    times = list[float]()
    for _ in range(count):
        await acquire(rate, clock)
        times.append(clock.now)
    return times


def lost(rate: SharedRate) -> bool:
    return rate.is_lost


def most_in(seconds: float, times: list[float]) -> int:
    return max(bisect.bisect_right(times, time + seconds) - place for place, time in enumerate(times))


async def test_each_process_uses_its_share_while_postgresql_fails() -> None:
    clock = FakeClock()
    async with open_rate(NOWHERE, burst=50, processes=4, clock=clock) as rate:
        await asyncio.wait_for(acquire(rate, clock), 10)
        assert lost(rate)
        times = await times_of(rate, clock, 60)
        assert most_in(1.0, times) <= 26
        assert times[-1] - times[0] < 3


@pytest.mark.postgres
async def test_the_shared_rate_returns_when_postgresql_does(shaky_postgres: PostgresServer) -> None:
    clock = FakeClock()
    conninfo = shaky_postgres.create_database()
    async with open_rate(conninfo, burst=5, processes=4, clock=clock) as rate:
        await times_of(rate, clock, 10)
        assert not lost(rate)
        await asyncio.to_thread(shaky_postgres.stop)
        try:
            while not lost(rate):
                await acquire(rate, clock)
        finally:
            await asyncio.to_thread(shaky_postgres.start)
        while lost(rate):  # the crash has emptied the table, too
            await acquire(rate, clock)
        await times_of(rate, clock, 10)
        assert not lost(rate)


@pytest.mark.postgres
async def test_a_pause_applies_to_all_processes(conninfo: str) -> None:
    async with (
        open_rate(conninfo, burst=5, processes=2) as one,
        open_rate(conninfo, burst=5, processes=2) as other,
        open_rate(conninfo, "y", burst=5, processes=2) as another_service,
    ):
        assert one.pause(30)
        await asyncio.gather(*one._pushing)
        assert not one.pause(10)
        assert one.seconds_until_slot() > 25
        for rate in (one, other):
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(acquire(rate, SystemClock()), 0.3)
        assert not lost(other)
        await asyncio.wait_for(acquire(another_service, SystemClock()), 10)


async def test_a_pause_is_respected_if_postgresql_fails() -> None:
    clock = FakeClock()
    async with open_rate(NOWHERE, burst=5, processes=4, clock=clock) as rate:
        await acquire(rate, clock)
        began = clock.now
        assert rate.pause(30)
        await acquire(rate, clock)
        assert clock.now - began >= 30


@pytest.mark.postgres
async def test_limits_can_be_used_again_after_they_were_closed(conninfo: str) -> None:
    shared = SharedLimits(conninfo, processes=2)
    for _ in range(2):
        async with shared:
            rate = shared.rate_limiter("x", per_second=100, burst=5, clock=SystemClock())
            await acquire(rate, SystemClock())
            assert not lost(rate)


@pytest.mark.postgres
async def test_unused_slots_lapse(conninfo: str) -> None:
    clock = FakeClock()
    async with open_rate(conninfo, burst=3, processes=1, clock=clock) as rate:
        await acquire(rate, clock)
        for _ in range(5):
            if rate._asking is not None:
                await asyncio.wait([rate._asking])  # a place is there before its time passes
            await clock.sleep(60)
            assert not rate.try_acquire()


@pytest.mark.postgres
async def test_one_waiting_request_leases_one_slot(conninfo: str) -> None:
    async with contextlib.AsyncExitStack() as stack:
        rates = [
            await stack.enter_async_context(open_rate(conninfo, per_second=1, burst=10, processes=6)) for _ in range(6)
        ]
        async with asyncio.timeout(10):  # the burst has room for all six, and not for six times five
            await asyncio.gather(*(acquire(rate, SystemClock()) for rate in rates))
