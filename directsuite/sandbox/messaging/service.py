"""The messaging service: its operations in the order of the specification (4.C), and how each is answered.

body ──► checked request ──► credentials ──► the operation's work ──► answer
         code 4, HTTP 400    code 1 or 2     code 2, 3 or 4           success true, code 0

What changes the mailbox records its effect in the ledger in the same transaction; where it changed nothing there is no
effect. Send and its variants, Forward and SaveRawMessages, which prepare messages first, are in sending.py.

A profile has answers differ from the specification as those of some servers do, for clients that must bear with them:

    java               as some Java servers: dates become milliseconds since 1970; empty lists become null; a list of
                       one object becomes the object; the message of a success is null; messages have members of
                       JavaMail's that the specification does not name
    attachment-list    received messages have `attachmentList` for `attachments`, as the provider's WSDL spells it

Without one, `strict`, the specification holds. Lists are arrays but for `java`. Profiles combine.

What is in files is not in the answer's JSON while that is made: names stand in its place, random ones that no content
can forge. The content itself is read from the files while the answer is sent.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import sqlite3
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, TypeGuard, cast, get_args

import msgspec
import pybase64
from aiohttp import web

from directsuite.sandbox.clock import EPOCH, milliseconds_of, timestamp
from directsuite.sandbox.files import FileRange, StoredFiles
from directsuite.sandbox.messaging import delivery, mailboxes, sending
from directsuite.sandbox.messaging.headers import fold
from directsuite.sandbox.messaging.mailboxes import Selection
from directsuite.sandbox.messaging.receiving import received
from directsuite.sandbox.messaging.requests import (
    Answer,
    Call,
    MailboxRequest,
    RawMessagesRequest,
    Request,
    SendRequest,
    SendRequestWithHeader,
    SetFoldersSubscribedRequest,
    SmtpIdsRequest,
    UidsRequest,
)
from directsuite.sandbox.patients import DISABLED, state_of
from directsuite.sandbox.refusals import MessagingCode, MessagingError, parse_json

if TYPE_CHECKING:
    from pathlib import Path

    from aiohttp.typedefs import Handler

    from directsuite.sandbox.clock import Clock
    from directsuite.sandbox.database import Database
    from directsuite.sandbox.messaging.receiving import Contents

BASE = "/message-rest/api/message"
SCHEMA = mailboxes.SCHEMA + delivery.SCHEMA

Profile = Literal["strict", "java", "attachment-list"]
Profiles: TypeAlias = Profile | Collection[Profile]
PROFILES: tuple[Profile, ...] = get_args(Profile)

_PARAMETER = re.compile(r"\{(\w+)\}")
_LARGE = 256 * 1024  # octets of JSON that take longer to read than a thread takes to start
_DATES = frozenset(("sentDate", "receivedDate", "ts"))
_TRIES = 3  # of a call that finds a file gone, for its message was deleted meanwhile
_JAVAMAIL = {"modified": False, "saved": True, "strict": True}


Work = Callable[[sqlite3.Connection, Call[Any]], Answer]


class Reads(NamedTuple):
    """Work that the reader does."""

    work: Work


class Changes(NamedTuple):
    """Work that the writer does in one transaction."""

    work: Work


class BringsIn(NamedTuple):
    """Work that prepares messages before it writes them."""

    work: Callable[[Call[Any], Database], Awaitable[Answer]]


class Operation(NamedTuple):
    """An operation of the specification."""

    name: str
    """The specification's, and the route's."""
    method: str
    path: str
    """The path below {message_url}."""
    body: type[Request]
    run: Reads | Changes | BringsIn
    tuser: bool = False
    """Whether the caller is a T-User, who acts for the owner of a mailbox."""


_Parts = list[bytes | FileRange]
"""An answer: JSON, and what stands in it in base64."""


class MessagingService:
    """Mailboxes and delivery over HTTP; its settings may be changed while it runs.

    folder: where the files of large messages are; None for a temporary one. max_body: bytes of the body of Send, its
    variants and SaveRawMessages; None for what the application takes of any body.
    """

    csv_above: int
    """A status report about more ids than this comes as CSV; 0 makes every report CSV."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        *,
        profile: Profiles = "strict",
        csv_above: int = 100,
        folder: Path | None = None,
        max_body: int | None = None,
    ) -> None:
        self.profile = profile
        self.csv_above = csv_above
        self.files = StoredFiles(folder, "content_file")
        self._max_body = max_body
        self._database = database
        self._clock = clock

    @property
    def profile(self) -> Profiles:
        """The profile or profiles, as they were set."""
        return self._profile

    @profile.setter
    def profile(self, profile: Profiles) -> None:
        """Answer so from now on. Raises ValueError for an unknown one."""
        self._profiles = _require_profiles(profile)
        self._profile: Profiles = profile

    def routes(self) -> list[web.RouteDef]:
        """A route for each operation, named as the specification names it."""
        return [
            web.route(row.method, f"{BASE}/{_pattern(row.path)}", self._handler(row), name=row.name)
            for row in OPERATIONS
        ]

    def _handler(self, row: Operation) -> Handler:
        async def handle(request: web.Request) -> web.Response:
            if row.body not in _WITH_CONTENTS:
                return await self._answer(row, request, await request.read(), {})
            limit = self._max_body or request.client_max_size
            async with received(request, self.files, limit) as (octets, contents):
                return await self._answer(row, request, octets, contents)

        return handle

    async def _answer(self, row: Operation, request: web.Request, octets: bytes, contents: Contents) -> web.Response:
        body = await _body(request, octets, row.body)
        for _ in range(_TRIES - 1):
            with suppress(FileNotFoundError):
                return await self._try(row, request, body, contents)
        return await self._try(row, request, body, contents)

    async def _try(self, row: Operation, request: web.Request, body: Request, contents: Contents) -> web.Response:
        parts = await self._run(row, request, body, contents)
        whole = parts[0] if len(parts) == 1 else self.files.payload(parts)
        return web.Response(body=whole, content_type="application/json")

    async def _run(self, row: Operation, request: web.Request, body: Request, contents: Contents) -> _Parts:
        def begin(connection: sqlite3.Connection) -> Call[Any]:
            now = self._clock.milliseconds()
            account, address = _authenticate(connection, row, body, now)
            return Call(
                *(row.name, request.match_info, body, account, address, now, self.csv_above, self.files, contents)
            )

        run = row.run
        if isinstance(run, BringsIn):
            call = await self._database.read(begin)
            return self._rendered(await run.work(call, self._database))
        if isinstance(run, Reads):
            return await self._database.read(lambda connection: self._rendered(run.work(connection, begin(connection))))
        changed = await self.files.write(self._database, lambda connection: run.work(connection, begin(connection)))
        return self._rendered(changed)

    def _rendered(self, members: Answer) -> _Parts:
        token, ranges = secrets.token_hex(16), list[FileRange]()

        def name(content: object) -> str:
            """What stands for a range."""
            if not isinstance(content, FileRange):
                raise NotImplementedError(type(content))
            ranges.append(content)
            return f"{token}-{len(ranges) - 1}"

        whole = {"success": True, "code": MessagingCode.SUCCESS, "message": "OK", **members}
        answer = msgspec.json.encode(whole, enc_hook=name)
        if self._profiles:
            answer = msgspec.json.encode(_in_profiles(msgspec.json.decode(answer), self._profiles))
        parts = re.split(rf"{token}-(\d+)".encode("ascii"), answer) if ranges else [answer]
        return [ranges[int(part)] if place % 2 else part for place, part in enumerate(parts)]


