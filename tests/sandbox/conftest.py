"""A new sandbox for each test, with a frozen clock, and HTTP clients."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import aiohttp
import pytest

from directsuite.sandbox.clock import Clock
from directsuite.sandbox.server import Sandbox

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    clock = Clock()
    clock.freeze(datetime(2026, 5, 1, 12, tzinfo=UTC))
    async with Sandbox(clock=clock) as running:
        yield running


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


@pytest.fixture
def bearer(sandbox: Sandbox) -> dict[str, str]:
    return {"Authorization": f"Bearer {sandbox.environment['DIRECTSUITE_TOKEN']}"}


class Api:
    """A client of a sandbox whose responses are JSON. Each method returns the status and the decoded body."""

    def __init__(self, sandbox: Sandbox, http: aiohttp.ClientSession) -> None:
        self.sandbox, self.http = sandbox, http

    async def request(self, method: str, url: str, **options: Any) -> tuple[int, Any]:
        async with self.http.request(method, url, **options) as response:
            assert response.content_type == "application/json"
            return response.status, await response.json()

    async def control(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        return await self.request(method, f"{self.sandbox.root_url}/_sandbox/{path}", json=body)

    async def message(self, path: str, **members: Any) -> tuple[int, Any]:
        """Call the messaging service as alice, with the password `secret`."""
        login = {"username": "alice@direct.example.test", "password": "secret"}
        return await self.request("POST", f"{self.sandbox.message_url}/{path}", json=members or login)

    async def login(self, username: str, password: str) -> tuple[int, Any]:
        body = {"username": username, "password": password}
        return await self.request("POST", f"{self.sandbox.registration_url}/login", json=body)

    async def list_faxes(self, number: str = "15550100100", token: str | None = None) -> int:
        """Request a page of faxes with a token, by default that of the demo account. Return the status."""
        headers = {"Authorization": f"Bearer {token or self.sandbox.environment['DIRECTSUITE_TOKEN']}"}
        url = f"{self.sandbox.fax_url}/api/fax/getMessageList/{number}/0"
        return (await self.request("GET", url, headers=headers))[0]


@asynccontextmanager
async def open_connection(
    sandbox: Sandbox, sent: bytes
) -> AsyncGenerator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Open a connection to a sandbox and send bytes. It is closed at the end."""
    url = urlsplit(sandbox.root_url)
    reader, writer = await asyncio.open_connection(url.hostname, url.port)
    try:
        writer.write(sent)
        await writer.drain()
        yield reader, writer
    finally:
        writer.close()


@pytest.fixture
def api(sandbox: Sandbox, http: aiohttp.ClientSession) -> Api:
    return Api(sandbox, http)
