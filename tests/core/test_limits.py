"""Limits of each service: requests per second, connections, shares of a process, and requested pauses."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncGenerator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import directsuite as ds
from directsuite.core.clock import Clock
from directsuite.core.limits import CircuitBreaker, Limits, LocalRateLimiter, RateLimiter
from directsuite.core.operation import Service

from . import api, responses
from .scripted_server import Exchange, Responder, ScriptedServer
from .scripted_suite import ALICE, PASSWORD, SUCCESS_BODY, catch_error, expect_error, make_settings, open_suite
from .token_fetches import NumberedTokens
from .virtual_time import LoopClock, ManualClock, measure_elapsed, yield_to_loop, yield_until

GOOD = responses.respond(SUCCESS_BODY)


async def count(suite: ds.DirectSuite) -> int:
    return await suite.mailbox(ALICE, PASSWORD).get_message_count()


def note_times(times: list[float]) -> Responder:
    async def play(exchange: Exchange) -> None:
        times.append(asyncio.get_running_loop().time())
        await GOOD(exchange)

    return play


def wait_for_slot(rate: LocalRateLimiter, clock: ManualClock) -> float:
    """Advance the clock until the next request may be sent, and return the time."""
    while not rate.try_acquire():
        clock.now += max(rate.seconds_until_slot(), 1e-9)
    return round(clock.now, 6)


@example(per_second=1.0, burst=1, pauses=[0.0, 5.0, 0.0, 0.0])  # after a long pause
@given(
    per_second=st.floats(0.1, 1000),
    burst=st.integers(1, 20),
    pauses=st.lists(st.floats(0, 5), min_size=1, max_size=60),
)
def test_no_window_holds_more_than_the_burst_and_the_rate(per_second: float, burst: int, pauses: list[float]) -> None:
    clock = ManualClock()
    rate = LocalRateLimiter(per_second, burst, clock)
    starts: list[float] = []
    for pause in pauses:
        clock.now += pause
        starts.append(wait_for_slot(rate, clock))
    for first, last in itertools.combinations(range(len(starts)), 2):
        window = starts[last] - starts[first]
        assert last - first + 1 <= burst + per_second * window + 0.01


@given(per_second=st.floats(0.1, 1000), burst=st.integers(1, 20), count=st.integers(1, 60))
def test_waiting_requests_keep_their_order_and_lose_no_place(per_second: float, burst: int, count: int) -> None:
    clock = ManualClock()
    rate = LocalRateLimiter(per_second, burst, clock)
    times = [wait_for_slot(rate, clock) for _ in range(count)]
    assert times == sorted(times)
    assert times[-1] == pytest.approx(max(0, count - burst) / per_second, abs=1e-5)


async def test_suite_keeps_to_the_rate(server: ScriptedServer) -> None:
    clock = LoopClock()
    seen: list[float] = []

    server.default_responder = note_times(seen)
    async with open_suite(server, clock=clock, requests_per_second=2, burst=3) as suite:
        await asyncio.gather(*(count(suite) for _ in range(8)))
    assert [round(moment - seen[0], 3) for moment in sorted(seen)] == [0, 0, 0, 0.5, 1, 1.5, 2, 2.5]


async def test_callers_who_give_up_waiting_take_no_place_along(server: ScriptedServer) -> None:
    async def impatient(suite: ds.DirectSuite) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(5):
                    await count(suite)
            await asyncio.sleep(1)

    async with open_suite(server, requests_per_second=1, burst=1, leaky=True) as suite:
        callers = [asyncio.create_task(impatient(suite)) for _ in range(10)]
        await asyncio.sleep(179.5)
        for caller in callers:
            caller.cancel()
        await asyncio.wait(callers)
    assert len(server.requests) == 180


async def test_services_have_limits_of_their_own_and_facades_share_them(server: ScriptedServer) -> None:
    clock = LoopClock()
    async with open_suite(server, clock=clock, requests_per_second=1, burst=1) as suite:
        await count(suite)
        await suite.signing.get_doc_info("doc")
        assert clock.sleeps == []
        await suite.mailbox("bob@direct.example.test", PASSWORD).get_message_count()
    assert clock.sleeps == [1]


async def test_streams_hold_a_connection_while_they_are_read(server: ScriptedServer) -> None:
    async with open_suite(server, max_connections=1) as suite:
        server.enqueue(responses.respond_in_chunks(b'{"success": true, "messages": [{"uid": 1}, ', b'{"uid": 2}]}'))
        async with suite.mailbox(ALICE, PASSWORD).stream_messages() as messages:
            await anext(messages)
            waiting = asyncio.create_task(count(suite))
            await yield_to_loop()
            assert len(server.requests) == 1
        assert await waiting == 7


def make_limits() -> Limits:
    """Return limits with one connection."""
    clock, events = ManualClock(), list[ds.Event]()
    breaker = CircuitBreaker(service="fax", failures=20, pause=10, clock=clock, emit=events.append)
    return Limits("fax", 1, LocalRateLimiter(1, 1, clock), breaker, events.append)


async def test_connections_go_to_those_who_came_first() -> None:
    limits = make_limits()
    order: list[int] = []

    async def use(number: int) -> None:
        await limits.acquire_slot()
        order.append(number)
        await asyncio.sleep(1)
        limits.release()

    await asyncio.gather(*(use(number) for number in range(10)))
    assert order == list(range(10))


async def test_waiter_that_is_thrown_away_takes_no_connection_along() -> None:
    limits = make_limits()
    await limits.acquire_slot()
    waiting = asyncio.create_task(limits.acquire_slot())
    await yield_to_loop()
    thrown_away = limits.acquire_slot()
    thrown_away.send(None)
    thrown_away.close()
    await yield_to_loop()
    assert not waiting.done()
    limits.release()
    await waiting
    limits.release()
    assert not limits.has_no_free_slot


class Shared:
    """Shared limits: a number of connections to each service, and slots."""

    def __init__(self, connections: int | None = None) -> None:
        self.connections = connections
        self.rates = dict[str, LocalRateLimiter]()

    def rate_limiter(self, service: str, *, per_second: float, burst: int, clock: Clock) -> RateLimiter:
        return self.rates.setdefault(service, LocalRateLimiter(per_second, burst, clock))


@contextlib.asynccontextmanager
async def sharing(server: ScriptedServer, shared: Shared, **others: object) -> AsyncGenerator[ds.DirectSuite]:
    suite = ds.DirectSuite(make_settings(server, **others), token="token", clock=LoopClock(), shared_limits=shared)
    async with suite:
        yield suite


def limits_of(suite: ds.DirectSuite) -> Limits:
    return suite._transport._endpoints[Service.MESSAGING].limits


@pytest.mark.parametrize(("shared", "own", "most"), [(3, 10, 3), (10, 3, 3), (None, 3, 3)])
async def test_never_more_connections_are_used_than_this_process_may_have(
    server: ScriptedServer, shared: int | None, own: int, most: int
) -> None:
    server.default_responder = responses.delay(0.1, GOOD)
    async with sharing(server, Shared(shared), max_connections=own) as suite:
        await asyncio.gather(*(count(suite) for _ in range(40)))
        assert limits_of(suite).connections == most
    assert server.busiest == server.connections == most


async def test_shared_limits_get_slots_and_pauses(server: ScriptedServer) -> None:
    shared = Shared()
    server.enqueue(responses.respond({}, 429, retry_after="20"))
    async with sharing(server, shared) as suite:
        assert await measure_elapsed(suite.signing.get_doc_info("doc")) >= 20
    assert not shared.rates["signing"].pause(0)
    assert shared.rates["fax"].pause(0)


@pytest.mark.parametrize("status", [429, 503])
async def test_retry_after_of_one_call_pauses_all_calls(server: ScriptedServer, status: int) -> None:
    told: list[ds.Event] = []
    moments: list[float] = []

    server.enqueue(responses.respond(b"", status, Retry_After="7"))
    server.default_responder = note_times(moments)
    async with open_suite(server, listeners=[told.append], requests_per_second=10, burst=5) as suite:
        began = asyncio.get_running_loop().time()
        first = asyncio.create_task(count(suite))
        await yield_until(lambda: ds.ServicePaused(service="messaging", seconds=7) in told)
        await asyncio.gather(first, *(count(suite) for _ in range(4)))
    # at the configured rate without a burst, because the service was overloaded
    assert [round(moment - began, 3) for moment in sorted(moments)] == [7.0, 7.1, 7.2, 7.3, 7.4]


async def test_queued_calls_wait_for_pause(server: ScriptedServer) -> None:
    server.enqueue(responses.delay(0.4, responses.respond(b"", 429, Retry_After="7")))
    async with open_suite(server, requests_per_second=1, burst=1) as suite:
        first = asyncio.create_task(count(suite))
        await yield_until(lambda: len(server.requests) == 1)
        assert await measure_elapsed(count(suite)) == pytest.approx(7.4, abs=0.01)
        await first
    assert len(server.requests) == 3


async def test_pause_longer_than_the_deadline_is_reported_immediately(server: ScriptedServer) -> None:
    server.enqueue(responses.respond(b"", 503, Retry_After="3600"))
    async with open_suite(server) as suite:
        assert isinstance(await catch_error(count(suite)), ds.ServerError)
        error = await expect_error(ds.DeadlineExceededError, count(suite))
        assert (error.outcome, error.retry_after) == (ds.Outcome.NOT_SENT, 3600)
        assert len(server.requests) == 1


async def test_pause_until_a_date_follows_the_server_clock(server: ScriptedServer, suite: ds.DirectSuite) -> None:
    date, until_then = "Thu, 06 Nov 2014 16:06:15 GMT", "Thu, 06 Nov 2014 16:06:45 GMT"  # years before the local clock
    server.enqueue(responses.respond(b"", 503, Retry_After=until_then, Date=date))
    assert await measure_elapsed(count(suite)) == pytest.approx(30, abs=0.01)


async def test_other_services_are_not_held_back(server: ScriptedServer, suite: ds.DirectSuite) -> None:
    server.enqueue(responses.respond(b"", 429, Retry_After="3600"))
    await catch_error(count(suite))
    assert await measure_elapsed(api.GET_DOC_INFO(suite)) == 0


async def test_pause_of_the_token_s_source_is_not_the_service_s(server: ScriptedServer) -> None:
    told: list[ds.Event] = []
    source = NumberedTokens()
    source.failures = [ds.RateLimitedError("busy", status=429, retry_after=30.0, operation="token", service="oauth")]
    async with open_suite(server, token=source, listeners=[told.append]) as suite:
        await catch_error(api.GET_DOC_INFO(suite))
        await asyncio.sleep(1)
        assert await measure_elapsed(api.GET_DOC_INFO(suite)) == 0
    assert not any(isinstance(event, ds.ServicePaused) for event in told)


async def test_shorter_pause_does_not_end_a_longer_one(server: ScriptedServer) -> None:
    told: list[ds.Event] = []
    server.enqueue(
        responses.respond(b"", 429, Retry_After="9"),
        responses.delay(1, responses.respond(b"", 429, Retry_After="2")),
    )
    async with open_suite(server, listeners=[told.append]) as suite:
        assert await measure_elapsed(asyncio.gather(count(suite), count(suite))) >= 9
    assert [event for event in told if isinstance(event, ds.ServicePaused)] == [
        ds.ServicePaused(service="messaging", seconds=9)
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
