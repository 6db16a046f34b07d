"""The stored consent of a user: refresh tokens rotate, are saved before use, and may be lost in transit."""

from __future__ import annotations

import asyncio

import pytest

import directsuite as ds
from tests.core import responses
from tests.core.scripted_server import Responder
from tests.core.scripted_suite import catch_error, expect_error
from tests.core.virtual_time import yield_until

from .token_service import FIRST_REFRESH_TOKEN, RotationRecorder, TokenService, fetch, make_rejection


async def test_new_refresh_token_is_saved_before_its_access_token_is_used(
    service: TokenService, saved: RotationRecorder
) -> None:
    service.expires_in = 100
    async with service.open(service.make_refresh_token(saved)) as suite:
        for _ in range(3):
            await fetch(suite)
            await asyncio.sleep(101)
    assert saved.tokens == [f"sentinel-of-a-refresh-token-{number}" for number in (1, 2, 3)]
    assert saved.requests_before == [0, 1, 2]
    assert [form["refresh_token"] for form in service.forms] == [FIRST_REFRESH_TOKEN, *saved.tokens[:2]]
    assert {form["scope"] for form in service.forms} == {"fax"}


@pytest.mark.parametrize("failures", [0, 1])
async def test_saving_is_tried_again_within_one_call_also_by_a_plain_function(
    service: TokenService, failures: int
) -> None:
    saved: list[ds.Secret] = []
    left = [OSError()] * failures

    def save(token: ds.Secret) -> None:
        if left:
            raise left.pop()
        saved.append(token)

    async with service.open(service.make_refresh_token(save)) as suite:
        await fetch(suite)
    assert saved[-1] == ds.Secret(service.refresh_token)


@pytest.mark.parametrize("repeats", [True, False])
async def test_refresh_token_that_stays_is_not_saved_again(
    service: TokenService, saved: RotationRecorder, repeats: bool
) -> None:
    service.rotates, service.gives_refresh_token = False, repeats
    async with service.open(service.make_refresh_token(saved)) as suite:
        for _ in range(2):
            await fetch(suite)
            service.valid.clear()
    assert saved.called == 0
    assert [form["refresh_token"] for form in service.forms] == [FIRST_REFRESH_TOKEN, FIRST_REFRESH_TOKEN]


async def test_failed_save_is_retried_with_same_token_before_any_request(
    service: TokenService, saved: RotationRecorder
) -> None:
    saved.failures = 2
    async with service.open(service.make_refresh_token(saved), retry=ds.RetryPolicy.none()) as suite:
        errors = [await catch_error(fetch(suite))]
        await asyncio.sleep(2)
        errors.append(await catch_error(fetch(suite)))
        assert len(service.server.requests) == 1
        await asyncio.sleep(4)
        await fetch(suite)
    for error in errors:
        assert isinstance(error, ds.TransportError)
        assert error.outcome is ds.Outcome.NOT_SENT
        assert "on_rotated raised OSError" in str(error)
    assert saved.tokens == ["sentinel-of-a-refresh-token-1", "sentinel-of-a-refresh-token-2"]
    assert [form["refresh_token"] for form in service.forms] == [FIRST_REFRESH_TOKEN, saved.tokens[0]]
    assert saved.requests_before == [0, 0]


async def test_hanging_save_ends_with_fetch_timeout_and_keeps_token(
    service: TokenService, saved: RotationRecorder
) -> None:
    saved.gate.clear()
    async with service.open(service.make_refresh_token(saved), timeout=100) as suite:
        error = await catch_error(suite.signing.with_options(retry=ds.RetryPolicy.none()).get_doc_info("doc"))
        assert "the token source took longer than 60 s" in str(error)
        saved.gate.set()
        await asyncio.sleep(2)
        await fetch(suite)
    assert [form["refresh_token"] for form in service.forms] == [FIRST_REFRESH_TOKEN, "sentinel-of-a-refresh-token-1"]


@pytest.mark.parametrize("saving", [3, 20, 55])
async def test_saving_that_is_slow_the_second_time_tears_no_renewal(
    service: TokenService, saved: RotationRecorder, saving: float
) -> None:
    saved.failures = 1
    view = ds.RetryPolicy.none()
    async with service.open(service.make_refresh_token(saved), timeout=200, attempt_timeout=100, retry=view) as suite:
        await catch_error(fetch(suite))
        await asyncio.sleep(2)
        saved.gate.clear()
        asyncio.get_running_loop().call_later(saving, saved.gate.set)
        service.script = [responses.delay(44, service.issue)]
        results = [await asyncio.gather(fetch(suite), return_exceptions=True)]
        await asyncio.sleep(2)
        results.append(await asyncio.gather(fetch(suite), return_exceptions=True))
    [[first], [second]] = results
    if saving > 10:
        assert isinstance(first, ds.TransportError)
        assert first.outcome is ds.Outcome.NOT_SENT
        assert "on_rotated took" in str(first)
    assert not isinstance(second, BaseException)
    assert (len(service.forms), saved.tokens[-1]) == (2, service.refresh_token)


