"""Closing during a renewal by refresh token or code: the new refresh token is still saved."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

import directsuite as ds
from directsuite.oauth.grants import Grant
from tests.core import api, responses
from tests.core.scripted_suite import catch_error
from tests.core.virtual_time import measure_elapsed, yield_to_loop, yield_until

from .token_service import RotationRecorder, TokenService, fetch


def make_grant(service: TokenService, kind: str, saved: RotationRecorder) -> Grant:
    if kind == "client credentials":
        return service.make_client_credentials()
    return service.make_authorization_code(saved) if kind == "code" else service.make_refresh_token(saved)


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", ["refresh token", "code"])
@pytest.mark.parametrize("grace", [0.0, 0.5, 5.0])
async def test_closing_waits_for_a_request_that_may_use_the_grant(
    service: TokenService, saved: RotationRecorder, kind: str, grace: float
) -> None:
    service.script = [partial(service.issue, delay=1)]
    async with service.open(make_grant(service, kind, saved), leaky=True) as suite:
        caller = asyncio.ensure_future(asyncio.gather(fetch(suite), return_exceptions=True))
        await yield_until(lambda: service.issued == 1)
        assert await measure_elapsed(suite.aclose(grace=grace)) == pytest.approx(1)
        [result] = await caller
    assert saved.tokens == [service.refresh_token]
    assert isinstance(result, ds.ClosedError) == (grace < 1)
    assert len(service.server.find_requests("/signing/")) == (grace > 1)


@pytest.mark.parametrize(
    ("kind", "response_delay", "save_seconds", "waited"),
    [
        ("refresh token", 5, 4, 8),
        ("refresh token", 0, 4, 3),
        ("refresh token", 0, 100, 5),
        ("refresh token", 100, 0, 5),
        ("client credentials", 100, 0, 0),
    ],
)
async def test_closing_waits_for_response_and_saving_up_to_five_seconds_each(
    service: TokenService, saved: RotationRecorder, kind: str, response_delay: float, save_seconds: float, waited: float
) -> None:
    service.script = [partial(service.issue, delay=response_delay)]
    if save_seconds:
        saved.gate.clear()
        asyncio.get_running_loop().call_later(response_delay + save_seconds, saved.gate.set)
    async with service.open(make_grant(service, kind, saved), leaky=True) as suite:
        caller = asyncio.create_task(catch_error(fetch(suite)))
        await asyncio.sleep(1)
        assert await measure_elapsed(suite.aclose(grace=0)) == pytest.approx(waited)
        assert isinstance(await caller, ds.ClosedError)
    assert saved.tokens == ([service.refresh_token] if max(response_delay, save_seconds) < 100 else [])


async def test_error_in_the_block_loses_no_renewal_in_the_background(
    service: TokenService, saved: RotationRecorder
) -> None:
    service.expires_in = 100

    async def raise_during_renewal() -> None:
        async with service.open(service.make_refresh_token(saved)) as suite:
            await fetch(suite)
            await asyncio.sleep(55)
            service.script = [partial(service.issue, delay=1)]
            await fetch(suite)
            await yield_until(lambda: service.issued == 2)
            raise ValueError("the block's own")

    with pytest.raises(ValueError, match="the block's own"):
        await raise_during_renewal()
    assert saved.tokens[-1] == service.refresh_token


async def test_renewal_that_keeps_the_token_alive_is_not_lost_either(
    service: TokenService, saved: RotationRecorder
) -> None:
    service.expires_in = 100
    async with service.open(service.make_refresh_token(saved), keep_alive=True) as suite:
        await fetch(suite)
        service.script = [partial(service.issue, delay=1)]
        await asyncio.sleep(50.5)
        assert service.issued == 2
        await suite.aclose(grace=0)
    assert (len(service.forms), saved.tokens[-1]) == (2, service.refresh_token)


async def test_request_that_waits_to_be_repeated_is_not_waited_for(service: TokenService) -> None:
    service.script = [responses.respond(b"", 429, Retry_After="30")]
    async with service.open(service.make_refresh_token(), leaky=True) as suite:
        caller = asyncio.create_task(catch_error(fetch(suite)))
        await asyncio.sleep(1)
        assert await measure_elapsed(suite.aclose(grace=0)) == 0
        assert isinstance(await caller, ds.ClosedError)
    assert len(service.forms) == 1


async def test_nothing_is_waited_for_between_renewals(service: TokenService) -> None:
    async with service.open(service.make_refresh_token(), keep_alive=True, leaky=True) as suite:
        await fetch(suite)
        service.server.default_responder = responses.never_respond
        caller = asyncio.create_task(catch_error(api.GET_MESSAGE_COUNT(suite)))
        await yield_until(lambda: service.server.busy == 1)
        assert await measure_elapsed(suite.aclose(grace=0)) == 0
        await caller


@pytest.mark.parametrize(("cancellations", "waited"), [(1, 2), (2, 0)])
async def test_closing_cancelled_once_still_waits_for_the_new_token(
    service: TokenService, saved: RotationRecorder, cancellations: int, waited: float
) -> None:
    service.script = [partial(service.issue, delay=2) if waited else responses.never_respond]
    async with service.open(service.make_refresh_token(saved), leaky=True) as suite:
        caller = asyncio.create_task(catch_error(fetch(suite)))
        await yield_until(lambda: service.server.busy == 1)
        closing = asyncio.create_task(suite.aclose(grace=0))
        await yield_to_loop()
        began = asyncio.get_running_loop().time()
        for _ in range(cancellations):
            await yield_to_loop()
            closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert asyncio.get_running_loop().time() - began == pytest.approx(waited)
        assert isinstance(await caller, ds.ClosedError)
        await yield_until(lambda: service.server.open_connections == 0)
    assert saved.tokens == ([service.refresh_token] if waited else [])
