"""The OAuth 2.0 endpoints, and the bearer check in front of the signing and fax services."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import aiohttp
import pytest
from yarl import URL

from directsuite.sandbox.server import DEMO_CLIENT, DEMO_LOGIN, Sandbox

CLIENT = {"client_id": DEMO_CLIENT[0], "client_secret": DEMO_CLIENT[1]}
CALLBACK = "https://app.example.test/callback?tenant=1"
LIST = "api/fax/getMessageList/15550100100/0"


async def ask(sandbox: Sandbox, http: aiohttp.ClientSession, **form: str) -> tuple[int, dict[str, Any]]:
    async with http.post(sandbox.token_url, data=form) as answer:
        return answer.status, await answer.json()


async def consent(sandbox: Sandbox, http: aiohttp.ClientSession, **query: str) -> tuple[int, URL]:
    parameters = {"response_type": "code", "client_id": DEMO_CLIENT[0], "redirect_uri": CALLBACK, **query}
    url = sandbox.token_url.replace("/token", "/authorize")
    async with http.get(url, params=parameters, allow_redirects=False) as answer:
        return answer.status, URL(answer.headers.get("Location", ""))


async def fax_status(sandbox: Sandbox, http: aiohttp.ClientSession, authorization: str | None) -> int:
    headers = {} if authorization is None else {"Authorization": authorization}
    async with http.get(f"{sandbox.fax_url}/{LIST}", headers=headers) as answer:
        if answer.status == 401:
            assert answer.headers["WWW-Authenticate"].startswith("Bearer ")
            assert set(await answer.json()) == {"error", "description"}
        return answer.status


async def test_client_credentials_give_a_token_of_an_hour_without_refresh(
    sandbox: Sandbox, http: aiohttp.ClientSession
) -> None:
    async with http.post(sandbox.token_url, data={"grant_type": "client_credentials", **CLIENT}) as answer:
        body = await answer.json()
        assert answer.headers["Cache-Control"] == "no-store"
    assert (body["token_type"], body["expires_in"], "refresh_token" in body) == ("Bearer", 3600, False)
    assert await fax_status(sandbox, http, f"bearer {body['access_token']}") == 200
    sandbox.clock.advance(timedelta(seconds=3600))
    assert await fax_status(sandbox, http, f"Bearer {body['access_token']}") == 401


async def test_client_may_authenticate_with_http_basic(sandbox: Sandbox, http: aiohttp.ClientSession) -> None:
    await sandbox.add_client("spaced out", "per%cent+plus")
    basic = aiohttp.encode_basic_auth("spaced+out", "per%25cent%2Bplus")
    async with http.post(
        sandbox.token_url, data={"grant_type": "client_credentials"}, headers={"Authorization": basic}
    ) as answer:
        assert answer.status == 200


async def test_code_is_exchanged_once_and_keeps_the_state(sandbox: Sandbox, http: aiohttp.ClientSession) -> None:
    status, location = await consent(sandbox, http, state="a b&c", scope="fax")
    assert status == 302
    assert (location.host, location.query["tenant"], location.query["state"]) == ("app.example.test", "1", "a b&c")
    form = {"grant_type": "authorization_code", "code": location.query["code"], "redirect_uri": CALLBACK, **CLIENT}
    status, body = await ask(sandbox, http, **form)
    assert (status, body["scope"]) == (200, "fax")
    status, body = await ask(sandbox, http, **form)
    assert (status, body["error"]) == (400, "invalid_grant")


@pytest.mark.parametrize(
    ("changes", "minutes"), [({"redirect_uri": "https://other.example.test/"}, 0), ({"code": "guessed"}, 0), ({}, 10)]
)
async def test_code_of_another_redirect_or_time_is_refused(
    sandbox: Sandbox, http: aiohttp.ClientSession, changes: dict[str, str], minutes: int
) -> None:
    _, location = await consent(sandbox, http)
    sandbox.clock.advance(timedelta(minutes=minutes))
    form = {"grant_type": "authorization_code", "code": location.query["code"], "redirect_uri": CALLBACK, **CLIENT}
    assert (await ask(sandbox, http, **{**form, **changes}))[1]["error"] == "invalid_grant"


async def test_code_of_another_client_is_refused_and_not_used_up(sandbox: Sandbox, http: aiohttp.ClientSession) -> None:
    await sandbox.add_client("other", "secret")
    _, location = await consent(sandbox, http)
    form = {"grant_type": "authorization_code", "code": location.query["code"], "redirect_uri": CALLBACK}
    other = {"client_id": "other", "client_secret": "secret"}
    assert (await ask(sandbox, http, **form, **other))[1]["error"] == "invalid_grant"
    assert (await ask(sandbox, http, **form, **CLIENT))[0] == 200


@pytest.mark.parametrize(
    "query", [{"client_id": "unknown"}, {"redirect_uri": "javascript:alert(1)"}, {"redirect_uri": "https://[bad/"}]
)
async def test_untrusted_authorization_request_is_not_redirected(
    sandbox: Sandbox, http: aiohttp.ClientSession, query: dict[str, str]
) -> None:
    assert (await consent(sandbox, http, **query))[0] == 400


async def test_unknown_response_type_is_told_to_the_client(sandbox: Sandbox, http: aiohttp.ClientSession) -> None:
    _, location = await consent(sandbox, http, response_type="token", state="s")
    assert (location.query["error"], location.query["state"]) == ("unsupported_response_type", "s")


async def test_refresh_token_rotates(sandbox: Sandbox, http: aiohttp.ClientSession) -> None:
    username, password = DEMO_LOGIN
    _, first = await ask(sandbox, http, grant_type="password", username=username, password=password, **CLIENT)
    refresh = {"grant_type": "refresh_token", "refresh_token": first["refresh_token"], **CLIENT}
    status, second = await ask(sandbox, http, **refresh)
    assert status == 200
    assert first["refresh_token"] != second["refresh_token"]
    assert (await ask(sandbox, http, **refresh))[1]["error"] == "invalid_grant"
    assert (await ask(sandbox, http, **{**refresh, "refresh_token": second["refresh_token"]}))[0] == 200


async def test_refresh_cannot_widen_the_scope_and_refusal_keeps_the_token(
    sandbox: Sandbox, http: aiohttp.ClientSession
) -> None:
    username, password = DEMO_LOGIN
    login = {"grant_type": "password", "username": username, "password": password, "scope": "fax"}
    _, first = await ask(sandbox, http, **login, **CLIENT)
    refresh = {"grant_type": "refresh_token", "refresh_token": first["refresh_token"], **CLIENT}
    assert (await ask(sandbox, http, scope="fax pdf", **refresh))[1]["error"] == "invalid_scope"
    assert (await ask(sandbox, http, scope="fax", **refresh))[0] == 200


@pytest.mark.parametrize(
    ("form", "status", "error"),
    [
        ({"grant_type": "client_credentials", "client_id": "demo-client", "client_secret": "x"}, 401, "invalid_client"),
        ({"grant_type": "client_credentials"}, 401, "invalid_client"),
        ({"grant_type": "magic", **CLIENT}, 400, "unsupported_grant_type"),
        ({**CLIENT}, 400, "invalid_request"),
        ({"grant_type": "authorization_code", "code": "x", **CLIENT}, 400, "invalid_grant"),
        ({"grant_type": "authorization_code", **CLIENT}, 400, "invalid_request"),
        ({"grant_type": "refresh_token", **CLIENT}, 400, "invalid_request"),
        ({"grant_type": "password", "username": "a", "password": "b", **CLIENT}, 400, "invalid_grant"),
        ({"grant_type": "password", "username": "a", **CLIENT}, 400, "invalid_request"),
    ],
)
async def test_refusals_are_those_of_rfc_6749(
    sandbox: Sandbox, http: aiohttp.ClientSession, form: dict[str, str], status: int, error: str
) -> None:
    answered, body = await ask(sandbox, http, **form)
    assert (answered, body["error"]) == (status, error)


@pytest.mark.parametrize(
    ("body", "media_type"),
    [
        (b'{"grant_type": "client_credentials"}', "application/json"),
        (b"grant_type=password&grant_type=password", "application/x-www-form-urlencoded"),
        (b"grant_type=%FF%FE", "application/x-www-form-urlencoded"),
        (b"\xff\xfe", "application/x-www-form-urlencoded"),
        (b"&".join(b"a%d=1" % number for number in range(200)), "application/x-www-form-urlencoded"),
        (b"", "application/x-www-form-urlencoded"),
    ],
)
async def test_unreadable_token_request_is_invalid(
    sandbox: Sandbox, http: aiohttp.ClientSession, body: bytes, media_type: str
) -> None:
    async with http.post(sandbox.token_url, data=body, headers={"Content-Type": media_type}) as answer:
        assert (answer.status, (await answer.json())["error"]) == (400, "invalid_request")


async def test_broken_basic_credentials_are_an_invalid_client(sandbox: Sandbox, http: aiohttp.ClientSession) -> None:
    form = {"grant_type": "client_credentials"}
    async with http.post(sandbox.token_url, data=form, headers={"Authorization": "Basic ***"}) as answer:
        assert (answer.status, (await answer.json())["error"]) == (401, "invalid_client")
        assert answer.headers["WWW-Authenticate"].startswith("Basic ")


@pytest.mark.parametrize("authorization", [None, "", "Bearer", "Bearer ", "Bearer unknown", "Basic abc", "\x80\xff"])
async def test_request_without_a_valid_token_is_refused(
    sandbox: Sandbox, http: aiohttp.ClientSession, authorization: str | None
) -> None:
    assert await fax_status(sandbox, http, authorization) == 401


async def test_issued_token_ends_with_its_lifetime_or_when_expired(
    sandbox: Sandbox, http: aiohttp.ClientSession
) -> None:
    short = await sandbox.issue_token(lifetime=timedelta(seconds=5))
    long, other = await sandbox.issue_token(), await sandbox.issue_token("other")
    sandbox.clock.advance(timedelta(seconds=5))
    assert await fax_status(sandbox, http, f"Bearer {short}") == 401
    assert await fax_status(sandbox, http, f"Bearer {long}") == 200
    await sandbox.expire_tokens("demo")
    assert await fax_status(sandbox, http, f"Bearer {long}") == 401
    assert await fax_status(sandbox, http, f"Bearer {other}") == 200
