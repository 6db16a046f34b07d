"""Requests with a foreign Host, and the log of errors."""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING

import pytest

from directsuite.cli.command import log_to_stderr

if TYPE_CHECKING:
    import aiohttp

    from directsuite.sandbox.server import Sandbox

REQUESTS = [
    ("GET", "/signing/pdf/x/info"),
    ("GET", "/fax/api/fax/getMessageList/15550100100/10"),
    ("POST", "/message-rest/api/message/GetUIDs/INBOX"),
    ("POST", "/DirectRegistrationRESTful/rest/Patient/login"),
    ("POST", "/oauth/token"),
]


async def test_a_service_rejects_a_host_that_is_not_loopback(
    sandbox: Sandbox, http: aiohttp.ClientSession, bearer: dict[str, str]
) -> None:
    for method, path in REQUESTS:
        url = f"{sandbox.root_url}{path}"
        for host in ("evil.test", "127.0.0.1.evil.test:8025", "", "localhost:$(id)"):
            async with http.request(method, url, headers={"Host": host, **bearer}, json={}) as response:
                assert response.status in {400, 403}, (path, host)
        async with http.request(method, url, headers=bearer, json={}) as response:
            assert response.status not in {403, 500}, path


async def test_a_service_accepts_any_loopback_host(
    sandbox: Sandbox, http: aiohttp.ClientSession, bearer: dict[str, str]
) -> None:
    url = f"{sandbox.fax_url}/api/fax/getMessageList/15550100100/10"
    for host in ("localhost:1", "127.0.0.2", "[::1]:8025"):
        async with http.get(url, headers={"Host": host, **bearer}) as response:
            assert response.status != 403, host


async def test_internal_error_is_logged_without_exception_text(
    sandbox: Sandbox,
    http: aiohttp.ClientSession,
    bearer: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise KeyError(bearer["Authorization"])

    monkeypatch.setattr("directsuite.sandbox.fax._find_owner", fail)
    with log_to_stderr():
        url = f"{sandbox.fax_url}/api/fax/getMessageList/15550100100/10"
        async with http.get(url, headers=bearer) as response:
            assert (response.status, "its log says why" in await response.text()) == (500, True)
    logged = capsys.readouterr().err
    assert "ERROR The operation getMultipleMessageInfo failed." in logged
    assert "fax.py" in logged
    assert bearer["Authorization"] not in logged


async def test_failed_task_is_logged_without_exception_text(capsys: pytest.CaptureFixture[str]) -> None:
    async def fail() -> None:
        raise KeyError("a secret")

    with log_to_stderr():
        task = asyncio.create_task(fail())
        await asyncio.wait([task])
        del task
        gc.collect()  # asyncio then logs the error
    logged = capsys.readouterr().err
    assert "Task exception was never retrieved" in logged
    assert "KeyError('a secret')" not in logged
    assert logged.rstrip().endswith("KeyError")
