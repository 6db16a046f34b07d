"""The operations of the messaging service: the work of each, and a row each in the order of the specification (4.C).

What changes the mailbox records its effect in the ledger in the same transaction; where it changed nothing there is no
effect. Send and its variants, Forward and SaveRawMessages, which prepare messages first, are in sending.py.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pybase64

from directsuite.sandbox.clock import milliseconds_of, timestamp
from directsuite.sandbox.messaging import Code, Refusal, delivery, folders, sending, store
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
from directsuite.sandbox.messaging.store import Selection

if TYPE_CHECKING:
    from directsuite.sandbox.database import Database

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
    """An operation: its name, which is its route's, method, path below {message_url}, body and work."""

    name: str
    method: str
    path: str
    body: type[Request]
    run: Reads | Changes | BringsIn
    tuser: bool = False


def _status(connection: sqlite3.Connection, call: Call[MailboxRequest]) -> Answer:
    return _report(connection, call, [call.path["smtpId"]])


def _statuses(connection: sqlite3.Connection, call: Call[SmtpIdsRequest]) -> Answer:
    return _report(connection, call, call.request.smtp_ids)


def _report(connection: sqlite3.Connection, call: Call[Any], smtp_ids: list[str]) -> Answer:
    records = delivery.report(connection, call.account, smtp_ids, now_ms=call.at_ms)
    return delivery.report_members(records, as_csv=len(smtp_ids) > call.csv_above)


def _message_count(connection: sqlite3.Connection, call: Call[MailboxRequest]) -> Answer:
    return {"count": store.count(connection, call.folder(connection).id).all}


def _unread_count(connection: sqlite3.Connection, call: Call[MailboxRequest]) -> Answer:
    return {"count": store.count(connection, call.folder(connection).id).unread}


def _deleted_count(connection: sqlite3.Connection, call: Call[MailboxRequest]) -> Answer:
    """All messages of INBOX.Trash; elsewhere those that carry the flag."""
    folder = call.folder(connection)
    counted = store.count(connection, folder.id)
    return {"count": counted.all if folder.name.casefold() == folders.TRASH.casefold() else counted.deleted}


def _messages(select: Callable[[Call[Any]], Selection], *, whole: bool = True) -> Work:
    """The work of answering the selected messages of the folder, whole or as metadata."""

    def read(connection: sqlite3.Connection, call: Call[Any]) -> Answer:
        """The members of GetMessageResponse."""
        folder = call.folder(connection)
        found = store.messages(connection, folder.id, select(call), whole=whole)
        return {"messages": [_detail(message, folder.name) for message in found]}

    return read


def _detail(message: store.StoredMessage, folder: str) -> msgspec.Raw:
    """A MessageDetail: what depends on the folder, joined to the JSON that was made when the message came."""
    place = msgspec.json.encode(
        {
            "uid": message.uid,
            "msgnum": message.number,
            "folder": folder,
            "expunged": False,
            "sentDate": None if message.sent_ms is None else timestamp(message.sent_ms),
            "receivedDate": timestamp(message.received_ms),
        }
    )
    return msgspec.Raw(b"".join((place[:-1], b",", message.members[1:])))


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
        raise Refusal(Code.OTHER, "beginTime and endTime are numbers of milliseconds since 1970")
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
        raise Refusal(Code.OTHER, "beginTime and endTime are UTC times of the form yyyyMMddHHmmss") from None


def _uids(connection: sqlite3.Connection, call: Call[MailboxRequest]) -> Answer:
    return {"uids": store.uids(connection, call.folder(connection).id)}


def _folder_names(connection: sqlite3.Connection, call: Call[MailboxRequest]) -> Answer:
    subscribed_only = _boolean(call.path["subscribedFolderOnly"])
    root = call.path["rootFolderName"]
    return {"folders": folders.names_below(connection, call.account, root, subscribed_only=subscribed_only)}


def _set_folders_subscribed(connection: sqlite3.Connection, call: Call[SetFoldersSubscribedRequest]) -> Answer:
    request = call.request
    names, changed = folders.subscribe(connection, call.account, request.folders, subscribed=request.subscribed)
    if changed:
        call.record(connection, ",".join(changed), folders=changed, subscribed=request.subscribed)
    return {"folders": names}


def _create_folder(connection: sqlite3.Connection, call: Call[MailboxRequest]) -> Answer:
    call.record(connection, folders.create(connection, call.account, call.path["folderName"]))
    return {}


def _move_folder(connection: sqlite3.Connection, call: Call[MailboxRequest]) -> Answer:
    old, new = folders.rename(connection, call.account, call.path["folderName"], call.path["newFolderName"])
    call.record(connection, old, new_name=new)
    return {}


def _delete_folder(connection: sqlite3.Connection, call: Call[MailboxRequest]) -> Answer:
    call.record(connection, folders.delete(connection, call.account, call.path["folderName"]))
    return {}


def _transfer(transfer: store.Transfer) -> Work:
    """The work of copying or moving messages to another folder."""

    def change(connection: sqlite3.Connection, call: Call[UidsRequest]) -> Answer:
        """Nothing: the answer has no members of its own."""
        source = call.folder(connection)
        destination = folders.folder(connection, call.account, call.path["destFolderName"])
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
        removed = store.remove(connection, folder.id, call.request.uids)
    else:
        trash = folders.trash_id(connection, call.account)
        removed = list(store.move(connection, folder.id, trash, call.request.uids))
    if removed:
        call.record(connection, folder.name, uids=removed, forever=forever)
    return {}


def _mark(*, seen: bool) -> Work:
    """The work of marking messages as read or unread."""

    def change(connection: sqlite3.Connection, call: Call[UidsRequest]) -> Answer:
        """Nothing: the answer has no members of its own."""
        folder = call.folder(connection)
        marked = store.mark(connection, folder.id, call.request.uids, store.Flag.SEEN, value=seen)
        if marked:
            call.record(connection, folder.name, uids=marked)
        return {}

    return change


def _raw_messages(connection: sqlite3.Connection, call: Call[UidsRequest]) -> Answer:
    folder = call.folder(connection)
    found = store.raw_messages(connection, folder.id, call.request.uids)
    return {
        "messages": [
            {
                "uid": message.uid,
                "msgID": message.message_id,
                "folder": folder.name,
                "data": pybase64.b64encode(message.raw).decode("ascii"),
            }
            for message in found
        ]
    }


def _boolean(segment: str) -> bool:
    """A path segment that is true, false, 1 or 0, in any case. Refuses anything else with code 4."""
    value = {"true": True, "1": True, "false": False, "0": False}.get(segment.lower())
    if value is None:
        raise Refusal(Code.OTHER, "The last path segment is true or false")
    return value


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
            ("CopyMessagesByUIDs", "{folderName}/{destFolderName}", UidsRequest, _transfer(store.copy)),
            ("MoveMessagesByUIDs", "{folderName}/{destFolderName}", UidsRequest, _transfer(store.move)),
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
"""The 34 operations."""
