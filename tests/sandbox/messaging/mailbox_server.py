"""The messaging service on a real socket, with mailboxes and a frozen clock."""

from __future__ import annotations

import base64
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import aiohttp
from aiohttp import web
from aiohttp.test_utils import TestServer
from yarl import URL

from directsuite.sandbox.clock import Clock
from directsuite.sandbox.database import SCHEMA as LEDGER_SCHEMA
from directsuite.sandbox.database import SandboxDatabase, list_effects
from directsuite.sandbox.messaging import delivery, mailboxes
from directsuite.sandbox.messaging.parsing import build_content
from directsuite.sandbox.messaging.sending import deliver_inbound
from directsuite.sandbox.messaging.service import BASE, SCHEMA, MessagingService
from directsuite.sandbox.registration import SCHEMA as REGISTRATION_SCHEMA
from directsuite.sandbox.rejections import handle_errors

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from directsuite.sandbox.quirks import Profiles

ALICE = "alice@direct.clinic.test"
BOB = "bob@direct.clinic.test"
PASSWORD = "correct horse"
TUSER = "front-desk"
NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)

RAW_MESSAGE = (
    b"From: carol@elsewhere.test\r\nTo: alice@direct.clinic.test\r\nSubject: Results\r\nMessage-ID: <r@x>\r\n"
    b"\r\nFine.\r\n"
)


def make_credentials(username: str = ALICE, password: str = PASSWORD) -> dict[str, str]:
    """Return an Authentication object."""
    return {"username": username, "password": password}


def make_message(*recipients: str, **members: Any) -> dict[str, Any]:
    """Return a Message from alice, by default to bob."""
    return {
        "sender": ALICE,
        "subject": "Referral",
        "body": "Please see her.",
        "htmlBody": False,
        "recipients": [{"email": address, "type": "TO"} for address in recipients or (BOB,)],
    } | members


def encode_base64(content: bytes) -> str:
    """Base64 text."""
    return base64.b64encode(content).decode("ascii")


class MessagingServer:
    """A running messaging service and a client of it."""

    def __init__(
        self, service: MessagingService, database: SandboxDatabase, clock: Clock, http: aiohttp.ClientSession
    ) -> None:
        self.service = service
        self.database = database
        self.clock = clock
        self.http = http
        self.port = 0

    async def request(self, method: str, path: str, **options: Any) -> tuple[int, dict[str, Any]]:
        """Send a request with an encoded path. Return the status and the decoded body."""
        url = URL(f"http://127.0.0.1:{self.port}{BASE}/{path}", encoded=True)
        async with self.http.request(method, url, **options) as response:
            assert response.content_type == "application/json"
            return response.status, await response.json()

    async def call(self, operation: str, *segments: str, method: str = "POST", body: Any = None) -> dict[str, Any]:
        """Call an operation, as alice unless a body is given. Return the response with any code."""
        path = "/".join((operation, *(quote(segment, safe="") for segment in segments)))
        status, response = await self.request(method, path, json=make_credentials() if body is None else body)
        assert status == 200
        return response

    async def call_ok(self, operation: str, *segments: str, method: str = "POST", body: Any = None) -> dict[str, Any]:
        """Call an operation that must succeed."""
        response = await self.call(operation, *segments, method=method, body=body)
        assert (response["success"], response["code"]) == (True, 0), response
        return response

    async def call_rejected(self, operation: str, *segments: str, method: str = "POST", body: Any = None) -> int:
        """Call an operation that must be rejected. Return the code."""
        response = await self.call(operation, *segments, method=method, body=body)
        assert response["success"] is False
        assert response["message"]
        code: int = response["code"]
        return code

    async def call_with_uids(self, operation: str, *segments: str, uids: list[int]) -> dict[str, Any]:
        """Call an operation with uids, which must succeed."""
        return await self.call_ok(operation, *segments, body={"auth": make_credentials(), "uids": uids})

    async def send(self, *recipients: str, **members: Any) -> str:
        """Send a message from alice. Return its smtpId."""
        body = {"authentication": make_credentials(), "message": make_message(*recipients, **members)}
        smtp_id: str = (await self.call_ok("Send", method="PUT", body=body))["smtpId"]
        return smtp_id

    async def get_uids(self, folder: str = "INBOX", username: str = ALICE) -> list[int]:
        """Return the uids of a folder."""
        uids: list[int] = (await self.call_ok("GetUIDs", folder, body=make_credentials(username)))["uids"]
        return uids

    async def get_messages(self, folder: str = "INBOX", username: str = ALICE) -> list[dict[str, Any]]:
        """Return the messages of a folder."""
        found: list[dict[str, Any]] = (await self.call_ok("GetMessages", folder, body=make_credentials(username)))[
            "messages"
        ]
        return found

    async def deliver(self, address: str, raw: bytes, folder: str = "INBOX") -> int:
        """Deliver a message from outside to a folder. Return its uid."""
        content, now = build_content(raw), self.clock.milliseconds()
        return await self.database.write(
            lambda connection: deliver_inbound(connection, address, folder, content, now=now)
        )

    async def force_status(self, smtp_id: str, recipient: str, status: str) -> None:
        """Set the final status for a recipient."""
        await self.database.write(lambda connection: delivery.force_status(connection, smtp_id, recipient, status))

    async def list_effects(self, operation: str) -> list[Any]:
        """Return the effects of an operation."""
        return await self.database.read(lambda connection: list_effects(connection, operation))


@asynccontextmanager
async def open_messaging_server(
    *, folder: Path | None = None, profile: Profiles = "strict"
) -> AsyncGenerator[MessagingServer]:
    """Open a service with mailboxes of alice and bob, and a T-User for alice and an address without a mailbox."""
    database = SandboxDatabase(folder, [LEDGER_SCHEMA, SCHEMA, REGISTRATION_SCHEMA])
    clock = Clock()
    clock.freeze(NOON)

    def open_mailboxes(connection: sqlite3.Connection) -> None:
        for address in (ALICE, BOB):
            mailboxes.create_account(connection, address, PASSWORD, at_ms=clock.milliseconds())
        mailboxes.create_tuser(connection, TUSER, PASSWORD, [ALICE, "nobody@direct.clinic.test"])

    await database.write(open_mailboxes)
    service = MessagingService(database, clock, profile=profile)
    application = web.Application(middlewares=[handle_errors], client_max_size=64 * 2**20)
    application.add_routes(service.make_routes())
    async with TestServer(application) as server, aiohttp.ClientSession() as http:
        running = MessagingServer(service, database, clock, http)
        port = server.make_url("/").port
        assert port is not None
        running.port = port
        yield running
    database.close()


async def deliver_many(mail: MessagingServer, count: int, folder: str = "INBOX") -> list[int]:
    """Deliver messages with different subjects to alice. Return their uids."""
    return [
        await mail.deliver(ALICE, RAW_MESSAGE.replace(b"Results", b"Results %d" % n), folder)
        for n in range(1, count + 1)
    ]
