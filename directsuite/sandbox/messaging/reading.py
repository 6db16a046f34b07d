"""The mailbox operations that only read: counts, uids, messages, metadata, folders, statuses."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
import pybase64

from directsuite.sandbox.clock import timestamp
from directsuite.sandbox.messaging import delivery, folders, store
from directsuite.sandbox.messaging.call import Answer, Call
from directsuite.sandbox.messaging.dates import from_milliseconds, from_utc
from directsuite.sandbox.messaging.refusals import Code, Refusal
from directsuite.sandbox.messaging.report import report_members
from directsuite.sandbox.messaging.store import Selection

if TYPE_CHECKING:
    from directsuite.sandbox.messaging.requests import MailboxRequest, SmtpIdsRequest, UidsRequest

Reader = Callable[[sqlite3.Connection, Call[Any]], Answer]

_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}


def boolean_segment(text: str) -> bool:
    """A path segment that is true, false, 1 or 0, in any case. Refuses anything else with code 4."""
    value = _BOOLEANS.get(text.lower())
    if value is None:
        raise Refusal(Code.OTHER, "The last path segment is true or false")
    return value


def message_count(connection: sqlite3.Connection, call: Call[MailboxRequest]) -> Answer:
    """How many messages the folder has."""
    return {"count": store.count(connection, call.folder(connection).id).all}


def unread_count(connection: sqlite3.Connection, call: Call[MailboxRequest]) -> Answer:
    """How many unread messages the folder has."""
    return {"count": store.count(connection, call.folder(connection).id).unread}


def deleted_count(connection: sqlite3.Connection, call: Call[MailboxRequest]) -> Answer:
    """How many deleted messages the folder has: all of INBOX.Trash; elsewhere those that carry the flag."""
    folder = call.folder(connection)
    counted = store.count(connection, folder.id)
    return {"count": counted.all if folder.name.casefold() == folders.TRASH.casefold() else counted.deleted}


def uids(connection: sqlite3.Connection, call: Call[MailboxRequest]) -> Answer:
    """All uids of the folder."""
    return {"uids": store.uids(connection, call.folder(connection).id)}


def raw_messages(connection: sqlite3.Connection, call: Call[UidsRequest]) -> Answer:
    """The bytes of messages, as base64."""
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


def messages(select: Callable[[Call[Any]], Selection], *, whole: bool = True) -> Reader:
    """A reader that answers the selected messages of the folder, whole or as metadata."""

    def read(connection: sqlite3.Connection, call: Call[Any]) -> Answer:
        folder = call.folder(connection)
        found = store.messages(connection, folder.id, select(call), whole=whole)
        return {"messages": [_detail(message, folder.name) for message in found]}

    return read


def everything(_: Call[Any]) -> Selection:
    """All messages."""
    return Selection()


def unread(_: Call[Any]) -> Selection:
    """Unread messages."""
    return Selection(unread=True)


def by_uids(call: Call[UidsRequest]) -> Selection:
    """Messages with the uids of the body."""
    return Selection(uids=call.request.uids)


def by_sender(call: Call[Any]) -> Selection:
    """Messages whose sender has the text of the path."""
    return Selection(sender=call.path["sender"])


def by_subject(call: Call[Any]) -> Selection:
    """Messages whose subject has the text of the path."""
    return Selection(subject=call.path["subject"])


def received_between(call: Call[Any]) -> Selection:
    """Messages received between two times in milliseconds."""
    begin_ms, end_ms = from_milliseconds(call.path["beginTime"], call.path["endTime"])
    return Selection(begin_ms=begin_ms, end_ms=end_ms)


def received_between_utc(call: Call[Any]) -> Selection:
    """Messages received between two times of the form yyyyMMddHHmmss."""
    begin_ms, end_ms = from_utc(call.path["beginTime"], call.path["endTime"])
    return Selection(begin_ms=begin_ms, end_ms=end_ms)


def folder_names(connection: sqlite3.Connection, call: Call[MailboxRequest]) -> Answer:
    """The sub-folders of the root folder."""
    subscribed_only = boolean_segment(call.path["subscribedFolderOnly"])
    root = call.path["rootFolderName"]
    return {"folders": folders.names_below(connection, call.account, root, subscribed_only=subscribed_only)}


def status(connection: sqlite3.Connection, call: Call[MailboxRequest]) -> Answer:
    """The status of one message."""
    return _report(connection, call, [call.path["smtpId"]])


def statuses(connection: sqlite3.Connection, call: Call[SmtpIdsRequest]) -> Answer:
    """The status of several messages."""
    return _report(connection, call, call.request.smtp_ids)


def _report(connection: sqlite3.Connection, call: Call[Any], smtp_ids: list[str]) -> Answer:
    records = delivery.report(connection, call.account, smtp_ids, now_ms=call.at_ms)
    return report_members(records, as_csv=len(smtp_ids) > call.csv_above)


def _detail(message: store.StoredMessage, folder: str) -> msgspec.Raw:
    """A MessageDetail: what belongs to its place in the folder, joined to what was read when it came."""
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
