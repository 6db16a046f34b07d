"""Closing while a refresh token, or a code, is on its way: the one that replaces it is still saved."""

from __future__ import annotations

import asyncio

import pytest

import directsuite as ds
from directsuite.oauth.grants import Grant
from tests.core import plays
from tests.core.opened import GET_MESSAGE_COUNT, failure_of, opened
from tests.core.scripted_server import Exchange, Play, ScriptedServer
from tests.core.virtual_time import elapsed, turns, until

from .test_refresh_token import Saved
from .token_service import TokenService


def _answering_after(service: TokenService, seconds: float) -> Play:
    """Spends the grant at once, and answers later."""

    async def play(exchange: Exchange) -> None:
        await exchange.read()
        answer = plays.content(service.redeem(exchange) or {"error": "invalid_grant"})
        await asyncio.sleep(seconds)
        await exchange.write(plays.head(200, len(answer)) + answer)

    return play


def _grant(service: TokenService, kind: str, saved: Saved) -> Grant:
    return service.fresh_consent(saved) if kind == "code" else service.refreshing(saved)


@pytest.mark.parametrize("kind", ["refresh token", "code"])
@pytest.mark.parametrize("grace", [0.0, 0.5, 5.0])
async def test_closing_waits_for_a_request_that_spends_what_it_sends(
    server: ScriptedServer, service: TokenService, kind: str, grace: float
) -> None:
    service.script = [_answering_after(service, 1)]
    saved = Saved(server)
    async with opened(server, token=_grant(service, kind, saved), leaky=True) as suite:
        caller = asyncio.ensure_future(asyncio.gather(suite.signing.get_doc_info("doc"), return_exceptions=True))
        await until(lambda: service.issued == 1)
        assert await elapsed(suite.aclose(grace=grace)) == pytest.approx(1)
        [answer] = await caller
    assert saved.tokens == [service.refresh_token]
    assert isinstance(answer, ds.ClosedError) == (grace < 1)
    assert len(server.to("/signing/")) == (grace > 1)


async def test_error_in_the_block_loses_no_renewal_in_the_background(
    server: ScriptedServer, service: TokenService
) -> None:
    service.expires_in = 100
    saved = Saved(server)

    async def block() -> None:
        async with opened(server, token=service.refreshing(saved)) as suite:
            await suite.signing.get_doc_info("doc")
            await asyncio.sleep(55)
            service.script = [_answering_after(service, 1)]
            await suite.signing.get_doc_info("doc")
            await until(lambda: service.issued == 2)
            raise ValueError("the block's own")

    with pytest.raises(ValueError, match="the block's own"):
        await block()
    assert saved.tokens[-1] == service.refresh_token


async def test_renewal_that_keeps_the_token_alive_is_not_lost_either(
    server: ScriptedServer, service: TokenService
) -> None:
    service.expires_in = 100
    saved = Saved(server)
    async with opened(server, token=service.refreshing(saved), keep_alive=True) as suite:
        await suite.signing.get_doc_info("doc")
        service.script = [_answering_after(service, 1)]
        await asyncio.sleep(50.5)
        assert service.issued == 2
        await suite.aclose(grace=0)
    assert (len(service.forms), saved.tokens[-1]) == (2, service.refresh_token)


async def test_saving_that_begins_late_has_its_own_time(server: ScriptedServer, service: TokenService) -> None:
    service.script = [_answering_after(service, 4)]
    saved = Saved(server)
    saved.gate.clear()
    async with opened(server, token=service.refreshing(saved), leaky=True) as suite:
        caller = asyncio.create_task(failure_of(suite.signing.get_doc_info("doc")))
        await until(lambda: service.issued == 1)
        asyncio.get_running_loop().call_later(8, saved.gate.set)
        assert await elapsed(suite.aclose(grace=0)) == pytest.approx(8)
        assert isinstance(await caller, ds.ClosedError)
    assert saved.tokens == [service.refresh_token]


