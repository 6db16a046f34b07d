"""The operations of the messaging service (specification section 4.C), and their HTTP handlers.

    body ──► validated request ──► credentials ──► operation ──► response
             code 4, HTTP 400      code 1 or 2     code 2, 3, 4  success true, code 0

An operation that changes the mailbox records an effect in the ledger, in the same transaction.

While a response is built, content in a file is represented by a random name, which no message can contain. The
content is read from the file while the response is sent.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import sqlite3
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec
import pybase64
from aiohttp import web

from directsuite.sandbox.clock import format_timestamp, to_milliseconds
from directsuite.sandbox.files import FileRange, StoredFiles
from directsuite.sandbox.messaging import delivery, mailboxes, sending
from directsuite.sandbox.messaging.headers import fold
from directsuite.sandbox.messaging.mailboxes import Selection
from directsuite.sandbox.messaging.requests import (
    Authentication,
    Contents,
    MailboxRequest,
    MessagingCall,
    RawMessagesRequest,
    Request,
    ResponseMembers,
    SendRequest,
    SendRequestWithHeader,
    SetFoldersSubscribedRequest,
    SmtpIdsRequest,
    UidsRequest,
    receive_contents,
)
from directsuite.sandbox.patients import DISABLED, find_user_state
from directsuite.sandbox.quirks import apply_profiles
from directsuite.sandbox.rejections import MessagingCode, MessagingError, parse_json

if TYPE_CHECKING:
    from pathlib import Path

    from aiohttp.typedefs import Handler

    from directsuite.sandbox.clock import Clock
    from directsuite.sandbox.database import SandboxDatabase
    from directsuite.sandbox.quirks import ResponseOptions

BASE = "/message-rest/api/message"
SCHEMA = mailboxes.SCHEMA + delivery.SCHEMA

_PARAMETER = re.compile(r"\{(\w+)\}")
_MAX_BODY_BYTES = 2**31  # a message with 1 GiB in base64, again in base64
_LARGE_JSON_BYTES = 256 * 1024  # above this, a thread parses
_MAX_TRIES = 3  # if a concurrent call deletes the file of a message


OperationFn = Callable[[sqlite3.Connection, MessagingCall[Any]], ResponseMembers]


AsyncWriteFn = Callable[[MessagingCall[Any], "SandboxDatabase"], Awaitable[ResponseMembers]]


class _Operation(NamedTuple):
    name: str
    """The name in the specification and of the route."""
    path: str
    """The path after the name, except the suffix `Many`."""
    body_type: type[Request]
    kind: Literal["read", "write", "async write"]
    """How to run `function`: reading the database, in one write transaction, or with its own transactions."""
    function: OperationFn | AsyncWriteFn
    method: str = "POST"

    def make_route_pattern(self) -> str:
        # A segment may be empty, except an smtpId, and may not contain a slash.
        return self.name.removesuffix("Many") + _PARAMETER.sub(
            lambda name: f"{{{name[1]}:[^/]{'+' if name[1] == 'smtpId' else '*'}}}", self.path
        )


_ResponseParts = list[bytes | FileRange]
"""A response: JSON, and ranges of files to insert in base64."""


class MessagingService:
    """Serves mailboxes and delivery over HTTP.

    folder: the folder for the files of large messages. None: a temporary folder.
    max_body: the maximum bytes of a body of Send, its variants and SaveRawMessages. None: 2 GiB.
    """

    def __init__(
        self,
        database: SandboxDatabase,
        clock: Clock,
        options: ResponseOptions,
        folder: Path | None,
        max_body: int | None,
    ) -> None:
        self.files = StoredFiles(folder, "content_file")
        self._max_body = max_body
        self._database = database
        self._clock = clock
        self._options = options

    def make_routes(self) -> list[web.RouteDef]:
        """Return a route for each operation, named after it."""
        return [
            web.route(row.method, f"{BASE}/{row.make_route_pattern()}", self._make_handler(row), name=row.name)
            for row in OPERATIONS
        ]

    def _make_handler(self, row: _Operation) -> Handler:
        async def handle(request: web.Request) -> web.Response:
            if row.body_type not in _LARGE_BODY_TYPES:
                return await self._respond(row, request, await request.read(), {})
            limit = self._max_body or _MAX_BODY_BYTES
            async with receive_contents(request, self.files, limit) as (octets, contents):
                return await self._respond(row, request, octets, contents)

        return handle

    async def _respond(self, row: _Operation, request: web.Request, octets: bytes, contents: Contents) -> web.Response:
        body = await _parse_body(request, octets, row.body_type)
        tries = 1
        while True:
            try:
                parts = await self._run_operation(row, request, body, contents)
                content = parts[0] if len(parts) == 1 else self.files.make_payload(parts)
                return web.Response(body=content, content_type="application/json")
            except FileNotFoundError:
                if tries == _MAX_TRIES:
                    raise
            tries += 1

    async def _run_operation(
        self, row: _Operation, request: web.Request, body: Request, contents: Contents
    ) -> _ResponseParts:
        def begin(connection: sqlite3.Connection) -> MessagingCall[Any]:
            now = self._clock.milliseconds()
            account, address = _authenticate(connection, row, body, now)
            path, options = request.match_info, self._options
            return MessagingCall(row.name, path, body, account, address, now, options.csv_above, self.files, contents)

        function: Any = row.function
        if row.kind == "read":
            return await self._database.read(lambda connection: self._render(function(connection, begin(connection))))
        if row.kind == "write":
            write = self.files.write(self._database, lambda connection: function(connection, begin(connection)))
            return self._render(await write)
        call = await self._database.read(begin)
        return self._render(await function(call, self._database))

    def _render(self, members: ResponseMembers) -> _ResponseParts:
        token, ranges = secrets.token_hex(16), list[FileRange]()

        def name_range(content: FileRange) -> str:
            ranges.append(content)
            return f"{token}-{len(ranges) - 1}"

        document = {"success": True, "code": MessagingCode.SUCCESS, "message": "OK", **members}
        response = msgspec.json.encode(document, enc_hook=name_range)
        if profiles := self._options.active_profiles:
            response = msgspec.json.encode(apply_profiles(msgspec.json.decode(response), profiles))
        parts = re.split(rf"{token}-(\d+)".encode("ascii"), response) if ranges else [response]
        return [ranges[int(part)] if place % 2 else part for place, part in enumerate(parts)]


async def _parse_body(request: web.Request, octets: bytes, expected: type[Request]) -> Request:
    large = len(octets) > _LARGE_JSON_BYTES
    try:
        body: Request = await asyncio.to_thread(parse_json, octets, expected) if large else parse_json(octets, expected)
    except msgspec.ValidationError as mismatch:
        raise MessagingError(f"The request body does not match the specification: {mismatch}") from None
    if request.content_type != "application/json":
        raise web.HTTPUnsupportedMediaType
    return body


def _authenticate(connection: sqlite3.Connection, row: _Operation, body: Request, now: int) -> tuple[int, str]:
    bare = body if isinstance(body, MailboxRequest) else Authentication()
    credentials = body.auth or body.authentication or bare
    if not row.name.endswith("WithTuser"):
        account = mailboxes.authenticate(connection, credentials.username, credentials.password)
        if account is None:
            raise MessagingError("The username or the password is wrong", MessagingCode.AUTHENTICATION)
        if find_user_state(connection, credentials.username, now) == DISABLED:
            raise MessagingError("The user is disabled", MessagingCode.AUTHENTICATION)
        return account, credentials.username
    if not mailboxes.authenticate_tuser(connection, credentials.username, credentials.password):
        raise MessagingError("The T-User's name or password is wrong", MessagingCode.AUTHENTICATION)
    account = mailboxes.find_tuser_account_id(connection, credentials.username, credentials.direct_addr)
    if account is None:
        raise MessagingError("The T-User may not act for this Direct address", MessagingCode.ADDRESS)
    if find_user_state(connection, credentials.direct_addr, now) == DISABLED:
        raise MessagingError("The user of this Direct address is disabled", MessagingCode.ADDRESS)
    return account, credentials.direct_addr


def _get_statuses(connection: sqlite3.Connection, call: MessagingCall[Any]) -> ResponseMembers:
    smtp_ids = [call.path["smtpId"]] if "smtpId" in call.path else call.request.smtp_ids
    deliveries = delivery.list_deliveries(connection, smtp_ids, account=call.account, now_ms=call.at_ms)
    return delivery.build_report_members(deliveries, as_csv=len(smtp_ids) > call.csv_above)


def _count(connection: sqlite3.Connection, call: MessagingCall[Any], *, unread: bool = False) -> ResponseMembers:
    return {"count": mailboxes.count_messages(connection, call.get_folder(connection).id, unread=unread)}


def _get_uids(connection: sqlite3.Connection, call: MessagingCall[Any]) -> ResponseMembers:
    return {"uids": mailboxes.list_uids(connection, call.get_folder(connection).id)}


def _get_deleted_count(connection: sqlite3.Connection, call: MessagingCall[MailboxRequest]) -> ResponseMembers:
    folder = call.get_folder(connection)
    is_trash = fold(folder.name) == fold(mailboxes.TRASH)
    return {"count": mailboxes.count_messages(connection, folder.id) if is_trash else 0}


def _read(
    connection: sqlite3.Connection,
    call: MessagingCall[Any],
    column: Literal["detail", "metadata", "raw"] = "detail",
    *,
    unread: bool = False,
) -> ResponseMembers:
    """Return the messages with the uids of the body, and the times, sender or subject of the path, as far as given."""
    folder, build = call.get_folder(connection), _build_raw_message if column == "raw" else _build_detail
    begin_ms, end_ms = _parse_times(call)
    selection = Selection(
        uids=call.request.uids if isinstance(call.request, UidsRequest) else None,
        unread=unread,
        begin_ms=begin_ms,
        end_ms=end_ms,
        sender=call.path.get("sender"),
        subject=call.path.get("subject"),
    )
    messages = mailboxes.list_messages(connection, folder.id, selection, column)
    return {"messages": [build(message, folder.name, call.files) for message in messages]}


def _build_raw_message(message: sqlite3.Row, folder: str, files: StoredFiles) -> dict[str, Any]:
    file = message["name"]
    data = pybase64.b64encode(message["octets"]).decode("ascii") if file is None else FileRange.from_file(files[file])
    return {"uid": message["uid"], "msgID": message["message_id"], "folder": folder, "data": data}


def _build_detail(message: sqlite3.Row, folder: str, files: StoredFiles) -> msgspec.Raw | dict[str, Any]:
    """Return a MessageDetail: JSON, or for a message in a file a dict with FileRanges for large attachments."""
    place = {
        "uid": message["uid"],
        "msgnum": message["number"],
        "folder": folder,
        "expunged": False,
        "sentDate": None if message["sent"] is None else format_timestamp(message["sent"]),
        "receivedDate": format_timestamp(message["received"]),
    }
    if message["name"] is None:
        return msgspec.Raw(b"".join((msgspec.json.encode(place)[:-1], b",", message["octets"][1:])))
    members = msgspec.json.decode(message["octets"])
    for part in members["attachments"]:
        if isinstance(part.get("content"), list):
            part["content"] = FileRange(files[message["name"]], *part["content"])
    return {**place, **members}


_MILLISECONDS = re.compile(r"-?[0-9]{1,18}")
_UTC_SECONDS = re.compile(r"[0-9]{14}")


def _parse_times(call: MessagingCall[Any]) -> tuple[int | None, int | None]:
    if "beginTime" not in call.path:
        return None, None
    begin, end = call.path["beginTime"], call.path["endTime"]
    if call.operation.endswith("UTC"):
        return _parse_utc(begin), _parse_utc(end) + 999
    if not (_MILLISECONDS.fullmatch(begin) and _MILLISECONDS.fullmatch(end)):
        raise MessagingError("beginTime and endTime must be numbers of milliseconds since 1970")
    return int(begin), int(end) or None


def _parse_utc(text: str) -> int:
    try:
        if _UTC_SECONDS.fullmatch(text) is None:
            raise ValueError(text)
        return to_milliseconds(datetime.strptime(text, "%Y%m%d%H%M%S").replace(tzinfo=UTC))
    except ValueError:
        raise MessagingError("beginTime and endTime must be UTC times of the form yyyyMMddHHmmss") from None


def _get_folders(connection: sqlite3.Connection, call: MessagingCall[MailboxRequest]) -> ResponseMembers:
    subscribed_only = _parse_boolean(call.path["subscribedFolderOnly"])
    root = call.path["rootFolderName"]
    return {"folders": mailboxes.list_subfolders(connection, call.account, root, subscribed_only=subscribed_only)}


def _set_folders_subscribed(
    connection: sqlite3.Connection, call: MessagingCall[SetFoldersSubscribedRequest]
) -> ResponseMembers:
    request = call.request
    names, changed = mailboxes.subscribe(connection, call.account, request.folders, subscribed=request.subscribed)
    if changed:
        call.record(connection, ",".join(changed), folders=changed, subscribed=request.subscribed)
    return {"folders": names}


def _move_folder(connection: sqlite3.Connection, call: MessagingCall[MailboxRequest]) -> ResponseMembers:
    old, new = mailboxes.rename_folder(connection, call.account, call.path["folderName"], call.path["newFolderName"])
    call.record(connection, old, new_name=new)
    return {}


def _change_folder(
    change: Callable[[sqlite3.Connection, int, str], str],
    connection: sqlite3.Connection,
    call: MessagingCall[MailboxRequest],
) -> ResponseMembers:
    call.record(connection, change(connection, call.account, call.path["folderName"]))
    return {}


def _transfer(
    transfer: mailboxes.TransferFn, connection: sqlite3.Connection, call: MessagingCall[UidsRequest]
) -> ResponseMembers:
    source = call.get_folder(connection)
    destination = mailboxes.get_folder(connection, call.account, call.path["destFolderName"])
    transferred = transfer(connection, source.id, destination.id, call.request.uids)
    if transferred:
        uids, new_uids = list(transferred), list(transferred.values())
        call.record(connection, source.name, uids=uids, destination=destination.name, new_uids=new_uids)
    return {}


def _delete_messages(connection: sqlite3.Connection, call: MessagingCall[UidsRequest]) -> ResponseMembers:
    forever = _parse_boolean(call.path["deleteForever"])
    folder = call.get_folder(connection)
    if forever:
        removed = mailboxes.remove_messages(connection, folder.id, call.request.uids)
    else:
        trash = mailboxes.ensure_trash_id(connection, call.account)
        removed = list(mailboxes.move_messages(connection, folder.id, trash, call.request.uids))
    if removed:
        call.record(connection, folder.name, uids=removed, forever=forever)
    return {}


def _mark(connection: sqlite3.Connection, call: MessagingCall[UidsRequest], *, seen: bool) -> ResponseMembers:
    folder = call.get_folder(connection)
    marked = mailboxes.set_seen(connection, folder.id, call.request.uids, seen=seen)
    if marked:
        call.record(connection, folder.name, uids=marked)
    return {}


def _parse_boolean(segment: str) -> bool:
    value = {"true": True, "1": True, "false": False, "0": False}.get(segment.lower())
    if value is None:
        raise MessagingError("The last path segment must be true or false")
    return value


_LARGE_BODY_TYPES = frozenset((SendRequest, SendRequestWithHeader, RawMessagesRequest))
"""The bodies whose large contents are written to a file while they are received."""

_FOLDER = "/{folderName}"
_TIMES = "/{folderName}/{beginTime}/{endTime}"
_TO_FOLDER = "/{folderName}/{destFolderName}"

_read_metadata = partial(_read, column="metadata")

OPERATIONS = (
    _Operation("Send", "", SendRequest, "async write", sending.send, "PUT"),
    _Operation("SendWithHeader", "", SendRequestWithHeader, "async write", sending.send, "PUT"),
    _Operation("SendWithTuser", "", SendRequest, "async write", sending.send, "PUT"),
    _Operation("SendWithHeaderWithTuser", "", SendRequestWithHeader, "async write", sending.send, "PUT"),
    _Operation("Forward", _FOLDER, UidsRequest, "async write", sending.forward, "PUT"),
    _Operation("SaveRawMessages", _FOLDER, RawMessagesRequest, "async write", sending.save_raw_messages),
    _Operation("GetMessageStatus", "/{smtpId}", MailboxRequest, "read", _get_statuses),
    _Operation("GetMessageStatusWithTuser", "/{smtpId}", MailboxRequest, "read", _get_statuses),
    _Operation("GetMessageStatusMany", "/", SmtpIdsRequest, "read", _get_statuses),
    _Operation("GetMessageCount", _FOLDER, MailboxRequest, "read", _count),
    _Operation("GetUnreadMessageCount", _FOLDER, MailboxRequest, "read", partial(_count, unread=True)),
    _Operation("GetDeletedMessageCount", _FOLDER, MailboxRequest, "read", _get_deleted_count),
    _Operation("GetUIDs", _FOLDER, MailboxRequest, "read", _get_uids),
    _Operation("GetMessages", _FOLDER, MailboxRequest, "read", _read),
    _Operation("GetUnreadMessages", _FOLDER, MailboxRequest, "read", partial(_read, unread=True)),
    _Operation("GetMessagesByUIDs", _FOLDER, UidsRequest, "read", _read),
    _Operation("GetRawMessagesByUIDs", _FOLDER, UidsRequest, "read", partial(_read, column="raw")),
    _Operation("GetMessagesByReceivedDate", _TIMES, MailboxRequest, "read", _read),
    _Operation("GetMessagesByReceivedDateUTC", _TIMES, MailboxRequest, "read", _read),
    _Operation("GetMessagesBySender", _FOLDER + "/{sender}", MailboxRequest, "read", _read),
    _Operation("GetMessagesBySubject", _FOLDER + "/{subject}", MailboxRequest, "read", _read),
    _Operation("GetMessageMetaData", _FOLDER, MailboxRequest, "read", _read_metadata),
    _Operation("SearchMessagesMetadataByReceivedDate", _TIMES, MailboxRequest, "read", _read_metadata),
    _Operation("SearchMessagesMetadataByReceivedDateUTC", _TIMES, MailboxRequest, "read", _read_metadata),
    _Operation("GetFolders", "/{rootFolderName}/{subscribedFolderOnly}", MailboxRequest, "read", _get_folders),
    _Operation("SetFoldersSubscribed", "/", SetFoldersSubscribedRequest, "write", _set_folders_subscribed),
    _Operation("CreateFolder", _FOLDER, MailboxRequest, "write", partial(_change_folder, mailboxes.create_folder)),
    _Operation("MoveFolder", _FOLDER + "/{newFolderName}", MailboxRequest, "write", _move_folder),
    _Operation("DeleteFolder", _FOLDER, MailboxRequest, "write", partial(_change_folder, mailboxes.delete_folder)),
    _Operation("CopyMessagesByUIDs", _TO_FOLDER, UidsRequest, "write", partial(_transfer, mailboxes.copy_messages)),
    _Operation("MoveMessagesByUIDs", _TO_FOLDER, UidsRequest, "write", partial(_transfer, mailboxes.move_messages)),
    _Operation("DeleteMessagesByUIDs", _FOLDER + "/{deleteForever}", UidsRequest, "write", _delete_messages),
    _Operation("MarkMessagesAsReadByUIDs", _FOLDER, UidsRequest, "write", partial(_mark, seen=True)),
    _Operation("MarkMessagesAsUnreadByUIDs", _FOLDER, UidsRequest, "write", partial(_mark, seen=False)),
)
"""All operations of the service."""
