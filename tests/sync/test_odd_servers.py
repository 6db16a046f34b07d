"""Responses that contradict each other: they delete and reload nothing, and everything else is synchronised."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest

from directsuite.sync import Kind, Synchronizer, SyncStatus
from tests.sync.mail_service import ADDRESS, RECEIVED_MS, Document, MailScenario, get_password, make_message

BEFORE_1970_MS = -86_400_000
LAST_MS = 253_402_300_799_000


def without(member: str) -> Callable[[str, Document], Document]:
    return lambda _, document: {name: value for name, value in document.items() if name != member}


def with_member(member: str, value: Any) -> Callable[[str, Document], Document]:
    return lambda _, document: document | {member: value}


def with_metadata(**changed: Callable[[Any], Any]) -> Callable[[str, Document], Document]:
    def change(_: str, document: Document) -> Document:
        messages = [
            each | {name: function(each[name]) for name, function in changed.items()} for each in document["messages"]
        ]
        return document | {"messages": messages}

    return change


LOST_LISTS = {
    "no uids": without("uids"),
    "null": with_member("uids", None),
    "empty": with_member("uids", []),
    "some": with_member("uids", [1]),
    "most": with_member("uids", [1, 2, 3, 4]),
}


@pytest.mark.exhaustive(limit=1)
@pytest.mark.parametrize("listing", LOST_LISTS)
async def test_uids_missing_from_one_listing_delete_nothing(listing: str, mail: MailScenario) -> None:
    await mail.begin(1, 2, 3, 4, 5)
    mail.response_changes["GetUIDs"] = LOST_LISTS[listing]
    during = await mail.synchronise()
    mail.response_changes.clear()
    after = await mail.synchronise()
    assert mail.sink.kinds == [Kind.NEW] * 5
    assert list(during.folders) == ["INBOX"]
    assert "No deletions were reported" in during.folders["INBOX"]
    assert (after.status, after.folders) == (SyncStatus.UP_TO_DATE, {})


async def test_folder_that_every_operation_reports_as_deleted_is_gone(mail: MailScenario) -> None:
    mail.add("INBOX.Archive", 1, 2)
    await mail.begin(1)
    del mail.folders["INBOX.Archive"]
    await mail.synchronise()
    status = await mail.synchronise()
    assert mail.sink.messages == {("INBOX", 1)}
    assert (status.status, status.folders) == (SyncStatus.UP_TO_DATE, {})


@pytest.mark.exhaustive(limit=1)
@pytest.mark.parametrize("name", ["", ".", "..", "INBOX.a\0b"])
async def test_folder_that_no_request_can_name_is_skipped_and_reported(name: str, mail: MailScenario) -> None:
    mail.add("INBOX", 1)
    mail.add("INBOX.Sent", 1, 2)
    mail.response_changes["GetFolders"] = with_member("folders", ["INBOX", name, "INBOX.Sent"])
    first = await mail.synchronise()
    assert mail.sink.messages == {("INBOX", 1), ("INBOX.Sent", 1), ("INBOX.Sent", 2)}
    del mail.folders["INBOX.Sent"][1]
    second = await mail.synchronise()
    assert mail.sink.messages == {("INBOX", 1), ("INBOX.Sent", 2)}
    for status in (first, second):
        assert (status.status, list(status.folders)) == (SyncStatus.FAILING, [name])
        assert "GetFolders lists a folder whose name" in status.folders[name]


@pytest.mark.exhaustive(limit=2)
@pytest.mark.parametrize(
    ("folders", "others"),
    [
        (["INBOX", "INBOX"], set[str]()),
        (["INBOX", "inbox"], set[str]()),
        (["INBOX", f"INBOX.{'x' * 5000}"], {f"INBOX.{'x' * 5000}"}),
        (["INBOX", "INBOX.a\nb"], {"INBOX.a\nb"}),
        (["INBOX", " "], {" "}),
        (None, set[str]()),
        ("INBOX.Sent", set[str]()),
    ],
)
async def test_odd_list_of_folders_leaves_the_others_synchronised(
    folders: Any, others: set[str], mail: MailScenario
) -> None:
    mail.add("INBOX", 1)
    mail.add("inbox", 1)
    mail.add("INBOX.Sent", 1)
    mail.response_changes["GetFolders"] = with_member("folders", folders)
    status = await mail.synchronise()
    assert ("INBOX", 1) in mail.sink.messages
    assert status.folders.keys() == others


@pytest.mark.exhaustive(limit=1)
@pytest.mark.parametrize("received_ms", [BEFORE_1970_MS, -1, 0, LAST_MS, LAST_MS + 999])
async def test_message_received_before_1970_or_in_9999_stops_no_other(received_ms: int, mail: MailScenario) -> None:
    mail.add("INBOX", 1, receivedDate=received_ms)
    mail.add("INBOX", 2)
    await mail.synchronise()
    mail.add("INBOX", 3, receivedDate=received_ms)
    mail.add("INBOX.Sent", 1)
    await mail.synchronise()
    mail.clock.now += 700
    status = await mail.synchronise()
    assert (status.status, status.folders) == (SyncStatus.UP_TO_DATE, {})
    assert mail.sink.kinds == [Kind.NEW] * 4


def rejected(_folder: str, _document: Document) -> Document:
    return {"success": False, "code": 4, "message": "no"}


def counted_two_more(_folder: str, document: Document) -> Document:
    return document | {"count": document["count"] + 2}


UNREADABLE_FILE = {"attachments": [{"filename": "a.pdf", "contentType": "application/pdf", "content": "?"}]}


@pytest.mark.exhaustive(limit=2)
@pytest.mark.parametrize("unreadable", [{"body": {}}, UNREADABLE_FILE], ids=["body", "attachment"])
@pytest.mark.parametrize("has_metadata", [True, False])
async def test_unreadable_message_is_quarantined(unreadable: Document, has_metadata: bool, mail: MailScenario) -> None:
    mail.add("INBOX", 1, 3)
    mail.add("INBOX", 2, **unreadable)
    if not has_metadata:
        mail.response_changes["GetMessageMetaData"] = rejected
    status = await mail.synchronise()
    assert mail.sink.messages == {("INBOX", 1), ("INBOX", 3)}
    assert status.quarantined == 1


DIFFERENT_METADATA = {
    "size of -1": with_metadata(size=lambda _: -1),
    "other size": with_metadata(size=lambda size: size + 7),
    "date to the second": with_metadata(receivedDate=lambda ms: ms // 1000 * 1000),
    "date to the minute": with_metadata(receivedDate=lambda ms: ms // 60_000 * 60_000),
    "no date": with_metadata(receivedDate=lambda _: None),
    "no Message-ID": with_metadata(msgID=lambda _: None),
    "Message-ID without brackets": with_metadata(msgID=lambda text: text.strip("<>")),
    "no sender and subject": with_metadata(sender=lambda _: None, subject=lambda _: None),
}


@pytest.mark.exhaustive(limit=1)
@pytest.mark.parametrize("difference", DIFFERENT_METADATA)
async def test_metadata_that_differ_from_messages_move_nothing(difference: str, mail: MailScenario) -> None:
    mail.add("INBOX", *range(1, 31))
    for operation in ("GetMessageMetaData", "SearchMessagesMetadataByReceivedDate"):
        mail.response_changes[operation] = DIFFERENT_METADATA[difference]
    await mail.synchronise()
    for uid in range(31, 34):
        mail.fetched_uids.clear()
        mail.add("INBOX", uid)
        await mail.synchronise()
        assert len(mail.fetched_uids) <= 3  # the new message, and the two whose contents show that nothing has changed
    mail.now += 2 * 86_400
    await mail.synchronise()  # all messages are compared
    del mail.folders["INBOX"][7]
    mail.folders["INBOX"][40] = mail.folders["INBOX"].pop(8) | {"uid": 40}
    status = await mail.synchronise()
    assert mail.sink.kinds[:33] == [Kind.NEW] * 33
    assert sorted(mail.sink.kinds[33:]) == [Kind.GONE, Kind.MOVED]
    assert status.status is SyncStatus.UP_TO_DATE


async def test_message_whose_date_is_lost_in_one_response_is_the_same(mail: MailScenario) -> None:
    await mail.begin(1, 2, 3)
    mail.response_changes["GetMessagesByUIDs"] = with_metadata(receivedDate=lambda _: None)
    mail.response_changes["SearchMessagesMetadataByReceivedDate"] = with_metadata(msgID=lambda _: None)
    mail.now += 2 * 86_400
    mail.add("INBOX", 4)
    await mail.synchronise()
    assert mail.sink.kinds == [Kind.NEW] * 4


async def test_unfetchable_message_without_id_in_metadata_is_not_deleted(mail: MailScenario) -> None:
    for operation in ("GetMessageMetaData", "SearchMessagesMetadataByReceivedDate"):
        mail.response_changes[operation] = DIFFERENT_METADATA["no Message-ID"]
    await mail.begin(1)
    mail.response_changes["GetMessagesByUIDs"] = with_member("messages", [])
    for _ in range(3):
        mail.now += 2 * 86_400
        await mail.synchronise()
    assert mail.sink.kinds == [Kind.NEW]


async def test_date_without_milliseconds_is_within_the_searched_window(mail: MailScenario) -> None:
    mail.add("INBOX", 1, receivedDate=RECEIVED_MS + 999)
    change = with_metadata(receivedDate=lambda ms: ms // 1000 * 1000)
    mail.response_changes["SearchMessagesMetadataByReceivedDate"] = change
    await mail.synchronise()
    mail.add("INBOX", 2)
    mail.fetched_uids.clear()
    await mail.synchronise()
    assert mail.fetched_uids == [2]


def with_messages(uids: set[int], **changed: Any) -> Callable[[str, Document], Document]:
    return lambda _, document: (
        document | {"messages": [each | changed if each["uid"] in uids else each for each in document["messages"]]}
    )


async def lose(mail: MailScenario, *lost: int) -> None:
    mail.response_changes["GetUIDs"] = with_member("uids", [uid for uid in range(1, 11) if uid not in lost])
    status = await mail.synchronise()
    assert set(mail.sink.kinds) == {Kind.NEW}
    assert "No deletions were reported" in status.folders["INBOX"]


async def test_missing_message_that_is_unreadable_is_not_gone(mail: MailScenario) -> None:
    mail.add("INBOX", 5, **UNREADABLE_FILE)
    await mail.begin(1, 2, 3, 4, 6, 7, 8, 9, 10)
    await lose(mail, 5)


async def test_message_missing_beside_one_that_was_deleted_is_not_gone(mail: MailScenario) -> None:
    await mail.begin(*range(1, 11))
    del mail.folders["INBOX"][5]
    mail.response_changes["GetMessagesByUIDs"] = lambda _, document: (
        rejected("", document) if mail.fetched_uids[-1] == 5 or mail.fetched_uids[-2:] == [5, 6] else document
    )
    await lose(mail, 5, 6)


@pytest.mark.exhaustive(limit=1)
@pytest.mark.parametrize("count", [rejected, counted_two_more], ids=["rejected", "too high"])
async def test_deletions_are_seen_although_the_count_is_unusable(
    count: Callable[[str, Document], Document], mail: MailScenario
) -> None:
    mail.response_changes["GetMessageCount"] = count
    await mail.begin(*range(1, 11))
    for uid in range(1, 6):
        del mail.folders["INBOX"][uid]
    status = await mail.synchronise()
    assert mail.sink.messages == {("INBOX", uid) for uid in range(6, 11)}
    assert status.status is SyncStatus.UP_TO_DATE


async def test_rejected_count_and_empty_listings_delete_nothing(mail: MailScenario) -> None:
    await mail.begin(1, 2, 3)
    mail.response_changes["GetMessageCount"] = rejected
    mail.response_changes["GetUIDs"] = with_member("uids", [])
    mail.response_changes["GetMessageMetaData"] = with_member("messages", [])
    mail.response_changes["GetMessagesByUIDs"] = with_member("messages", [])
    status = await mail.synchronise()
    assert mail.sink.kinds == [Kind.NEW] * 3
    assert status.status is SyncStatus.FAILING


async def test_copy_arrives_although_the_folder_of_the_other_is_rejected(mail: MailScenario) -> None:
    mail.add("Archive", 1)
    await mail.begin(1)
    mail.folders["INBOX"][2] = mail.folders["Archive"][1] | {"uid": 2}
    mail.add("INBOX", 3)
    mail.response_changes["GetUIDs"] = lambda folder, document: (
        document if folder == "INBOX" else rejected("", document)
    )
    status = await mail.synchronise()
    assert mail.sink.messages == {("INBOX", 1), ("INBOX", 2), ("INBOX", 3), ("Archive", 1)}
    assert list(status.folders) == ["Archive"]


async def test_unreadable_content_is_requested_once(mail: MailScenario) -> None:
    mail.add("INBOX", 8, **UNREADABLE_FILE)
    await mail.begin(*range(1, 8))
    assert mail.fetched_uids.count(8) == 4
    mail.fetched_uids.clear()
    mail.now += 3600
    await mail.synchronise()
    assert mail.fetched_uids == [8]


async def test_messages_with_unreadable_uids_are_quarantined_together(mail: MailScenario) -> None:
    mail.add("INBOX", *range(1, 9))
    mail.response_changes["GetMessagesByUIDs"] = with_messages({2, 4, 5, 7}, uid="x")
    status = await mail.synchronise()
    assert mail.sink.messages == {("INBOX", uid) for uid in (1, 3, 6, 8)}
    assert status.quarantined == 4
    assert status.rounds == 3


async def test_folder_that_is_named_twice_is_synchronised_once(mail: MailScenario) -> None:
    mail.names = ("INBOX", "INBOX")
    await mail.begin(1, 2)
    assert mail.sink.kinds == [Kind.NEW] * 2


async def test_copy_waits_two_rounds_for_an_unreadable_folder(mail: MailScenario) -> None:
    mail.add("Archive", 1)
    await mail.begin(1)
    mail.folders["INBOX"][2] = mail.folders["Archive"][1] | {"uid": 2}
    mail.response_changes["GetUIDs"] = lambda folder, document: document if folder == "INBOX" else b"{"
    synchronizer = Synchronizer(
        mail.suite, mail.store, [ADDRESS], get_password, deliver=mail.sink, folders=None, clock=mail.clock
    )
    arrived = list[bool]()
    for _ in range(3):
        await synchronizer.once()
        arrived.append(("INBOX", 2) in mail.sink.messages)
    assert arrived == [False, False, True]


async def test_a_renumbered_folder_that_is_no_longer_synchronised_reports_no_deletions(mail: MailScenario) -> None:
    mail.add("INBOX", 1)
    mail.add("Sent", 1, 2)
    await mail.synchronise()
    mail.folders["Sent"] = {1: make_message("Sent", 3) | {"uid": 1}, 2: make_message("Sent", 1) | {"uid": 2}}
    mail.sink.error = OSError(errno.ENOSPC, "full")  # after the folder was recorded as renumbered
    assert (await mail.synchronise()).status is SyncStatus.FAILING
    mail.sink.error, mail.names = None, ("INBOX",)
    assert (await mail.synchronise()).status is SyncStatus.UP_TO_DATE
    assert mail.sink.kinds == [Kind.NEW] * 3