async def _body(request: web.Request, octets: bytes, expected: type[Request]) -> Request:
    large = len(octets) > _LARGE
    try:
        body: Request = await asyncio.to_thread(parse_json, octets, expected) if large else parse_json(octets, expected)
    except msgspec.ValidationError as mismatch:
        raise MessagingError(MessagingCode.OTHER, f"The request body does not fit: {mismatch}") from None
    if request.content_type != "application/json":
        raise web.HTTPUnsupportedMediaType
    return body


def _authenticate(connection: sqlite3.Connection, row: Operation, body: Request, now: int) -> tuple[int, str]:
    """The mailbox that the credentials open, and its address."""
    credentials = body.credentials()
    if not row.tuser:
        account = mailboxes.authenticate(connection, credentials.username, credentials.password)
        if account is None:
            raise MessagingError(MessagingCode.AUTHENTICATION, "The username or the password is wrong")
        if state_of(connection, credentials.username, now) == DISABLED:
            raise MessagingError(MessagingCode.AUTHENTICATION, "The user is disabled")
        return account, credentials.username
    if not mailboxes.authenticate_tuser(connection, credentials.username, credentials.password):
        raise MessagingError(MessagingCode.AUTHENTICATION, "The T-User's name or password is wrong")
    account = mailboxes.account_of_tuser(connection, credentials.username, credentials.direct_addr)
    if account is None:
        raise MessagingError(MessagingCode.ADDRESS, "The T-User may not act for this Direct address")
    if state_of(connection, credentials.direct_addr, now) == DISABLED:
        raise MessagingError(MessagingCode.ADDRESS, "The user of this Direct address is disabled")
    return account, credentials.direct_addr


