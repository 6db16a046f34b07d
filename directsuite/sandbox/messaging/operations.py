"""The operations of the messaging service, a row each, in the order of the specification (section 4.C)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from directsuite.sandbox.messaging import changing, reading, sending
from directsuite.sandbox.messaging.reading import messages
from directsuite.sandbox.messaging.requests import (
    MailboxRequest,
    RawMessagesRequest,
    Request,
    SendRequest,
    SendRequestWithHeader,
    SetFoldersSubscribedRequest,
    SmtpIdsRequest,
    UidsRequest,
)

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Awaitable, Callable

    from directsuite.sandbox.database import Database
    from directsuite.sandbox.messaging.call import Answer, Call


class Reads(NamedTuple):
    """Work that the reader does."""

    work: Callable[[sqlite3.Connection, Call[Any]], Answer]


class Changes(NamedTuple):
    """Work that the writer does in one transaction."""

    work: Callable[[sqlite3.Connection, Call[Any]], Answer]


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


_BETWEEN = "{folderName}/{beginTime}/{endTime}"
_received, _received_utc = reading.received_between, reading.received_between_utc

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
    Operation("GetMessageStatus", "POST", "GetMessageStatus/{smtpId}", MailboxRequest, Reads(reading.status)),
    Operation("GetMessageStatusMany", "POST", "GetMessageStatus/", SmtpIdsRequest, Reads(reading.statuses)),
    Operation(
        "GetMessageStatusWithTuser",
        "POST",
        "GetMessageStatusWithTuser/{smtpId}",
        MailboxRequest,
        Reads(reading.status),
        tuser=True,
    ),
    *(
        Operation(name, "POST", f"{name}/{path}", body, Reads(work))
        for name, path, body, work in (
            ("GetMessageCount", "{folderName}", MailboxRequest, reading.message_count),
            ("GetUnreadMessageCount", "{folderName}", MailboxRequest, reading.unread_count),
            ("GetDeletedMessageCount", "{folderName}", MailboxRequest, reading.deleted_count),
            ("GetMessagesByUIDs", "{folderName}", UidsRequest, messages(reading.by_uids)),
            ("GetUnreadMessages", "{folderName}", MailboxRequest, messages(reading.unread)),
            ("GetMessagesByReceivedDate", _BETWEEN, MailboxRequest, messages(_received)),
            ("GetMessagesByReceivedDateUTC", _BETWEEN, MailboxRequest, messages(_received_utc)),
            ("GetMessagesBySender", "{folderName}/{sender}", MailboxRequest, messages(reading.by_sender)),
            ("GetMessagesBySubject", "{folderName}/{subject}", MailboxRequest, messages(reading.by_subject)),
            ("GetMessages", "{folderName}", MailboxRequest, messages(reading.everything)),
            ("GetMessageMetaData", "{folderName}", MailboxRequest, messages(reading.everything, whole=False)),
            ("SearchMessagesMetadataByReceivedDate", _BETWEEN, MailboxRequest, messages(_received, whole=False)),
            ("SearchMessagesMetadataByReceivedDateUTC", _BETWEEN, MailboxRequest, messages(_received_utc, whole=False)),
            ("GetUIDs", "{folderName}", MailboxRequest, reading.uids),
            ("GetFolders", "{rootFolderName}/{subscribedFolderOnly}", MailboxRequest, reading.folder_names),
        )
    ),
    *(
        Operation(name, "POST", f"{name}/{path}", body, Changes(work))
        for name, path, body, work in (
            ("SetFoldersSubscribed", "", SetFoldersSubscribedRequest, changing.set_folders_subscribed),
            ("CreateFolder", "{folderName}", MailboxRequest, changing.create_folder),
            ("MoveFolder", "{folderName}/{newFolderName}", MailboxRequest, changing.move_folder),
            ("DeleteFolder", "{folderName}", MailboxRequest, changing.delete_folder),
            ("CopyMessagesByUIDs", "{folderName}/{destFolderName}", UidsRequest, changing.copy_messages),
            ("MoveMessagesByUIDs", "{folderName}/{destFolderName}", UidsRequest, changing.move_messages),
            ("DeleteMessagesByUIDs", "{folderName}/{deleteForever}", UidsRequest, changing.delete_messages),
            ("MarkMessagesAsReadByUIDs", "{folderName}", UidsRequest, changing.mark_read),
            ("MarkMessagesAsUnreadByUIDs", "{folderName}", UidsRequest, changing.mark_unread),
        )
    ),
    Operation(
        "GetRawMessagesByUIDs", "POST", "GetRawMessagesByUIDs/{folderName}", UidsRequest, Reads(reading.raw_messages)
    ),
    Operation(
        "SaveRawMessages",
        "POST",
        "SaveRawMessages/{folderName}",
        RawMessagesRequest,
        BringsIn(sending.save_raw_messages),
    ),
)
"""The 34 operations."""
