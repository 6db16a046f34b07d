"""No failure of a grant shows a secret: not in its texts, not in the locals of the package's frames, not in events."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

import directsuite as ds
from directsuite.oauth.grants import Grant
from tests.chaos.leak_capture import collect_error_texts, collect_frame_locals, find_leaks
from tests.core import responses
from tests.core.scripted_server import Responder
from tests.core.scripted_suite import FLATTEN, GET_DOC_INFO, ApiCall, catch_error

from .token_service import CLIENT_SECRET, CODE, REDIRECT_URI, SENTINELS, VERIFIER, TokenService, make_rejection

GIVEN = " ".join(SENTINELS).encode()
TOKENS = {
    "access_token": "sentinel-of-an-access-token-1",
    "token_type": "Bearer",
    "refresh_token": "sentinel-of-a-refresh-token-1",
}

FAILURES: dict[str, Responder] = {
    "reset": responses.reset,
    "not HTTP": responses.send_non_http,
    "silence": responses.never_respond,
    "invalid_client": make_rejection("invalid_client", 401),
    "invalid_grant": make_rejection("invalid_grant"),
    "invalid_scope with 200": make_rejection("invalid_scope", 200),
    "bare 401": responses.respond(GIVEN, 401),
    "500": responses.respond(GIVEN, 500),
    "redirect": responses.respond(GIVEN, 302, Location=f"https://other.example.test/?{CLIENT_SECRET}"),
    "garbage": responses.respond(b'{"access_token": ' + GIVEN),
    "other type": responses.respond(TOKENS | {"token_type": CLIENT_SECRET}),
    "misfit": responses.respond(TOKENS | {"refresh_token": [CLIENT_SECRET]}),
    "truncated": responses.truncate(TOKENS),
    "too large": responses.respond(GIVEN * 20_000),
    "unfit for a header": responses.respond(TOKENS | {"access_token": "sentinel-of-an-access-token\n"}),
}

GRANTS: dict[str, Callable[[TokenService], Grant]] = {
    "client credentials": lambda service: service.make_client_credentials(scope="fax"),
    "secret in the body": lambda service: service.make_client_credentials(client_auth="body"),
    "refresh token": lambda service: service.make_refresh_token(),
    "code": lambda service: service.make_authorization_code(),
}


def find_leaks_in(error: ds.DirectSuiteError) -> list[tuple[str, str]]:
    return find_leaks([*collect_error_texts(error), *collect_frame_locals(error)], SENTINELS)


@pytest.mark.exhaustive
@pytest.mark.parametrize("ask", [GET_DOC_INFO, FLATTEN], ids=str)
@pytest.mark.parametrize("grant", GRANTS)
@pytest.mark.parametrize("failure", FAILURES)
async def test_failed_token_request_shows_nothing(
    service: TokenService, failure: str, grant: str, ask: ApiCall
) -> None:
    service.script = [FAILURES[failure]] * 9
    events: list[ds.Event] = []
    token = GRANTS[grant](service)
    async with service.open(token, listeners=[events.append], leaky=True) as suite:
        errors = [await catch_error(ask.call(suite)) for _ in range(2)]
    for error in errors:
        assert find_leaks_in(error) == []
    assert "sentinel" not in repr(events)


async def test_failing_hook_shows_nothing(service: TokenService) -> None:
    async def save(token: ds.Secret) -> None:
        raise OSError(f"no room for {token.reveal()}")

    async with service.open(service.make_refresh_token(save)) as suite:
        error = await catch_error(GET_DOC_INFO.call(suite))
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
