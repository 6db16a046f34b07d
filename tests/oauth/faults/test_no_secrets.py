"""No failure of a grant shows a secret: not in its texts, not in the locals of the package's frames, not in events."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

import directsuite as ds
from directsuite.oauth.grants import Grant
from tests.core import plays
from tests.core.opened import FLATTEN, GET_DOC_INFO, Ask, failure_of, opened
from tests.core.scripted_server import Play, ScriptedServer
from tests.core.test_no_secrets_in_tracebacks import leaks

from .token_service import CLIENT_SECRET, CODE, REDIRECT, SENTINELS, VERIFIER, TokenService, refusal

GIVEN = " ".join(SENTINELS).encode()
TOKENS = {
    "access_token": "sentinel-of-an-access-token-1",
    "token_type": "Bearer",
    "refresh_token": "sentinel-of-a-refresh-token-1",
}

FAILURES: dict[str, Play] = {
    "reset": plays.reset,
    "not HTTP": plays.not_http,
    "silence": plays.silence,
    "invalid_client": refusal("invalid_client", 401),
    "invalid_grant": refusal("invalid_grant"),
    "invalid_scope with 200": refusal("invalid_scope", 200),
    "bare 401": plays.answer(GIVEN, 401),
    "500": plays.answer(GIVEN, 500),
    "redirect": plays.answer(GIVEN, 302, Location=f"https://other.example.test/?{CLIENT_SECRET}"),
    "garbage": plays.answer(b'{"access_token": ' + GIVEN),
    "other type": plays.answer(TOKENS | {"token_type": CLIENT_SECRET}),
    "misfit": plays.answer(TOKENS | {"refresh_token": [CLIENT_SECRET]}),
    "truncated": plays.truncated(TOKENS),
    "too large": plays.answer(GIVEN * 20_000),
    "unfit for a header": plays.answer(TOKENS | {"access_token": "sentinel-of-an-access-token\n"}),
}

GRANTS: dict[str, Callable[[TokenService], Grant]] = {
    "client credentials": lambda service: service.client_credentials(scope="fax"),
    "secret in the body": lambda service: service.client_credentials(client_auth="body"),
    "refresh token": lambda service: service.refreshing(),
    "code": lambda service: service.fresh_consent(),
}


@pytest.mark.parametrize("ask", [GET_DOC_INFO, FLATTEN], ids=str)
@pytest.mark.parametrize("grant", GRANTS)
@pytest.mark.parametrize("failure", FAILURES)
async def test_failed_token_request_shows_nothing(
    server: ScriptedServer, service: TokenService, failure: str, grant: str, ask: Ask
) -> None:
    service.script = [FAILURES[failure]] * 9
    events: list[ds.Event] = []
    token = GRANTS[grant](service)
    async with opened(server, token=token, listeners=[events.append], leaky=True) as suite:
        errors = [await failure_of(ask.call(suite)) for _ in range(2)]
    for error in errors:
        assert leaks(error, SENTINELS) == []
    assert "sentinel" not in repr(events)


async def test_failing_hook_shows_nothing(server: ScriptedServer, service: TokenService) -> None:
    async def save(token: ds.Secret) -> None:
        raise OSError(f"no room for {token.reveal()}")

    async with opened(server, token=service.refreshing(save)) as suite:
        error = await failure_of(GET_DOC_INFO.call(suite))
    assert leaks(error, SENTINELS) == []


async def test_refused_redirect_shows_nothing() -> None:
    request = ds.AuthorizationRequest(
        client_id="me", redirect_uri=REDIRECT, state="s", code_verifier=ds.Secret(VERIFIER)
    )

    async def redeem(query: str) -> None:
        request.redeem(f"{REDIRECT}?{query}", token_url="https://login.example.test/", client_secret=CLIENT_SECRET)

    for query in (f"code={CODE}", f"code={CODE}&state=s&state=s", f"error=x&error_description={CODE}&state=s"):
        assert leaks(await failure_of(redeem(query)), SENTINELS) == []


async def _refused_by_the_suite(service: TokenService) -> None:
    code = ds.Secret(CODE + "\ud800")
    ds.DirectSuite(token=ds.AuthorizationCode(service.token_url, "me", ds.Secret(CLIENT_SECRET), code, REDIRECT))


async def _credentials_in_the_token_url(service: TokenService) -> None:
    url = service.token_url.replace("http://", f"http://me:{CLIENT_SECRET}@")
    ds.DirectSuite(token=ds.ClientCredentials(url, "me", ds.Secret(CLIENT_SECRET)))


async def _credentials_in_the_authorize_url(service: TokenService) -> None:
    ds.AuthorizationRequest.to(f"https://me:{CLIENT_SECRET}@login.example.test/", "me", REDIRECT)


@pytest.mark.parametrize(
    "refused",
    [_refused_by_the_suite, _credentials_in_the_token_url, _credentials_in_the_authorize_url],
    ids=lambda call: call.__name__,
)
async def test_refused_argument_shows_nothing(
    service: TokenService, refused: Callable[[TokenService], Awaitable[None]]
) -> None:
    assert leaks(await failure_of(refused(service)), SENTINELS) == []