def _pattern(path: str) -> str:
    """The route's pattern: a segment may be empty or hold anything but a slash; an smtpId is never empty."""
    return _PARAMETER.sub(lambda name: f"{{{name[1]}:[^/]{'+' if name[1] == 'smtpId' else '*'}}}", path)


def _status(connection: sqlite3.Connection, call: Call[MailboxRequest]) -> Answer:
    return _report(connection, call, [call.path["smtpId"]])


def _statuses(connection: sqlite3.Connection, call: Call[SmtpIdsRequest]) -> Answer:
    return _report(connection, call, call.request.smtp_ids)


def _report(connection: sqlite3.Connection, call: Call[Any], smtp_ids: list[str]) -> Answer:
    records = delivery.report(connection, call.account, smtp_ids, now_ms=call.at_ms)
    return delivery.report_members(records, as_csv=len(smtp_ids) > call.csv_above)


def _message_count(connection: sqlite3.Connection, call: Call[MailboxRequest]) -> Answer:
    return {"count": mailboxes.count(connection, call.folder(connection).id).all}


def _unread_count(connection: sqlite3.Connection, call: Call[MailboxRequest]) -> Answer:
    return {"count": mailboxes.count(connection, call.folder(connection).id).unread}


def _deleted_count(connection: sqlite3.Connection, call: Call[MailboxRequest]) -> Answer:
    """All messages of INBOX.Trash; elsewhere those that carry the flag."""
    folder = call.folder(connection)
    counted = mailboxes.count(connection, folder.id)
    return {"count": counted.all if fold(folder.name) == fold(mailboxes.TRASH) else counted.deleted}


def _messages(select: Callable[[Call[Any]], Selection], *, whole: bool = True) -> Work:
    """The work of answering the selected messages of the folder, whole or as metadata."""

    def read(connection: sqlite3.Connection, call: Call[Any]) -> Answer:
        """The members of GetMessageResponse."""
        folder = call.folder(connection)
        messages = mailboxes.messages(connection, folder.id, select(call), whole=whole)
        return {"messages": [_detail(message, folder.name, call.files) for message in messages]}

    return read


def _detail(message: mailboxes.StoredMessage, folder: str, files: StoredFiles) -> msgspec.Raw | dict[str, Any]:
    """A MessageDetail: what depends on the folder, joined to the JSON that was made when the message came."""
    place = {
        "uid": message.uid,
        "msgnum": message.number,
        "folder": folder,
        "expunged": False,
        "sentDate": None if message.sent_ms is None else timestamp(message.sent_ms),
        "receivedDate": timestamp(message.received_ms),
    }
    if message.file is None:
        return msgspec.Raw(b"".join((msgspec.json.encode(place)[:-1], b",", message.members[1:])))
    members = msgspec.json.decode(message.members)
    for part in members["attachments"]:
        if isinstance(part.get("content"), list):
            part["content"] = FileRange(files[message.file], *part["content"])
    return {**place, **members}


def _metadata(select: Callable[[Call[Any]], Selection]) -> Work:
    return _messages(select, whole=False)


