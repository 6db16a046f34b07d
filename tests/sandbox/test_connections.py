"""Slow, idle and too many connections, and requests with a foreign Host."""

from __future__ import annotations

import asyncio
import gc
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest
from aiohttp import ClientError

from directsuite.cli import sandbox_server
from directsuite.sandbox import connections
from directsuite.sandbox.page import site
from directsuite.sandbox.server import Sandbox

from .conftest import open_connection

if TYPE_CHECKING:
    import aiohttp

HEALTH = b"GET /_sandbox/health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
DOCUMENT = b"GET /openapi.json HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
BODY = b"PUT /message-rest/api/message/Send HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9999999\r\n\r\n{"
HEAD = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "


async def connect(sandbox: Sandbox, stack: AsyncExitStack, sent: bytes) -> asyncio.StreamReader:
    return (await stack.enter_async_context(open_connection(sandbox, sent)))[0]


async def read_to_the_end(reader: asyncio.StreamReader) -> bytes:
    """Read until the server closes the connection. The timeout only ends a test that fails."""
    async with asyncio.timeout(30):
        try:
            return await reader.read()
        except ConnectionError:
            return b""


async def health(http: aiohttp.ClientSession, sandbox: Sandbox) -> int:
    async with http.get(f"{sandbox.root_url}/_sandbox/health") as response:
        return response.status


async def can_connect(http: aiohttp.ClientSession, sandbox: Sandbox) -> bool:
    try:
        return await health(http, sandbox) == 200
    except ClientError:
        return False


@pytest.mark.parametrize(
    "sent", [b"", HEAD, b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\n"], ids=["nothing", "half", "no end"]
)
async def test_a_connection_without_a_complete_head_is_closed(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_TIMEOUT", 0.05)
    async with Sandbox() as sandbox, AsyncExitStack() as stack:
        assert await read_to_the_end(await connect(sandbox, stack, sent)) == b""


@pytest.mark.parametrize("sent", [HEAD, BODY], ids=["head", "body"])
async def test_unfinished_requests_beyond_the_limit_make_way_for_new_ones(
    http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(connections, "find_max_connections", lambda: 3)
    async with Sandbox() as sandbox, AsyncExitStack() as stack:
        slow = [await connect(sandbox, stack, sent) for _ in range(8)]
        assert await health(http, sandbox) == 200
        assert [await read_to_the_end(reader) for reader in slow[:5]] == [b""] * 5


@pytest.mark.parametrize("sent", [HEALTH, 400 * DOCUMENT], ids=["idle", "responses are not read"])
async def test_connections_without_a_request_in_progress_make_way(
    http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(connections, "find_max_connections", lambda: 3)
    async with Sandbox() as sandbox, AsyncExitStack() as stack:
        for _ in range(3):
            reader = await connect(sandbox, stack, sent)
            if sent == HEALTH:
                await reader.readuntil(b'"ok"')
        async with asyncio.timeout(30):
            while not await can_connect(http, sandbox):  # the responses do not fill the buffers of the system yet
                pass


async def test_requests_in_progress_are_not_closed_for_new_connections(
    http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(connections, "find_max_connections", lambda: 1)
    async with Sandbox() as sandbox, AsyncExitStack() as stack:
        events = b"GET /page/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
        reader = await connect(sandbox, stack, events)
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        assert await read_to_the_end(await connect(sandbox, stack, HEAD)) == b""
        await sandbox.add_account("carol@direct.example.test", "x")
        assert await reader.readuntil(b"event: change") is not None
    gc.collect()  # asyncio then logs the errors of tasks
    assert not caplog.records


async def test_a_slow_body_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "BODY_SECONDS", 0.05)
    async with Sandbox() as sandbox, AsyncExitStack() as stack:
        response = await read_to_the_end(await connect(sandbox, stack, BODY))
    assert response.startswith(b"HTTP/1.1 400 ")
    assert b"the request body could not be read" in response


def test_the_limit_of_connections_leaves_descriptors_for_files() -> None:
    resource = pytest.importorskip("resource")
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = connections.find_max_connections()
    assert 1 <= limit <= 1_000
    assert soft < 0 or limit <= soft // 2


async def test_event_streams_beyond_the_limit_are_rejected(
    sandbox: Sandbox, http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site, "MAX_BROWSERS", 2)
    async with AsyncExitStack() as stack:
        url = f"{sandbox.root_url}/page/events"
        statuses = [(await stack.enter_async_context(http.get(url))).status for _ in range(3)]
        assert statuses == [200, 200, 503]
        async with http.get(url) as response:
            assert response.headers["Connection"] == "close"
        assert await health(http, sandbox) == 200


SERVICES = {
    "signing": ("GET", "/signing/pdf/x/info"),
    "fax": ("GET", "/fax/api/fax/getMessageList/15550100100/10"),
    "messaging": ("POST", "/message-rest/api/message/GetUIDs/INBOX"),
    "registration": ("POST", "/DirectRegistrationRESTful/rest/Patient/login"),
    "oauth": ("POST", "/oauth/token"),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("host", ["evil.test", "127.0.0.1.evil.test:8025", "", "localhost:$(id)"])
@pytest.mark.parametrize("service", SERVICES)
async def test_a_service_rejects_a_host_that_is_not_loopback(
    service: str, host: str, sandbox: Sandbox, http: aiohttp.ClientSession, bearer: dict[str, str]
) -> None:
    method, path = SERVICES[service]
    async with http.request(method, f"{sandbox.root_url}{path}", headers={"Host": host, **bearer}, json={}) as response:
        assert response.status in {400, 403}
    async with http.request(method, f"{sandbox.root_url}{path}", headers=bearer, json={}) as response:
        assert response.status not in {403, 500}


@pytest.mark.parametrize("host", ["localhost:1", "127.0.0.2", "[::1]:8025"])
async def test_a_service_accepts_any_loopback_host(
    host: str, sandbox: Sandbox, http: aiohttp.ClientSession, bearer: dict[str, str]
) -> None:
    url = f"{sandbox.fax_url}/api/fax/getMessageList/15550100100/10"
    async with http.get(url, headers={"Host": host, **bearer}) as response:
        assert response.status != 403


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
    with sandbox_server.log_to_stderr():
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

    with sandbox_server.log_to_stderr():
        task = asyncio.create_task(fail())
        await asyncio.wait([task])
        del task
        gc.collect()  # asyncio then logs the error
    logged = capsys.readouterr().err
    assert "Task exception was never retrieved" in logged
    assert "KeyError('a secret')" not in logged
    assert logged.rstrip().endswith("KeyError")
