"""Requests per second and connections: exact limits, in order of arrival."""

from __future__ import annotations

import asyncio
import contextlib
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

import directsuite as ds
from directsuite.core.limits import Limits, LocalRateLimiter

from . import responses
from .scripted_server import Exchange, ScriptedServer
from .scripted_suite import ALICE, PASSWORD, open_suite
from .virtual_time import LoopClock, ManualClock, yield_to_loop


def wait_for_slot(rate: LocalRateLimiter, clock: ManualClock) -> float:
    """Advance the clock until the next request may be sent, and return the time."""
    while not rate.try_acquire():
        clock.now += max(rate.seconds_until_slot(), 1e-9)
    return round(clock.now, 6)


def test_burst_goes_immediately_and_the_rest_at_the_rate() -> None:
    clock = ManualClock()
    rate = LocalRateLimiter(10, 3, clock)
    assert [wait_for_slot(rate, clock) for _ in range(6)] == [0, 0, 0, 0.1, 0.2, 0.3]


def test_burst_fills_up_again_with_time() -> None:
    clock = ManualClock()
    rate = LocalRateLimiter(10, 3, clock)
    assert [wait_for_slot(rate, clock) for _ in range(3)] == [0, 0, 0]
    clock.now = 0.2
    assert [wait_for_slot(rate, clock) for _ in range(3)] == [0.2, 0.2, 0.3]
    clock.now = 1000
    assert [wait_for_slot(rate, clock) for _ in range(4)] == [1000, 1000, 1000, 1000.1]


def test_asking_for_the_wait_takes_no_place() -> None:
    rate = LocalRateLimiter(1, 1, ManualClock())
    assert [
        rate.seconds_until_slot(),
        rate.seconds_until_slot(),
        rate.try_acquire(),
        rate.seconds_until_slot(),
        rate.seconds_until_slot(),
    ] == [0, 0, True, 1, 1]


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

    async def note(exchange: Exchange) -> None:
        seen.append(asyncio.get_running_loop().time())
        await responses.respond({"success": True, "count": 7})(exchange)

    server.default_responder = note
    async with open_suite(server, clock=clock, requests_per_second=2, burst=3) as suite:
        box = suite.mailbox(ALICE, PASSWORD)
        await asyncio.gather(*(box.get_message_count() for _ in range(8)))
    assert [round(moment - seen[0], 3) for moment in sorted(seen)] == [0, 0, 0, 0.5, 1, 1.5, 2, 2.5]


async def test_callers_who_give_up_waiting_take_no_place_along(server: ScriptedServer) -> None:
    async def impatient(suite: ds.DirectSuite) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(5):
                    await _get_message_count(suite)
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
        await suite.mailbox(ALICE, PASSWORD).get_message_count()
        server.default_responder = responses.respond({"identifier": "doc"})
        await suite.signing.get_doc_info("doc")
        assert clock.sleeps == []
        server.default_responder = responses.respond({"success": True, "count": 7})
        await suite.mailbox("bob@direct.example.test", PASSWORD).get_message_count()
    assert clock.sleeps == [1]


async def test_streams_hold_a_connection_while_they_are_read(server: ScriptedServer) -> None:
    async with open_suite(server, max_connections=1) as suite:
        server.enqueue(responses.respond_in_chunks(b'{"success": true, "messages": [{"uid": 1}, ', b'{"uid": 2}]}'))
        async with suite.mailbox(ALICE, PASSWORD).stream_messages() as messages:
            await anext(messages)
            waiting = asyncio.create_task(_get_message_count(suite))
            await yield_to_loop()
            assert len(server.requests) == 1
        assert await waiting == 7


async def _get_message_count(suite: ds.DirectSuite) -> int:
    return await suite.mailbox(ALICE, PASSWORD).get_message_count()


async def test_connections_go_to_those_who_came_first() -> None:
    limits = Limits(
        "fax",
        connections=1,
        requests_per_second=1,
        burst=1,
        circuit_failures=20,
        circuit_pause=10,
        clock=ManualClock(),
        emit=lambda _: None,
    )
    order: list[int] = []

    async def use(number: int) -> None:
        await limits._acquire_slot()
        order.append(number)
        await asyncio.sleep(1)
        limits.release()

    await asyncio.gather(*(use(number) for number in range(10)))
    assert order == list(range(10))


async def test_waiter_that_is_thrown_away_takes_no_connection_along() -> None:
    settings = {"requests_per_second": 100.0, "burst": 10, "circuit_failures": 0, "circuit_pause": 1.0}
    limits = Limits("fax", connections=1, clock=ManualClock(), emit=lambda _: None, **settings)  # type: ignore[arg-type]
    await limits._acquire_slot()
    waiting = asyncio.create_task(limits._acquire_slot())
    await yield_to_loop()
    thrown_away = limits._acquire_slot()
    thrown_away.send(None)
    thrown_away.close()
    await yield_to_loop()
    assert not waiting.done()
    limits.release()
    await waiting
    limits.release()
    assert not limits.has_no_free_slot
