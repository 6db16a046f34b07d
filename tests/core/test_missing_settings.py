"""A call without its URL, token or login says what to set."""

from __future__ import annotations

import pytest

import directsuite as ds

from .scripted_server import ScriptedServer
from .scripted_suite import (
    GET_DOC_INFO,
    GET_MESSAGE_COUNT,
    GET_PATIENT_ADDRESS,
    LOGIN,
    TOKEN,
    ApiCall,
    catch_error,
    make_settings,
    open_suite,
)
from .virtual_time import LoopClock

MISSING: list[tuple[ApiCall, dict[str, object], str]] = [
    (GET_MESSAGE_COUNT, {"message_url": None}, "message_url"),
    (GET_MESSAGE_COUNT, {"message_url": None}, "DIRECTSUITE_MESSAGE_URL"),
    (GET_DOC_INFO, {"signing_url": None}, "DIRECTSUITE_SIGNING_URL"),
    (GET_PATIENT_ADDRESS, {"registration_url": None}, "registration_url in Settings"),
    (GET_DOC_INFO, {"token": None}, "DIRECTSUITE_TOKEN"),
    (GET_PATIENT_ADDRESS, {"login": None}, "DIRECTSUITE_LOGIN_USERNAME"),
]


@pytest.mark.parametrize(("ask", "without", "told"), MISSING)
async def test_missing_setting_is_named_with_what_to_do(
    server: ScriptedServer, ask: ApiCall, without: dict[str, object], told: str
) -> None:
    configured = make_settings(server, **{name: None for name in without if name.endswith("_url")})
    token = None if "token" in without else TOKEN
    given = None if "login" in without else LOGIN
    async with ds.DirectSuite(configured, token=token, login=given, clock=LoopClock()) as suite:
        error = await catch_error(ask.call(suite))
    assert type(error) is ds.ConfigurationError
    assert told in str(error)
    assert server.requests == []


async def test_login_without_credentials_says_what_to_give(server: ScriptedServer) -> None:
    async with open_suite(server, login=None) as suite:
        error = await catch_error(suite.registration.login())
    assert type(error) is ds.ConfigurationError
    assert "Login(" in str(error)
