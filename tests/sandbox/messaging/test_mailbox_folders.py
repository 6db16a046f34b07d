"""The folder operations over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from directsuite.sandbox.messaging import mailboxes
from tests.sandbox.messaging.mailbox_server import ALICE, MessagingServer, deliver_many

if TYPE_CHECKING:
    import sqlite3

INITIAL = ["INBOX.Drafts", "INBOX.Sent", "INBOX.Spam", "INBOX.Templates", "INBOX.Trash"]


async def test_existing_and_impossible_folders_cannot_be_created(mail: MessagingServer) -> None:
    for name in (
        *("INBOX", "inbox.Sent", "INBOX.Templates", "INBOX.Drafts", "INBOX.Spam", "INBOX.Trash"),
        *("Outside", "INBOXES", "INBOX.", "INBOX..A", "INBOX.A.", "", "INBOX.a\nb", "INBOX." + "x" * 300),
    ):
        assert await mail.call_rejected("CreateFolder", name) == 4, name
        assert (await mail.call_ok("GetFolders", "INBOX", "0"))["folders"] == INITIAL, name


async def test_folder_names_survive_the_path(mail: MessagingServer) -> None:
    for name in ("INBOX.a/b", "INBOX.100%", "INBOX.a%2Fb", "INBOX.ü 東", "INBOX.{x}?y#z;k=v+1", "INBOX.\\"):
        await mail.call_ok("CreateFolder", name)
        assert name in (await mail.call_ok("GetFolders", "INBOX", "1"))["folders"], name
        assert await mail.get_uids(name) == [], name


async def test_invalid_renames_are_rejected(mail: MessagingServer) -> None:
    await mail.call_ok("CreateFolder", "INBOX.A")
    for name, new_name, code in (
        *(("INBOX.Sent", "INBOX.B", 4), ("INBOX.A", "INBOX.Spam", 4), ("INBOX.A", "INBOX.A.B", 4)),
        *(("INBOX.A", "INBOX.A", 4), ("INBOX.A", "INBOX.Trash", 4), ("INBOX.A", "B", 4)),
        ("INBOX.Missing", "INBOX.B", 3),
    ):
        assert await mail.call_rejected("MoveFolder", name, new_name) == code, (name, new_name, code)
        assert await mail.list_effects("MoveFolder") == [], (name, new_name, code)


async def test_reserved_and_missing_folders_cannot_be_deleted(mail: MessagingServer) -> None:
    assert await mail.call_rejected("DeleteFolder", "INBOX") == 4
    assert await mail.call_rejected("DeleteFolder", "INBOX.Drafts") == 4
    assert await mail.call_rejected("DeleteFolder", "INBOX.Missing") == 3


@pytest.mark.parametrize("recreated", [None, "INBOX.TRASH"])
async def test_a_deleted_trash_comes_back(mail: MessagingServer, recreated: str | None) -> None:
    await mail.call_ok("DeleteFolder", "INBOX.Trash")
    assert await mail.call_rejected("GetUIDs", "INBOX.Trash") == 3
    if recreated:
        await mail.call_ok("CreateFolder", recreated)
    await deliver_many(mail, 1)
    await mail.call_ok("DeleteMessagesByUIDs", "INBOX", "false", uids=[1])
    assert await mail.get_uids("INBOX.Trash") == [1]
    assert (await mail.call_ok("GetDeletedMessageCount", "INBOX.Trash"))["count"] == 1


async def test_folders_are_subscribed_and_unsubscribed(mail: MessagingServer) -> None:
    response = await mail.call_ok("SetFoldersSubscribed", "", folders=["inbox.Sent", "INBOX.Spam"], subscribed=False)
    assert response["folders"] == ["INBOX.Sent", "INBOX.Spam"]
    assert (await mail.call_ok("GetFolders", "INBOX", "TRUE"))["folders"] == [
        "INBOX.Drafts",
        "INBOX.Templates",
        "INBOX.Trash",
    ]
    names = ["INBOX.Sent", "INBOX.Missing"]
    assert await mail.call_rejected("SetFoldersSubscribed", "", folders=names, subscribed=True) == 3
    assert "INBOX.Sent" not in (await mail.call_ok("GetFolders", "INBOX", "True"))["folders"]


async def test_subscribing_reads_the_folders_once_for_all_names(mail: MessagingServer) -> None:
    statements = list[str]()

    def subscribe(connection: sqlite3.Connection) -> tuple[list[str], list[str]]:
        account = mailboxes.get_account_id(connection, ALICE)
        connection.set_trace_callback(statements.append)
        try:
            names = ["inbox", "Inbox", "INBOX", "inbox.sent"] * 100
            return mailboxes.subscribe(connection, account, names, subscribed=False)
        finally:
            connection.set_trace_callback(None)

    assert await mail.database.write(subscribe) == (["INBOX", "INBOX.Sent"], ["INBOX", "INBOX.Sent"])
    assert len(statements) < 10


async def test_subscriptions_are_recorded_for_folders_that_they_changed(mail: MessagingServer) -> None:
    for names in (["INBOX.Sent"], ["INBOX.Sent"], ["INBOX.Sent", "INBOX.Spam"]):
        assert (await mail.call_ok("SetFoldersSubscribed", "", folders=names, subscribed=False))["folders"] == names
    await mail.call_ok("SetFoldersSubscribed", "", folders=["INBOX.Drafts"], subscribed=True)
    effects = await mail.list_effects("SetFoldersSubscribed")
    assert [effect["detail"]["folders"] for effect in effects] == [["INBOX.Sent"], ["INBOX.Spam"]]


async def test_other_booleans_in_the_path_are_rejected(mail: MessagingServer) -> None:
    for literal in ("yes", "", "2", "null"):
        assert await mail.call_rejected("GetFolders", "INBOX", literal) == 4, literal
        assert await mail.call_rejected("DeleteMessagesByUIDs", "INBOX", literal, uids=[1]) == 4, literal


@pytest.mark.parametrize("other", ["inbox.STRASSE.ü.b", "INBOX.Straße.Ü.B", "inbox.straße.ü.b"])
async def test_folders_are_the_same_in_any_case(mail: MessagingServer, other: str) -> None:
    await mail.call_ok("CreateFolder", "inbox.Straße.ü")
    await mail.call_ok("CreateFolder", "INBOX.straße.Ü.b")
    name = "INBOX.Straße.ü.b"
    assert (await mail.call_ok("GetFolders", other.rpartition(".")[0], "false"))["folders"] == [name]
    assert await mail.call_rejected("CreateFolder", other) == 4
    assert await mail.call_rejected("MoveFolder", "INBOX.straße", other) == 4
    await deliver_many(mail, 4, other)
    assert await mail.get_uids(other) == [1, 2, 3, 4]
    (found,) = (await mail.call_ok("GetMessagesByUIDs", other, uids=[1]))["messages"]
    (raw,) = (await mail.call_ok("GetRawMessagesByUIDs", other, uids=[1]))["messages"]
    assert (found["folder"], raw["folder"]) == (name, name)
    await mail.call_ok("CopyMessagesByUIDs", other, "inbox.DRAFTS", uids=[1])
    await mail.call_ok("MoveMessagesByUIDs", other, "Inbox.drafts", uids=[2])
    await mail.call_ok("MoveMessagesByUIDs", "inbox.drafts", other, uids=[1])
    await mail.call_ok("DeleteMessagesByUIDs", other, "false", uids=[3])
    assert (await mail.call_ok("GetDeletedMessageCount", "inbox.trash"))["count"] == 1
    moved = (await mail.list_effects("MoveMessagesByUIDs"))[0]
    assert (moved["subject"], moved["detail"]["destination"]) == (name, "INBOX.Drafts")
    response = await mail.call_ok("SetFoldersSubscribed", "", folders=[other, other.upper()], subscribed=False)
    assert response["folders"] == [name]
    await mail.call_ok("MoveFolder", other, "inbox.SENT.New")
    assert await mail.get_uids("INBOX.Sent.new") == [1, 4, 5]
    assert await mail.call_rejected("DeleteFolder", "inbox.sent") == 4
    await mail.call_ok("DeleteFolder", "inbox.sent.new")
    assert await mail.call_rejected("GetUIDs", "INBOX.Sent.New") == 3


async def test_folders_are_the_same_in_any_normal_form(mail: MessagingServer) -> None:
    await mail.call_ok("CreateFolder", "INBOX.Re\u0301sume\u0301")
    assert await mail.call_rejected("CreateFolder", "INBOX.R\u00e9sum\u00e9") == 4
    assert await mail.call_rejected("MoveFolder", "INBOX.R\u00e9sum\u00e9", "INBOX.R\u00e9sum\u00e9.Child") == 4
    await mail.call_ok("CreateFolder", "INBOX.R\u00e9sum\u00e9.Child")
    assert (await mail.call_ok("GetFolders", "INBOX.r\u00c9sum\u00e9", "0"))["folders"] == [
        "INBOX.Re\u0301sume\u0301.Child"
    ]
