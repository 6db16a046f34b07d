"""The OAuth 2.0 endpoints, and the bearer check in front of the signing and fax services."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from directsuite.sandbox.oauth import _is_usable_redirect
from directsuite.sandbox.server import DEMO_CLIENT, DEMO_LOGIN, Sandbox

from .conftest import Api

CLIENT = {"client_id": DEMO_CLIENT[0], "client_secret": DEMO_CLIENT[1]}
CALLBACK = "https://app.example.test/callback?tenant=1"


class OAuthClient(Api):
    async def ask(self, *, authorization: str | None = None, **form: str) -> tuple[int, dict[str, Any]]:
        headers = {"Authorization": authorization} if authorization else {}
        return await self.request("POST", self.sandbox.token_url, data=form, headers=headers)

    async def ask_with_code(self, location: URL, **changes: str) -> tuple[int, dict[str, Any]]:
        code = {"grant_type": "authorization_code", "code": location.query["code"], "redirect_uri": CALLBACK}
        return await self.ask(**{**code, **CLIENT, **changes})

    async def log_in(self, **form: str) -> dict[str, Any]:
        """Return the response of the password grant."""
        username, password = DEMO_LOGIN
        return (await self.ask(grant_type="password", username=username, password=password, **CLIENT, **form))[1]

    async def consent(self, **query: str) -> tuple[int, URL]:
        parameters = {"response_type": "code", "client_id": DEMO_CLIENT[0], "redirect_uri": CALLBACK, **query}
        url = self.sandbox.token_url.replace("/token", "/authorize")
        async with self.http.get(url, params=parameters, allow_redirects=False) as response:
            return response.status, URL(response.headers.get("Location", ""))


@pytest.fixture
def oauth(sandbox: Sandbox, http: aiohttp.ClientSession) -> OAuthClient:
    return OAuthClient(sandbox, http)


async def test_client_credentials_give_a_token_of_an_hour_without_refresh(oauth: OAuthClient) -> None:
    async with oauth.http.post(
        oauth.sandbox.token_url, data={"grant_type": "client_credentials", **CLIENT}
    ) as response:
        body = await response.json()
        assert response.headers["Cache-Control"] == "no-store"
    assert (body["token_type"], body["expires_in"], "refresh_token" in body) == ("Bearer", 3600, False)
    assert await oauth.list_faxes(token=body["access_token"]) == 200
    oauth.sandbox.clock.advance(timedelta(seconds=3600))
    assert await oauth.list_faxes(token=body["access_token"]) == 401


async def test_client_may_authenticate_with_http_basic(oauth: OAuthClient) -> None:
    await oauth.sandbox.add_client("spaced out", "per%cent+plus")
    basic = aiohttp.encode_basic_auth("spaced+out", "per%25cent%2Bplus")
    assert (await oauth.ask(grant_type="client_credentials", authorization=basic))[0] == 200


async def test_a_code_is_exchanged_once_and_has_the_state(oauth: OAuthClient) -> None:
    status, location = await oauth.consent(state="a b&c", scope="fax")
    assert status == 302
    assert (location.host, location.query["tenant"], location.query["state"]) == ("app.example.test", "1", "a b&c")
    status, body = await oauth.ask_with_code(location)
    assert (status, body["scope"]) == (200, "fax")
    status, body = await oauth.ask_with_code(location)
    assert (status, body["error"]) == (400, "invalid_grant")


@pytest.mark.parametrize(
    ("changes", "minutes"), [({"redirect_uri": "https://other.example.test/"}, 0), ({"code": "guessed"}, 0), ({}, 10)]
)
async def test_code_of_another_redirect_or_time_is_rejected(
    oauth: OAuthClient, changes: dict[str, str], minutes: int
) -> None:
    _, location = await oauth.consent()
    oauth.sandbox.clock.advance(timedelta(minutes=minutes))
    assert (await oauth.ask_with_code(location, **changes))[1]["error"] == "invalid_grant"


async def test_a_code_used_by_another_client_stays_valid(oauth: OAuthClient) -> None:
    await oauth.sandbox.add_client("other", "secret")
    _, location = await oauth.consent()
    other = {"client_id": "other", "client_secret": "secret"}
    assert (await oauth.ask_with_code(location, **other))[1]["error"] == "invalid_grant"
    assert (await oauth.ask_with_code(location))[0] == 200


async def test_untrusted_authorization_request_is_not_redirected(oauth: OAuthClient) -> None:
    cases: list[dict[str, str]] = [
        {"client_id": "unknown"},
        {"redirect_uri": "javascript:alert(1)"},
        {"redirect_uri": "https://[bad/"},
    ]
    for query in cases:
        assert (await oauth.consent(**query))[0] == 400, query


async def test_an_unknown_response_type_is_redirected_as_an_error(oauth: OAuthClient) -> None:
    _, location = await oauth.consent(response_type="token", state="s")
    assert (location.query["error"], location.query["state"]) == ("unsupported_response_type", "s")


async def test_refresh_token_rotates(oauth: OAuthClient) -> None:
    first = await oauth.log_in()
    refresh = {"grant_type": "refresh_token", "refresh_token": first["refresh_token"], **CLIENT}
    status, second = await oauth.ask(**refresh)
    assert status == 200
    assert first["refresh_token"] != second["refresh_token"]
    assert (await oauth.ask(**refresh))[1]["error"] == "invalid_grant"
    assert (await oauth.ask(**{**refresh, "refresh_token": second["refresh_token"]}))[0] == 200


async def test_a_refresh_token_cannot_extend_the_scope(oauth: OAuthClient) -> None:
    first = await oauth.log_in(scope="fax")
    refresh = {"grant_type": "refresh_token", "refresh_token": first["refresh_token"], **CLIENT}
    assert (await oauth.ask(scope="fax pdf", **refresh))[1]["error"] == "invalid_scope"
    assert (await oauth.ask(scope="fax", **refresh))[0] == 200


async def test_errors_are_those_of_rfc_6749(oauth: OAuthClient) -> None:
    cases: list[tuple[dict[str, str], int, str]] = [
        ({"grant_type": "client_credentials", "client_id": "demo-client", "client_secret": "x"}, 401, "invalid_client"),
        ({"grant_type": "client_credentials"}, 401, "invalid_client"),
        ({"grant_type": "magic", **CLIENT}, 400, "unsupported_grant_type"),
        ({**CLIENT}, 400, "invalid_request"),
        ({"grant_type": "authorization_code", "code": "x", **CLIENT}, 400, "invalid_grant"),
        ({"grant_type": "authorization_code", **CLIENT}, 400, "invalid_request"),
        ({"grant_type": "refresh_token", **CLIENT}, 400, "invalid_request"),
        ({"grant_type": "password", "username": "a", "password": "b", **CLIENT}, 400, "invalid_grant"),
        ({"grant_type": "password", "username": "a", **CLIENT}, 400, "invalid_request"),
    ]
    for form, status, error in cases:
        answered, body = await oauth.ask(**form)
        assert (answered, body["error"]) == (status, error), (form, status, error)


async def test_unreadable_token_request_is_invalid(oauth: OAuthClient) -> None:
    for body, media_type in (
        (b'{"grant_type": "client_credentials"}', "application/json"),
        (b"grant_type=password&grant_type=password", "application/x-www-form-urlencoded"),
        (b"grant_type=%FF%FE", "application/x-www-form-urlencoded"),
        (b"\xff\xfe", "application/x-www-form-urlencoded"),
        (b"&".join(b"a%d=1" % number for number in range(200)), "application/x-www-form-urlencoded"),
        (b"", "application/x-www-form-urlencoded"),
    ):
        async with oauth.http.post(
            oauth.sandbox.token_url, data=body, headers={"Content-Type": media_type}
        ) as response:
            assert (response.status, (await response.json())["error"]) == (400, "invalid_request"), (body, media_type)


async def test_broken_basic_credentials_are_an_invalid_client(oauth: OAuthClient) -> None:
    form = {"grant_type": "client_credentials"}
    async with oauth.http.post(oauth.sandbox.token_url, data=form, headers={"Authorization": "Basic ***"}) as response:
        assert (response.status, (await response.json())["error"]) == (401, "invalid_client")
        assert response.headers["WWW-Authenticate"].startswith("Basic ")


async def test_issued_token_ends_with_its_lifetime_or_when_expired(oauth: OAuthClient) -> None:
    short = await oauth.sandbox.issue_token(lifetime=timedelta(seconds=5))
    long, other = await oauth.sandbox.issue_token(), await oauth.sandbox.issue_token("other")
    oauth.sandbox.clock.advance(timedelta(seconds=5))
    assert await oauth.list_faxes(token=short) == 401
    assert await oauth.list_faxes(token=long) == 200
    await oauth.sandbox.expire_tokens("demo")
    assert await oauth.list_faxes(token=long) == 401
    assert await oauth.list_faxes(token=other) == 200


async def test_a_secret_is_accepted_and_expired_only_as_its_kind(oauth: OAuthClient) -> None:
    _, location = await oauth.consent()
    code, session = location.query["code"], (await oauth.login(*DEMO_LOGIN))[1]["sessionId"]
    tokens = await oauth.log_in()
    access, refresh = tokens["access_token"], tokens["refresh_token"]

    async def use_session(session_id: str) -> str:
        url = f"{oauth.sandbox.registration_url}/GetPatientAddressByUsername/{session_id}/direct.example.test/ada"
        body = (await oauth.request("GET", url))[1]
        return str(body["code"])

    for other in (code, session, refresh):
        assert await oauth.list_faxes(token=other) == 401
    for other in (code, access, refresh):
        assert await use_session(other) == "011"
    for other in (access, session, refresh):
        assert (await oauth.ask_with_code(location, code=other))[1]["error"] == "invalid_grant"
    for other in (code, access, session):
        grant = {"grant_type": "refresh_token", "refresh_token": other, **CLIENT}
        assert (await oauth.ask(**grant))[1]["error"] == "invalid_grant"

    await oauth.sandbox.expire_tokens()
    assert (await oauth.list_faxes(token=access), await use_session(session)) == (401, "208")
    await oauth.sandbox.expire_sessions()
    assert await use_session(session) == "011"
    assert (await oauth.ask_with_code(location))[0] == 200
    assert (await oauth.ask(grant_type="refresh_token", refresh_token=refresh, **CLIENT))[0] == 200


@given(st.text() | st.text().map("https://app.example.test/".__add__) | st.text().map("https://".__add__))
def test_a_redirect_uri_is_rejected_or_can_have_parameters(redirect_uri: str) -> None:
    if _is_usable_redirect(redirect_uri):
        location = str(URL(redirect_uri).extend_query({"code": "c", "state": "s"}))
        assert location.isascii()
        assert location.isprintable()
