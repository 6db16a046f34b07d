"""The URL for the user's consent, and the redirects that are accepted."""

from __future__ import annotations

import base64
import hashlib
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

import directsuite as ds

AUTHORIZE = "https://login.example.test/authorize"
TOKEN = "https://login.example.test/token"
BACK = "https://app.example.test/back?tenant=1"


@pytest.fixture
def request_() -> ds.AuthorizationRequest:
    return ds.AuthorizationRequest.to(AUTHORIZE, "the client", BACK, "pdf fax")


def back(request: ds.AuthorizationRequest, **members: str) -> str:
    return f"{BACK}&{urlencode({'state': request.state} | members)}"


def test_url_asks_for_a_code_with_state_and_challenge(request_: ds.AuthorizationRequest) -> None:
    query = URL(request_.url).query
    challenge = hashlib.sha256(request_.code_verifier.reveal().encode()).digest()
    assert dict(query) == {
        "response_type": "code",
        "client_id": "the client",
        "redirect_uri": BACK,
        "scope": "pdf fax",
        "state": request_.state,
        "code_challenge": base64.urlsafe_b64encode(challenge).decode().rstrip("="),
        "code_challenge_method": "S256",
    }
    assert request_.url.startswith(f"{AUTHORIZE}?")


def test_secrets_of_a_request_are_long_and_its_own() -> None:
    requests = [ds.AuthorizationRequest.to(AUTHORIZE, "me", BACK) for _ in range(50)]
    assert len({request.state for request in requests}) == len({request.code_verifier for request in requests}) == 50
    for request in requests:
        assert len(request.state) >= 43
        assert 43 <= len(request.code_verifier.reveal()) <= 128  # RFC 7636, section 4.1
        assert "scope" not in URL(request.url).query


def test_query_of_the_authorization_url_stays() -> None:
    request = ds.AuthorizationRequest.to(f"{AUTHORIZE}?policy=a%20b&prompt=", "me", BACK)
    query = URL(request.url).query
    assert (query["policy"], query["prompt"], query["client_id"]) == ("a b", "", "me")


def test_authorization_url_on_this_machine_may_be_http() -> None:
    assert ds.AuthorizationRequest.to("http://127.0.0.1:1/authorize", "me", BACK).url.startswith("http://127.0.0.1:1/")


def test_redirect_becomes_a_grant_with_all_that_the_exchange_needs(request_: ds.AuthorizationRequest) -> None:
    saved: list[ds.Secret] = []
    options: dict[str, Any] = {"client_auth": "body", "token_type": "BearerToken"}
    grant = request_.redeem(
        back(request_, code="a+b c"), token_url=TOKEN, client_secret="s", on_rotated=saved.append, **options
    )
    verifier = request_.code_verifier
    assert grant == ds.AuthorizationCode(TOKEN, "the client", "s", "a+b c", BACK, verifier, saved.append, **options)


def test_redirect_may_be_a_path_and_the_request_built_again(request_: ds.AuthorizationRequest) -> None:
    rebuilt = ds.AuthorizationRequest(
        client_id="the client", redirect_uri=BACK, state=request_.state, code_verifier=request_.code_verifier.reveal()
    )
    path = "/back?" + urlencode({"code": "c", "state": request_.state})
    assert rebuilt.redeem(path, token_url=TOKEN) == request_.redeem(ds.Secret(path), token_url=TOKEN)


def test_redirect_of_another_request_is_rejected(request_: ds.AuthorizationRequest) -> None:
    for query, text in (
        *(("code=sentinel" + state, "state") for state in ("", "&state=", "&state=other", "&state=%F0%9F%92%A3")),
        *(("error=access_denied", "state"), ("", "state")),
        ("code=sentinel&state={state}&state={state}", "twice"),
        ("code=sentinel&code=other&state={state}", "twice"),
        ("state={state}", "neither"),
        ("code=&state={state}", "neither"),
    ):
        with pytest.raises(ds.InvalidArgumentError, match=text) as caught:
            request_.redeem("https://app.example.test/back?" + query.format(state=request_.state), token_url=TOKEN)
        assert caught.value.parameter == "redirected_url", (query, text)
        assert "sentinel" not in repr(caught.value), (query, text)