async def test_response_lost_in_an_earlier_call_is_remembered(service: TokenService) -> None:
    service.script = [service.drop_response, responses.reset]
    async with service.open(service.make_refresh_token(), leaky=True) as suite:
        view = suite.signing.with_options(retry=ds.RetryPolicy.none())
        first = await catch_error(view.get_doc_info("doc"))
        await asyncio.sleep(2)
        second = await expect_error(ds.AuthenticationError, view.get_doc_info("doc"))
    assert (type(first), first.outcome) == (ds.ConnectionLostError, ds.Outcome.NOT_SENT)
    assert "whose response was lost" in str(second)


@pytest.mark.parametrize(
    ("before", "is_lost"),
    [
        ([], False),
        ([responses.respond(b"", 429)], False),
        ([responses.respond(b"", 503, Retry_After="1")], False),
        ([responses.reset], True),
    ],
)
async def test_rejection_mentions_a_possible_rotation_only_after_a_lost_response(
    service: TokenService, before: list[Responder], is_lost: bool
) -> None:
    error = await service.fail(
        ds.AuthenticationError, *before, make_rejection("invalid_grant"), grant=service.make_refresh_token()
    )
    assert (error.code, error.outcome) == ("invalid_grant", ds.Outcome.FAILED)
    assert ("whose response was lost" in str(error)) is is_lost
    assert "send the user through authorization again" in str(error)
    assert len(service.forms) == len(before) + 1


async def test_cancelled_caller_loses_no_refresh_token(service: TokenService, saved: RotationRecorder) -> None:
    gate = asyncio.Event()
    service.script = [responses.respond_after(gate, service.issue)]
    async with service.open(service.make_refresh_token(saved)) as suite:
        caller = asyncio.create_task(fetch(suite))
        await yield_until(lambda: len(service.server.requests) == 1)
        caller.cancel()
        gate.set()
        await yield_until(lambda: bool(saved.tokens))
        await fetch(suite)
    assert (service.issued, len(saved.tokens)) == (1, 1)


@pytest.mark.exhaustive
@pytest.mark.parametrize("failures", [0, 1])
@pytest.mark.parametrize("unusable", [{"access_token": "x", "token_type": "mac"}, {"access_token": 7}], ids=str)
async def test_refresh_token_is_kept_if_the_access_token_is_unusable(
    service: TokenService, saved: RotationRecorder, failures: int, unusable: dict[str, object]
) -> None:
    saved.failures = failures
    service.refresh_token = second = "sentinel-of-a-refresh-token-7"
    service.script = [responses.respond({"refresh_token": second} | unusable)]
    async with service.open(service.make_refresh_token(saved), retry=ds.RetryPolicy.none()) as suite:
        error = await catch_error(fetch(suite))
        assert ("on_rotated raised OSError" in str(error)) is bool(failures)
        assert isinstance(error, ds.ResponseDecodeError) is (failures == 0)
        await asyncio.sleep(100)
        await fetch(suite)
    assert saved.tokens == [second, "sentinel-of-a-refresh-token-1"]
    assert [form["refresh_token"] for form in service.forms] == [FIRST_REFRESH_TOKEN, second]


@pytest.mark.parametrize("members", [{}, {"access_token": 7}], ids=str)
async def test_replaced_refresh_token_is_not_sent_again_if_the_access_token_is_unreadable(
    service: TokenService, saved: RotationRecorder, members: dict[str, object]
) -> None:
    service.refresh_token = second = "sentinel-of-a-refresh-token-7"
    service.script = [responses.respond({"refresh_token": second} | members)]
    async with service.open(service.make_refresh_token(saved)) as suite:
        error = await expect_error(ds.ResponseDecodeError, fetch(suite))
        assert (error.path, saved.tokens) == ("$.access_token", [second])
        await asyncio.sleep(100)
        await fetch(suite)
    assert [form["refresh_token"] for form in service.forms] == [FIRST_REFRESH_TOKEN, second]


async def test_unreadable_access_token_is_requested_again_if_the_refresh_token_stays(service: TokenService) -> None:
    service.script = [responses.respond({"access_token": 7, "refresh_token": FIRST_REFRESH_TOKEN})]
    async with service.open(service.make_refresh_token()) as suite:
        await fetch(suite)
    assert [form["refresh_token"] for form in service.forms] == [FIRST_REFRESH_TOKEN] * 2
