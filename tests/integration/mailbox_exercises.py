"""What the operations that read and change a mailbox really do."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

import directsuite as ds

from .scenario import NOON, Scenario, make_raw_message

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)


def list_subjects(messages: list[ds.MessageDetail]) -> list[str | None]:
    """The messages' subjects."""
    return [message.subject for message in messages]


async def get_message_count(world: Scenario) -> None:
    await world.deliver("a", "b", "c")
    assert await world.box.get_message_count() == 3
    assert await world.box.get_message_count("INBOX.Sent") == 0


async def get_unread_message_count(world: Scenario) -> None:
    uids = await world.deliver("a", "b", "c")
    await world.box.mark_messages_as_read_by_uids("INBOX", uids[:2])
    assert await world.box.get_unread_message_count() == 1


async def get_deleted_message_count(world: Scenario) -> None:
    uids = await world.deliver("a", "b", "c")
    await world.box.delete_messages_by_uids("INBOX", uids[:2])
    assert await world.box.get_deleted_message_count("INBOX.Trash") == 2
    assert await world.box.get_deleted_message_count() == 0


async def get_messages_by_uids(world: Scenario) -> None:
    uids = await world.deliver("a", "b", "c")
    (message,) = await world.box.get_messages_by_uids("INBOX", [uids[1], 999])
    assert (message.uid, message.subject, message.folder) == (uids[1], "b", "INBOX")
    assert (message.sender, (message.body or "").strip()) == ("carol@elsewhere.test", "About b.")
    assert (message.received_date, message.sent_date) == (NOON, NOON - HOUR)


async def get_unread_messages(world: Scenario) -> None:
    uids = await world.deliver("a", "b", "c")
    await world.box.mark_messages_as_read_by_uids("INBOX", uids[:1])
    assert list_subjects(await world.box.get_unread_messages()) == ["b", "c"]
    assert list_subjects(await world.box.get_unread_messages()) == ["b", "c"]  # reading marks nothing as read


async def _check_date_search(world: Scenario, search: Callable[..., Awaitable[list[ds.MessageDetail]]]) -> None:
    await world.deliver("at noon")
    world.sandbox.clock.advance(HOUR)
    await world.deliver("at one")
    one = NOON + HOUR
    for begin, end, found in (
        (None, None, ["at noon", "at one"]),
        (NOON, one, ["at noon", "at one"]),
        (NOON, NOON, ["at noon"]),
        (NOON + SECOND, one, ["at one"]),
        (None, one - SECOND, ["at noon"]),
        (one + SECOND, None, list[str]()),
    ):
        assert list_subjects(await search("INBOX", begin, end)) == found


async def get_messages_by_received_date(world: Scenario) -> None:
    await _check_date_search(world, world.box.get_messages_by_received_date)


async def get_messages_by_received_date_utc(world: Scenario) -> None:
    await _check_date_search(world, world.box.get_messages_by_received_date_utc)


async def search_by_received_date(world: Scenario) -> None:
    await _check_date_search(world, world.box.search_messages_metadata_by_received_date)
    assert (await world.box.search_messages_metadata_by_received_date("INBOX", None, None))[0].body is None


async def search_by_received_date_utc(world: Scenario) -> None:
    await _check_date_search(world, world.box.search_messages_metadata_by_received_date_utc)
    assert (await world.box.search_messages_metadata_by_received_date_utc("INBOX", None, None))[0].body is None


async def get_messages_by_sender(world: Scenario) -> None:
    await world.deliver("a", sender="dan@x.test")
    await world.deliver("b")
    assert list_subjects(await world.box.get_messages_by_sender("INBOX", "dan@x.test")) == ["a"]


async def get_messages_by_subject(world: Scenario) -> None:
    await world.deliver("50% of #1 + a?", "other")
    assert list_subjects(await world.box.get_messages_by_subject("INBOX", "50% of #1 + a?")) == ["50% of #1 + a?"]


async def get_messages(world: Scenario) -> None:
    await world.deliver("a", "b")
    assert list_subjects(await world.box.get_messages()) == ["a", "b"]


async def get_message_metadata(world: Scenario) -> None:
    await world.deliver("a", "b")
    metadata = await world.box.get_message_metadata()
    assert list_subjects(metadata) == ["a", "b"]
    assert [message.body for message in metadata] == [None, None]


async def get_uids(world: Scenario) -> None:
    uids = await world.deliver("a", "b", "c")
    await world.box.delete_messages_by_uids("INBOX", uids[:1])
    assert await world.box.get_uids() == uids[1:]


async def get_folders(world: Scenario) -> None:
    await world.box.create_folder("INBOX.a.b")
    assert {"INBOX.a", "INBOX.a.b", "INBOX.Sent"} <= set(await world.box.get_folders())
    assert await world.box.get_folders("INBOX.a") == ["INBOX.a.b"]


async def set_folders_subscribed(world: Scenario) -> None:
    await world.box.create_folder("INBOX.a")
    assert await world.box.set_folders_subscribed(["INBOX.a"], False) == ["INBOX.a"]
    assert "INBOX.a" not in await world.box.get_folders(subscribed_only=True)
    assert "INBOX.a" in await world.box.get_folders()


