"""A new consent of the user: the code is sent once, and later renewals need no code."""

from __future__ import annotations

import asyncio

import pytest

import directsuite as ds
from tests.core import responses
from tests.core.scripted_server import Responder
from tests.core.scripted_suite import catch_error, expect_error
from tests.core.virtual_time import yield_until

from .token_service import CLIENT, CODE, REDIRECT_URI, VERIFIER, RotationRecorder, TokenService, fetch, make_rejection

_ASK_AGAIN = "send the user through authorization again"


async def test_code_is_exchanged_and_renewals_use_the_refresh_token(
    service: TokenService, saved: RotationRecorder
) -> None:
    async with service.open(service.make_authorization_code(saved)) as suite:
        for _ in range(3):
            await fetch(suite)
            service.valid.clear()
    exchange = {"code": CODE, "redirect_uri": REDIRECT_URI, "code_verifier": VERIFIER}
    assert service.forms[0] == exchange | {"grant_type": "authorization_code", "client_id": CLIENT}
    assert [form["grant_type"] for form in service.forms] == ["authorization_code", "refresh_token", "refresh_token"]
    assert [token[-1] for token in saved.tokens] == ["1", "2", "3"]


MAYBE: dict[str, Responder] = {
    "reset": responses.reset,
    "silence": responses.never_respond,
    "500": responses.respond(b"", 500),
    "broken off": responses.truncate({"access_token": "x" * 99}),
    "garbage": responses.respond(b"{"),
    "no token": responses.respond({}),
    "too large": responses.respond(b" " * 2_000_000),
}
_REASONS = {"reset": "connection reset", "silence": "timed out after connecting"}


@pytest.mark.exhaustive(limit=4)
@pytest.mark.parametrize("lost", MAYBE)
async def test_code_that_may_be_used_is_never_sent_again(service: TokenService, lost: str) -> None:
    service.script = [MAYBE[lost]]
    errors: list[ds.DirectSuiteError] = []
    events: list[ds.Event] = []
    async with service.open(service.make_authorization_code(), leaky=True, listeners=[events.append]) as suite:
        for _ in range(3):
            errors.append(await catch_error(suite.signing.get_doc_info("doc", timeout=50)))
            await asyncio.sleep(0 if len(errors) == 1 else 100)  # the second call is made during the back-off
    assert not [each for each in events if isinstance(each, ds.RetryScheduled)]
    assert lost == "silence" or [error.elapsed for error in errors] == [0, 0, 0]  # without waiting for a back-off
    for error in errors:
        assert type(error) is ds.TransportError
        assert (error.operation, error.service) == ("token", "oauth")
        assert error.outcome is ds.Outcome.NOT_SENT  # of the call that needed the token
        assert _ASK_AGAIN in str(error)
        assert isinstance(error.__cause__, ds.OutcomeUnknownError)
        assert error.reason == _REASONS.get(lost)
    assert len(service.server.requests) == 1


async def test_refresh_token_is_kept_if_the_token_type_is_rejected(
    service: TokenService, saved: RotationRecorder
) -> None:
    service.refresh_token = "sentinel-of-a-refresh-token-9"
    rejected = {"access_token": "x", "refresh_token": service.refresh_token, "token_type": "mac"}
    service.script = [responses.respond(rejected)]
    async with service.open(service.make_authorization_code(saved)) as suite:
        await expect_error(ds.ResponseDecodeError, fetch(suite))
        await asyncio.sleep(100)
        await fetch(suite)
    assert [form["grant_type"] for form in service.forms] == ["authorization_code", "refresh_token"]


async def test_code_is_not_sent_again_if_the_token_type_was_rejected(service: TokenService) -> None:
    grant = service.make_authorization_code()
    for script in ([responses.respond({"access_token": "x", "token_type": "mac"})], []):
        error = await service.fail(ds.ResponseDecodeError, *script, grant=grant)
        assert error.path == "$.token_type"
    assert len(service.server.requests) == 1


async def test_code_is_not_sent_again_after_closing_during_its_exchange(service: TokenService) -> None:
    service.script = [responses.never_respond]
    grant = service.make_authorization_code()
    async with service.open(grant, leaky=True) as suite:
        caller = asyncio.create_task(catch_error(fetch(suite)))
        await yield_until(lambda: len(service.server.requests) == 1)
        await suite.aclose(grace=0)
        errors = [await caller]
    errors.append(await service.fail(ds.TransportError, grant=grant))
    assert [type(error) for error in errors] == [ds.ClosedError, ds.TransportError]
    assert errors[1].outcome is ds.Outcome.NOT_SENT
    assert _ASK_AGAIN in str(errors[1])
    assert len(service.server.requests) == 1


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "responder",
    [
        responses.respond(b"", 429),
        responses.respond(b"", 503, Retry_After="1"),
        responses.respond(b"", 400),
        make_rejection("invalid_client", 401),
    ],
    ids=["429", "503 with Retry-After", "400", "invalid_client"],
)
@pytest.mark.parametrize("same_suite", [True, False])
async def test_code_that_was_certainly_not_used_is_sent_again(
    service: TokenService, responder: Responder, same_suite: bool
) -> None:
    service.script = [responder]
    grant = service.make_authorization_code()
    async with service.open(grant, retry=ds.RetryPolicy.none(), leaky=True) as first, service.open(grant) as second:
        await catch_error(fetch(first))
        await asyncio.sleep(2)
        await fetch(first if same_suite else second)
    assert [form["code"] for form in service.forms] == [CODE, CODE]


async def test_rejected_code_is_not_sent_again(service: TokenService) -> None:
    service.code = None
    errors: list[ds.DirectSuiteError] = []
    async with service.open(service.make_authorization_code()) as suite:
        for _ in range(2):
            errors.append(await catch_error(fetch(suite)))
            await asyncio.sleep(100)
    for error in errors:
        assert isinstance(error, ds.AuthenticationError)
        assert (error.code, error.status) == ("invalid_grant", 400)
        assert _ASK_AGAIN in str(error)
    assert len(service.forms) == 1


@pytest.mark.parametrize("expires_in", [600, None])
async def test_token_without_a_refresh_token_is_used_to_its_end(service: TokenService, expires_in: int | None) -> None:
    service.gives_refresh_token, service.expires_in = False, expires_in
    async with service.open(service.make_authorization_code(), keep_alive=True) as suite:
        await fetch(suite)
        await asyncio.sleep(590)
        await fetch(suite)
        service.valid.clear()
        await asyncio.sleep(11)
        error = await expect_error(ds.AuthenticationError, fetch(suite))
    assert (error.operation, error.outcome) == ("token", ds.Outcome.FAILED)
    assert _ASK_AGAIN in str(error)
    assert len(service.forms) == 1


async def test_code_that_one_suite_sends_or_has_sent_is_not_sent_by_another(service: TokenService) -> None:
    gate = asyncio.Event()
    service.script = [responses.respond_after(gate, service.issue)]
    grant = service.make_authorization_code()
    async with service.open(grant) as first, service.open(grant, leaky=True) as second:
        caller = asyncio.create_task(fetch(first))
        await yield_until(lambda: service.server.busy == 1)
        errors = [await catch_error(fetch(second))]
        gate.set()
        await caller
        await asyncio.sleep(100)
        errors.append(await catch_error(fetch(second)))
        await fetch(first)
    assert isinstance(errors[1], ds.AuthenticationError)
    assert all(_ASK_AGAIN in str(error) for error in errors)
    assert len(service.forms) == 1
