"""Closing during a renewal by refresh token or code: the new refresh token is still saved."""

from __future__ import annotations

import asyncio

import pytest

import directsuite as ds
from directsuite.oauth.grants import Grant
from tests.core import responses
from tests.core.scripted_server import Exchange, Responder, ScriptedServer
from tests.core.scripted_suite import GET_MESSAGE_COUNT, catch_error, open_suite
from tests.core.virtual_time import measure_elapsed, yield_to_loop, yield_until

from .test_refresh_token import RotationRecorder
from .token_service import TokenService


def _answering_after(service: TokenService, seconds: float) -> Responder:
    async def responder(exchange: Exchange) -> None:
        await exchange.read()
        answer = responses.encode_body(service.make_tokens(exchange) or {"error": "invalid_grant"})
        await asyncio.sleep(seconds)
        await exchange.write(responses.make_head(200, len(answer)) + answer)

    return responder


def _grant(service: TokenService, kind: str, saved: RotationRecorder) -> Grant:
    return service.make_authorization_code(saved) if kind == "code" else service.make_refresh_token(saved)


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", ["refresh token", "code"])
@pytest.mark.parametrize("grace", [0.0, 0.5, 5.0])
async def test_closing_waits_for_a_request_that_spends_what_it_sends(
    server: ScriptedServer, service: TokenService, kind: str, grace: float
) -> None:
    service.script = [_answering_after(service, 1)]
    saved = RotationRecorder(server)
    async with open_suite(server, token=_grant(service, kind, saved), leaky=True) as suite:
        caller = asyncio.ensure_future(asyncio.gather(suite.signing.get_doc_info("doc"), return_exceptions=True))
        await yield_until(lambda: service.issued == 1)
        assert await measure_elapsed(suite.aclose(grace=grace)) == pytest.approx(1)
        [answer] = await caller
    assert saved.tokens == [service.refresh_token]
    assert isinstance(answer, ds.ClosedError) == (grace < 1)
    assert len(server.find_requests("/signing/")) == (grace > 1)


async def test_error_in_the_block_loses_no_renewal_in_the_background(
    server: ScriptedServer, service: TokenService
) -> None:
    service.expires_in = 100
    saved = RotationRecorder(server)

    async def block() -> None:
        async with open_suite(server, token=service.make_refresh_token(saved)) as suite:
            await suite.signing.get_doc_info("doc")
            await asyncio.sleep(55)
            service.script = [_answering_after(service, 1)]
            await suite.signing.get_doc_info("doc")
            await yield_until(lambda: service.issued == 2)
            raise ValueError("the block's own")

    with pytest.raises(ValueError, match="the block's own"):
        await block()
    assert saved.tokens[-1] == service.refresh_token


async def test_renewal_that_keeps_the_token_alive_is_not_lost_either(
    server: ScriptedServer, service: TokenService
) -> None:
    service.expires_in = 100
    saved = RotationRecorder(server)
    async with open_suite(server, token=service.make_refresh_token(saved), keep_alive=True) as suite:
        await suite.signing.get_doc_info("doc")
        service.script = [_answering_after(service, 1)]
        await asyncio.sleep(50.5)
        assert service.issued == 2
        await suite.aclose(grace=0)
    assert (len(service.forms), saved.tokens[-1]) == (2, service.refresh_token)


async def test_saving_that_begins_late_has_its_own_time(server: ScriptedServer, service: TokenService) -> None:
    service.script = [_answering_after(service, 4)]
    saved = RotationRecorder(server)
    saved.gate.clear()
    async with open_suite(server, token=service.make_refresh_token(saved), leaky=True) as suite:
        caller = asyncio.create_task(catch_error(suite.signing.get_doc_info("doc")))
        await yield_until(lambda: service.issued == 1)
        asyncio.get_running_loop().call_later(8, saved.gate.set)
        assert await measure_elapsed(suite.aclose(grace=0)) == pytest.approx(8)
        assert isinstance(await caller, ds.ClosedError)
    assert saved.tokens == [service.refresh_token]


