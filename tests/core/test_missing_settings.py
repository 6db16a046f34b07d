"""A call without its URL, token or login says what to set."""

from __future__ import annotations

from typing import Any

import pytest

import directsuite as ds

from .scripted_server import ScriptedServer
from .scripted_suite import GET_DOC_INFO, GET_MESSAGE_COUNT, GET_PATIENT_ADDRESS, ApiCall, catch_error, open_suite

MISSING: list[tuple[ApiCall, str, list[str]]] = [
    (GET_MESSAGE_COUNT, "message_url", ["message_url", "DIRECTSUITE_MESSAGE_URL"]),
    (GET_DOC_INFO, "signing_url", ["DIRECTSUITE_SIGNING_URL"]),
    (GET_PATIENT_ADDRESS, "registration_url", ["registration_url in Settings"]),
    (GET_DOC_INFO, "token", ["DIRECTSUITE_TOKEN"]),
    (GET_PATIENT_ADDRESS, "login", ["DIRECTSUITE_LOGIN_USERNAME"]),
]


@pytest.mark.parametrize(("ask", "without", "words"), MISSING)
async def test_missing_setting_is_named_with_what_to_do(
    server: ScriptedServer, ask: ApiCall, without: str, words: list[str]
) -> None:
    missing: dict[str, Any] = {without: None}
    async with open_suite(server, **missing) as suite:
        error = await catch_error(ask.call(suite))
    assert type(error) is ds.ConfigurationError
    assert all(word in str(error) for word in words)
    assert server.requests == []


async def test_login_without_credentials_says_what_to_give(server: ScriptedServer) -> None:
    async with open_suite(server, login=None) as suite:
        error = await catch_error(suite.registration.login())
    assert type(error) is ds.ConfigurationError
    assert "Login(" in str(error)
