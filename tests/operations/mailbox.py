"""The operations of the messaging service that read and change a mailbox (specification 4.C)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, cast

import pytest

import directsuite as ds
from tests.integration.scenario import NOON, make_raw_message

from .case import JSON, USERNAME, OperationCase
from .sending import AUTHENTICATION, SUCCESS

if TYPE_CHECKING:
    from tests.integration.scenario import Scenario

_PATH_PARAMETERS = ("folder", "root", "sender", "subject", "new_folder", "dest_folder")
_HOUR = timedelta(hours=1)
_SECOND = timedelta(seconds=1)


def _list_subjects(messages: list[ds.MessageDetail]) -> list[str | None]:
    return [message.subject for message in messages]


async def _get_message_count(scenario: Scenario) -> None:
    await scenario.deliver("a", "b", "c")
    assert await scenario.box.get_message_count() == 3
    assert await scenario.box.get_message_count("INBOX.Sent") == 0


async def _get_unread_message_count(scenario: Scenario) -> None:
    uids = await scenario.deliver("a", "b", "c")
    await scenario.box.mark_messages_as_read_by_uids("INBOX", uids[:2])
    assert await scenario.box.get_unread_message_count() == 1


async def _get_deleted_message_count(scenario: Scenario) -> None:
    uids = await scenario.deliver("a", "b", "c")
    await scenario.box.delete_messages_by_uids("INBOX", uids[:2])
    assert await scenario.box.get_deleted_message_count("INBOX.Trash") == 2
    assert await scenario.box.get_deleted_message_count() == 0


async def _get_messages_by_uids(scenario: Scenario) -> None:
    uids = await scenario.deliver("a", "b", "c")
    (message,) = await scenario.box.get_messages_by_uids("INBOX", [uids[1], 999])
    assert (message.uid, message.subject, message.folder) == (uids[1], "b", "INBOX")
    assert (message.sender, (message.body or "").strip()) == ("carol@elsewhere.test", "About b.")
    assert (message.received_date, message.sent_date) == (NOON, NOON - _HOUR)


async def _get_unread_messages(scenario: Scenario) -> None:
    uids = await scenario.deliver("a", "b", "c")
    await scenario.box.mark_messages_as_read_by_uids("INBOX", uids[:1])
    assert _list_subjects(await scenario.box.get_unread_messages()) == ["b", "c"]
    assert _list_subjects(await scenario.box.get_unread_messages()) == ["b", "c"]  # reading marks nothing as read


async def _check_date_search(scenario: Scenario, search: Callable[..., Awaitable[list[ds.MessageDetail]]]) -> None:
    await scenario.deliver("at noon")
    scenario.sandbox.clock.advance(_HOUR)
    await scenario.deliver("at one")
    one = NOON + _HOUR
    for begin, end, found in (
        (None, None, ["at noon", "at one"]),
        (NOON, one, ["at noon", "at one"]),
        (NOON, NOON, ["at noon"]),
        (NOON + _SECOND, one, ["at one"]),
        (None, one - _SECOND, ["at noon"]),
        (one + _SECOND, None, list[str]()),
    ):
        assert _list_subjects(await search("INBOX", begin, end)) == found


async def _get_messages_by_received_date(scenario: Scenario) -> None:
    await _check_date_search(scenario, scenario.box.get_messages_by_received_date)


async def _get_messages_by_received_date_utc(scenario: Scenario) -> None:
    await _check_date_search(scenario, scenario.box.get_messages_by_received_date_utc)


async def _search_messages_metadata_by_received_date(scenario: Scenario) -> None:
    await _check_date_search(scenario, scenario.box.search_messages_metadata_by_received_date)
    assert (await scenario.box.search_messages_metadata_by_received_date("INBOX", None, None))[0].body is None


async def _search_messages_metadata_by_received_date_utc(scenario: Scenario) -> None:
    await _check_date_search(scenario, scenario.box.search_messages_metadata_by_received_date_utc)
    assert (await scenario.box.search_messages_metadata_by_received_date_utc("INBOX", None, None))[0].body is None


async def _get_messages_by_sender(scenario: Scenario) -> None:
    await scenario.deliver("a", sender="dan@x.test")
    await scenario.deliver("b")
    assert _list_subjects(await scenario.box.get_messages_by_sender("INBOX", "dan@x.test")) == ["a"]


async def _get_messages_by_subject(scenario: Scenario) -> None:
    await scenario.deliver("50% of #1 + a?", "other")
    assert _list_subjects(await scenario.box.get_messages_by_subject("INBOX", "50% of #1 + a?")) == ["50% of #1 + a?"]


async def _get_messages(scenario: Scenario) -> None:
    await scenario.deliver("a", "b")
    assert _list_subjects(await scenario.box.get_messages()) == ["a", "b"]


async def _get_message_metadata(scenario: Scenario) -> None:
    await scenario.deliver("a", "b")
    metadata = await scenario.box.get_message_metadata()
    assert _list_subjects(metadata) == ["a", "b"]
    assert [message.body for message in metadata] == [None, None]


async def _get_uids(scenario: Scenario) -> None:
    uids = await scenario.deliver("a", "b", "c")
    await scenario.box.delete_messages_by_uids("INBOX", uids[:1])
    assert await scenario.box.get_uids() == uids[1:]


async def _get_folders(scenario: Scenario) -> None:
    await scenario.box.create_folder("INBOX.a.b")
    assert {"INBOX.a", "INBOX.a.b", "INBOX.Sent"} <= set(await scenario.box.get_folders())
    assert await scenario.box.get_folders("INBOX.a") == ["INBOX.a.b"]


async def _set_folders_subscribed(scenario: Scenario) -> None:
    await scenario.box.create_folder("INBOX.a")
    assert await scenario.box.set_folders_subscribed(["INBOX.a"], False) == ["INBOX.a"]
    assert "INBOX.a" not in await scenario.box.get_folders(subscribed_only=True)
    assert "INBOX.a" in await scenario.box.get_folders()


async def _create_folder(scenario: Scenario) -> None:
    for folder in ("INBOX.a", "INBOX.with space & ünïcode", "INBOX.a/b?c#d%2F"):
        await scenario.box.create_folder(folder)
        assert folder in await scenario.box.get_folders()


async def _move_folder(scenario: Scenario) -> None:
    await scenario.box.create_folder("INBOX.a")
    uids = await scenario.deliver("kept", folder="INBOX.a")
    await scenario.box.move_folder("INBOX.a", "INBOX.b")
    assert await scenario.box.get_uids("INBOX.b") == uids
    assert "INBOX.a" not in await scenario.box.get_folders()


async def _delete_folder(scenario: Scenario) -> None:
    await scenario.box.create_folder("INBOX.a.b")
    await scenario.box.delete_folder("INBOX.a")
    assert not {"INBOX.a", "INBOX.a.b"} & set(await scenario.box.get_folders())


async def _copy_messages_by_uids(scenario: Scenario) -> None:
    await scenario.box.create_folder("INBOX.a")
    uids = await scenario.deliver("x", "y")
    await scenario.box.copy_messages_by_uids("INBOX", "INBOX.a", uids)
    assert _list_subjects(await scenario.box.get_messages("INBOX.a")) == ["x", "y"]
    assert await scenario.box.get_uids() == uids


async def _move_messages_by_uids(scenario: Scenario) -> None:
    await scenario.box.create_folder("INBOX.a")
    uids = await scenario.deliver("x", "y")
    await scenario.box.move_messages_by_uids("INBOX", "INBOX.a", uids[:1])
    assert _list_subjects(await scenario.box.get_messages("INBOX.a")) == ["x"]
    assert await scenario.box.get_uids() == uids[1:]


async def _delete_messages_by_uids(scenario: Scenario) -> None:
    uids = await scenario.deliver("x", "y")
    await scenario.box.delete_messages_by_uids("INBOX", uids[:1])
    await scenario.box.delete_messages_by_uids("INBOX", uids[1:], forever=True)
    assert await scenario.box.get_uids() == []
    assert _list_subjects(await scenario.box.get_messages("INBOX.Trash")) == ["x"]


async def _mark_messages_as_read_by_uids(scenario: Scenario) -> None:
    uids = await scenario.deliver("x", "y")
    await scenario.box.mark_messages_as_read_by_uids("INBOX", uids[:1])
    assert _list_subjects(await scenario.box.get_unread_messages()) == ["y"]


async def _mark_messages_as_unread_by_uids(scenario: Scenario) -> None:
    uids = await scenario.deliver("x", "y")
    await scenario.box.mark_messages_as_read_by_uids("INBOX", uids)
    await scenario.box.mark_messages_as_unread_by_uids("INBOX", uids[:1])
    assert _list_subjects(await scenario.box.get_unread_messages()) == ["x"]


async def _get_raw_messages_by_uids(scenario: Scenario) -> None:
    uids = await scenario.deliver("x", "y")
    first, second = await scenario.box.get_raw_messages_by_uids("INBOX", uids)
    assert (first.uid, first.folder, first.msg_id) == (uids[0], "INBOX", "<x@elsewhere.test>")
    assert first.data == make_raw_message("x")
    assert second.to_email()["Subject"] == "y"


async def _save_raw_messages(scenario: Scenario) -> None:
    await scenario.box.create_folder("INBOX.a")
    await scenario.box.save_raw_messages("INBOX.a", [ds.RawMessage(data=make_raw_message("x"))])
    assert _list_subjects(await scenario.box.get_messages("INBOX.a")) == ["x"]
    with pytest.raises(ds.ServiceError):
        await scenario.box.save_raw_messages("INBOX.nowhere", [ds.RawMessage(data=make_raw_message("x"))])


_BEGIN = datetime(2026, 5, 1, 12, 0, 0, 123000, tzinfo=UTC)
_END = datetime(2026, 5, 2, 2, 0, 0, 500000, tzinfo=timezone(timedelta(hours=2)))
_MILLISECONDS = "1777636800123/1777680000500"
_SECONDS = "20260501120000/20260502000001"  # the range widens to whole seconds
_ALL_MILLISECONDS = "0/253402300799000"
_ALL_SECONDS = "19700101000000/99991231235959"

_COUNT = SUCCESS | {"count": 3}
_FOLDERS = SUCCESS | {"folders": ["INBOX.a", "INBOX.a.b"]}
_MESSAGES = SUCCESS | {
    "messages": [
        {
            "uid": 7,
            "msgnum": 1,
            "msgID": "<m@direct.example.test>",
            "folder": "INBOX",
            "expunged": False,
            "size": 120,
            "sentDate": "2026-05-01T12:00:00.000+0000",
            "receivedDate": 1777636800123,
            "replyTo": None,
            "headers": [{"name": "X-Seen", "value": "yes"}],
            "sender": "bob@direct.example.test",
            "subject": "Referral",
            "body": "Please see her.",
            "htmlBody": False,
            "recipients": [{"email": USERNAME, "type": "TO"}],
            "attachments": [{"content": "PGEvPg==", "contentType": 'text/xml; name="a b.xml"', "filename": "a b.xml"}],
        }
    ]
}
_DETAILS = [
    ds.MessageDetail(
        uid=7,
        msgnum=1,
        msg_id="<m@direct.example.test>",
        folder="INBOX",
        expunged=False,
        size=120,
        sent_date=datetime(2026, 5, 1, 12, tzinfo=UTC),
        received_date=_BEGIN,
        headers=[ds.MessageHeader("X-Seen", "yes")],
        sender="bob@direct.example.test",
        subject="Referral",
        body="Please see her.",
        html_body=False,
        recipients=[ds.Recipient(USERNAME)],
        attachments=[ds.Attachment(content=b"<a/>", content_type='text/xml; name="a b.xml"', filename="a b.xml")],
    )
]


_FOUND = (_MESSAGES, _DETAILS)
_DONE = (SUCCESS, None)


def _make_case(
    path: str, arguments: Mapping[str, object], response: object, result: object, exercise: Any, **members: object
) -> OperationCase:
    """Return the row of a POST whose body is the Authentication, or `auth` and other members if there are any.

    exercise: named like the method, after an underscore.
    """
    members |= {each: arguments[each] for each in ("uids", "folders", "subscribed") if each in arguments}
    return OperationCase(
        name=path.partition("/")[0],
        method="POST",
        facade="mailbox",
        function=exercise.__name__[1:],
        arguments=arguments,
        path_texts=tuple(each for each in _PATH_PARAMETERS if each in arguments),
        target=f"/message/{path}",
        headers=JSON,
        body={"auth": AUTHENTICATION, **members} if members else AUTHENTICATION,
        response=response,
        result=result,
        required=tuple(each for each in ("count", "uids", "folders") if each in cast("dict[str, object]", response)),
        exercise=exercise,
    )


MAILBOX = [
    _make_case("GetMessageCount/INBOX", {"folder": "INBOX"}, _COUNT, 3, _get_message_count),
    _make_case("GetUnreadMessageCount/INBOX.a%2Fb", {"folder": "INBOX.a/b"}, _COUNT, 3, _get_unread_message_count),
    _make_case("GetDeletedMessageCount/INBOX.%252F", {"folder": "INBOX.%2F"}, _COUNT, 3, _get_deleted_message_count),
    _make_case(
        "GetMessagesByUIDs/INBOX.a..b",
        {"folder": "INBOX.a..b", "uids": [9, 9007199254740993]},
        *_FOUND,
        _get_messages_by_uids,
    ),
    _make_case("GetUnreadMessages/INBOX.a%2Bb", {"folder": "INBOX.a+b"}, *_FOUND, _get_unread_messages),
    _make_case(
        f"GetMessagesByReceivedDate/INBOX.a%3Fb/{_MILLISECONDS}",
        {"folder": "INBOX.a?b", "begin": _BEGIN, "end": _END},
        *_FOUND,
        _get_messages_by_received_date,
    ),
    _make_case(
        f"GetMessagesByReceivedDateUTC/INBOX.a%23b/{_SECONDS}",
        {"folder": "INBOX.a#b", "begin": _BEGIN, "end": _END},
        *_FOUND,
        _get_messages_by_received_date_utc,
    ),
    _make_case(
        "GetMessagesBySender/INBOX/o%27neil%2Bx%2Fy%3F%40example.test",
        {"folder": "INBOX", "sender": "o'neil+x/y?@example.test"},
        *_FOUND,
        _get_messages_by_sender,
    ),
    _make_case(
        "GetMessagesBySubject/INBOX/Re%3A%20100%25%20%22gr%C3%BCn%22%20%231%2F2%3F",
        {"folder": "INBOX", "subject": 'Re: 100% "grün" #1/2?'},
        *_FOUND,
        _get_messages_by_subject,
    ),
    _make_case("GetMessages/INBOX.a%22b", {"folder": 'INBOX.a"b'}, *_FOUND, _get_messages),
    _make_case("GetMessageMetaData/INBOX.a%27b", {"folder": "INBOX.a'b"}, *_FOUND, _get_message_metadata),
    _make_case(
        f"SearchMessagesMetadataByReceivedDate/INBOX.a%20b/{_MILLISECONDS}",
        {"folder": "INBOX.a b", "begin": _BEGIN, "end": _END},
        *_FOUND,
        _search_messages_metadata_by_received_date,
    ),
    _make_case(
        f"SearchMessagesMetadataByReceivedDateUTC/INBOX.%C3%A9/{_SECONDS}",
        {"folder": "INBOX.é", "begin": _BEGIN, "end": _END},
        *_FOUND,
        _search_messages_metadata_by_received_date_utc,
    ),
    _make_case(
        "GetUIDs/INBOX.%E6%97%A5%E6%9C%AC",
        {"folder": "INBOX.日本"},
        SUCCESS | {"uids": [9, 1, "5", 0, 9, 2**63 - 1]},
        [0, 1, 5, 9, 2**63 - 1],
        _get_uids,
    ),
    _make_case(
        "GetFolders/INBOX.a%5Cb/true",
        {"root": "INBOX.a\\b", "subscribed_only": True},
        _FOLDERS,
        ["INBOX.a", "INBOX.a.b"],
        _get_folders,
    ),
    _make_case(
        "SetFoldersSubscribed/",
        {"folders": ["INBOX.a/b", "INBOX.é"], "subscribed": False},
        _FOLDERS,
        ["INBOX.a", "INBOX.a.b"],
        _set_folders_subscribed,
    ),
    _make_case("CreateFolder/INBOX.a%2F..%2Fb", {"folder": "INBOX.a/../b"}, *_DONE, _create_folder),
    _make_case(
        "MoveFolder/INBOX.a%2Fb/INBOX.c%20d", {"folder": "INBOX.a/b", "new_folder": "INBOX.c d"}, *_DONE, _move_folder
    ),
    _make_case("DeleteFolder/INBOX.a%26b%3Dc%3Bd", {"folder": "INBOX.a&b=c;d"}, *_DONE, _delete_folder),
    _make_case(
        "CopyMessagesByUIDs/INBOX/INBOX.a%2Fb",
        {"folder": "INBOX", "dest_folder": "INBOX.a/b", "uids": [1, 2]},
        *_DONE,
        _copy_messages_by_uids,
    ),
    _make_case(
        "MoveMessagesByUIDs/INBOX.a%2Fb/INBOX.%25",
        {"folder": "INBOX.a/b", "dest_folder": "INBOX.%", "uids": [1]},
        *_DONE,
        _move_messages_by_uids,
    ),
    _make_case(
        "DeleteMessagesByUIDs/INBOX.a%3Cb%3E/true",
        {"folder": "INBOX.a<b>", "uids": [1], "forever": True},
        *_DONE,
        _delete_messages_by_uids,
    ),
    _make_case(
        "MarkMessagesAsReadByUIDs/INBOX.a%7Cb",
        {"folder": "INBOX.a|b", "uids": [1]},
        *_DONE,
        _mark_messages_as_read_by_uids,
    ),
    _make_case(
        "MarkMessagesAsUnreadByUIDs/INBOX.a%5Bb%5D",
        {"folder": "INBOX.a[b]", "uids": [1]},
        *_DONE,
        _mark_messages_as_unread_by_uids,
    ),
    _make_case(
        "GetRawMessagesByUIDs/INBOX.a%7Bb%7D",
        {"folder": "INBOX.a{b}", "uids": [1]},
        SUCCESS | {"messages": [{"uid": 7, "msgID": None, "folder": "INBOX", "data": "U3ViamVjdDogSGkN\r\nCg0KSGk="}]},
        [ds.RawMessage(uid=7, folder="INBOX", data=b"Subject: Hi\r\n\r\nHi")],
        _get_raw_messages_by_uids,
    ),
    _make_case(
        "SaveRawMessages/INBOX.a-b_c~d",
        {
            "folder": "INBOX.a-b_c~d",
            "messages": [
                ds.RawMessage(data=b"Subject: a\r\n\r\n\xff"),
                ds.RawMessage(uid=7, msg_id="<7@direct.example.test>", folder="INBOX", data=b"b"),
            ],
        },
        *_DONE,
        _save_raw_messages,
        messages=[
            {"data": "U3ViamVjdDogYQ0KDQr/"},
            {"uid": 7, "msgID": "<7@direct.example.test>", "folder": "INBOX", "data": "Yg=="},
        ],
    ),
]

_WITHOUT_BOUNDS = {"folder": "INBOX", "begin": None, "end": None}

MAILBOX_VARIANTS = [
    *(
        _make_case(f"{name}/INBOX/{bounds}", _WITHOUT_BOUNDS, *_FOUND, exercise)
        for name, bounds, exercise in (
            ("GetMessagesByReceivedDate", _ALL_MILLISECONDS, _get_messages_by_received_date),
            ("GetMessagesByReceivedDateUTC", _ALL_SECONDS, _get_messages_by_received_date_utc),
            ("SearchMessagesMetadataByReceivedDate", _ALL_MILLISECONDS, _search_messages_metadata_by_received_date),
            ("SearchMessagesMetadataByReceivedDateUTC", _ALL_SECONDS, _search_messages_metadata_by_received_date_utc),
        )
    ),
    _make_case("GetFolders/INBOX/false", {}, _FOLDERS, ["INBOX.a", "INBOX.a.b"], _get_folders),
    _make_case("DeleteMessagesByUIDs/INBOX/false", {"folder": "INBOX", "uids": [1]}, *_DONE, _delete_messages_by_uids),
]
