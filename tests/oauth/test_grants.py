"""Grants as records: invalid values, reprs, and the modules that they load."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import attrs
import pytest

import directsuite as ds
from directsuite.oauth.grants import Grant

URL = "https://login.example.test/token"
SECRET = "sentinel-of-a-secret"

GOOD: dict[type[Grant], dict[str, Any]] = {
    ds.ClientCredentials: {"token_url": URL, "client_id": "me", "client_secret": SECRET},
    ds.RefreshToken: {"token_url": URL, "client_id": "me", "client_secret": SECRET, "refresh_token": SECRET},
    ds.AuthorizationCode: {
        "token_url": URL,
        "client_id": "me",
        "client_secret": SECRET,
        "code": SECRET,
        "redirect_uri": "https://app.example.test/",
    },
}


@pytest.fixture(params=GOOD, ids=lambda cls: cls.__name__)
def make_grant(request: pytest.FixtureRequest) -> Callable[..., Grant]:
    def make(**changes: Any) -> Grant:
        grant: Grant = request.param(**(GOOD[request.param] | changes))
        return grant

    return make


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("token_url", "text"),
    [
        ("http://login.example.test/token", "unencrypted"),
        ("login.example.test/token", "starts with https"),
        (7, "starts with https"),
        ("ftp://login.example.test/token", "starts with https"),
        ("https://login.example.test/to ken", "starts with https"),
        ("https:///token", "starts with https"),
        ("", "starts with https"),
        (f"https://me:{SECRET}@login.example.test/token", "must not contain credentials"),
        (f"https://login.example.test/token#{SECRET}", "fragment"),
        (f"https://login.example.test/token?client_secret={SECRET}", "parameters of the grant"),
        ("https://login.example.test/token?a=b&grant_type=x", "parameters of the grant"),
    ],
)
def test_unsafe_url_is_rejected_and_not_shown(make_grant: Callable[..., Grant], token_url: str, text: str) -> None:
    grant = make_grant(token_url=token_url)
    with pytest.raises(ds.ConfigurationError, match=text) as caught:
        ds.DirectSuite(token=grant)
    assert SECRET not in str(caught.value)
    assert SECRET not in repr(grant)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "token_url",
    [
        *(URL, f"{URL}?policy=b2c", "http://127.0.0.1:8080/token", "http://[::1]/token", "http://localhost/token"),
        "http://login.example.test/token",  # with allow_insecure_http
    ],
)
def test_safe_url_is_accepted_unchanged(make_grant: Callable[..., Grant], token_url: str) -> None:
    settings = ds.Settings(allow_insecure_http=token_url.startswith("http://login"))
    suite = ds.DirectSuite(settings, token=make_grant(token_url=token_url))
    assert token_url in [endpoint.base_url for endpoint in suite._transport._endpoints.values()]


INVALID: list[tuple[type[Grant], dict[str, Any]]] = [
    *((cls, {"client_id": value}) for cls in GOOD for value in ("", None, "\ud800")),
    *((cls, {"client_secret": value}) for cls in GOOD for value in ("", "  ", "\udfff", 7)),
    *((cls, {"client_auth": "jwt"}) for cls in GOOD),
    *((cls, {"token_type": value}) for cls in GOOD for value in ("", 7)),
    *((ds.ClientCredentials, changes) for changes in ({"client_secret": None}, {"scope": ""})),
    *((ds.RefreshToken, {"refresh_token": value}) for value in ("", None)),
    *((ds.AuthorizationCode, {name: ""}) for name in ("code", "redirect_uri", "code_verifier")),
    *((ds.RefreshToken, {"on_rotated": "file.txt"}), (ds.AuthorizationCode, {"on_rotated": 7})),
]


def test_invalid_field_is_rejected() -> None:
    for cls, changes in INVALID:
        grant: Grant = cls(**(GOOD[cls] | changes))
        with pytest.raises(ds.ConfigurationError, match=next(iter(changes))):
            ds.DirectSuite(token=grant)


def test_use_of_a_code_is_not_part_of_a_grant_s_value() -> None:
    grant, other = (ds.AuthorizationCode(**GOOD[ds.AuthorizationCode]) for _ in range(2))
    grant.use.blocking_error = ds.ClosedError("over")
    assert (grant, hash(grant), repr(grant)) == (other, hash(other), repr(other))
    assert attrs.evolve(grant).use.blocking_error is None


@pytest.mark.parametrize("cls", [ds.RefreshToken, ds.AuthorizationCode])
def test_public_client_needs_no_secret(cls: type[Grant]) -> None:
    arguments: dict[str, Any] = GOOD[cls] | {"client_secret": None}
    ds.DirectSuite(token=cls(**arguments))


@pytest.mark.process
def test_oauthlib_is_loaded_when_a_grant_is_used_and_not_before() -> None:
    program = (
        "import sys, directsuite as ds; "
        "ds.DirectSuite(token=ds.ClientCredentials('https://login.example.test/', 'me', 'x')); "
        "print('oauthlib' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False"