def _everything(_: Call[Any]) -> Selection:
    return Selection()


def _unread(_: Call[Any]) -> Selection:
    return Selection(unread=True)


def _by_uids(call: Call[UidsRequest]) -> Selection:
    return Selection(uids=call.request.uids)


def _by_sender(call: Call[Any]) -> Selection:
    return Selection(sender=call.path["sender"])


def _by_subject(call: Call[Any]) -> Selection:
    return Selection(subject=call.path["subject"])


def _received(call: Call[Any]) -> Selection:
    """Messages received between two times in milliseconds since 1970; 0 as the end is open."""
    begin, end = call.path["beginTime"], call.path["endTime"]
    if not (_MILLISECONDS.fullmatch(begin) and _MILLISECONDS.fullmatch(end)):
        raise MessagingError(MessagingCode.OTHER, "beginTime and endTime are numbers of milliseconds since 1970")
    return Selection(begin_ms=int(begin), end_ms=int(end) or None)


def _received_utc(call: Call[Any]) -> Selection:
    """Messages received between two times of the form yyyyMMddHHmmss, the second of the end included."""
    return Selection(begin_ms=_from_utc(call.path["beginTime"]), end_ms=_from_utc(call.path["endTime"]) + 999)


_MILLISECONDS = re.compile(r"-?[0-9]{1,18}")
_UTC_SECONDS = re.compile(r"[0-9]{14}")


def _from_utc(text: str) -> int:
    try:
        if _UTC_SECONDS.fullmatch(text) is None:
            raise ValueError(text)
        return milliseconds_of(datetime.strptime(text, "%Y%m%d%H%M%S").replace(tzinfo=UTC))
    except ValueError:
        raise MessagingError(
            MessagingCode.OTHER, "beginTime and endTime are UTC times of the form yyyyMMddHHmmss"
        ) from None


def _uids(connection: sqlite3.Connection, call: Call[MailboxRequest]) -> Answer:
    return {"uids": mailboxes.uids(connection, call.folder(connection).id)}


def _folder_names(connection: sqlite3.Connection, call: Call[MailboxRequest]) -> Answer:
    subscribed_only = _boolean(call.path["subscribedFolderOnly"])
    root = call.path["rootFolderName"]
    return {"folders": mailboxes.sub_folders(connection, call.account, root, subscribed_only=subscribed_only)}


def _set_folders_subscribed(connection: sqlite3.Connection, call: Call[SetFoldersSubscribedRequest]) -> Answer:
    request = call.request
    names, changed = mailboxes.subscribe(connection, call.account, request.folders, subscribed=request.subscribed)
    if changed:
        call.record(connection, ",".join(changed), folders=changed, subscribed=request.subscribed)
    return {"folders": names}


def _create_folder(connection: sqlite3.Connection, call: Call[MailboxRequest]) -> Answer:
    call.record(connection, mailboxes.create_folder(connection, call.account, call.path["folderName"]))
    return {}


def _move_folder(connection: sqlite3.Connection, call: Call[MailboxRequest]) -> Answer:
    old, new = mailboxes.rename_folder(connection, call.account, call.path["folderName"], call.path["newFolderName"])
    call.record(connection, old, new_name=new)
    return {}


def _delete_folder(connection: sqlite3.Connection, call: Call[MailboxRequest]) -> Answer:
    call.record(connection, mailboxes.delete_folder(connection, call.account, call.path["folderName"]))
    return {}


def _transfer(transfer: mailboxes.Transfer) -> Work:
    """The work of copying or moving messages to another folder."""

    def change(connection: sqlite3.Connection, call: Call[UidsRequest]) -> Answer:
        """Nothing: the answer has no members of its own."""
        source = call.folder(connection)
        destination = mailboxes.folder(connection, call.account, call.path["destFolderName"])
        transferred = transfer(connection, source.id, destination.id, call.request.uids)
        if transferred:
            uids, new_uids = list(transferred), list(transferred.values())
            call.record(connection, source.name, uids=uids, destination=destination.name, new_uids=new_uids)
        return {}

    return change


