"""Renamed folders, if all folders of a mailbox are synchronised."""

from __future__ import annotations

from directsuite.sync import Kind, SqliteStore
from tests.integration.scenario import Scenario
from tests.sync.test_synchronizer import RecordingSink, make_sync


async def test_messages_of_a_renamed_folder_are_reported_as_moved(scenario: Scenario, store: SqliteStore) -> None:
    told = RecordingSink()
    await scenario.box.create_folder("INBOX.Before")
    await scenario.deliver("one", "two", folder="INBOX.Before")
    sync = make_sync(scenario, store, told, folders=None)
    await sync.once()
    await scenario.box.move_folder("INBOX.Before", "INBOX.After")
    await sync.once()
    assert [each.kind for each in told.changes] == [Kind.NEW, Kind.NEW, Kind.MOVED, Kind.MOVED]
    assert [each.key.folder for each in told.changes[2:]] == ["INBOX.After"] * 2
