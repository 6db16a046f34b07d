"""A new consent of the user: the code is sent once, and later renewals need no code."""

from __future__ import annotations

import asyncio

import pytest

import directsuite as ds
from tests.core import responses
from tests.core.scripted_server import Responder, ScriptedServer
from tests.core.scripted_suite import catch_error, open_suite
from tests.core.virtual_time import yield_until

from .token_service import CLIENT, CODE, REDIRECT_URI, VERIFIER, TokenService, make_rejection

_ASK_AGAIN = "send the user through authorization again"


async def test_code_is_exchanged_and_renewals_use_the_refresh_token(
    server: ScriptedServer, service: TokenService
) -> None:
    saved: list[ds.Secret] = []
    async with open_suite(server, token=service.make_authorization_code(saved.append)) as suite:
        for _ in range(3):
            await suite.signing.get_doc_info("doc")
            service.valid.clear()
    exchange = {
        "grant_type": "authorization_code",
        "code": CODE,
        "redirect_uri": REDIRECT_URI,
        "code_verifier": VERIFIER,
    }
    assert service.forms[0] == exchange | {"client_id": CLIENT}
    assert [form["grant_type"] for form in service.forms] == ["authorization_code", "refresh_token", "refresh_token"]
    assert [secret.reveal()[-1] for secret in saved] == ["1", "2", "3"]


async def test_hundred_callers_exchange_the_code_once(server: ScriptedServer, service: TokenService) -> None:
    async with open_suite(
        server, token=service.make_authorization_code(), requests_per_second=10_000, burst=1000
    ) as suite:
        await asyncio.gather(*(suite.signing.get_doc_info("doc") for _ in range(100)))
    assert len(service.forms) == 1


MAYBE: dict[str, Responder] = {
    "reset": responses.reset,
    "silence": responses.never_respond,
    "500": responses.respond(b"", 500),
    "broken off": responses.truncate({"access_token": "x" * 99}),
    "garbage": responses.respond(b"{"),
    "no token": responses.respond({}),
    "too large": responses.respond(b" " * 2_000_000),
}


@pytest.mark.parametrize("lost", MAYBE)
async def test_code_that_may_be_spent_is_never_sent_again(
    server: ScriptedServer, service: TokenService, lost: str
) -> None:
    service.script = [MAYBE[lost]]
    errors: list[ds.DirectSuiteError] = []
    async with open_suite(server, token=service.make_authorization_code(), leaky=True) as suite:
        for _ in range(3):
            errors.append(await catch_error(suite.signing.get_doc_info("doc", timeout=50)))
            await asyncio.sleep(100)
    for error in errors:
        assert type(error) is ds.TransportError
        assert (error.operation, error.service) == ("token", "oauth")
        assert error.outcome is ds.Outcome.NOT_SENT  # of the call that needed the token
        assert _ASK_AGAIN in str(error)
        assert isinstance(error.__cause__, ds.OutcomeUnknownError)
    assert len(server.requests) == 1


async def test_closing_in_the_middle_of_the_exchange_leaves_it_unknown(
    server: ScriptedServer, service: TokenService
) -> None:
    service.script = [responses.never_respond]
    async with open_suite(server, token=service.make_authorization_code(), leaky=True) as suite:
        caller = asyncio.create_task(catch_error(suite.signing.get_doc_info("doc")))
        await yield_until(lambda: len(server.requests) == 1)
        await suite.aclose(grace=0)
        error = await caller
    assert type(error) in (ds.TransportError, ds.ClosedError)
    assert error.outcome in (ds.Outcome.NOT_SENT, None)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "responder",
    [responses.respond(b"", 429), responses.respond(b"", 503, Retry_After="1"), make_rejection("invalid_client", 401)],
    ids=["429", "503 with Retry-After", "invalid_client"],
)
async def test_code_that_nobody_took_is_sent_again(
    server: ScriptedServer, service: TokenService, responder: Responder
) -> None:
    service.script = [responder]
    async with open_suite(server, token=service.make_authorization_code(), leaky=True) as suite:
        try:
            await suite.signing.get_doc_info("doc")
        except ds.AuthenticationError:
            await asyncio.sleep(2)
            await suite.signing.get_doc_info("doc")
    assert [form["code"] for form in service.forms] == [CODE, CODE]


