"""Odd members of token responses, and their interpretation."""

from __future__ import annotations

import math
from typing import Any

import pytest

import directsuite as ds
from directsuite.oauth import source
from tests.core import responses
from tests.core.scripted_server import Responder

from .token_service import TokenService, fetch

GOOD: dict[str, Any] = {"access_token": "sentinel-of-an-access-token-1", "token_type": "Bearer"}

LIFETIMES: list[tuple[Any, float]] = [
    *((expires_in, 100.0) for expires_in in (100, "100", " 100 ", 100.0, "1e2")),
    *((100.9, 100.9), ("0.5", 0.5)),
    # Lifetimes without meaning: the token is used until it is rejected.
    *((expires_in, math.inf) for expires_in in (None, 0, -1, 10**12, 10**400, True, [100], {"seconds": 100})),
    *((expires_in, math.inf) for expires_in in ("0", "-3600", "soon", "nan", "inf", "-inf", "")),
]


async def test_lifetime_may_be_a_number_or_a_text(service: TokenService) -> None:
    for expires_in, lifetime in LIFETIMES:
        service.expires_in = expires_in
        async with service.open() as suite:
            await fetch(suite)
            credential = await suite._caches[0].get_current()
        assert credential.expires_at - credential.requested_at == pytest.approx(lifetime), (expires_in, lifetime)


async def test_token_without_a_lifetime_is_replaced_when_it_is_rejected(service: TokenService) -> None:
    service.expires_in = 0
    async with service.open() as suite:
        for _ in range(3):
            await fetch(suite)
        assert service.issued == 1
        service.valid.clear()
        await fetch(suite)
    assert service.issued == 2


@pytest.mark.exhaustive(limit=5)
@pytest.mark.parametrize(
    ("response", "accepted_type"),
    [
        *((GOOD | {"token_type": kind}, None) for kind in ("bearer", "BEARER", None)),
        *((GOOD | {"token_type": kind}, "BearerToken") for kind in ("BearerToken", "bearertoken", "Bearer", None)),
        *((GOOD | members, None) for members in ({"error": None}, {"scope": 7})),
        (b"\xef\xbb\xbf" + responses.encode_body(GOOD), None),
    ],
    ids=str,
)
async def test_unusual_response_is_accepted(service: TokenService, response: Any, accepted_type: str | None) -> None:
    service.valid = {GOOD["access_token"]}
    service.script = [responses.respond(response)]
    async with service.open(service.make_client_credentials(token_type=accepted_type)) as suite:
        assert (await fetch(suite)).identifier == "doc"
    assert service.server.requests[-1].headers["authorization"] == f"Bearer {GOOD['access_token']}"


@pytest.mark.exhaustive
@pytest.mark.parametrize("accepted_type", [None, "BearerToken"])
@pytest.mark.parametrize("token_type", ["mac", "", 7, ["Bearer"]], ids=str)
async def test_other_token_type_is_rejected_immediately(
    service: TokenService, token_type: Any, accepted_type: str | None
) -> None:
    grant = service.make_client_credentials(token_type=accepted_type)
    error = await service.fail(
        ds.ResponseDecodeError, responses.respond(GOOD | {"token_type": token_type}), grant=grant
    )
    assert (error.path, error.operation) == ("$.token_type", "token")
    assert "pass that name to the grant as token_type" in str(error)
    assert len(service.server.requests) == 1


@pytest.mark.exhaustive(limit=5)
@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({}, "$.access_token"),
        *((GOOD | {"access_token": token}, "$.access_token") for token in (None, "", 7)),
        (GOOD | {"refresh_token": 7}, "$.refresh_token"),
        (GOOD | {"access_token": "a\ud83d"}, "$.access_token"),
        ([GOOD], "$"),
        *((body, "$") for body in (b"null", b"access_token=x&token_type=Bearer", b"<html>", b"", b"[" * 9999)),
    ],
)
async def test_unreadable_response_names_the_place(service: TokenService, body: Any, path: str) -> None:
    error = await service.fail(ds.ResponseDecodeError, *[responses.respond(body)] * 9)
    assert error.path == path


async def test_huge_response_is_broken_off_and_not_requested_again(service: TokenService) -> None:
    huge = b" " * (source.MAX_RESPONSE_BYTES + 1) + responses.encode_body(GOOD)
    error = await service.fail(ds.ResponseDecodeError, responses.respond(huge))
    assert error.too_large
    assert len(service.server.requests) == 1


async def test_response_that_drips_ends_with_the_time_of_a_token_request(service: TokenService) -> None:
    drops = [piece for _ in range(100) for piece in (b" ", responses.Pause(1))]
    drip: Responder = responses.respond_in_chunks(*drops)
    error = await service.fail(ds.ConnectionLostError, *[drip] * 9, timeout=300, retry=ds.RetryPolicy.none())
    assert error.elapsed <= 60
    assert error.operation == "token"


async def test_token_that_no_header_can_carry_is_rejected(service: TokenService) -> None:
    await service.fail(ds.ConfigurationError, responses.respond(GOOD | {"access_token": "two\r\nlines"}))