@pytest.mark.exhaustive
@pytest.mark.parametrize("parameter", ["state", "code_verifier"])
@pytest.mark.parametrize("kept", ["", None, b"bytes", 7], ids=repr)
@pytest.mark.parametrize("query", ["code=c", "code=c&state=", "code=c&state={state}"])
def test_request_that_lost_its_secrets_believes_no_redirect(
    request_: ds.AuthorizationRequest, parameter: str, kept: Any, query: str
) -> None:
    secrets: dict[str, Any] = {"state": request_.state, "code_verifier": request_.code_verifier, parameter: kept}
    rebuilt = ds.AuthorizationRequest(client_id="me", redirect_uri=BACK, **secrets)
    with pytest.raises(ds.InvalidArgumentError, match="user's session") as caught:
        rebuilt.redeem("/back?" + query.format(state=request_.state), token_url=TOKEN)
    assert caught.value.parameter == parameter


@given(query=st.text())
def test_no_redirect_without_the_state_is_believed(query: str) -> None:
    request = ds.AuthorizationRequest.to(AUTHORIZE, "me", BACK)
    with pytest.raises(ds.InvalidArgumentError):
        request.redeem(f"https://app.example.test/back?code=c&{query}", token_url=TOKEN)


def test_rejection_in_the_redirect_is_a_typed_error(request_: ds.AuthorizationRequest) -> None:
    cases: list[tuple[str, type[ds.ServiceError]]] = [
        ("access_denied", ds.PermissionDeniedError),
        ("unauthorized_client", ds.AuthenticationError),
        ("invalid_request", ds.BadRequestError),
        ("unsupported_response_type", ds.BadRequestError),
        ("invalid_scope", ds.BadRequestError),
        ("server_error", ds.ServerError),
        ("temporarily_unavailable", ds.ServerError),
        ("of_its_own", ds.ServiceError),
    ]
    for code, error in cases:
        answer = back(request_, error=code, error_description="sentinel of a patient", code="sentinel")
        with pytest.raises(ds.ServiceError) as caught:
            request_.redeem(answer, token_url=TOKEN)
        assert type(caught.value) is error, (code, error)
        assert caught.value.code == (None if code == "of_its_own" else code), (code, error)
        assert (caught.value.operation, caught.value.service) == ("authorize", "oauth"), (code, error)
        assert caught.value.message == "sentinel of a patient", (code, error)
        assert "sentinel" not in str(caught.value) + repr(vars(caught.value)), (code, error)
        assert "of_its_own" not in str(caught.value), (code, error)


def test_message_of_a_rejection_without_a_description_is_its_code(request_: ds.AuthorizationRequest) -> None:
    with pytest.raises(ds.ServiceError, match=r"see error\.message") as caught:
        request_.redeem(back(request_, error="of_its_own"), token_url=TOKEN)
    assert caught.value.message == "of_its_own"


def test_request_shows_neither_state_nor_verifier(request_: ds.AuthorizationRequest) -> None:
    assert request_.state not in repr(request_)
    assert request_.code_verifier.reveal() not in repr(request_)


INVALID_ARGUMENTS: list[tuple[str, object]] = [
    *(("authorize_url", value) for value in (5, None, b"https://auth.example.test", "login", f"{AUTHORIZE}#x")),
    *(("authorize_url", value) for value in ("http://login.example.test/", "https://me:Zaphod@login.example.test/")),
    *((name, value) for name in ("client_id", "redirect_uri") for value in (5, None, "", b"Zaphod")),
    *(("scope", value) for value in (5, ["Zaphod"])),
    *(("allow_insecure_http", value) for value in ("false", 0, None)),
]


def test_invalid_argument_is_rejected() -> None:
    for name, value in INVALID_ARGUMENTS:
        arguments: dict[str, Any] = {"authorize_url": AUTHORIZE, "client_id": "me", "redirect_uri": BACK, name: value}
        with pytest.raises(ds.ConfigurationError, match=f"^{name} ") as caught:
            ds.AuthorizationRequest.to(**arguments)
        assert "Zaphod" not in str(caught.value), (name, value)


@pytest.mark.parametrize(("url", "text"), [("https://[app/back?code=sentinel", "not a URL"), (5, "redirected_url")])
def test_redirect_that_is_not_a_url_is_rejected(request_: ds.AuthorizationRequest, url: Any, text: str) -> None:
    with pytest.raises(ds.InvalidArgumentError, match=text):
        request_.redeem(url, token_url=TOKEN)
