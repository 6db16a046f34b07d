"""The clock of users' tests: short waits end immediately, long ones when the test advances the clock."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import attrs
import pytest

import directsuite as ds
from directsuite.core.clock import _UNIX_TIMES_AT_ZERO, SystemClock, make_unix_time
from directsuite.core.credentials import TokenCache, make_token_source
from directsuite.sandbox import Clock, Sandbox
from directsuite.testing import LeapingClock
from directsuite.testing.clock import MAX_LEAP_SECONDS
from tests.core.token_fetches import close_cache
from tests.integration.scenario import SleepDrivenClock

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


@pytest.fixture
def follower() -> Clock:
    clock = Clock()
    clock.freeze(NOON)
    return clock


async def test_wait_passes_immediately_for_all(follower: Clock) -> None:
    clock, began, at = LeapingClock(follower), time.monotonic(), LeapingClock().monotonic()
    await clock.sleep(MAX_LEAP_SECONDS)
    assert time.monotonic() - began < MAX_LEAP_SECONDS / 2
    assert clock.monotonic() - at >= MAX_LEAP_SECONDS
    assert timedelta(seconds=59) < follower.now() - NOON <= timedelta(seconds=60)


async def test_waits_at_the_same_time_do_not_add_up(follower: Clock) -> None:
    clock = LeapingClock(follower)
    await asyncio.gather(*(clock.sleep(20.0) for _ in range(10)))
    assert follower.now() - NOON <= timedelta(seconds=20)


async def test_long_wait_ends_when_the_test_has_advanced_time_so_far(follower: Clock) -> None:
    clock = LeapingClock(follower)
    waiting = asyncio.create_task(clock.sleep(540.0))
    for _ in range(5):
        await asyncio.sleep(0)
    clock.advance(timedelta(seconds=500))
    await clock.sleep(1.0)
    assert not waiting.done()
    clock.advance(timedelta(seconds=40))
    await waiting
    assert follower.now() - NOON >= timedelta(seconds=540)


async def test_long_wait_that_nobody_shortens_takes_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("directsuite.testing.clock.MAX_LEAP_SECONDS", 0.0)
    began = time.monotonic()
    await LeapingClock().sleep(0.02)
    assert time.monotonic() - began >= 0.02


def test_time_never_goes_back(follower: Clock) -> None:
    with pytest.raises(ValueError, match="cannot go back"):
        LeapingClock(follower).advance(timedelta(seconds=-1))
    with pytest.raises(TypeError, match=r"Pass a timedelta, such as timedelta\(minutes=10\), instead of int\."):
        LeapingClock(follower).advance(cast("Any", 60))
    assert follower.now() == NOON


def test_unix_time_is_the_machine_s_where_the_clock_is() -> None:
    assert make_unix_time(SystemClock()) is time.time


def test_unix_time_leaps_with_the_clock_and_its_followers() -> None:
    follower = Clock()
    clock = LeapingClock(follower)
    clock.advance(timedelta(hours=5))
    assert abs(make_unix_time(clock)() - follower.now().timestamp()) < 60


async def test_unix_time_is_the_same_for_all_who_have_the_clock() -> None:
    clock = SleepDrivenClock()
    first = make_unix_time(clock)
    began = first()
    assert abs(began - time.time()) < 60
    await clock.sleep(7_200.0)
    assert (first(), make_unix_time(clock)()) == (began + 7_200.0, began + 7_200.0)


@attrs.define
class Stuck:
    """A clock without a hash that always shows the same time."""

    shows: float

    def monotonic(self) -> float:
        return self.shows

    async def sleep(self, seconds: float) -> None: ...


def test_unix_time_of_equal_clocks_is_not_mixed_up(monkeypatch: pytest.MonkeyPatch) -> None:
    clocks = [Stuck(5.0), Stuck(5.0)]
    moments = list[float]()
    for moment, clock in zip((1e9, 2e9), clocks, strict=True):
        monkeypatch.setattr(time, "time", lambda moment=moment: moment)
        moments.append(make_unix_time(clock)())
    assert moments == [1e9, 2e9]
    assert [make_unix_time(clock)() for clock in clocks] == moments


def test_unix_time_is_forgotten_with_its_clock() -> None:
    clock = Stuck(5.0)
    make_unix_time(clock)
    identity = id(clock)
    assert identity in _UNIX_TIMES_AT_ZERO
    del clock
    assert identity not in _UNIX_TIMES_AT_ZERO


@pytest.mark.parametrize("lifetime", [600, 1])
async def test_renewal_in_the_background_does_not_move_time(lifetime: float) -> None:
    asked = 0

    async def token() -> ds.AccessToken:
        nonlocal asked
        asked += 1
        if asked > 1 and lifetime == 600:
            raise ConnectionError("the broker is down")
        return ds.AccessToken("token", lifetime)

    clock = LeapingClock()
    cache = TokenCache(make_token_source(token), clock, keep_alive=True)
    await cache.get_current()
    clock.advance(timedelta(seconds=lifetime))
    at = clock.monotonic()
    for _ in range(1000):
        await asyncio.sleep(0)
    assert clock.monotonic() - at < 30
    before = asked
    clock.advance(timedelta(seconds=60))  # any back-off ends
    for _ in range(100):
        await asyncio.sleep(0)
    assert asked > before
    await close_cache(cache)


async def test_keep_alive_session_is_renewed_when_time_is_advanced() -> None:
    renewed = asyncio.Event()
    renewals: list[ds.Event] = []

    def note(event: ds.Event) -> None:
        if isinstance(event, ds.SessionRenewed):
            renewals.append(event)
            renewed.set()

    async with Sandbox() as sandbox:
        clock = LeapingClock(sandbox.clock)
        settings = ds.Settings(registration_url=sandbox.registration_url, keep_alive=True)
        login = ds.Login(*(sandbox.environment[f"DIRECTSUITE_LOGIN_{part}"] for part in ("USERNAME", "PASSWORD")))
        async with ds.DirectSuite(settings, login=login, listeners=[note], clock=clock) as suite:
            await suite.registration.login()
            await clock.sleep(60.0)
            assert len(renewals) == 1
            renewed.clear()
            clock.advance(timedelta(minutes=9))
            await asyncio.wait_for(renewed.wait(), 10)
    assert len(renewals) == 2
