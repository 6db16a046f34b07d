"""Tokens that are renewed in the background, with or without calls."""

from __future__ import annotations

import asyncio

import pytest

from directsuite.core.credentials import AccessToken, TokenCache

from . import responses
from .scripted_server import ScriptedServer
from .scripted_suite import GET_PATIENT_ADDRESS, LOGIN_RESPONSE, open_suite
from .test_credentials import Source, get_token_text
from .virtual_time import LoopClock, yield_to_loop


@pytest.fixture
def source() -> Source:
    return Source(lifetime=600)


async def kept(cache: TokenCache, seconds: float) -> str:
    await asyncio.sleep(seconds)
    await yield_to_loop()
    return await get_token_text(cache)


async def test_token_is_renewed_though_no_caller_asks(source: Source) -> None:
    cache = TokenCache(source, LoopClock(), keep_alive=True)
    await cache.get_current()
    await asyncio.sleep(3600)
    await yield_to_loop()
    assert source.asked == 1 + 3600 // 540
    await cache.aclose()
    await asyncio.sleep(3600)
    assert source.asked == 7


async def test_without_it_nothing_is_renewed_until_somebody_asks(source: Source) -> None:
    cache = TokenCache(source, LoopClock())
    await cache.get_current()
    await asyncio.sleep(3600)
    assert source.asked == 1


async def test_failed_renewals_back_off_and_go_on(source: Source) -> None:
    cache = TokenCache(source, LoopClock(), keep_alive=True)
    await cache.get_current()
    source.failures = [ValueError("broken") for _ in range(3)]
    await asyncio.sleep(540.5)
    assert source.asked == 2
    assert await kept(cache, 7) == "token-5"  # after 1, 2 and 4 seconds
    await cache.aclose()


async def test_rejected_token_is_replaced_though_no_caller_asks(source: Source) -> None:
    cache = TokenCache(source, LoopClock(), keep_alive=True)
    cache.invalidate((await cache.get_current()).generation)
    assert source.asked == 1
    assert await kept(cache, 541) == "token-2"
    assert source.asked == 2
    await cache.aclose()


async def test_token_that_is_adopted_is_kept_alive(source: Source) -> None:
    cache = TokenCache(source, LoopClock(), keep_alive=True)
    cache.store(AccessToken("mine", 600), cache.now())
    assert await kept(cache, 539) == "mine"
    assert await kept(cache, 2) == "token-1"
    await cache.aclose()


@pytest.mark.parametrize("lifetime", [0.0, 0.001])
async def test_token_that_expires_immediately_is_not_fetched_without_pause(lifetime: float) -> None:
    source = Source(lifetime=lifetime)
    cache = TokenCache(source, LoopClock(), keep_alive=True)
    await cache.get_current()
    await asyncio.sleep(10.5)
    assert source.asked == 11
    await cache.aclose()


async def test_token_without_an_end_is_left_alone() -> None:
    source = Source(lifetime=None)
    cache = TokenCache(source, LoopClock(), keep_alive=True)
    await cache.get_current()
    await asyncio.sleep(1_000_000)
    assert source.asked == 1
    await cache.aclose()


async def test_suite_keeps_its_session_alive(server: ScriptedServer) -> None:
    server.enqueue(responses.respond(LOGIN_RESPONSE))
    server.default_responder = responses.respond({"success": True, "code": "000", "patient": []} | LOGIN_RESPONSE)
    async with open_suite(server, keep_alive=True) as suite:
        await GET_PATIENT_ADDRESS.call(suite)
        await asyncio.sleep(1200)
        assert len(server.find_requests("/login")) == 3


@pytest.mark.wide
async def test_rejected_login_is_not_tried_repeatedly(server: ScriptedServer) -> None:
    server.enqueue(responses.respond(LOGIN_RESPONSE))
    server.default_responder = responses.respond({"success": True, "code": "000", "patient": []})
    async with open_suite(server, keep_alive=True) as suite:
        await GET_PATIENT_ADDRESS.call(suite)
        server.default_responder = responses.respond({"success": False, "code": "011"})
        await asyncio.sleep(10_000)
        assert len(server.find_requests("/login")) == 2
        server.default_responder = responses.respond({"success": True, "code": "000", "patient": []} | LOGIN_RESPONSE)
        await GET_PATIENT_ADDRESS.call(suite)
        await asyncio.sleep(1200)
        assert len(server.find_requests("/login")) == 5