async def test_rejected_code_says_so_and_is_not_sent_again(server: ScriptedServer, service: TokenService) -> None:
    service.code = None
    async with open_suite(server, token=service.make_authorization_code()) as suite:
        errors: list[ds.DirectSuiteError] = []
        for _ in range(2):
            errors.append(await catch_error(suite.signing.get_doc_info("doc")))
            await asyncio.sleep(100)
    for error in errors:
        assert isinstance(error, ds.AuthenticationError)
        assert (error.code, error.status) == ("invalid_grant", 400)
        assert _ASK_AGAIN in str(error)
    assert len(service.forms) == 1


@pytest.mark.parametrize("expires_in", [600, None])
async def test_end_of_a_token_without_a_refresh_token_asks_for_the_user(
    server: ScriptedServer, service: TokenService, expires_in: int | None
) -> None:
    service.gives_refresh_token, service.expires_in = False, expires_in
    async with open_suite(server, token=service.make_authorization_code()) as suite:
        await suite.signing.get_doc_info("doc")
        service.valid.clear()
        await asyncio.sleep(601)
        error = await catch_error(suite.signing.get_doc_info("doc"))
    assert isinstance(error, ds.AuthenticationError)
    assert (error.operation, error.outcome) == ("token", ds.Outcome.FAILED)
    assert _ASK_AGAIN in str(error)
    assert len(service.forms) == 1


async def test_token_without_a_refresh_token_is_used_to_its_end(server: ScriptedServer, service: TokenService) -> None:
    service.gives_refresh_token, service.expires_in = False, 600
    async with open_suite(server, token=service.make_authorization_code(), keep_alive=True) as suite:
        await suite.signing.get_doc_info("doc")
        await asyncio.sleep(590)
        await suite.signing.get_doc_info("doc")
    assert len(service.forms) == 1


async def test_code_that_one_suite_exchanged_is_not_sent_by_another(
    server: ScriptedServer, service: TokenService
) -> None:
    grant = service.make_authorization_code()
    async with open_suite(server, token=grant) as first, open_suite(server, token=grant) as second:
        await first.signing.get_doc_info("doc")
        error = await catch_error(second.signing.get_doc_info("doc"))
        await first.signing.get_doc_info("doc")
    assert isinstance(error, ds.AuthenticationError)
    assert _ASK_AGAIN in str(error)
    assert len(service.forms) == 1


async def test_code_that_one_suite_has_on_its_way_is_not_sent_by_another(
    server: ScriptedServer, service: TokenService
) -> None:
    gate = asyncio.Event()
    service.script = [responses.respond_after(gate, service.issue)]
    grant = service.make_authorization_code()
    async with open_suite(server, token=grant) as first, open_suite(server, token=grant, leaky=True) as second:
        caller = asyncio.create_task(first.signing.get_doc_info("doc"))
        await yield_until(lambda: server.busy == 1)
        error = await catch_error(second.signing.get_doc_info("doc"))
        gate.set()
        await caller
    assert _ASK_AGAIN in str(error)
    assert len(service.forms) == 1


async def test_code_that_nobody_took_from_one_suite_may_be_sent_by_the_next(
    server: ScriptedServer, service: TokenService
) -> None:
    service.script = [responses.respond(b"", 429)]
    grant = service.make_authorization_code()
    async with open_suite(server, token=grant, retry=ds.RetryPolicy.none()) as first:
        await catch_error(first.signing.get_doc_info("doc"))
    async with open_suite(server, token=grant) as second:
        await second.signing.get_doc_info("doc")
    assert [form["code"] for form in service.forms] == [CODE, CODE]


async def test_refresh_token_is_kept_if_the_token_type_is_rejected(
    server: ScriptedServer, service: TokenService
) -> None:
    first = "sentinel-of-a-refresh-token-9"
    answer = {"access_token": "sentinel-of-an-access-token-9", "refresh_token": first, "token_type": "mac"}
    service.script = [responses.respond(answer)]
    service.refresh_token = first
    saved: list[ds.Secret] = []
    async with open_suite(server, token=service.make_authorization_code(saved.append)) as suite:
        assert isinstance(await catch_error(suite.signing.get_doc_info("doc")), ds.ResponseDecodeError)
        assert saved == [ds.Secret(first)]
        await asyncio.sleep(100)
        await suite.signing.get_doc_info("doc")
    assert [form["grant_type"] for form in service.forms] == ["authorization_code", "refresh_token"]
