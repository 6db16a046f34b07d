"""A sandbox with two mailboxes, a T-User and a frozen clock, and a client of its messaging service."""

from __future__ import annotations

import base64
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import aiohttp
from yarl import URL

from directsuite.sandbox import Sandbox
from directsuite.sandbox.clock import Clock

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from directsuite.sandbox.database import SandboxDatabase
    from directsuite.sandbox.quirks import Profiles

ALICE = "alice@direct.clinic.test"
BOB = "bob@direct.clinic.test"
PASSWORD = "correct horse"
TUSER = "front-desk"
NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
NOON_MS = int(NOON.timestamp() * 1000)

RAW_MESSAGE = (
    b"From: carol@elsewhere.test\r\nTo: alice@direct.clinic.test\r\nSubject: Results\r\nMessage-ID: <r@x>\r\n"
    b"\r\nFine.\r\n"
)


def make_credentials(username: str = ALICE, password: str = PASSWORD) -> dict[str, str]:
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
    return base64.b64encode(content).decode("ascii")


class MessagingServer:
    def __init__(self, sandbox: Sandbox, http: aiohttp.ClientSession) -> None:
        self.sandbox = sandbox
        self.clock = sandbox.clock
        self.http = http

    @property
    def database(self) -> SandboxDatabase:
        return self.sandbox._database

    async def request(self, method: str, path: str, **options: Any) -> tuple[int, dict[str, Any]]:
        """Send a request with an encoded path. Return the status and the decoded body."""
        url = URL(f"{self.sandbox.message_url}/{path}", encoded=True)
        async with self.http.request(method, url, **options) as response:
            assert response.content_type == "application/json"
            return response.status, await response.json()

    async def call(self, operation: str, *segments: str, body: Any = None, **members: Any) -> dict[str, Any]:
        """Call an operation, as alice unless a body is given. Return the response with any code.

        members: those of the body beside the credentials.
        """
        path = "/".join((operation, *(quote(segment, safe="") for segment in segments)))
        if members:
            body = {"authentication" if "message" in members else "auth": make_credentials()} | members
        method = "PUT" if operation.startswith(("Send", "Forward")) else "POST"
        status, response = await self.request(method, path, json=make_credentials() if body is None else body)
        assert status == 200
        return response

    async def call_ok(self, operation: str, *segments: str, **members: Any) -> dict[str, Any]:
        response = await self.call(operation, *segments, **members)
        assert (response["success"], response["code"]) == (True, 0), response
        return response

    async def call_rejected(self, operation: str, *segments: str, **members: Any) -> int:
        response = await self.call(operation, *segments, **members)
        assert response["success"] is False
        assert response["message"]
        code: int = response["code"]
        return code

    async def send(self, *recipients: str, **members: Any) -> str:
        smtp_id: str = (await self.call_ok("Send", message=make_message(*recipients, **members)))["smtpId"]
        return smtp_id

    async def get_uids(self, folder: str = "INBOX", username: str = ALICE) -> list[int]:
        uids: list[int] = (await self.call_ok("GetUIDs", folder, body=make_credentials(username)))["uids"]
        return uids

    async def get_messages(self, folder: str = "INBOX", username: str = ALICE) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (await self.call_ok("GetMessages", folder, body=make_credentials(username)))[
            "messages"
        ]
        return found

    async def list_effects(self, operation: str) -> list[Any]:
        return list(await self.sandbox.ledger(operation))


@asynccontextmanager
async def open_messaging_server(*, profile: Profiles = "strict") -> AsyncGenerator[MessagingServer]:
    """Open a sandbox with mailboxes of alice and bob, and a T-User for alice and an address without a mailbox."""
    clock = Clock()
    clock.freeze(NOON)
    async with Sandbox(clock=clock, profile=profile) as sandbox, aiohttp.ClientSession() as http:
        for address in (ALICE, BOB):
            await sandbox.add_account(address, PASSWORD)
        await sandbox.add_tuser(TUSER, PASSWORD, [ALICE, "nobody@direct.clinic.test"])
        yield MessagingServer(sandbox, http)


async def deliver_many(mail: MessagingServer, count: int, folder: str = "INBOX") -> list[int]:
    """Deliver messages with different subjects to alice. Return their uids."""
    return [
        await mail.sandbox.deliver(ALICE, RAW_MESSAGE.replace(b"Results", b"Results %d" % n), folder)
        for n in range(1, count + 1)
    ]
