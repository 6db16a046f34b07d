"""The operations on messages over HTTP: counts, retrieval, copying, moving, deleting, marking, raw messages."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from directsuite.sandbox.messaging import mailboxes
from tests.sandbox.messaging.mailbox_server import (
    ALICE,
    NOON_MS,
    RAW_MESSAGE,
    MessagingServer,
    deliver_many,
    encode_base64,
)

if TYPE_CHECKING:
    import sqlite3


async def test_messages_are_counted(mail: MessagingServer) -> None:
    await deliver_many(mail, 4)
    await mail.call_ok("MarkMessagesAsReadByUIDs", "INBOX", uids=[1, 2])
    await mail.call_ok("MarkMessagesAsUnreadByUIDs", "INBOX", uids=[2])
    for operation, count in (("GetMessageCount", 4), ("GetUnreadMessageCount", 3), ("GetDeletedMessageCount", 0)):
        assert (await mail.call_ok(operation, "INBOX"))["count"] == count
    await mail.call_ok("DeleteMessagesByUIDs", "INBOX", "0", uids=[1, 4])
    assert (await mail.call_ok("GetDeletedMessageCount", "INBOX.Trash"))["count"] == 2


async def test_a_message_has_all_members_of_the_specification(mail: MessagingServer) -> None:
    await deliver_many(mail, 1)
    (found,) = await mail.get_messages()
    assert found == {
        "uid": 1,
        "msgnum": 1,
        "folder": "INBOX",
        "expunged": False,
        "sentDate": None,
        "receivedDate": "2026-05-01T12:00:00.000+0000",
        "sender": "carol@elsewhere.test",
        "subject": "Results 1",
        "body": "Fine.\r\n",
        "htmlBody": False,
        "recipients": [{"email": ALICE, "type": "TO"}],
        "attachments": [],
        "msgID": "<r@x>",
        "size": len(RAW_MESSAGE) + 2,
        "replyTo": None,
        "headers": [
            {"name": "From", "value": "carol@elsewhere.test"},
            {"name": "To", "value": ALICE},
            {"name": "Subject", "value": "Results 1"},
            {"name": "Message-ID", "value": "<r@x>"},
        ],
    }


async def test_metadata_has_no_body_and_no_attachment_content(mail: MessagingServer) -> None:
    attachment = {"filename": "ccd.xml", "contentType": "text/xml; name=ccd.xml", "content": encode_base64(b"<a/>")}
    await mail.send(attachmentList=[attachment])
    (found,) = (await mail.call_ok("GetMessageMetaData", "INBOX.Sent"))["messages"]
    assert found["body"] is None
    assert found["attachments"] == [{"filename": "ccd.xml", "contentType": "text/xml; name=ccd.xml"}]
    (found,) = await mail.get_messages("INBOX.Sent")
    assert found["attachments"] == [attachment]


async def test_unknown_uids_are_skipped_and_results_ascend(mail: MessagingServer) -> None:
    await deliver_many(mail, 4)
    response = await mail.call_ok("GetMessagesByUIDs", "INBOX", uids=[4, 2, 99, 2, 0])
    assert [(found["uid"], found["msgnum"]) for found in response["messages"]] == [(2, 2), (4, 4)]
    assert (await mail.call_ok("GetMessagesByUIDs", "INBOX", uids=[99]))["messages"] == []
    raw = await mail.call_ok("GetRawMessagesByUIDs", "INBOX", uids=[3, 1, 3, 99])
    assert [found["uid"] for found in raw["messages"]] == [1, 3]


async def test_reading_does_not_mark_as_read(mail: MessagingServer) -> None:
    await deliver_many(mail, 2)
    await mail.get_messages()
    await mail.call_ok("GetRawMessagesByUIDs", "INBOX", uids=[1, 2])
    await mail.call_ok("MarkMessagesAsReadByUIDs", "INBOX", uids=[1])
    assert [found["uid"] for found in (await mail.call_ok("GetUnreadMessages", "INBOX"))["messages"]] == [2]


MS, UTC_FORM = "GetMessagesByReceivedDate", "GetMessagesByReceivedDateUTC"


async def test_received_dates_are_inclusive(mail: MessagingServer) -> None:
    for _ in range(3):
        await deliver_many(mail, 1)
        mail.clock.advance(timedelta(minutes=1))
    cases: list[tuple[str, str, str, list[int]]] = [
        (MS, str(NOON_MS), str(NOON_MS), [1]),
        (MS, str(NOON_MS + 1), str(NOON_MS + 60_000), [2]),
        (MS, "0", "0", [1, 2, 3]),
        (MS, "0", "253402300799000", [1, 2, 3]),
        (MS, str(NOON_MS + 120_000), str(NOON_MS), []),
        (UTC_FORM, "20260501120000", "20260501120000", [1]),
        (UTC_FORM, "20260501115959", "20260501115959", []),
        (UTC_FORM, "20260501120001", "20260501120200", [2, 3]),
        (UTC_FORM, "19700101000000", "99991231235959", [1, 2, 3]),
    ]
    for operation, begin, end, uids in cases:
        whole = await mail.call_ok(operation, "INBOX", begin, end)
        assert [found["uid"] for found in whole["messages"]] == uids, (operation, begin, end, uids)
        metadata = await mail.call_ok(operation.replace("GetMessages", "SearchMessagesMetadata"), "INBOX", begin, end)
        assert [(found["uid"], found["body"]) for found in metadata["messages"]] == [(uid, None) for uid in uids], (
            operation
        )


@pytest.mark.parametrize(("millisecond", "found"), [(0, True), (500, True), (999, True), (1000, False)])
async def test_the_utc_form_covers_the_whole_second_it_names(
    mail: MessagingServer, millisecond: int, found: bool
) -> None:
    mail.clock.advance(timedelta(milliseconds=millisecond))
    await deliver_many(mail, 1)
    response = await mail.call_ok(UTC_FORM, "INBOX", "20260501120000", "20260501120000")
    assert len(response["messages"]) == found


async def test_invalid_times_are_rejected(mail: MessagingServer) -> None:
    cases: list[tuple[str, str, list[str]]] = [
        ("", "0", ["", "now", "1.5", "1" * 19, "٣", "2026-05-01"]),
        ("UTC", "20260501120000", ["", "0", "20260230000000", "202605011200", "2026050112000x", "00000101000000"]),
    ]
    for suffix, valid, times in cases:
        for time in times:
            assert await mail.call_rejected(f"GetMessagesByReceivedDate{suffix}", "INBOX", time, valid) == 4, suffix
            assert (
                await mail.call_rejected(f"SearchMessagesMetadataByReceivedDate{suffix}", "INBOX", valid, time) == 4
            ), (suffix, valid, times)


async def test_filters_find_text_in_decoded_headers(mail: MessagingServer) -> None:
    raw = (
        b"From: =?utf-8?q?Dr=2E_M=C3=BCller?= <carol@elsewhere.test>\r\nSubject: 100% a/b =?utf-8?b?w7xiZXI=?=\r\n\r\n"
    )
    await mail.sandbox.deliver(ALICE, raw)
    for operation, text, found in (
        *(("GetMessagesBySender", "CAROL@", True), ("GetMessagesBySender", "Dr. Müller", True)),
        *(("GetMessagesBySender", "dave", False), ("GetMessagesBySubject", "100% a/b", True)),
        *(("GetMessagesBySubject", "ÜBER", True), ("GetMessagesBySubject", "a%2Fb", False)),
        ("GetMessagesBySubject", "", True),
    ):
        assert len((await mail.call_ok(operation, "INBOX", text))["messages"]) == found, (operation, text, found)


async def test_copies_get_new_uids_and_keep_flags_and_dates(mail: MessagingServer) -> None:
    await mail.call_ok("CreateFolder", "INBOX.A")
    await deliver_many(mail, 3)
    await mail.call_ok("MarkMessagesAsReadByUIDs", "INBOX", uids=[3])
    mail.clock.advance(timedelta(hours=5))
    await mail.call_ok("CopyMessagesByUIDs", "INBOX", "INBOX.A", uids=[3, 1, 7])
    copies = await mail.get_messages("INBOX.A")
    assert [(c["uid"], c["subject"]) for c in copies] == [(1, "Results 1"), (2, "Results 3")]
    assert {c["receivedDate"] for c in copies} == {"2026-05-01T12:00:00.000+0000"}
    assert (await mail.call_ok("GetUnreadMessageCount", "INBOX.A"))["count"] == 1
    assert await mail.get_uids() == [1, 2, 3]
    await mail.call_ok("CopyMessagesByUIDs", "INBOX", "inbox", uids=[1])  # has no effect
    (effect,) = await mail.list_effects("CopyMessagesByUIDs")
    assert (effect["detail"]["uids"], effect["detail"]["new_uids"]) == ([1, 3], [1, 2])


async def test_marking_is_recorded_for_messages_that_it_changed(mail: MessagingServer) -> None:
    await deliver_many(mail, 2)
    for operation in ("MarkMessagesAsReadByUIDs", "MarkMessagesAsUnreadByUIDs"):
        for uids in ([1], [1], [1, 2], [1, 2]):
            await mail.call_ok(operation, "INBOX", uids=uids)
        recorded = [effect["detail"]["uids"] for effect in await mail.list_effects(operation)]
        assert recorded == ([[1], [2]])


async def test_messages_are_moved_to_the_trash_or_deleted(mail: MessagingServer) -> None:
    await deliver_many(mail, 3)
    await mail.call_ok("DeleteMessagesByUIDs", "INBOX", "false", uids=[1])
    await mail.call_ok("DeleteMessagesByUIDs", "INBOX", "TRUE", uids=[2])
    assert (await mail.get_uids(), await mail.get_uids("INBOX.Trash")) == ([3], [1])
    await mail.call_ok("DeleteMessagesByUIDs", "INBOX.Trash", "false", uids=[1])
    assert await mail.get_uids("INBOX.Trash") == [1]
    await mail.call_ok("DeleteMessagesByUIDs", "INBOX.Trash", "1", uids=[1])
    assert await mail.get_uids("INBOX.Trash") == []
    assert [effect["detail"]["uids"] for effect in await mail.list_effects("DeleteMessagesByUIDs")] == [[1], [2], [1]]


async def test_raw_messages_are_found_without_reading_their_folder(mail: MessagingServer) -> None:
    await deliver_many(mail, 200)

    def count_steps(connection: sqlite3.Connection) -> int:
        folder = mailboxes.get_folder(connection, mailboxes.get_account_id(connection, ALICE), "INBOX").id
        steps = list[None]()
        connection.set_progress_handler(lambda: steps.append(None), 1)  # for each instruction of SQLite
        try:
            [found] = mailboxes.list_messages(connection, folder, mailboxes.Selection(uids=[150]), "raw")
        finally:
            connection.set_progress_handler(None, 0)
        assert found["octets"] == RAW_MESSAGE.replace(b"Results", b"Results 150")
        return len(steps)

    assert await mail.database.read(count_steps) < 200


async def test_saved_raw_messages_are_appended_unread_byte_for_byte(mail: MessagingServer) -> None:
    raws = [RAW_MESSAGE, b"", b"\xff\x00 not mail at all\r\r\n"]
    saved = [{"uid": 77, "msgID": "<other>", "folder": "INBOX.Spam", "data": encode_base64(raw)} for raw in raws]
    await mail.call_ok("SaveRawMessages", "INBOX.Drafts", messages=saved)
    response = await mail.call_ok("GetRawMessagesByUIDs", "INBOX.Drafts", uids=[1, 2, 3])
    assert response["messages"] == [
        {"uid": uid, "msgID": "<r@x>" if uid == 1 else None, "folder": "INBOX.Drafts", "data": encode_base64(raw)}
        for uid, raw in enumerate(raws, start=1)
    ]
    assert (await mail.call_ok("GetUnreadMessageCount", "INBOX.Drafts"))["count"] == 3
    assert (await mail.list_effects("SaveRawMessages"))[0]["detail"]["uids"] == [1, 2, 3]


async def test_raw_messages_are_saved_all_or_none(mail: MessagingServer) -> None:
    saved = [{"data": encode_base64(RAW_MESSAGE)}, {"data": "not base64!"}]
    assert await mail.call_rejected("SaveRawMessages", "INBOX", messages=saved) == 4
    assert await mail.call_rejected("SaveRawMessages", "INBOX.Missing", messages=saved[:1]) == 3
    assert await mail.get_uids() == []
