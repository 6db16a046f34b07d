"""The requests of the messaging service that read and manage a mailbox (specification 4.C)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import directsuite as ds

from .row import JSON, PASSWORD, USERNAME, RequestRow, make_json_response
from .sending_rows import AUTHENTICATION, BASE, NO_CREDENTIALS_IN_HEADERS

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from .recorder import CannedResponse

_SUCCESS_RESPONSE = make_json_response(success=True, code=0, message=None)
_COUNT = make_json_response(success=True, code=0, message=None, count=3)
_MESSAGES = make_json_response(success=True, code=0, message=None, messages=[])
_UIDS = make_json_response(success=True, code=0, message=None, uids=[1, 2])
_FOLDERS = make_json_response(success=True, code=0, message=None, folders=["INBOX.a"])

_BEGIN = datetime(2026, 5, 1, 12, 0, 0, 123000, tzinfo=UTC)
_END = datetime(2026, 5, 2, 2, 0, 0, 500000, tzinfo=timezone(timedelta(hours=2)))
_MILLISECONDS = "1777636800123/1777680000500"
# A bound of whole seconds cannot say 12:00:00.123 or 00:00:00.5: the range widens to the seconds around it.
_SECONDS = "20260501120000/20260502000001"


def _make_row(
    operation: str,
    path: str,
    call: Callable[[ds.Mailbox], Coroutine[Any, Any, object]],
    answer: CannedResponse,
    **members: object,
) -> RequestRow:
    """A row of a POST whose body is the bare Authentication, or `auth` and `members` when there are any."""
    return RequestRow(
        operation=operation,
        call=lambda suite: call(suite.mailbox(USERNAME, PASSWORD)),
        method="POST",
        target=f"{BASE}/{operation}/{path}",
        headers=JSON,
        absent_headers=NO_CREDENTIALS_IN_HEADERS,
        body={"auth": AUTHENTICATION, **members} if members else AUTHENTICATION,
        response=answer,
    )


MAILBOX_ROWS = [
    _make_row("GetMessageCount", "INBOX", lambda box: box.get_message_count(), _COUNT),
    _make_row("GetUnreadMessageCount", "INBOX.a%2Fb", lambda box: box.get_unread_message_count("INBOX.a/b"), _COUNT),
    _make_row("GetDeletedMessageCount", "INBOX.%252F", lambda box: box.get_deleted_message_count("INBOX.%2F"), _COUNT),
    _make_row(
        "GetMessagesByUIDs",
        "INBOX.a..b",
        lambda box: box.get_messages_by_uids("INBOX.a..b", [9, 9007199254740993]),
        _MESSAGES,
        uids=[9, 9007199254740993],
    ),
    _make_row("GetUnreadMessages", "INBOX.a%2Bb", lambda box: box.get_unread_messages("INBOX.a+b"), _MESSAGES),
    _make_row(
        "GetMessagesByReceivedDate",
        f"INBOX.a%3Fb/{_MILLISECONDS}",
        lambda box: box.get_messages_by_received_date("INBOX.a?b", _BEGIN, _END),
        _MESSAGES,
    ),
    _make_row(
        "GetMessagesByReceivedDateUTC",
        f"INBOX.a%23b/{_SECONDS}",
        lambda box: box.get_messages_by_received_date_utc("INBOX.a#b", _BEGIN, _END),
        _MESSAGES,
    ),
    _make_row(
        "GetMessagesBySender",
        "INBOX/o%27neil%2Bx%2Fy%3F%40example.test",
        lambda box: box.get_messages_by_sender("INBOX", "o'neil+x/y?@example.test"),
        _MESSAGES,
    ),
    _make_row(
        "GetMessagesBySubject",
        "INBOX/Re%3A%20100%25%20%22gr%C3%BCn%22%20%231%2F2%3F",
        lambda box: box.get_messages_by_subject("INBOX", 'Re: 100% "grün" #1/2?'),
        _MESSAGES,
    ),
    _make_row("GetMessages", "INBOX.a%22b", lambda box: box.get_messages('INBOX.a"b'), _MESSAGES),
    _make_row("GetMessageMetaData", "INBOX.a%27b", lambda box: box.get_message_metadata("INBOX.a'b"), _MESSAGES),
    _make_row(
        "SearchMessagesMetadataByReceivedDate",
        f"INBOX.a%20b/{_MILLISECONDS}",
        lambda box: box.search_messages_metadata_by_received_date("INBOX.a b", _BEGIN, _END),
        _MESSAGES,
    ),
    _make_row(
        "SearchMessagesMetadataByReceivedDateUTC",
        f"INBOX.%C3%A9/{_SECONDS}",
        lambda box: box.search_messages_metadata_by_received_date_utc("INBOX.é", _BEGIN, _END),
        _MESSAGES,
    ),
    _make_row("GetUIDs", "INBOX.%E6%97%A5%E6%9C%AC", lambda box: box.get_uids("INBOX.日本"), _UIDS),
    _make_row(
        "GetFolders", "INBOX.a%5Cb/true", lambda box: box.get_folders("INBOX.a\\b", subscribed_only=True), _FOLDERS
    ),
    _make_row(
        "SetFoldersSubscribed",
        "",
        lambda box: box.set_folders_subscribed(["INBOX.a/b", "INBOX.é"], subscribed=False),
        _FOLDERS,
        folders=["INBOX.a/b", "INBOX.é"],
        subscribed=False,
    ),
    _make_row("CreateFolder", "INBOX.a%2F..%2Fb", lambda box: box.create_folder("INBOX.a/../b"), _SUCCESS_RESPONSE),
    _make_row(
        "MoveFolder",
        "INBOX.a%2Fb/INBOX.c%20d",
        lambda box: box.move_folder("INBOX.a/b", "INBOX.c d"),
        _SUCCESS_RESPONSE,
    ),
    _make_row("DeleteFolder", "INBOX.a%26b%3Dc%3Bd", lambda box: box.delete_folder("INBOX.a&b=c;d"), _SUCCESS_RESPONSE),
    _make_row(
        "CopyMessagesByUIDs",
        "INBOX/INBOX.a%2Fb",
        lambda box: box.copy_messages_by_uids("INBOX", "INBOX.a/b", [1, 2]),
        _SUCCESS_RESPONSE,
        uids=[1, 2],
    ),
    _make_row(
        "MoveMessagesByUIDs",
        "INBOX.a%2Fb/INBOX.%25",
        lambda box: box.move_messages_by_uids("INBOX.a/b", "INBOX.%", [1]),
        _SUCCESS_RESPONSE,
        uids=[1],
    ),
    _make_row(
        "DeleteMessagesByUIDs",
        "INBOX.a%3Cb%3E/true",
        lambda box: box.delete_messages_by_uids("INBOX.a<b>", [1], forever=True),
        _SUCCESS_RESPONSE,
        uids=[1],
    ),
    _make_row(
        "MarkMessagesAsReadByUIDs",
        "INBOX.a%7Cb",
        lambda box: box.mark_messages_as_read_by_uids("INBOX.a|b", [1]),
        _SUCCESS_RESPONSE,
        uids=[1],
    ),
    _make_row(
        "MarkMessagesAsUnreadByUIDs",
        "INBOX.a%5Bb%5D",
        lambda box: box.mark_messages_as_unread_by_uids("INBOX.a[b]", [1]),
        _SUCCESS_RESPONSE,
        uids=[1],
    ),
    _make_row(
        "GetRawMessagesByUIDs",
        "INBOX.a%7Bb%7D",
        lambda box: box.get_raw_messages_by_uids("INBOX.a{b}", [1]),
        _MESSAGES,
        uids=[1],
    ),
    _make_row(
        "SaveRawMessages",
        "INBOX.a-b_c~d",
        lambda box: box.save_raw_messages(
            "INBOX.a-b_c~d",
            [
                ds.RawMessage(data=b"Subject: a\r\n\r\n\xff"),
                ds.RawMessage(uid=7, msg_id="<7@direct.example.test>", folder="INBOX", data=b"b"),
            ],
        ),
        _SUCCESS_RESPONSE,
        messages=[
            {"data": "U3ViamVjdDogYQ0KDQr/"},
            {"uid": 7, "msgID": "<7@direct.example.test>", "folder": "INBOX", "data": "Yg=="},
        ],
    ),
]