def _delete_messages(connection: sqlite3.Connection, call: Call[UidsRequest]) -> Answer:
    """Move messages to INBOX.Trash, or remove them for good."""
    forever = _boolean(call.path["deleteForever"])
    folder = call.folder(connection)
    if forever:
        removed = mailboxes.remove(connection, folder.id, call.request.uids)
    else:
        trash = mailboxes.trash_id(connection, call.account)
        removed = list(mailboxes.move(connection, folder.id, trash, call.request.uids))
    if removed:
        call.record(connection, folder.name, uids=removed, forever=forever)
    return {}


def _mark(*, seen: bool) -> Work:
    """The work of marking messages as read or unread."""

    def change(connection: sqlite3.Connection, call: Call[UidsRequest]) -> Answer:
        """Nothing: the answer has no members of its own."""
        folder = call.folder(connection)
        marked = mailboxes.mark(connection, folder.id, call.request.uids, mailboxes.Flag.SEEN, value=seen)
        if marked:
            call.record(connection, folder.name, uids=marked)
        return {}

    return change


def _raw_messages(connection: sqlite3.Connection, call: Call[UidsRequest]) -> Answer:
    folder = call.folder(connection)
    messages = mailboxes.raw_messages(connection, folder.id, call.request.uids)
    return {
        "messages": [
            {
                "uid": message.uid,
                "msgID": message.message_id,
                "folder": folder.name,
                "data": pybase64.b64encode(message.raw).decode("ascii")
                if message.file is None
                else FileRange.whole(call.files[message.file]),
            }
            for message in messages
        ]
    }


def _boolean(segment: str) -> bool:
    """A path segment that is true, false, 1 or 0, in any case. Refuses anything else with code 4."""
    value = {"true": True, "1": True, "false": False, "0": False}.get(segment.lower())
    if value is None:
        raise MessagingError(MessagingCode.OTHER, "The last path segment is true or false")
    return value


def _require_profiles(value: Any) -> frozenset[str]:
    """One profile, or several, as a set without `strict`. Raises ValueError for anything else."""
    names = cast("Collection[Any]", value) if isinstance(value, (list, tuple, set, frozenset)) else [value]
    if not all(name in PROFILES for name in names):
        raise ValueError(f"profile must be one of {', '.join(PROFILES)}, or a list of them")
    return frozenset(names) - {"strict"}


def _in_profiles(answer: dict[str, Any], profiles: Collection[str]) -> dict[str, Any]:
    """The same answer in the manner of these profiles."""
    if "attachment-list" in profiles and "messages" in answer:
        answer["messages"] = [_with_attachment_list(message) for message in answer["messages"]]
    return _java_answer(answer) if "java" in profiles else answer


def _with_attachment_list(message: dict[str, Any]) -> dict[str, Any]:
    return {"attachmentList" if name == "attachments" else name: value for name, value in message.items()}


def _java_answer(answer: dict[str, Any]) -> dict[str, Any]:
    return {name: _member(name, value) for name, value in answer.items()} | {"message": None}


def _member(name: str, value: object) -> object:
    if _is_list(value):
        return _list(value)
    if name in _DATES and isinstance(value, str):
        return (datetime.strptime(value, "%Y-%m-%dT%H:%M:%S.%f%z") - EPOCH) // timedelta(milliseconds=1)
    return value


def _list(elements: list[Any]) -> object:
    members = [_object(element) if _is_object(element) else element for element in elements]
    return members[0] if len(members) == 1 and _is_object(members[0]) else members or None


def _object(members: dict[str, Any]) -> dict[str, Any]:
    extra = _JAVAMAIL if "msgnum" in members else {}
    return {name: _member(name, member) for name, member in members.items()} | extra


def _is_list(value: object) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def _is_object(value: object) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)


_WITH_CONTENTS = frozenset((SendRequest, SendRequestWithHeader, RawMessagesRequest))
"""Bodies of any size, for what is large in them is in files."""

_BETWEEN = "{folderName}/{beginTime}/{endTime}"