async def test_closing_does_not_wait_for_an_answer_for_ever(server: ScriptedServer, service: TokenService) -> None:
    service.script = [plays.silence]
    async with opened(server, token=service.refreshing(), leaky=True) as suite:
        caller = asyncio.create_task(failure_of(suite.signing.get_doc_info("doc")))
        await until(lambda: server.busy == 1)
        assert await elapsed(suite.aclose(grace=0)) == pytest.approx(5)
        assert isinstance(await caller, ds.ClosedError)


async def test_request_that_spends_nothing_is_not_waited_for(server: ScriptedServer, service: TokenService) -> None:
    service.script = [plays.silence]
    async with opened(server, token=service.client_credentials(), leaky=True) as suite:
        caller = asyncio.create_task(failure_of(suite.signing.get_doc_info("doc")))
        await until(lambda: server.busy == 1)
        assert await elapsed(suite.aclose(grace=0)) == 0
        assert isinstance(await caller, ds.ClosedError)


async def test_request_that_waits_to_be_repeated_is_not_waited_for(
    server: ScriptedServer, service: TokenService
) -> None:
    service.script = [plays.answer(b"", 429, Retry_After="30")]
    async with opened(server, token=service.refreshing(), leaky=True) as suite:
        caller = asyncio.create_task(failure_of(suite.signing.get_doc_info("doc")))
        await until(lambda: len(server.requests) == 1)
        await turns()
        assert await elapsed(suite.aclose(grace=0)) == 0
        assert isinstance(await caller, ds.ClosedError)
    assert len(service.forms) == 1


async def test_nothing_is_waited_for_between_renewals(server: ScriptedServer, service: TokenService) -> None:
    async with opened(server, token=service.refreshing(), keep_alive=True, leaky=True) as suite:
        await suite.signing.get_doc_info("doc")
        service.server.otherwise = plays.silence
        caller = asyncio.create_task(failure_of(GET_MESSAGE_COUNT.call(suite)))
        await until(lambda: server.busy == 1)
        assert await elapsed(suite.aclose(grace=0)) == 0
        await caller


async def test_no_request_begins_while_closing_waits(server: ScriptedServer, service: TokenService) -> None:
    service.script = [_answering_after(service, 2), plays.silence]
    saved = Saved(server)
    async with opened(server, token=service.refreshing(saved), leaky=True) as suite:
        waiting = [asyncio.create_task(failure_of(suite.signing.get_doc_info("doc"))) for _ in range(3)]
        await until(lambda: service.issued == 1)
        closing = asyncio.create_task(suite.aclose(grace=0))
        await turns()
        late = await failure_of(suite.signing.get_doc_info("doc"))
        await closing
        errors = [late, *await asyncio.gather(*waiting)]
    assert {type(error) for error in errors} == {ds.ClosedError}
    assert len(server.requests) == 1


async def test_who_cancels_closing_once_waits_for_the_new_token_too(
    server: ScriptedServer, service: TokenService
) -> None:
    service.script = [_answering_after(service, 2)]
    saved = Saved(server)
    async with opened(server, token=service.refreshing(saved), leaky=True) as suite:
        caller = asyncio.create_task(failure_of(suite.signing.get_doc_info("doc")))
        await until(lambda: service.issued == 1)
        closing = asyncio.create_task(suite.aclose(grace=0))
        await turns()
        closing.cancel()
        began = asyncio.get_running_loop().time()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert asyncio.get_running_loop().time() - began == pytest.approx(2)
        await caller
        await until(lambda: server.open_connections == 0)
    assert saved.tokens == [service.refresh_token]


async def test_who_cancels_closing_twice_waits_no_more_and_everything_ends(
    server: ScriptedServer, service: TokenService
) -> None:
    service.script = [plays.silence]
    async with opened(server, token=service.refreshing(), leaky=True) as suite:
        caller = asyncio.create_task(failure_of(suite.signing.get_doc_info("doc")))
        await until(lambda: server.busy == 1)
        closing = asyncio.create_task(suite.aclose(grace=0))
        began = asyncio.get_running_loop().time()
        for _ in range(2):
            await turns()
            closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert asyncio.get_running_loop().time() == began
        assert isinstance(await caller, ds.ClosedError)
        await until(lambda: server.open_connections == 0)
