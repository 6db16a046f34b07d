"""The signing service on a loopback port, with a header that names the account."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from directsuite.sandbox.clock import Clock
from directsuite.sandbox.credentials import ACCOUNT
from directsuite.sandbox.database import SCHEMA as LEDGER_SCHEMA
from directsuite.sandbox.database import SandboxDatabase
from directsuite.sandbox.quirks import ResponseOptions
from directsuite.sandbox.rejections import handle_errors
from directsuite.sandbox.signing.keys import FileKeyStore
from directsuite.sandbox.signing.service import SCHEMA, SigningService

from .caller import SigningCaller

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


@pytest.fixture(scope="session")
def keys() -> FileKeyStore:
    return FileKeyStore(None)


@pytest.fixture
def clock() -> Clock:
    clock = Clock()
    clock.freeze(START)
    return clock


@pytest.fixture
def database() -> SandboxDatabase:
    return SandboxDatabase(None, [SCHEMA, LEDGER_SCHEMA])


@pytest.fixture
def service(database: SandboxDatabase, clock: Clock, keys: FileKeyStore) -> SigningService:
    return SigningService(database, clock, ResponseOptions("strict", 100, 400), lambda: keys)


@web.middleware
async def set_account_from_header(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    request[ACCOUNT] = request.headers.get("X-Account", "alice")
    return await handler(request)


@pytest.fixture
async def signing(service: SigningService, database: SandboxDatabase) -> AsyncIterator[SigningCaller]:
    application = web.Application(middlewares=[handle_errors, set_account_from_header], client_max_size=64 * 2**20)
    application.add_routes(service.make_routes())
    async with TestClient(TestServer(application, host="127.0.0.1")) as client:
        yield SigningCaller(client, database)
    database.close()


@pytest.fixture
def picture() -> str:
    """A small PNG of one black pixel, as base64."""
    return base64.b64encode(
        base64.b64decode(
            "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
        )
    ).decode()