async def test_closing_does_not_wait_for_a_response_for_ever(server: ScriptedServer, service: TokenService) -> None:
    service.script = [responses.never_respond]
    async with open_suite(server, token=service.make_refresh_token(), leaky=True) as suite:
        caller = asyncio.create_task(catch_error(suite.signing.get_doc_info("doc")))
        await yield_until(lambda: server.busy == 1)
        assert await measure_elapsed(suite.aclose(grace=0)) == pytest.approx(5)
        assert isinstance(await caller, ds.ClosedError)


async def test_request_that_spends_nothing_is_not_waited_for(server: ScriptedServer, service: TokenService) -> None:
    service.script = [responses.never_respond]
    async with open_suite(server, token=service.make_client_credentials(), leaky=True) as suite:
        caller = asyncio.create_task(catch_error(suite.signing.get_doc_info("doc")))
        await yield_until(lambda: server.busy == 1)
        assert await measure_elapsed(suite.aclose(grace=0)) == 0
        assert isinstance(await caller, ds.ClosedError)


async def test_request_that_waits_to_be_repeated_is_not_waited_for(
    server: ScriptedServer, service: TokenService
) -> None:
    service.script = [responses.respond(b"", 429, Retry_After="30")]
    async with open_suite(server, token=service.make_refresh_token(), leaky=True) as suite:
        caller = asyncio.create_task(catch_error(suite.signing.get_doc_info("doc")))
        await yield_until(lambda: len(server.requests) == 1)
        await yield_to_loop()
        assert await measure_elapsed(suite.aclose(grace=0)) == 0
        assert isinstance(await caller, ds.ClosedError)
    assert len(service.forms) == 1


async def test_nothing_is_waited_for_between_renewals(server: ScriptedServer, service: TokenService) -> None:
    async with open_suite(server, token=service.make_refresh_token(), keep_alive=True, leaky=True) as suite:
        await suite.signing.get_doc_info("doc")
        service.server.default_responder = responses.never_respond
        caller = asyncio.create_task(catch_error(GET_MESSAGE_COUNT.call(suite)))
        await yield_until(lambda: server.busy == 1)
        assert await measure_elapsed(suite.aclose(grace=0)) == 0
        await caller


async def test_no_request_begins_while_closing_waits(server: ScriptedServer, service: TokenService) -> None:
    service.script = [_answering_after(service, 2), responses.never_respond]
    saved = RotationRecorder(server)
    async with open_suite(server, token=service.make_refresh_token(saved), leaky=True) as suite:
        waiting = [asyncio.create_task(catch_error(suite.signing.get_doc_info("doc"))) for _ in range(3)]
        await yield_until(lambda: service.issued == 1)
        closing = asyncio.create_task(suite.aclose(grace=0))
        await yield_to_loop()
        late = await catch_error(suite.signing.get_doc_info("doc"))
        await closing
        errors = [late, *await asyncio.gather(*waiting)]
    assert {type(error) for error in errors} == {ds.ClosedError}
    assert len(server.requests) == 1


async def test_closing_cancelled_once_still_waits_for_new_token(server: ScriptedServer, service: TokenService) -> None:
    service.script = [_answering_after(service, 2)]
    saved = RotationRecorder(server)
    async with open_suite(server, token=service.make_refresh_token(saved), leaky=True) as suite:
        caller = asyncio.create_task(catch_error(suite.signing.get_doc_info("doc")))
        await yield_until(lambda: service.issued == 1)
        closing = asyncio.create_task(suite.aclose(grace=0))
        await yield_to_loop()
        closing.cancel()
        began = asyncio.get_running_loop().time()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert asyncio.get_running_loop().time() - began == pytest.approx(2)
        await caller
        await yield_until(lambda: server.open_connections == 0)
    assert saved.tokens == [service.refresh_token]


async def test_closing_cancelled_twice_ends_immediately(server: ScriptedServer, service: TokenService) -> None:
    service.script = [responses.never_respond]
    async with open_suite(server, token=service.make_refresh_token(), leaky=True) as suite:
        caller = asyncio.create_task(catch_error(suite.signing.get_doc_info("doc")))
        await yield_until(lambda: server.busy == 1)
        closing = asyncio.create_task(suite.aclose(grace=0))
        began = asyncio.get_running_loop().time()
        for _ in range(2):
            await yield_to_loop()
            closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert asyncio.get_running_loop().time() == began
        assert isinstance(await caller, ds.ClosedError)
        await yield_until(lambda: server.open_connections == 0)
