"""The clock of users' tests: waits pass at once, long ones when the test says so."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta

import pytest

import directsuite as ds
from directsuite.sandbox import Clock, Sandbox
from directsuite.testing import LeapingClock
from directsuite.testing.clock import LONGEST_LEAP

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


@pytest.fixture
def follower() -> Clock:
    """The sandbox's clock, which stands still unless it is moved."""
    clock = Clock()
    clock.freeze(NOON)
    return clock


async def test_a_wait_passes_at_once_for_all(follower: Clock) -> None:
    clock, began, at = LeapingClock(follower), time.monotonic(), LeapingClock().monotonic()
    await clock.sleep(LONGEST_LEAP)
    assert time.monotonic() - began < LONGEST_LEAP / 2
    assert clock.monotonic() - at >= LONGEST_LEAP
    assert timedelta(seconds=59) < follower.now() - NOON <= timedelta(seconds=60)


async def test_waits_at_the_same_time_do_not_add_up(follower: Clock) -> None:
    clock = LeapingClock(follower)
    await asyncio.gather(*(clock.sleep(20.0) for _ in range(10)))
    assert follower.now() - NOON <= timedelta(seconds=20)


async def test_a_long_wait_ends_when_the_test_has_advanced_time_so_far(follower: Clock) -> None:
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


async def test_a_long_wait_that_nobody_shortens_takes_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("directsuite.testing.clock.LONGEST_LEAP", 0.0)
    began = time.monotonic()
    await LeapingClock().sleep(0.02)
    assert time.monotonic() - began >= 0.02


def test_time_never_goes_back(follower: Clock) -> None:
    with pytest.raises(ValueError, match="only goes forward"):
        LeapingClock(follower).advance(timedelta(seconds=-1))
    assert follower.now() == NOON


async def test_a_session_that_is_kept_alive_is_renewed_when_time_is_advanced_and_not_before() -> None:
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
