"""The token cache during a renewal: waiting callers, concurrent results, and cancellation."""

from __future__ import annotations

import asyncio

import pytest

import directsuite as ds
from directsuite.core.credentials import AccessToken, TokenCache

from .responses import respond, respond_after
from .scripted_server import ScriptedServer
from .scripted_suite import GET_PATIENT_ADDRESS, LOGIN_RESPONSE, catch_error, open_suite
from .test_credentials import Source, get_token_text
from .virtual_time import ManualClock, yield_to_loop, yield_until


@pytest.fixture
def time() -> ManualClock:
    return ManualClock()


async def test_renewal_that_hangs_delays_nobody_while_the_token_is_good(time: ManualClock) -> None:
    source = Source(lifetime=120)
    cache = TokenCache(source, time)
    await cache.get_current()
    source.gate.clear()
    time.now = 70
    assert [await get_token_text(cache) for _ in range(100)] == ["token-1"] * 100
    await yield_to_loop()
    assert source.asked == 2
    time.now = 120
    waiting = [asyncio.create_task(get_token_text(cache)) for _ in range(100)]
    await yield_to_loop()
    assert not any(task.done() for task in waiting)
    source.gate.set()
    assert set(await asyncio.gather(*waiting)) == {"token-2"}
    assert source.asked == 2


async def test_failed_renewals_back_off_while_the_token_is_good(time: ManualClock) -> None:
    source = Source()
    cache = TokenCache(source, time)
    await cache.get_current()
    source.failures = [ValueError("broken") for _ in range(3)]
    for moment, asked in ((540, 2), (540.9, 2), (541, 3), (542.9, 3), (543, 4), (546.9, 4), (547, 5)):
        time.now = moment
        assert await get_token_text(cache) == "token-1"
        await yield_to_loop()
        assert source.asked == asked
    assert await get_token_text(cache) == "token-5"


async def test_token_that_was_asked_for_earlier_does_not_replace_a_newer_one(time: ManualClock) -> None:
    source = Source()
    cache = TokenCache(source, time)
    source.gate.clear()
    waiting = asyncio.create_task(get_token_text(cache))
    await yield_to_loop()
    time.now = 1
    newer = cache.store(AccessToken("newer", 600), cache.now())
    time.now = 2
    source.gate.set()
    assert await waiting == "newer"
    assert await cache.get_current() == newer


async def test_forced_login_wins_over_older_login_response(server: ScriptedServer) -> None:
    gate = asyncio.Event()
    server.enqueue(
        respond_after(gate, respond(LOGIN_RESPONSE | {"sessionId": "older"})),
        respond(LOGIN_RESPONSE | {"sessionId": "newer"}),
    )
    server.default_responder = respond({"success": True, "code": "000", "patient": []})
    async with open_suite(server) as suite:
        calling = asyncio.ensure_future(GET_PATIENT_ADDRESS.call(suite))
        await yield_until(lambda: server.busy == 1)
        await asyncio.sleep(1)
        await suite.registration.login()
        gate.set()
        await calling
        await GET_PATIENT_ADDRESS.call(suite)
    assert all("/newer/" in request.target for request in server.requests[2:])


async def test_caller_who_is_cancelled_as_the_suite_closes_is_cancelled(time: ManualClock) -> None:
    source = Source()
    cache = TokenCache(source, time)
    source.gate.clear()
    caller = asyncio.create_task(get_token_text(cache))
    await yield_to_loop()
    closing = asyncio.create_task(cache.aclose())
    refresh = cache._fetch_task
    assert refresh is not None
    await yield_until(refresh.done)
    caller.cancel()
    await asyncio.wait([caller])
    assert caller.cancelled()
    await closing


async def test_caller_who_was_cancelled_before_is_told_that_the_suite_was_closed(time: ManualClock) -> None:
    source = Source()
    cache = TokenCache(source, time)
    source.gate.clear()

    async def cleans_up() -> ds.DirectSuiteError:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return await catch_error(cache.get_current())
        raise AssertionError

    caller = asyncio.create_task(cleans_up())
    await yield_to_loop()
    caller.cancel()
    await yield_to_loop()
    await cache.aclose()
    assert type(await caller) is ds.ClosedError


async def test_closed_cache_begins_no_fetch(time: ManualClock) -> None:
    source = Source()
    cache = TokenCache(source, time)
    await cache.get_current()
    await cache.aclose()
    for moment in (540, 600):
        time.now = moment
        if moment < 600:
            assert await get_token_text(cache) == "token-1"
        else:
            assert type(await catch_error(cache.get_current())) is ds.ClosedError
    await yield_to_loop()
    assert source.asked == 1
