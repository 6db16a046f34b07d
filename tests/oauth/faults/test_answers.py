"""Odd members of token responses, and their interpretation."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import attrs
import pytest

import directsuite as ds
from directsuite.oauth import endpoint
from tests.core import responses
from tests.core.scripted_server import Responder, ScriptedServer
from tests.core.scripted_suite import catch_error, open_suite

from .token_service import TokenService

GOOD: dict[str, Any] = {"access_token": "sentinel-of-an-access-token-1", "token_type": "Bearer"}


LIFETIMES: list[tuple[Any, float]] = [
    *((expires_in, 100.0) for expires_in in (100, "100", " 100 ", 100.0, "1e2")),
    (100.9, 100.9),
    ("0.5", 0.5),
    # Lifetimes without meaning: the token is used until it is rejected.
    *((expires_in, math.inf) for expires_in in (None, 0, -1, 10**12, 10**400, True)),
    *((expires_in, math.inf) for expires_in in ("0", "-3600", "soon", "nan", "inf", "-inf", "")),
    ([100], math.inf),
    ({"seconds": 100}, math.inf),
]


@pytest.mark.parametrize(("expires_in", "lifetime"), LIFETIMES, ids=lambda value: repr(value)[:20])
async def test_lifetime_is_a_number_or_a_text_or_says_nothing(
    server: ScriptedServer, service: TokenService, expires_in: Any, lifetime: float
) -> None:
    service.expires_in = expires_in
    async with open_suite(server, token=service.make_client_credentials()) as suite:
        await suite.signing.get_doc_info("doc")
        credential = await suite._caches[0].get_current()
    assert credential.expires_at - credential.requested_at == pytest.approx(lifetime)


async def test_token_without_a_lifetime_is_replaced_when_it_is_rejected(
    server: ScriptedServer, service: TokenService
) -> None:
    service.expires_in = 0
    async with open_suite(server, token=service.make_client_credentials()) as suite:
        for _ in range(3):
            await suite.signing.get_doc_info("doc")
        assert service.issued == 1
        service.valid.clear()
        await suite.signing.get_doc_info("doc")
    assert service.issued == 2


@pytest.mark.parametrize(
    "members",
    [{"token_type": "bearer"}, {"token_type": "BEARER"}, {"token_type": None}, {"error": None}, {"scope": 7}],
    ids=str,
)
async def test_unusual_response_is_taken(
    server: ScriptedServer, service: TokenService, members: dict[str, Any]
) -> None:
    service.valid = {GOOD["access_token"]}
    service.script = [responses.respond(GOOD | members)]
    async with open_suite(server, token=service.make_client_credentials()) as suite:
        assert (await suite.signing.get_doc_info("doc")).identifier == "doc"


async def test_byte_order_mark_before_the_tokens_is_accepted(server: ScriptedServer, service: TokenService) -> None:
    service.valid = {GOOD["access_token"]}
    service.script = [responses.respond(b"\xef\xbb\xbf" + responses.encode_body(GOOD))]
    async with open_suite(server, token=service.make_client_credentials()) as suite:
        assert (await suite.signing.get_doc_info("doc")).identifier == "doc"


@pytest.mark.parametrize("token_type", ["mac", "", 7, ["Bearer"]], ids=str)
async def test_other_token_type_is_rejected_immediately(
    server: ScriptedServer, service: TokenService, token_type: Any
) -> None:
    service.script = [responses.respond(GOOD | {"token_type": token_type})]
    async with open_suite(server, token=service.make_client_credentials()) as suite:
        error = await catch_error(suite.signing.get_doc_info("doc"))
    assert isinstance(error, ds.ResponseDecodeError)
    assert (error.path, error.operation) == ("$.token_type", "token")
    assert "pass that name to the grant as token_type" in str(error)
    assert len(server.requests) == 1


@pytest.mark.parametrize("token_type", ["BearerToken", "bearertoken", "Bearer", None])
async def test_token_type_that_the_grant_names_is_accepted(
    server: ScriptedServer, service: TokenService, token_type: str | None
) -> None:
    service.valid = {GOOD["access_token"]}
    service.script = [responses.respond(GOOD | {"token_type": token_type})]
    grant = attrs.evolve(service.make_client_credentials(), token_type="BearerToken")
    async with open_suite(server, token=grant) as suite:
        assert (await suite.signing.get_doc_info("doc")).identifier == "doc"
    assert server.requests[-1].headers["authorization"] == f"Bearer {GOOD['access_token']}"


async def test_token_type_that_the_grant_does_not_name_is_rejected(
    server: ScriptedServer, service: TokenService
) -> None:
    service.script = [responses.respond(GOOD | {"token_type": "mac"})]
    grant = attrs.evolve(service.make_client_credentials(), token_type="BearerToken")
    async with open_suite(server, token=grant) as suite:
        assert isinstance(await catch_error(suite.signing.get_doc_info("doc")), ds.ResponseDecodeError)


@pytest.mark.parametrize(
    ("responder", "path"),
    [
        (responses.respond({}), "$.access_token"),
        (responses.respond(GOOD | {"access_token": None}), "$.access_token"),
        (responses.respond(GOOD | {"access_token": ""}), "$.access_token"),
        (responses.respond(GOOD | {"access_token": 7}), "$.access_token"),
        (responses.respond(GOOD | {"refresh_token": 7}), "$.refresh_token"),
        (responses.respond(GOOD | {"access_token": "a\ud83d"}), "$"),
        (responses.respond([GOOD]), "$"),
        (responses.respond(b"null"), "$"),
        (responses.respond(b"access_token=x&token_type=Bearer"), "$"),
        (responses.respond(b"<html>"), "$"),
        (responses.respond(b""), "$"),
        (responses.respond(b"[" * 9999), "$"),
    ],
)
async def test_unreadable_response_names_the_place(
    server: ScriptedServer, service: TokenService, responder: Responder, path: str
) -> None:
    service.script = [responder] * 9
    async with open_suite(server, token=service.make_client_credentials(), leaky=True) as suite:
        error = await catch_error(suite.signing.get_doc_info("doc"))
    assert isinstance(error, ds.ResponseDecodeError)
    assert error.path == path


async def test_huge_response_is_broken_off_and_not_requested_again(
    server: ScriptedServer, service: TokenService
) -> None:
    service.script = [responses.respond(b" " * (endpoint.MAX_RESPONSE_BYTES + 1) + responses.encode_body(GOOD))]
    async with open_suite(server, token=service.make_client_credentials()) as suite:
        error = await catch_error(suite.signing.get_doc_info("doc"))
    assert isinstance(error, ds.ResponseDecodeError)
    assert error.too_large
    assert len(server.requests) == 1


async def test_response_that_drips_ends_with_the_time_of_a_token_request(
    server: ScriptedServer, service: TokenService
) -> None:
    drops = [piece for _ in range(100) for piece in (b" ", responses.Pause(1))]
    service.script = [responses.respond_in_chunks(*drops)] * 9
    async with open_suite(server, token=service.make_client_credentials(), timeout=300, leaky=True) as suite:
        began = asyncio.get_running_loop().time()
        error = await catch_error(suite.signing.with_options(retry=ds.RetryPolicy.none()).get_doc_info("doc"))
        assert asyncio.get_running_loop().time() - began <= 60
    assert isinstance(error, ds.TransportError)
    assert error.operation == "token"


async def test_token_that_no_header_can_carry_is_rejected(server: ScriptedServer, service: TokenService) -> None:
    service.script = [responses.respond(GOOD | {"access_token": "two\r\nlines"})]
    async with open_suite(server, token=service.make_client_credentials()) as suite:
        error = await catch_error(suite.signing.get_doc_info("doc"))
    assert type(error) is ds.ConfigurationError
