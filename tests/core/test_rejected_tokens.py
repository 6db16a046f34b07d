"""A service that rejects each new token, while another service accepts it."""

from __future__ import annotations

import asyncio

import pytest

import directsuite as ds

from . import api, responses
from .scripted_server import Exchange, ScriptedServer
from .scripted_suite import catch_error, open_suite
from .token_fetches import NumberedTokens
from .virtual_time import yield_until


class PickyServices:
    """Signing, which rejects all tokens, and fax, which accepts the newest one unless it was revoked."""

    def __init__(self) -> None:
        self.source = NumberedTokens()
        self.accepts_for_signing = self.is_revoked = False
        self.newest: int | None = None

    async def __call__(self, exchange: Exchange) -> None:
        newest = exchange.request.headers["authorization"] == f"Bearer token-{self.newest or self.source.asked}"
        if newest and self.is_revoked:
            newest, self.is_revoked = False, False
        good = newest and (self.accepts_for_signing or "/signing/" not in exchange.request.target)
        document: object = {"identifier": "doc", "MessageDetail": []}
        await (responses.respond(document) if good else responses.respond(b"", 401))(exchange)


@pytest.fixture
def picky(server: ScriptedServer) -> PickyServices:
    server.default_responder = services = PickyServices()
    return services


async def call_fax(suite: ds.DirectSuite) -> None:
    await suite.fax.get_multiple_message_info("15550100100")


async def test_service_that_rejects_each_new_token_gets_few_of_them(
    server: ScriptedServer, picky: PickyServices
) -> None:
    async with open_suite(server, token=picky.source) as suite:
        for seconds in (1, 2, 4, 8):
            errors = [await catch_error(api.GET_DOC_INFO(suite)) for _ in range(20)]
            errors += await asyncio.gather(*(catch_error(api.GET_DOC_INFO(suite)) for _ in range(20)))
            assert {(type(error), error.outcome) for error in errors} == {(ds.AuthenticationError, ds.Outcome.FAILED)}
            assert [error.attempts for error in errors] == [2] + 39 * [1]
            assert errors[-1].advice.endswith(f". The first call after {seconds} s requests another token")
            await asyncio.sleep(seconds)
    assert picky.source.asked == 5


async def test_uploads_that_cannot_be_sent_again_get_few_tokens(server: ScriptedServer, picky: PickyServices) -> None:
    async with open_suite(server, token=picky.source) as suite:
        for _ in range(5):
            await catch_error(api.SAVE_STREAM(suite))
    assert picky.source.asked == 2


@pytest.mark.parametrize("call", [api.GET_DOC_INFO, api.SAVE_STREAM], ids=["info", "stream"])
async def test_queued_calls_wait_for_the_next_token_after_the_back_off(
    call: api.ApiCall, server: ScriptedServer, picky: PickyServices
) -> None:
    async with open_suite(server, token=picky.source, max_connections=2) as suite:
        await catch_error(api.GET_DOC_INFO(suite))
        await asyncio.sleep(1)
        picky.accepts_for_signing, picky.newest = True, 3
        results = await asyncio.gather(*(call(suite) for _ in range(20)), return_exceptions=True)
    errors = [result for result in results if isinstance(result, BaseException)]
    assert len(errors) == (2 if call is api.SAVE_STREAM else 0)
    assert picky.source.asked == 3


async def test_other_services_are_not_affected_by_one_that_rejects_each_token(
    server: ScriptedServer, picky: PickyServices
) -> None:
    async with open_suite(server, token=picky.source) as suite:
        await catch_error(api.GET_DOC_INFO(suite))
        await call_fax(suite)
        assert picky.source.asked == 2
        picky.is_revoked = True
        await call_fax(suite)
        assert picky.source.asked == 3


async def test_other_services_use_the_token_until_the_one_that_rejects_it_has_a_new_one(
    server: ScriptedServer, picky: PickyServices
) -> None:
    async with open_suite(server, token=picky.source, retry=ds.RetryPolicy.none()) as suite:
        await catch_error(api.GET_DOC_INFO(suite))
        await asyncio.sleep(1)
        picky.source.failures = [ConnectionError("vault")]
        assert type(await catch_error(api.GET_DOC_INFO(suite))) is ds.TransportError
        picky.newest = picky.source.asked - 1
        await call_fax(suite)
        assert picky.source.asked == 3
        await asyncio.sleep(1)
        picky.newest = None
        assert type(await catch_error(api.GET_DOC_INFO(suite))) is ds.AuthenticationError
        await call_fax(suite)
    assert picky.source.asked == 4
    assert server.requests[-1].headers["authorization"] == "Bearer token-4"


async def test_token_is_replaced_immediately_again_after_the_service_has_accepted_one(
    server: ScriptedServer, picky: PickyServices
) -> None:
    async with open_suite(server, token=picky.source) as suite:
        await catch_error(api.GET_DOC_INFO(suite))
        picky.accepts_for_signing = True
        await api.GET_DOC_INFO(suite)
        assert picky.source.asked == 2
        picky.is_revoked = True
        await api.GET_DOC_INFO(suite)
        assert picky.source.asked == 3


async def test_late_response_to_a_call_with_an_older_token_does_not_end_the_back_off(server: ScriptedServer) -> None:
    source, is_waiting, may_end = NumberedTokens(), asyncio.Event(), asyncio.Event()

    async def respond(exchange: Exchange) -> None:
        if exchange.request.target.endswith("/slow/info"):
            is_waiting.set()
            await may_end.wait()
            await responses.respond({"identifier": "slow"})(exchange)
        else:
            await responses.respond(b"", 401)(exchange)

    server.default_responder = respond
    async with open_suite(server, token=source) as suite:
        slow = asyncio.create_task(suite.signing.get_doc_info("slow"))
        await is_waiting.wait()
        await catch_error(api.GET_DOC_INFO(suite))
        may_end.set()
        await slow
        assert (await catch_error(api.GET_DOC_INFO(suite))).attempts == 1
    assert source.asked == 2


async def test_queued_call_whose_next_token_cannot_be_fetched_returns_its_slot(server: ScriptedServer) -> None:
    source, may_end = NumberedTokens(), asyncio.Event()
    server.default_responder = responses.respond_after(may_end, responses.respond(b"", 401))
    async with open_suite(server, token=source, max_connections=1, retry=ds.RetryPolicy.none()) as suite:
        calls = [asyncio.create_task(catch_error(api.GET_DOC_INFO(suite))) for _ in range(2)]
        await yield_until(lambda: len(server.requests) == 1)
        source.failures = [ConnectionError("vault")]
        may_end.set()
        assert {type(await call) for call in calls} == {ds.TransportError}
        assert len(server.requests) == 1


@pytest.mark.parametrize(("status", "tokens"), [(400, 3), (302, 2)])
async def test_only_an_error_of_the_item_shows_that_the_token_was_accepted(
    status: int, tokens: int, server: ScriptedServer
) -> None:
    source = NumberedTokens()
    for code in (401, 401, status, 401, 401):
        server.enqueue(responses.respond(b"", code))
    async with open_suite(server, token=source, retry=ds.RetryPolicy.none()) as suite:
        for _ in range(3):
            await catch_error(api.GET_DOC_INFO(suite))
    assert source.asked == tokens
