"""The messaging service: its routes, and how a request becomes an answer.

body ──► checked request ──► credentials ──► the operation's work ──► answer
         code 4, HTTP 400    code 1 or 2     code 2, 3 or 4           success true, code 0
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

import msgspec
from aiohttp import web

from directsuite.sandbox import ledger
from directsuite.sandbox.messaging import Code, Refusal, accounts, delivery, folders, store
from directsuite.sandbox.messaging.operations import OPERATIONS, BringsIn, Operation, Reads
from directsuite.sandbox.messaging.parsing import content_of
from directsuite.sandbox.messaging.profile import Profiles, answer_in_profiles, require_profiles
from directsuite.sandbox.messaging.requests import Answer, Call, Request, read_body
from directsuite.sandbox.registration.patients import DISABLED, WITHOUT_CERTIFICATE, state_of

if TYPE_CHECKING:
    import sqlite3

    from aiohttp.typedefs import Handler

    from directsuite.sandbox.clock import Clock
    from directsuite.sandbox.database import Database
    from directsuite.sandbox.messaging.parsing import Content

BASE = "/message-rest/api/message"
SCHEMA = accounts.SCHEMA + store.SCHEMA + delivery.SCHEMA

_PARAMETER = re.compile(r"\{(\w+)\}")
_LARGE = 256 * 1024  # octets of JSON that take longer to read than a thread takes to start


class MessagingService:
    """Mailboxes and delivery over HTTP (specification section 4.C).

    profile: one or several of profile.py, which answer otherwise than the specification. csv_above: a status report
    about more ids than this comes as CSV; 0 makes every report CSV. Both may be changed while the service runs.
    """

    def __init__(self, database: Database, clock: Clock, *, profile: Profiles = "strict", csv_above: int = 100) -> None:
        self.profile = profile
        self.csv_above = csv_above
        self._database = database
        self._clock = clock

    @property
    def profile(self) -> Profiles:
        """The profile or profiles, as they were set."""
        return self._profile

    @profile.setter
    def profile(self, profile: Profiles) -> None:
        """Answer so from now on. Raises ValueError for an unknown one."""
        self._profiles = require_profiles(profile)
        self._profile: Profiles = profile

    def routes(self) -> list[web.RouteDef]:
        """A route for each operation, named as the specification names it."""
        return [
            web.route(row.method, f"{BASE}/{_pattern(row.path)}", self._handler(row), name=row.name)
            for row in OPERATIONS
        ]

    async def deliver_inbound(self, address: str, raw: bytes, folder: str = folders.INBOX) -> int:
        """Put a message into a mailbox as if it came from outside; its uid.

        Raises UnknownAccount for an address without a mailbox; ValueError for an unknown folder, and where the
        user's certificate has expired or is revoked.
        """
        content = await asyncio.to_thread(content_of, raw)
        now = self._clock.milliseconds()
        try:
            return await self._database.write(lambda connection: _append(connection, address, folder, content, now))
        except Refusal as refusal:
            raise ValueError(refusal.text) from None

    async def renumber(self, address: str, folder: str = folders.INBOX, *, first: int = 1) -> int:
        """Give a folder's messages other uids, from `first`; how many there are.

        Raises UnknownAccount for an address without a mailbox, and ValueError for an unknown folder.
        """
        if first < 1:
            raise ValueError("the first uid is 1 or more")
        try:
            return await self._database.write(lambda connection: _renumber(connection, address, folder, first))
        except Refusal as refusal:
            raise ValueError(refusal.text) from None

    async def force_status(self, smtp_id: str, recipient: str, status: str) -> None:
        """Give a recipient this status for good. Raises LookupError if unknown, ValueError for no status."""
        await self._database.write(lambda connection: delivery.force_status(connection, smtp_id, recipient, status))

    def _handler(self, row: Operation) -> Handler:
        async def handle(request: web.Request) -> web.Response:
            try:
                body = await _body(request, row.body)
                answer = await self._run(row, request, body)
            except Refusal as refusal:
                answer = msgspec.json.encode({"success": False, "code": refusal.code, "message": refusal.text})
                return web.Response(body=answer, status=refusal.http_status, content_type="application/json")
            return web.Response(body=answer, content_type="application/json")

        return handle

    async def _run(self, row: Operation, request: web.Request, body: Request) -> bytes:
        def begin(connection: sqlite3.Connection) -> Call[Any]:
            now = self._clock.milliseconds()
            account, address = _authenticate(connection, row, body, now)
            return Call(row.name, request.match_info, body, account, address, now, self.csv_above)

        run = row.run
        if isinstance(run, BringsIn):
            call = await self._database.read(begin)
            return self._rendered(await run.work(call, self._database))
        if isinstance(run, Reads):
            return await self._database.read(lambda connection: self._rendered(run.work(connection, begin(connection))))
        return self._rendered(await self._database.write(lambda connection: run.work(connection, begin(connection))))

    def _rendered(self, members: Answer) -> bytes:
        answer = msgspec.json.encode({"success": True, "code": Code.SUCCESS, "message": "OK", **members})
        if self._profiles:
            return msgspec.json.encode(answer_in_profiles(msgspec.json.decode(answer), self._profiles))
        return answer


async def _body(request: web.Request, expected: type[Request]) -> Request:
    octets = await request.read()
    large = len(octets) > _LARGE
    body = await asyncio.to_thread(read_body, octets, expected) if large else read_body(octets, expected)
    if request.content_type != "application/json":
        raise Refusal(Code.OTHER, "The request body is not announced as application/json", http_status=415)
    return body


def _append(connection: sqlite3.Connection, address: str, folder: str, content: Content, now: int) -> int:
    account = accounts.account_id(connection, address)
    if account is None:
        raise accounts.UnknownAccount(f"there is no mailbox {address}")
    if state_of(connection, address, now) in WITHOUT_CERTIFICATE:
        raise Refusal(Code.ADDRESS, "Inbound messages are rejected: the certificate has expired or is revoked")
    uid = store.append(connection, folders.folder_id(connection, account, folder), content, received_ms=now)
    ledger.record(connection, operation="Inbound", subject=address, at=now, folder=folder, uid=uid)
    return uid


def _renumber(connection: sqlite3.Connection, address: str, folder: str, first: int) -> int:
    account = accounts.account_id(connection, address)
    if account is None:
        raise accounts.UnknownAccount(f"there is no mailbox {address}")
    return store.renumber(connection, folders.folder_id(connection, account, folder), first)


def _authenticate(connection: sqlite3.Connection, row: Operation, body: Request, now: int) -> tuple[int, str]:
    """The mailbox that the credentials open, and its address."""
    credentials = body.credentials()
    if not row.tuser:
        account = accounts.authenticate(connection, credentials.username, credentials.password)
        if account is None:
            raise Refusal(Code.AUTHENTICATION, "The username or the password is wrong")
        if state_of(connection, credentials.username, now) == DISABLED:
            raise Refusal(Code.AUTHENTICATION, "The user is disabled")
        return account, credentials.username
    if not accounts.authenticate_tuser(connection, credentials.username, credentials.password):
        raise Refusal(Code.AUTHENTICATION, "The T-User's name or password is wrong")
    account = accounts.account_of_tuser(connection, credentials.username, credentials.direct_addr)
    if account is None:
        raise Refusal(Code.ADDRESS, "The T-User may not act for this Direct address")
    if state_of(connection, credentials.direct_addr, now) == DISABLED:
        raise Refusal(Code.ADDRESS, "The user of this Direct address is disabled")
    return account, credentials.direct_addr


def _pattern(path: str) -> str:
    """The route's pattern: a segment may be empty or hold anything but a slash; an smtpId is never empty."""
    return _PARAMETER.sub(lambda name: f"{{{name[1]}:[^/]{'+' if name[1] == 'smtpId' else '*'}}}", path)
