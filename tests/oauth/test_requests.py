"""Token requests on the wire: the form, and the three ways in which a client identifies itself."""

from __future__ import annotations

import base64
from typing import Any
from urllib.parse import parse_qsl, unquote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

import directsuite as ds
from directsuite.oauth.grants import ClientAuth
from directsuite.oauth.source import make_form, make_headers

URL = "https://login.example.test/token"
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


def refresh(client_id: str, client_secret: str | None, client_auth: ClientAuth = "basic") -> ds.RefreshToken:
    return ds.RefreshToken(URL, client_id, client_secret, "r", client_auth=client_auth)


@given(client_id=TEXTS, client_secret=TEXTS)
def test_basic_credentials_are_form_encoded_first(client_id: str, client_secret: str) -> None:
    headers = make_headers(refresh(client_id, client_secret))
    coded = base64.b64decode(headers["Authorization"].removeprefix("Basic "), validate=True).decode("ascii")
    name, _, secret = coded.partition(":")
    assert (unquote_plus(name), unquote_plus(secret)) == (client_id, client_secret)


def test_example_of_rfc_6749_is_encoded_in_the_same_way() -> None:
    headers = make_headers(ds.ClientCredentials(URL, "s6BhdRkqt3", "7Fjfp0ZBr1KtDRbnfVdmIw"))
    assert headers["Authorization"] == "Basic czZCaGRSa3F0Mzo3RmpmcDBaQnIxS3REUmJuZlZkbUl3"


@pytest.mark.parametrize(
    ("client_secret", "client_auth", "header", "form"),
    [
        ("s", "basic", True, {}),
        ("s", "body", False, {"client_id": "me", "client_secret": "s"}),
        (None, "basic", False, {"client_id": "me"}),
        (None, "body", False, {"client_id": "me"}),
    ],
)
def test_client_names_itself_in_one_place(
    client_secret: str | None, client_auth: ClientAuth, header: bool, form: dict[str, str]
) -> None:
    grant = refresh("me", client_secret, client_auth)
    assert ("Authorization" in make_headers(grant)) is header
    body = make_form(grant, "refresh_token", refresh_token=grant.refresh_token, scope=None)
    expected: dict[str, Any] = {"grant_type": "refresh_token", "refresh_token": "r"} | form
    assert dict(parse_qsl(body.content.decode("ascii"))) == expected


@given(texts=st.dictionaries(st.sampled_from(["code", "redirect_uri", "scope", "code_verifier"]), TEXTS))
def test_form_carries_any_text(texts: dict[str, str]) -> None:
    body = make_form(refresh("me", "s"), "authorization_code", **texts)
    pairs = parse_qsl(body.content.decode("ascii"), strict_parsing=True, errors="strict")
    assert dict(pairs) == {"grant_type": "authorization_code"} | texts
    assert len(pairs) == len(texts) + 1
    assert body.size == len(body.content)
