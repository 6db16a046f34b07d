"""The token cache while a renewal is under way: who waits, whose token wins, and whose cancellation is whose."""

from __future__ import annotations

import asyncio

import pytest

import directsuite as ds
from directsuite.core.credentials import AccessToken, TokenCache, token_source

from .opened import GET_DOC_INFO, GET_PATIENT_ADDRESS, LOGGED_IN, failure_of, opened
from .plays import answer, gated
from .scripted_server import ScriptedServer
from .test_credentials import Source, text
from .virtual_time import ManualClock, elapsed, turns, until


@pytest.fixture
def time() -> ManualClock:
    return ManualClock()


async def test_renewal_that_hangs_delays_nobody_while_the_token_is_good(time: ManualClock) -> None:
    source = Source(lifetime=120)
    cache = TokenCache(source, time)
    await cache.current()
    source.gate.clear()
    time.now = 70
    assert [await text(cache) for _ in range(100)] == ["token-1"] * 100
    await turns()
    assert source.asked == 2
    time.now = 120
    waiting = [asyncio.create_task(text(cache)) for _ in range(100)]
    await turns()
    assert not any(task.done() for task in waiting)
    source.gate.set()
    assert set(await asyncio.gather(*waiting)) == {"token-2"}
    assert source.asked == 2


async def test_call_goes_out_while_the_renewal_of_its_token_hangs(server: ScriptedServer) -> None:
    source = Source(lifetime=120)
    server.otherwise = answer({"identifier": "doc"})
    async with opened(server, token=source) as suite:
        await GET_DOC_INFO.call(suite)
        await asyncio.sleep(70)
        source.gate.clear()
        assert await elapsed(suite.signing.get_doc_info("doc", timeout=1)) == 0
    assert source.asked == 2


async def test_failed_renewals_back_off_while_the_token_is_good(time: ManualClock) -> None:
    source = Source()
    cache = TokenCache(source, time)
    await cache.current()
    source.failures = [ValueError("broken") for _ in range(3)]
    for moment, asked in ((540, 2), (540.9, 2), (541, 3), (542.9, 3), (543, 4), (546.9, 4), (547, 5)):
        time.now = moment
        assert await text(cache) == "token-1"
        await turns()
        assert source.asked == asked
    assert await text(cache) == "token-5"


async def test_token_that_was_asked_for_earlier_does_not_replace_a_newer_one(time: ManualClock) -> None:
    source = Source()
    cache = TokenCache(source, time)
    source.gate.clear()
    waiting = asyncio.create_task(text(cache))
    await turns()
    time.now = 1
    newer = cache.adopt(AccessToken("newer", 600), cache.now())
    time.now = 2
    source.gate.set()
    assert await waiting == "newer"
    assert await cache.current() == newer


async def test_login_that_was_forced_keeps_its_session_when_an_older_login_answers(server: ScriptedServer) -> None:
    gate = asyncio.Event()
    server.plays(gated(gate, answer(LOGGED_IN | {"sessionId": "older"})), answer(LOGGED_IN | {"sessionId": "newer"}))
    server.otherwise = answer({"success": True, "code": "000", "patient": []})
    async with opened(server) as suite:
        calling = asyncio.ensure_future(GET_PATIENT_ADDRESS.call(suite))
        await until(lambda: server.busy == 1)
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
    caller = asyncio.create_task(text(cache))
    await turns()
    closing = asyncio.create_task(cache.aclose())
    refresh = cache._refresh
    assert refresh is not None
    await until(refresh.done)
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
            return await failure_of(cache.current())
        raise AssertionError

    caller = asyncio.create_task(cleans_up())
    await turns()
    caller.cancel()
    await turns()
    await cache.aclose()
    assert type(await caller) is ds.ClosedError


async def test_token_source_that_ends_as_cancelled_is_told_as_what_it_is(time: ManualClock) -> None:
    async def ask() -> str:
        raise asyncio.CancelledError

    error = await failure_of(TokenCache(token_source(ask), time).current())
    assert type(error) is ds.TransportError
    assert error.outcome is ds.Outcome.NOT_SENT
    assert "cancelled" in str(error)


async def test_closed_cache_begins_no_fetch(time: ManualClock) -> None:
    source = Source()
    cache = TokenCache(source, time)
    await cache.current()
    await cache.aclose()
    for moment in (540, 600):
        time.now = moment
        if moment < 600:
            assert await text(cache) == "token-1"
        else:
            assert type(await failure_of(cache.current())) is ds.ClosedError
    await turns()
    assert source.asked == 1
