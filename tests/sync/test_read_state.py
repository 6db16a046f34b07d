"""The read state of new messages, for sinks that need it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import attrs
import pytest

from directsuite.errors import AuthenticationError
from directsuite.sync import Change, MaildirSink, SqliteStore, SyncStatus, remote
from directsuite.sync.remote import Remote
from directsuite.sync.sinks.maildir import build_mailbox_dir
from tests.integration.scenario import ALICE, Scenario
from tests.sync.mail_service import get_subject
from tests.sync.sinks.maildirs import list_files
from tests.sync.test_synchronizer import EventCounter, make_sync


@attrs.define
class ReadStates:
    needs_read_state: bool = True
    states: dict[str | None, bool | None] = attrs.field(factory=dict[str | None, bool | None])

    async def __call__(self, changes: Sequence[Change]) -> None:
        self.states.update({get_subject(change): change.is_read for change in changes})


async def test_read_messages_are_not_delivered_as_new(scenario: Scenario, tmp_path: Path, store: SqliteStore) -> None:
    uids = await scenario.deliver("one", "two", "three")
    await scenario.box.mark_messages_as_read_by_uids("INBOX", uids[:2])
    await make_sync(scenario, store, MaildirSink(tmp_path)).once()
    found = {path: path.read_bytes() for path in list_files(tmp_path / build_mailbox_dir(ALICE))}
    assert sorted(path.parent.name for path in found) == ["cur", "cur", "new"]
    for path, content in found.items():
        is_unread = b"\nSubject: three\n" in content
        assert (path.parent.name, path.name.partition(".eml")[2]) == (("new", "") if is_unread else ("cur", ":2,S"))


async def test_a_folder_without_unread_messages_costs_one_request(
    scenario: Scenario, store: SqliteStore, heard: EventCounter
) -> None:
    sink = ReadStates()
    await scenario.box.mark_messages_as_read_by_uids("INBOX", await scenario.deliver("one", "two"))
    sync = make_sync(scenario, store, sink)
    await sync.once()
    await sync.once()
    assert sink.states == {"one": True, "two": True}
    assert (heard.requests["GetUnreadMessageCount"], heard.requests["GetUnreadMessages"]) == (1, 0)
    await scenario.deliver("three")
    await sync.once()
    assert sink.states["three"] is False
    assert (heard.requests["GetUnreadMessageCount"], heard.requests["GetUnreadMessages"]) == (2, 1)


async def test_the_read_state_is_unknown_if_many_are_unread(
    scenario: Scenario, store: SqliteStore, heard: EventCounter
) -> None:
    sink = ReadStates()
    sync = make_sync(scenario, store, sink)
    await scenario.deliver("one", "two")
    await sync.once()
    assert sink.states == {"one": False, "two": False}
    heard.requests.clear()
    await scenario.deliver("three")
    await sync.once()
    assert sink.states["three"] is None
    assert heard.requests["GetUnreadMessages"] == 0


async def test_the_read_state_is_not_requested_for_other_sinks(
    scenario: Scenario, store: SqliteStore, heard: EventCounter
) -> None:
    sink = ReadStates(needs_read_state=False)
    await scenario.deliver("one")
    await make_sync(scenario, store, sink).once()
    assert sink.states == {"one": None}
    assert heard.requests["GetUnreadMessageCount"] == 0


@pytest.mark.exhaustive(limit=1)
@pytest.mark.parametrize("operation", ["GetUnreadMessageCount", "GetUnreadMessages"])
@pytest.mark.parametrize("status", [403, 500])
async def test_a_service_without_the_read_state_is_synchronised(
    scenario: Scenario, operation: str, status: int, store: SqliteStore
) -> None:
    sink = ReadStates()
    await scenario.deliver("one")
    scenario.sandbox.inject_fault(operation, "status", status=status, times=None)
    progress = await make_sync(scenario, store, sink).once()
    assert progress[ALICE].status is SyncStatus.UP_TO_DATE
    assert sink.states == {"one": None}


async def test_a_rejected_password_is_not_sent_again(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch, store: SqliteStore, heard: EventCounter
) -> None:
    async def rejected(*_: object) -> None:
        raise AuthenticationError("wrong", status=200, code=1)

    monkeypatch.setattr(Remote, "list_unread_uids", rejected)
    await scenario.deliver("one")
    sink = ReadStates()
    progress = await make_sync(scenario, store, sink).once()
    assert progress[ALICE].status is SyncStatus.FAILING
    assert heard.requests["GetMessagesByUIDs"] == 0


async def test_unread_messages_that_disagree_with_their_count_are_unknown(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    await scenario.deliver("one")
    box = scenario.box
    direct = Remote(box)
    assert await direct.list_unread_uids("INBOX", 1) == frozenset({1})
    assert await direct.list_unread_uids("INBOX", 0) is None

    async def counted(*_: object) -> int:
        return 2

    monkeypatch.setattr(type(box), "get_unread_message_count", counted)
    assert await direct.list_unread_uids("INBOX", 5) is None


async def test_later_rounds_of_the_first_synchronisation_know_it(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch, store: SqliteStore
) -> None:
    sink = ReadStates()
    uids = await scenario.deliver("one", "two", "three", "four")
    await scenario.box.mark_messages_as_read_by_uids("INBOX", uids[1:])
    monkeypatch.setattr(remote, "MIN_BATCHES_PER_ROUND", 1)
    monkeypatch.setattr(remote, "MAX_BATCH_MESSAGES", 2)  # in each round
    await make_sync(scenario, store, sink).once()
    assert sink.states == {"one": False, "two": True, "three": True, "four": True}
