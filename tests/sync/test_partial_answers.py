"""Incomplete responses and interrupted rounds: no listed message is reported as deleted, and no change twice.

Messages that cannot be fetched delay no others, and cost few requests.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
from array import array
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import attrs
import pytest

from directsuite.durable.database import Transaction
from directsuite.errors import ResponseDecodeError, ServerError
from directsuite.messaging.models import MessageDetail
from directsuite.sync import Change, Deliver, Kind, SqliteStore, remote
from directsuite.sync.decide import UidListing
from directsuite.sync.model import RoundReport
from directsuite.sync.remote import Remote
from directsuite.sync.round import ContradictionError
from directsuite.sync.store import Store
from tests.integration.scenario import SleepDrivenClock
from tests.statements import query_file
from tests.sync.rounds import Rounds
from tests.sync.test_sqlite_store import MAILBOX

HOUR, DAY = 3_600_000, 86_400_000
NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)


def make_message(number: int) -> MessageDetail:
    received = NEW_YEAR + timedelta(seconds=5 * number)
    return MessageDetail(
        msg_id=f"<{number}@x>", received_date=received, size=100, sender="a@b.test", body=f"letter {number}"
    )


def make_messages(first: int, last: int) -> dict[int, MessageDetail]:
    return {uid: make_message(uid) for uid in range(first, last + 1)}


@attrs.define
class FakeServer(Remote):
    """Folders of messages by uid.

    metadata_up_to: the last uid in metadata. unlisted_uids: uids that listings lack.
    before_listing: functions to call before a folder is listed.
    """

    folders_by_name: dict[str, dict[int, MessageDetail]]
    metadata_up_to: int | None = None
    search_finds: bool = True
    returns_none: bool = False
    unfetchable_uids: set[int] = attrs.field(factory=set[int])
    unlisted_uids: set[int] = attrs.field(factory=set[int])
    before_listing: dict[str, Callable[[], object]] = attrs.field(factory=dict[str, Callable[[], object]])
    request_counts: Counter[str] = attrs.field(factory=Counter[str])

    async def list_folders(self) -> list[str]:
        return sorted(self.folders_by_name)

    async def count_messages(self, folder: str) -> int:
        return len(self.folders_by_name[folder])

    async def list_uids(self, folder: str, etag: bytes | None = None) -> UidListing | None:
        self.request_counts["uids"] += 1
        if folder in self.before_listing:
            self.before_listing.pop(folder)()
        listed = array("q", sorted(self.folders_by_name[folder].keys() - self.unlisted_uids))
        now = hashlib.sha256(listed.tobytes()).digest()
        return None if now == etag else UidListing(frozenset(listed), now)

    async def iter_metadata(self, folder: str) -> AsyncIterator[MessageDetail]:
        self.request_counts["metadata"] += 1
        for uid, message in sorted(self.folders_by_name[folder].items()):
            if self.metadata_up_to is None or uid <= self.metadata_up_to:
                yield attrs.evolve(message, uid=uid, folder=folder, body=None)

    async def list_unread_uids(self, folder: str, max_count: int) -> frozenset[int] | None:
        pass

    async def list_metadata_between(self, folder: str, begin_ms: int, end_ms: int) -> Sequence[MessageDetail]:
        return [
            attrs.evolve(message, uid=uid, folder=folder, body=None)
            for uid, message in self.folders_by_name[folder].items()
            if self.search_finds
            and message.received_date is not None
            and begin_ms <= message.received_date.timestamp() * 1000 <= end_ms
        ]

    async def fetch_messages(self, folder: str, uids: Sequence[int]) -> Sequence[MessageDetail]:
        self.request_counts["messages"] += 1
        if not self.unfetchable_uids.isdisjoint(uids):
            raise ServerError("failed", status=500)
        box = self.folders_by_name[folder]
        return [attrs.evolve(box[uid], uid=uid, folder=folder) for uid in uids if uid in box and not self.returns_none]

    async def fetch_and_measure(self, folder: str, uids: Sequence[int]) -> tuple[Sequence[MessageDetail], int]:
        return await self.fetch_messages(folder, uids), 200 * len(uids)


class RecordedChanges(list[tuple[Kind, str, int]]):
    async def __call__(self, changes: Sequence[Change]) -> None:
        self.extend((each.kind, each.key.folder, each.key.uid) for each in changes)


def make_rounds(server: FakeServer, store: Store, deliver: Deliver | None = None, **options: Any) -> Rounds:
    given: dict[str, Any] = {"clock": SleepDrivenClock(), "now_ms": lambda: 1000} | options
    return Rounds(server, store, MAILBOX, sorted(server.folders_by_name), deliver=deliver, **given)


@attrs.define(slots=False)
class SyncScenario:
    server: FakeServer
    store: SqliteStore
    changes: RecordedChanges = attrs.field(factory=RecordedChanges)
    clock: SleepDrivenClock = attrs.field(factory=SleepDrivenClock)
    now_ms: int = 1000

    def __attrs_post_init__(self) -> None:
        self.rounds = make_rounds(self.server, self.store, self.changes, clock=self.clock, now_ms=lambda: self.now_ms)

    async def run_rounds(self, count: int) -> list[RoundReport]:
        return [await self.rounds.run_round() for _ in range(count)]

    async def synchronise(self) -> None:
        await self.run_rounds(3)
        self.changes.clear()
        self.server.request_counts.clear()


@pytest.fixture
async def scene(store: SqliteStore) -> SyncScenario:
    """INBOX with ten messages, which are synchronised."""
    scene = SyncScenario(FakeServer({"INBOX": make_messages(1, 10)}), store)
    await scene.synchronise()
    return scene


@pytest.mark.parametrize("why", ["an audit", "missing sentinels"])
async def test_listing_counts_rather_than_incomplete_metadata(why: str, scene: SyncScenario) -> None:
    if why == "an audit":
        scene.now_ms += DAY
        scene.server.metadata_up_to = 5
    else:
        scene.clock.now += 700
        scene.server.search_finds, scene.server.metadata_up_to = False, 0
    await scene.run_rounds(3)
    assert scene.changes == []


async def test_a_folder_is_renumbered_only_if_its_listing_is_complete(scene: SyncScenario) -> None:
    scene.server.folders_by_name["INBOX"] = {uid: make_message(100 + uid) for uid in range(1, 11)}
    scene.server.unlisted_uids = set(range(3, 11))
    scene.now_ms += DAY
    for report in await scene.run_rounds(3):
        assert isinstance(report.failed_folders["INBOX"], ContradictionError)
    assert scene.changes == []
    scene.server.unlisted_uids.clear()
    await scene.run_rounds(4)
    assert set(scene.changes) == {(kind, "INBOX", uid) for kind in (Kind.GONE, Kind.NEW) for uid in range(1, 11)}


async def test_a_folder_that_is_no_longer_synchronised_delays_no_deletion(store: SqliteStore) -> None:
    first = SyncScenario(FakeServer({"INBOX": make_messages(1, 2), "Sent": make_messages(3, 4)}), store)
    await first.synchronise()
    second = SyncScenario(FakeServer({"INBOX": make_messages(1, 1)}), store)
    await second.rounds.run_round()
    assert second.changes == [(Kind.GONE, "INBOX", 2)]


async def test_everything_is_compared_if_a_sentinel_cannot_be(scene: SyncScenario) -> None:
    scene.server.folders_by_name["INBOX"][11] = make_message(11)
    scene.server.search_finds, scene.server.unfetchable_uids = False, {1, 10}
    await scene.rounds.run_round()
    assert scene.server.request_counts["metadata"] == 1
    assert scene.changes == [(Kind.NEW, "INBOX", 11)]


async def test_renumbering_with_partial_metadata_deletes_nothing(scene: SyncScenario) -> None:
    scene.server.folders_by_name["INBOX"] = {11 - uid: message for uid, message in make_messages(1, 10).items()} | {
        11: make_message(11)
    }
    scene.server.metadata_up_to = 6
    await scene.run_rounds(3)
    assert Counter(kind for kind, _, _ in scene.changes) == {Kind.MOVED: 10, Kind.NEW: 1}


async def test_an_empty_search_costs_two_messages_per_verification(scene: SyncScenario) -> None:
    scene.server.search_finds = False
    for _ in range(10):
        scene.clock.now += 60
        await scene.rounds.run_round()
    assert (scene.server.request_counts["metadata"], scene.server.request_counts["messages"]) == (0, 2)


async def test_message_missing_once_and_moved_later_is_reported_as_moved(store: SqliteStore) -> None:
    server = FakeServer({"Archive": {1: make_message(100)}, "INBOX": make_messages(1, 10)})
    scene = SyncScenario(server, store)
    await scene.synchronise()
    missing = server.folders_by_name["INBOX"].pop(5)
    await scene.rounds.run_round()
    server.folders_by_name["INBOX"][5] = missing
    await scene.synchronise()
    server.before_listing["INBOX"] = lambda: server.folders_by_name["Archive"].update(
        {2: server.folders_by_name["INBOX"].pop(5)}
    )
    await scene.run_rounds(3)
    assert scene.changes == [(Kind.MOVED, "Archive", 2)]


async def test_folder_emptied_by_moves_is_listed_few_times(store: SqliteStore) -> None:
    old = make_messages(1, 30)
    server = FakeServer({"Archive": {}, "INBOX": old})
    scene = SyncScenario(server, store)
    await scene.synchronise()
    server.folders_by_name["Archive"] = dict(old)
    server.before_listing["Archive"] = old.clear
    await scene.rounds.run_round()
    assert Counter(kind for kind, _, _ in scene.changes) == {Kind.MOVED: 30}
    assert server.request_counts["uids"] <= 5


@pytest.mark.exhaustive(limit=1)
@pytest.mark.parametrize(("messages", "rounds"), [(8, 4), (80, 5)])
async def test_the_rounds_of_a_first_synchronisation_are_bounded(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch, messages: int, rounds: int
) -> None:
    monkeypatch.setattr(remote, "MAX_BATCH_MESSAGES", 2)
    monkeypatch.setattr(remote, "MIN_BATCHES_PER_ROUND", 1)
    monkeypatch.setattr(remote, "MAX_ROUNDS_PER_FOLDER", 5)
    scene = SyncScenario(FakeServer({"INBOX": {uid: make_message(uid) for uid in range(1, messages + 1)}}), store)
    taken = 1
    while (await scene.rounds.run_round()).has_more:
        taken += 1
    assert taken == rounds
    assert len(scene.changes) == messages


class SlowSink:
    def __init__(self) -> None:
        self.begun = threading.Event()
        self.may_go_on = threading.Event()

    async def prepare(self, transaction: Transaction) -> None:
        transaction.connection.execute("CREATE TABLE IF NOT EXISTS told (uid INTEGER)")

    async def write(self, transaction: Transaction, changes: Sequence[Change]) -> None:
        self.begun.set()
        self.may_go_on.wait()
        transaction.connection.executemany("INSERT INTO told VALUES (?)", [(each.key.uid,) for each in changes])


async def test_the_next_round_waits_for_the_commit_of_a_cancelled_one(tmp_path: Path) -> None:
    sink = SlowSink()
    async with SqliteStore(tmp_path / "sync.db", sink=sink) as store:
        rounds = make_rounds(FakeServer({"INBOX": make_messages(1, 10)}), store)
        broken_off = asyncio.create_task(rounds.run_round())
        await asyncio.to_thread(sink.begun.wait)
        broken_off.cancel()
        with pytest.raises(asyncio.CancelledError):
            await broken_off
        again = asyncio.create_task(rounds.run_round())
        for _ in range(50):
            await asyncio.sleep(0)
        sink.may_go_on.set()
        await again
    told = query_file(tmp_path / "sync.db", "SELECT uid FROM told ORDER BY uid")
    assert [uid for (uid,) in told] == list(range(1, 11))


@pytest.mark.wide
async def test_few_messages_are_requested_if_all_fail(store: SqliteStore) -> None:
    scene = SyncScenario(FakeServer({"INBOX": make_messages(1, 1000)}), store)
    scene.server.unfetchable_uids = set(range(1, 1001))
    for times in range(1, 4):
        report = await scene.rounds.run_round()
        assert isinstance(report.failed_folders["INBOX"], ServerError)
        assert report.quarantined == 5
        assert scene.server.request_counts["messages"] <= 40 * times
        assert scene.server.request_counts["metadata"] == times
    scene.server.unfetchable_uids.clear()
    scene.server.request_counts.clear()
    scene.now_ms += HOUR
    while (await scene.rounds.run_round()).has_more:
        pass
    assert Counter(kind for kind, _, _ in scene.changes) == {Kind.NEW: 1000}
    assert scene.server.request_counts["messages"] <= 50


async def test_many_unfetchable_messages_are_quarantined_if_others_succeed(scene: SyncScenario) -> None:
    scene.server.folders_by_name["INBOX"] |= make_messages(11, 60)
    scene.server.unfetchable_uids = set(range(20, 51))
    report = await scene.rounds.run_round()
    assert not report.failed_folders
    assert report.quarantined == 31
    assert [uid for _, _, uid in scene.changes] == [*range(11, 20), *range(51, 61)]
    assert scene.server.request_counts["metadata"] == 1


@pytest.mark.exhaustive(limit=1)
@pytest.mark.parametrize("mended", [True, False])
async def test_quarantined_messages_are_retried_gradually(scene: SyncScenario, mended: bool) -> None:
    scene.server.folders_by_name["INBOX"] |= make_messages(11, 60)
    scene.server.unfetchable_uids = set(range(11, 61))
    await scene.rounds.run_round()
    if mended:
        scene.server.unfetchable_uids.clear()
    scene.now_ms += HOUR
    for left in (30, 10, 0):
        scene.server.request_counts.clear()
        report = await scene.rounds.run_round()
        assert report.has_more == bool(left)
        assert scene.server.request_counts["messages"] == min(20, left + 10)
        assert scene.server.request_counts["uids"] == 1
        assert len(scene.changes) == (50 - left if mended else 0)


@pytest.mark.wide
async def test_unfetchable_first_messages_block_no_other(store: SqliteStore) -> None:
    scene = SyncScenario(FakeServer({"INBOX": make_messages(1, 110)}), store)
    scene.server.unfetchable_uids = set(range(1, 101))
    report = await scene.rounds.run_round()
    assert not report.failed_folders
    assert [uid for _, _, uid in scene.changes] == list(range(101, 111))


async def test_nothing_is_quarantined_if_the_service_returns_no_messages(store: SqliteStore) -> None:
    scene = SyncScenario(FakeServer({"INBOX": make_messages(1, 200)}), store)
    scene.server.returns_none = True
    reports = [await scene.rounds.run_round() for _ in range(6)]
    assert sum(report.quarantined for report in reports) == 0
    assert isinstance(reports[-1].failed_folders["INBOX"], ResponseDecodeError)
    assert scene.server.request_counts["metadata"] == 0
    scene.server.returns_none = False
    while (await scene.rounds.run_round()).has_more:
        pass
    assert Counter(kind for kind, _, _ in scene.changes) == {Kind.NEW: 200}


async def test_copies_without_a_date_are_compared_by_content(store: SqliteStore) -> None:
    dateless = attrs.evolve(make_message(1), received_date=None)
    scene = SyncScenario(FakeServer({"INBOX": {1: dateless}}), store)
    await scene.synchronise()
    scene.server.folders_by_name["INBOX"] |= dict.fromkeys(range(2, 52), dateless)
    await scene.rounds.run_round()
    assert scene.server.request_counts["metadata"] == 0
    assert [kind for kind, _, _ in scene.changes] == [Kind.NEW] * 50
