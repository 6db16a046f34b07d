"""Rejected arguments and a failing on_rotated show no secret. For token requests see tests/chaos/test_no_leaks.py."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

import directsuite as ds
from tests.chaos.leak_capture import collect_error_texts, collect_frame_locals, find_leaks
from tests.core import api
from tests.core.scripted_suite import catch_error

from .token_service import CLIENT_SECRET, CODE, REDIRECT_URI, SENTINELS, VERIFIER, TokenService


def find_leaks_in(error: ds.DirectSuiteError) -> list[tuple[str, str]]:
    return find_leaks([*collect_error_texts(error), *collect_frame_locals(error)], SENTINELS)


async def test_failing_hook_shows_nothing(service: TokenService) -> None:
    async def save(token: ds.Secret) -> None:
        raise OSError(f"no room for {token.reveal()}")

    async with service.open(service.make_refresh_token(save)) as suite:
        error = await catch_error(api.GET_DOC_INFO(suite))
    assert find_leaks_in(error) == []


async def test_rejected_redirect_shows_nothing() -> None:
    request = ds.AuthorizationRequest(
        client_id="me", redirect_uri=REDIRECT_URI, state="s", code_verifier=ds.Secret(VERIFIER)
    )

    async def redeem(query: str) -> None:
        request.redeem(f"{REDIRECT_URI}?{query}", token_url="https://login.example.test/", client_secret=CLIENT_SECRET)

    for query in (f"code={CODE}", f"code={CODE}&state=s&state=s", f"error=x&error_description={CODE}&state=s"):
        assert find_leaks_in(await catch_error(redeem(query))) == []


async def _refused_by_the_suite(service: TokenService) -> None:
    code = ds.Secret(CODE + "\ud800")
    ds.DirectSuite(token=ds.AuthorizationCode(service.token_url, "me", ds.Secret(CLIENT_SECRET), code, REDIRECT_URI))


async def _credentials_in_the_token_url(service: TokenService) -> None:
    url = service.token_url.replace("http://", f"http://me:{CLIENT_SECRET}@")
    ds.DirectSuite(token=ds.ClientCredentials(url, "me", ds.Secret(CLIENT_SECRET)))


async def _credentials_in_the_authorize_url(service: TokenService) -> None:
    ds.AuthorizationRequest.to(f"https://me:{CLIENT_SECRET}@login.example.test/", "me", REDIRECT_URI)


@pytest.mark.parametrize(
    "refused",
    [_refused_by_the_suite, _credentials_in_the_token_url, _credentials_in_the_authorize_url],
    ids=lambda call: call.__name__,
)
async def test_rejected_argument_shows_nothing(
    service: TokenService, refused: Callable[[TokenService], Awaitable[None]]
) -> None:
    assert find_leaks_in(await catch_error(refused(service))) == []