OPERATIONS = (
    Operation("Send", "PUT", "Send", SendRequest, BringsIn(sending.send)),
    Operation("SendWithHeader", "PUT", "SendWithHeader", SendRequestWithHeader, BringsIn(sending.send)),
    Operation("Forward", "PUT", "Forward/{folderName}", UidsRequest, BringsIn(sending.forward)),
    Operation("SendWithTuser", "PUT", "SendWithTuser", SendRequest, BringsIn(sending.send), tuser=True),
    Operation(
        "SendWithHeaderWithTuser",
        "PUT",
        "SendWithHeaderWithTuser",
        SendRequestWithHeader,
        BringsIn(sending.send),
        tuser=True,
    ),
    Operation("GetMessageStatus", "POST", "GetMessageStatus/{smtpId}", MailboxRequest, Reads(_status)),
    Operation("GetMessageStatusMany", "POST", "GetMessageStatus/", SmtpIdsRequest, Reads(_statuses)),
    Operation(
        "GetMessageStatusWithTuser",
        "POST",
        "GetMessageStatusWithTuser/{smtpId}",
        MailboxRequest,
        Reads(_status),
        tuser=True,
    ),
    *(
        Operation(name, "POST", f"{name}/{path}", body, Reads(work))
        for name, path, body, work in (
            ("GetMessageCount", "{folderName}", MailboxRequest, _message_count),
            ("GetUnreadMessageCount", "{folderName}", MailboxRequest, _unread_count),
            ("GetDeletedMessageCount", "{folderName}", MailboxRequest, _deleted_count),
            ("GetMessagesByUIDs", "{folderName}", UidsRequest, _messages(_by_uids)),
            ("GetUnreadMessages", "{folderName}", MailboxRequest, _messages(_unread)),
            ("GetMessagesByReceivedDate", _BETWEEN, MailboxRequest, _messages(_received)),
            ("GetMessagesByReceivedDateUTC", _BETWEEN, MailboxRequest, _messages(_received_utc)),
            ("GetMessagesBySender", "{folderName}/{sender}", MailboxRequest, _messages(_by_sender)),
            ("GetMessagesBySubject", "{folderName}/{subject}", MailboxRequest, _messages(_by_subject)),
            ("GetMessages", "{folderName}", MailboxRequest, _messages(_everything)),
            ("GetMessageMetaData", "{folderName}", MailboxRequest, _metadata(_everything)),
            ("SearchMessagesMetadataByReceivedDate", _BETWEEN, MailboxRequest, _metadata(_received)),
            ("SearchMessagesMetadataByReceivedDateUTC", _BETWEEN, MailboxRequest, _metadata(_received_utc)),
            ("GetUIDs", "{folderName}", MailboxRequest, _uids),
            ("GetFolders", "{rootFolderName}/{subscribedFolderOnly}", MailboxRequest, _folder_names),
        )
    ),
    *(
        Operation(name, "POST", f"{name}/{path}", body, Changes(work))
        for name, path, body, work in (
            ("SetFoldersSubscribed", "", SetFoldersSubscribedRequest, _set_folders_subscribed),
            ("CreateFolder", "{folderName}", MailboxRequest, _create_folder),
            ("MoveFolder", "{folderName}/{newFolderName}", MailboxRequest, _move_folder),
            ("DeleteFolder", "{folderName}", MailboxRequest, _delete_folder),
            ("CopyMessagesByUIDs", "{folderName}/{destFolderName}", UidsRequest, _transfer(mailboxes.copy)),
            ("MoveMessagesByUIDs", "{folderName}/{destFolderName}", UidsRequest, _transfer(mailboxes.move)),
            ("DeleteMessagesByUIDs", "{folderName}/{deleteForever}", UidsRequest, _delete_messages),
            ("MarkMessagesAsReadByUIDs", "{folderName}", UidsRequest, _mark(seen=True)),
            ("MarkMessagesAsUnreadByUIDs", "{folderName}", UidsRequest, _mark(seen=False)),
        )
    ),
    Operation("GetRawMessagesByUIDs", "POST", "GetRawMessagesByUIDs/{folderName}", UidsRequest, Reads(_raw_messages)),
    Operation(
        "SaveRawMessages",
        "POST",
        "SaveRawMessages/{folderName}",
        RawMessagesRequest,
        BringsIn(sending.save_raw_messages),
    ),
)
"""In the order of the specification."""
