"""Retry-After holds back everybody who calls that service, and lets them go one after the other."""

from __future__ import annotations

import asyncio
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

import directsuite as ds
from directsuite.core.events import Event, ServicePaused
from directsuite.core.limits import Rate

from . import plays
from .opened import ALICE, GET_DOC_INFO, PASSWORD, failure_of, opened
from .scripted_server import Exchange, ScriptedServer
from .test_credentials import Source
from .test_limits import gone
from .virtual_time import ManualClock, elapsed, until

GOOD = plays.answer({"success": True, "count": 7})


@pytest.mark.parametrize("status", [429, 503])
async def test_everybody_waits_as_one_was_asked_to(server: ScriptedServer, status: int) -> None:
    told: list[Event] = []
    moments: list[float] = []

    async def note(exchange: Exchange) -> None:
        moments.append(asyncio.get_running_loop().time())
        await GOOD(exchange)

    server.plays(plays.answer(b"", status, Retry_After="7"))
    server.otherwise = note
    async with opened(server, listeners=[told.append], requests_per_second=10, burst=5) as suite:
        box = suite.mailbox(ALICE, PASSWORD)
        began = asyncio.get_running_loop().time()
        first = asyncio.create_task(box.get_message_count())
        await until(lambda: ServicePaused(service="messaging", seconds=7) in told)
        await asyncio.gather(first, *(box.get_message_count() for _ in range(4)))
    # Spaced as the rate has it, without a burst: the service has just said that it was too much.
    assert [round(moment - began, 3) for moment in sorted(moments)] == [7.0, 7.1, 7.2, 7.3, 7.4]


async def test_who_waits_for_a_place_already_waits_on(server: ScriptedServer) -> None:
    server.plays(plays.slow(0.4, plays.answer(b"", 429, Retry_After="7")))
    server.otherwise = GOOD
    async with opened(server, requests_per_second=1, burst=1) as suite:
        box = suite.mailbox(ALICE, PASSWORD)
        first = asyncio.create_task(box.get_message_count())
        await until(lambda: len(server.requests) == 1)
        assert await elapsed(box.get_message_count()) == pytest.approx(7.4, abs=0.01)
        await first
    assert len(server.requests) == 3


async def test_pause_longer_than_the_deadline_is_told_at_once(server: ScriptedServer) -> None:
    server.plays(plays.answer(b"", 503, Retry_After="3600"))
    async with opened(server) as suite:
        box = suite.mailbox(ALICE, PASSWORD)
        assert isinstance(await failure_of(box.get_message_count()), ds.ServerError)
        error = await failure_of(box.get_message_count())
        assert isinstance(error, ds.DeadlineExceededError)
        assert (error.outcome, error.retry_after) == (ds.Outcome.NOT_SENT, 3600)
        assert len(server.requests) == 1


async def test_pause_without_end_ends_after_an_hour(server: ScriptedServer) -> None:
    server.plays(plays.answer(b"", 429, Retry_After="999999999"))
    async with opened(server) as suite:
        box = suite.mailbox(ALICE, PASSWORD)
        await failure_of(box.get_message_count())
        await asyncio.sleep(3600)
        assert await box.get_message_count() == 7


async def test_pause_until_a_date_follows_the_server_clock(server: ScriptedServer) -> None:
    date, until_then = "Thu, 06 Nov 2014 16:06:15 GMT", "Thu, 06 Nov 2014 16:06:45 GMT"  # years before the local clock
    server.plays(plays.answer(b"", 503, Retry_After=until_then, Date=date))
    server.otherwise = GOOD
    async with opened(server) as suite:
        assert await elapsed(suite.mailbox(ALICE, PASSWORD).get_message_count()) == pytest.approx(30, abs=0.01)


async def test_other_services_are_not_held_back(server: ScriptedServer) -> None:
    server.plays(plays.answer(b"", 429, Retry_After="3600"))
    server.otherwise = plays.answer({"identifier": "doc"})
    async with opened(server) as suite:
        await failure_of(suite.mailbox(ALICE, PASSWORD).get_message_count())
        assert await elapsed(GET_DOC_INFO.call(suite)) == 0


async def test_pause_of_the_token_s_source_is_not_the_service_s(server: ScriptedServer) -> None:
    told: list[Event] = []
    source = Source()
    source.failures = [ds.RateLimitedError("busy", status=429, retry_after=30.0, operation="token", service="oauth")]
    server.otherwise = plays.answer({"identifier": "doc"})
    async with opened(server, token=source, listeners=[told.append]) as suite:
        await failure_of(GET_DOC_INFO.call(suite))
        await asyncio.sleep(1)
        assert await elapsed(GET_DOC_INFO.call(suite)) == 0
    assert not any(isinstance(event, ServicePaused) for event in told)


async def test_shorter_pause_does_not_end_a_longer_one(server: ScriptedServer) -> None:
    told: list[Event] = []
    server.plays(
        plays.answer(b"", 429, Retry_After="9"),
        plays.slow(1, plays.answer(b"", 429, Retry_After="2")),
    )
    server.otherwise = GOOD
    async with opened(server, listeners=[told.append]) as suite:
        box = suite.mailbox(ALICE, PASSWORD)
        assert await elapsed(asyncio.gather(box.get_message_count(), box.get_message_count())) >= 9
    assert [event for event in told if isinstance(event, ServicePaused)] == [
        ServicePaused(service="messaging", seconds=9)
    ]


@given(
    burst=st.integers(1, 20),
    before=st.integers(0, 30),
    seconds=st.floats(0.5, 100),
    after=st.integers(1, 20),
)
def test_nobody_goes_in_a_pause_and_nobody_bursts_after_it(burst: int, before: int, seconds: float, after: int) -> None:
    clock = ManualClock()
    rate = Rate(10, burst, clock)
    for _ in range(before):
        rate.try_acquire()
    rate.pause(seconds)
    times = [gone(rate, clock) for _ in range(after)]
    assert times[0] >= seconds - 1e-6
    assert all(later - earlier == pytest.approx(0.1, abs=1e-5) for earlier, later in itertools.pairwise(times))