async def create_folder(world: Scenario) -> None:
    for folder in ("INBOX.a", "INBOX.with space & ünïcode", "INBOX.a/b?c#d%2F"):
        await world.box.create_folder(folder)
        assert folder in await world.box.get_folders()


async def move_folder(world: Scenario) -> None:
    await world.box.create_folder("INBOX.a")
    uids = await world.deliver("kept", folder="INBOX.a")
    await world.box.move_folder("INBOX.a", "INBOX.b")
    assert await world.box.get_uids("INBOX.b") == uids
    assert "INBOX.a" not in await world.box.get_folders()


async def delete_folder(world: Scenario) -> None:
    await world.box.create_folder("INBOX.a.b")
    await world.box.delete_folder("INBOX.a")
    assert not {"INBOX.a", "INBOX.a.b"} & set(await world.box.get_folders())


async def copy_messages(world: Scenario) -> None:
    await world.box.create_folder("INBOX.a")
    uids = await world.deliver("x", "y")
    await world.box.copy_messages_by_uids("INBOX", "INBOX.a", uids)
    assert list_subjects(await world.box.get_messages("INBOX.a")) == ["x", "y"]
    assert await world.box.get_uids() == uids


async def move_messages(world: Scenario) -> None:
    await world.box.create_folder("INBOX.a")
    uids = await world.deliver("x", "y")
    await world.box.move_messages_by_uids("INBOX", "INBOX.a", uids[:1])
    assert list_subjects(await world.box.get_messages("INBOX.a")) == ["x"]
    assert await world.box.get_uids() == uids[1:]


async def delete_messages(world: Scenario) -> None:
    uids = await world.deliver("x", "y")
    await world.box.delete_messages_by_uids("INBOX", uids[:1])
    await world.box.delete_messages_by_uids("INBOX", uids[1:], forever=True)
    assert await world.box.get_uids() == []
    assert list_subjects(await world.box.get_messages("INBOX.Trash")) == ["x"]


async def mark_as_read(world: Scenario) -> None:
    uids = await world.deliver("x", "y")
    await world.box.mark_messages_as_read_by_uids("INBOX", uids[:1])
    assert list_subjects(await world.box.get_unread_messages()) == ["y"]


async def mark_as_unread(world: Scenario) -> None:
    uids = await world.deliver("x", "y")
    await world.box.mark_messages_as_read_by_uids("INBOX", uids)
    await world.box.mark_messages_as_unread_by_uids("INBOX", uids[:1])
    assert list_subjects(await world.box.get_unread_messages()) == ["x"]


async def get_raw_messages(world: Scenario) -> None:
    uids = await world.deliver("x", "y")
    first, second = await world.box.get_raw_messages_by_uids("INBOX", uids)
    assert (first.uid, first.folder, first.msg_id) == (uids[0], "INBOX", "<x@elsewhere.test>")
    assert first.data == make_raw_message("x")
    assert second.to_email()["Subject"] == "y"


async def save_raw_messages(world: Scenario) -> None:
    await world.box.create_folder("INBOX.a")
    await world.box.save_raw_messages("INBOX.a", [ds.RawMessage(data=make_raw_message("x"))])
    assert list_subjects(await world.box.get_messages("INBOX.a")) == ["x"]
    with pytest.raises(ds.ServiceError):
        await world.box.save_raw_messages("INBOX.nowhere", [ds.RawMessage(data=make_raw_message("x"))])


EXERCISES = {
    "GetMessageCount": get_message_count,
    "GetUnreadMessageCount": get_unread_message_count,
    "GetDeletedMessageCount": get_deleted_message_count,
    "GetMessagesByUIDs": get_messages_by_uids,
    "GetUnreadMessages": get_unread_messages,
    "GetMessagesByReceivedDate": get_messages_by_received_date,
    "GetMessagesByReceivedDateUTC": get_messages_by_received_date_utc,
    "GetMessagesBySender": get_messages_by_sender,
    "GetMessagesBySubject": get_messages_by_subject,
    "GetMessages": get_messages,
    "GetMessageMetaData": get_message_metadata,
    "SearchMessagesMetadataByReceivedDate": search_by_received_date,
    "SearchMessagesMetadataByReceivedDateUTC": search_by_received_date_utc,
    "GetUIDs": get_uids,
    "GetFolders": get_folders,
    "SetFoldersSubscribed": set_folders_subscribed,
    "CreateFolder": create_folder,
    "MoveFolder": move_folder,
    "DeleteFolder": delete_folder,
    "CopyMessagesByUIDs": copy_messages,
    "MoveMessagesByUIDs": move_messages,
    "DeleteMessagesByUIDs": delete_messages,
    "MarkMessagesAsReadByUIDs": mark_as_read,
    "MarkMessagesAsUnreadByUIDs": mark_as_unread,
    "GetRawMessagesByUIDs": get_raw_messages,
    "SaveRawMessages": save_raw_messages,
}
