"""Retry-After delays all calls of the service, which then continue one after the other."""

from __future__ import annotations

import asyncio
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

import directsuite as ds
from directsuite.core.events import Event, ServicePaused
from directsuite.core.limits import LocalRateLimiter

from . import responses
from .scripted_server import Exchange, ScriptedServer
from .scripted_suite import ALICE, GET_DOC_INFO, PASSWORD, catch_error, open_suite
from .test_limits import wait_for_slot
from .token_fetches import NumberedTokens
from .virtual_time import ManualClock, measure_elapsed, yield_until

GOOD = responses.respond({"success": True, "count": 7})


@pytest.mark.parametrize("status", [429, 503])
async def test_retry_after_of_one_call_pauses_all_calls(server: ScriptedServer, status: int) -> None:
    told: list[Event] = []
    moments: list[float] = []

    async def note(exchange: Exchange) -> None:
        moments.append(asyncio.get_running_loop().time())
        await GOOD(exchange)

    server.enqueue(responses.respond(b"", status, Retry_After="7"))
    server.default_responder = note
    async with open_suite(server, listeners=[told.append], requests_per_second=10, burst=5) as suite:
        box = suite.mailbox(ALICE, PASSWORD)
        began = asyncio.get_running_loop().time()
        first = asyncio.create_task(box.get_message_count())
        await yield_until(lambda: ServicePaused(service="messaging", seconds=7) in told)
        await asyncio.gather(first, *(box.get_message_count() for _ in range(4)))
    # at the configured rate without a burst, because the service was overloaded
    assert [round(moment - began, 3) for moment in sorted(moments)] == [7.0, 7.1, 7.2, 7.3, 7.4]


async def test_queued_calls_wait_for_pause(server: ScriptedServer) -> None:
    server.enqueue(responses.delay(0.4, responses.respond(b"", 429, Retry_After="7")))
    server.default_responder = GOOD
    async with open_suite(server, requests_per_second=1, burst=1) as suite:
        box = suite.mailbox(ALICE, PASSWORD)
        first = asyncio.create_task(box.get_message_count())
        await yield_until(lambda: len(server.requests) == 1)
        assert await measure_elapsed(box.get_message_count()) == pytest.approx(7.4, abs=0.01)
        await first
    assert len(server.requests) == 3


async def test_pause_longer_than_the_deadline_is_reported_immediately(server: ScriptedServer) -> None:
    server.enqueue(responses.respond(b"", 503, Retry_After="3600"))
    async with open_suite(server) as suite:
        box = suite.mailbox(ALICE, PASSWORD)
        assert isinstance(await catch_error(box.get_message_count()), ds.ServerError)
        error = await catch_error(box.get_message_count())
        assert isinstance(error, ds.DeadlineExceededError)
        assert (error.outcome, error.retry_after) == (ds.Outcome.NOT_SENT, 3600)
        assert len(server.requests) == 1


async def test_pause_without_end_ends_after_an_hour(server: ScriptedServer) -> None:
    server.enqueue(responses.respond(b"", 429, Retry_After="999999999"))
    async with open_suite(server) as suite:
        box = suite.mailbox(ALICE, PASSWORD)
        await catch_error(box.get_message_count())
        await asyncio.sleep(3600)
        assert await box.get_message_count() == 7


async def test_pause_until_a_date_follows_the_server_clock(server: ScriptedServer) -> None:
    date, until_then = "Thu, 06 Nov 2014 16:06:15 GMT", "Thu, 06 Nov 2014 16:06:45 GMT"  # years before the local clock
    server.enqueue(responses.respond(b"", 503, Retry_After=until_then, Date=date))
    server.default_responder = GOOD
    async with open_suite(server) as suite:
        assert await measure_elapsed(suite.mailbox(ALICE, PASSWORD).get_message_count()) == pytest.approx(30, abs=0.01)


async def test_other_services_are_not_held_back(server: ScriptedServer) -> None:
    server.enqueue(responses.respond(b"", 429, Retry_After="3600"))
    server.default_responder = responses.respond({"identifier": "doc"})
    async with open_suite(server) as suite:
        await catch_error(suite.mailbox(ALICE, PASSWORD).get_message_count())
        assert await measure_elapsed(GET_DOC_INFO.call(suite)) == 0


async def test_pause_of_the_token_s_source_is_not_the_service_s(server: ScriptedServer) -> None:
    told: list[Event] = []
    source = NumberedTokens()
    source.failures = [ds.RateLimitedError("busy", status=429, retry_after=30.0, operation="token", service="oauth")]
    server.default_responder = responses.respond({"identifier": "doc"})
    async with open_suite(server, token=source, listeners=[told.append]) as suite:
        await catch_error(GET_DOC_INFO.call(suite))
        await asyncio.sleep(1)
        assert await measure_elapsed(GET_DOC_INFO.call(suite)) == 0
    assert not any(isinstance(event, ServicePaused) for event in told)


async def test_shorter_pause_does_not_end_a_longer_one(server: ScriptedServer) -> None:
    told: list[Event] = []
    server.enqueue(
        responses.respond(b"", 429, Retry_After="9"),
        responses.delay(1, responses.respond(b"", 429, Retry_After="2")),
    )
    server.default_responder = GOOD
    async with open_suite(server, listeners=[told.append]) as suite:
        box = suite.mailbox(ALICE, PASSWORD)
        assert await measure_elapsed(asyncio.gather(box.get_message_count(), box.get_message_count())) >= 9
    assert [event for event in told if isinstance(event, ServicePaused)] == [
        ServicePaused(service="messaging", seconds=9)
    ]


@given(
    burst=st.integers(1, 20),
    before=st.integers(0, 30),
    seconds=st.floats(0.5, 100),
    after=st.integers(1, 20),
)
def test_no_request_in_pause_and_no_burst_after_it(burst: int, before: int, seconds: float, after: int) -> None:
    clock = ManualClock()
    rate = LocalRateLimiter(10, burst, clock)
    for _ in range(before):
        rate.try_acquire()
    rate.pause(seconds)
    times = [wait_for_slot(rate, clock) for _ in range(after)]
    assert times[0] >= seconds - 1e-6
    assert all(later - earlier == pytest.approx(0.1, abs=1e-5) for earlier, later in itertools.pairwise(times))
