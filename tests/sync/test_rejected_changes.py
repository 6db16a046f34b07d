"""Changes that a sink rejects: single ones are quarantined, and a sink that rejects everything is the cause itself."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Sequence
from pathlib import Path

import attrs
import pytest

from directsuite.sync import Change, Kind, SinkError, SqliteStore, Synchronizer, SyncStatus
from directsuite.sync.commits import SinkHealth
from directsuite.sync.model import MessageState, OperatorRequest
from tests.integration.scenario import ALICE, BOB, Scenario
from tests.sync.test_partial_answers import FakeServer, RecordedChanges, SyncScenario, make_message, make_messages
from tests.sync.test_synchronizer import FakePasswords, SteppedClock

HOUR = 3_600_000


class Picky(RecordedChanges):
    def __init__(self) -> None:
        self.refuses: Callable[[Change], bool] = lambda _: False
        self.error: BaseException = ValueError("no")
        self.calls = 0

    async def __call__(self, changes: Sequence[Change]) -> None:
        self.calls += 1
        if any(map(self.refuses, changes)):
            raise self.error
        await super().__call__(changes)


def scene_of(store: SqliteStore, count: int, *refused: int) -> tuple[SyncScenario, Picky]:
    sink = Picky()
    scene = SyncScenario(FakeServer({"INBOX": make_messages(1, count), "Archive": {}}), store, changes=sink)
    sink.refuses = lambda change: change.key.uid in refused
    return scene, sink


async def test_rejected_change_is_quarantined_if_others_are_accepted(store: SqliteStore) -> None:
    scene, sink = scene_of(store, 50, 20, 50)
    report = await scene.rounds.run_round()
    assert not report.failed_folders
    assert report.quarantined == 2
    assert [uid for _, _, uid in sink] == [uid for uid in range(1, 51) if uid not in (20, 50)]
    assert report.changes[Kind.NEW] == 48
    calls = sink.calls
    for _ in range(3):
        assert not (await scene.rounds.run_round()).failed_folders
    assert sink.calls == calls
    assert await in_state(scene, MessageState.QUARANTINED_UNCONFIRMED) == [20, 50]


async def test_sink_that_raises_a_cancellation_of_its_own_has_failed(store: SqliteStore) -> None:
    scene, sink = scene_of(store, 5, 3)
    sink.error = asyncio.CancelledError()
    report = await scene.rounds.run_round()
    assert report.quarantined == 1
    assert [uid for _, _, uid in sink] == [1, 2, 4, 5]


async def in_state(scene: SyncScenario, state: MessageState) -> list[int]:
    lease = attrs.evolve(await scene.store.claim("other"), mailbox=1)
    return [row.uid for _, row in await scene.store.unfinished(lease) if row.state is state]


@pytest.mark.parametrize("mended", [True, False])
async def test_quarantined_change_is_redelivered_later(store: SqliteStore, mended: bool) -> None:
    scene, sink = scene_of(store, 5, 3)
    await scene.rounds.run_round()
    if mended:
        sink.refuses = lambda _: False
    sink.clear()
    scene.now_ms += HOUR
    report = await scene.rounds.run_round()
    assert not report.failed_folders
    assert report.quarantined == 0
    assert sink == ([(Kind.NEW, "INBOX", 3)] if mended else [])
    calls = sink.calls
    scene.now_ms += HOUR // 4
    await scene.rounds.run_round()
    assert sink.calls == calls  # the next try is half an hour after the first


async def test_quarantined_message_is_reported_deleted_when_it_is(store: SqliteStore) -> None:
    scene, sink = scene_of(store, 5, 3)
    await scene.rounds.run_round()
    sink.refuses = lambda _: False
    del scene.server.folders_by_name["INBOX"][3]
    await scene.run_rounds(3)
    assert sink[-1] == (Kind.GONE, "INBOX", 3)


@pytest.mark.exhaustive(limit=1)
@pytest.mark.parametrize("count", [1, 2, 50])
async def test_sink_that_rejects_everything_quarantines_nothing(store: SqliteStore, count: int) -> None:
    scene, sink = scene_of(store, count)
    sink.refuses = lambda _: True
    for _ in range(3):
        calls = sink.calls
        assert await fails(scene)
        assert sink.calls - calls <= 4 * count + 20
    sink.refuses = lambda _: False
    report = await scene.rounds.run_round()
    assert not report.failed_folders
    assert report.quarantined == 0
    assert sorted(sink) == [(Kind.NEW, "INBOX", uid) for uid in range(1, count + 1)]


@pytest.mark.exhaustive(limit=1)
@pytest.mark.parametrize("number", ["failed", [], 2**70, -2])
async def test_error_with_an_odd_errno_fails_its_mailbox_alone(
    scenario: Scenario, store: SqliteStore, number: object
) -> None:
    sink = Picky()
    sink.error, sink.refuses = OSError(number, "no"), lambda change: change.key.mailbox == ALICE
    await scenario.deliver(*"abcdefgh")
    sync = Synchronizer(scenario.suite, store, [ALICE, BOB], FakePasswords(), deliver=sink, clock=SteppedClock())
    status = await sync.once()
    assert [status[each].status for each in (ALICE, BOB)] == [SyncStatus.FAILING, SyncStatus.UP_TO_DATE]
    assert "The sink raised OSError" in str(status[ALICE].problem)


async def fails(scene: SyncScenario) -> bool:
    try:
        report = await scene.rounds.run_round()
    except SinkError:
        return True
    return bool(report.failed_folders) and all(isinstance(error, SinkError) for error in report.failed_folders.values())


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
async def test_full_disk_quarantines_nothing(store: SqliteStore, number: int) -> None:
    scene, sink = scene_of(store, 50, *range(2, 50))
    sink.error = OSError(number, "no")
    assert await fails(scene)
    assert sink.calls == 1


@pytest.mark.wide
@pytest.mark.parametrize(("rejected", "count", "max_rounds"), [(40, 60, 5), (600, 601, 8)])
async def test_many_rejected_first_changes_delay_others_few_rounds(
    store: SqliteStore, rejected: int, count: int, max_rounds: int
) -> None:
    scene, sink = scene_of(store, count, *range(1, rejected + 1))
    rounds = 1
    while await fails(scene):
        rounds += 1
        assert rounds <= max_rounds
    assert [uid for _, _, uid in sink] == list(range(rejected + 1, count + 1))
    assert await in_state(scene, MessageState.QUARANTINED_UNCONFIRMED) == list(range(1, rejected + 1))


async def test_single_rejected_change_blocks_no_other_folder(store: SqliteStore) -> None:
    scene, sink = scene_of(store, 1, 1)
    assert await fails(scene)
    scene.server.folders_by_name["Archive"] = {7: make_message(7)}
    report = await scene.rounds.run_round()
    assert sink == [(Kind.NEW, "Archive", 7)]
    assert report.quarantined + (await scene.rounds.run_round()).quarantined == 1
    assert not (await scene.rounds.run_round()).failed_folders


async def test_changes_accepted_for_another_mailbox_count(store: SqliteStore) -> None:
    scene, _ = scene_of(store, 1, 1)
    health = SinkHealth()
    scene.rounds._health = health
    assert await fails(scene)
    health.accepted.update([True, False])
    report = await scene.rounds.run_round()
    assert (report.quarantined, report.failed_folders) == (1, {})


def refuse_new(scene: SyncScenario, sink: Picky, *uids: int) -> None:
    scene.server.folders_by_name["INBOX"] |= {uid: make_message(uid) for uid in uids}
    sink.refuses = lambda change: change.key.uid in uids


async def scene_with_rejection(store: SqliteStore, *uids: int) -> tuple[SyncScenario, Picky]:
    """Return a scene with five synchronised messages, and new ones that the sink rejects."""
    scene, sink = scene_of(store, 5)
    await scene.rounds.run_round()
    refuse_new(scene, sink, *uids)
    return scene, sink


@pytest.mark.parametrize("uids", [[6], [6, 7]], ids=str)
async def test_no_change_is_blamed_before_another_is_accepted(store: SqliteStore, uids: Sequence[int]) -> None:
    scene, _ = await scene_with_rejection(store, *uids)
    for _ in range(10):
        assert await fails(scene)
        scene.clock.now += 3_600.0
        scene.now_ms += HOUR
    assert await in_state(scene, MessageState.QUARANTINED_UNCONFIRMED) == []


async def test_change_after_rejected_one_is_delivered_in_next_round(store: SqliteStore) -> None:
    scene, sink = scene_of(store, 1, 1)
    assert await fails(scene)
    scene.server.folders_by_name["INBOX"][2] = make_message(2)
    report = await scene.rounds.run_round()
    assert sink == [(Kind.NEW, "INBOX", 2)]
    assert (report.quarantined, report.failed_folders) == (1, {})


@pytest.mark.parametrize("kind", [Kind.GONE, Kind.MOVED])
async def test_a_rejected_change_of_any_kind_is_quarantined(store: SqliteStore, kind: Kind) -> None:
    scene, sink = scene_of(store, 10)
    await scene.rounds.run_round()
    sink.clear()
    sink.refuses = lambda change: change.kind is kind and (change.previous or change.key).uid == 3
    if kind is Kind.GONE:
        for uid in (3, 4):
            del scene.server.folders_by_name["INBOX"][uid]
    else:
        scene.server.folders_by_name["Archive"] = {
            uid: scene.server.folders_by_name["INBOX"].pop(uid) for uid in (3, 4)
        }
    reports = [await scene.rounds.run_round() for _ in range(4)]
    assert [report.quarantined for report in reports if report.quarantined] == [1]
    assert not any(report.failed_folders for report in reports)
    assert (kind, "INBOX" if kind is Kind.GONE else "Archive", 4) in sink
    sink.refuses = lambda _: False
    scene.now_ms += HOUR
    await scene.rounds.run_round()
    await scene.rounds.run_round()
    if kind is Kind.GONE:
        assert sink[-1] == (Kind.GONE, "INBOX", 3)
    else:
        (told,) = (told for told, folder, uid in sink if (folder, uid) == ("Archive", 3))
        assert told in (Kind.MOVED, Kind.RESTORED)


@pytest.mark.exhaustive(limit=1)
@pytest.mark.parametrize("count", [6, 30])
async def test_retried_quarantined_changes_block_no_other(store: SqliteStore, count: int) -> None:
    scene, _ = scene_of(store, 60, *range(2, 2 + count))
    while await fails(scene):
        pass
    await scene.rounds.run_round()
    scene.now_ms += HOUR
    for _ in range(5):
        assert not await fails(scene)
    assert len(await in_state(scene, MessageState.QUARANTINED_UNCONFIRMED)) == count


async def test_a_short_failure_of_the_sink_quarantines_nothing(store: SqliteStore) -> None:
    scene, sink = scene_of(store, 50)
    sink.refuses = lambda _: sink.calls < 10
    report = await scene.rounds.run_round()
    assert (report.quarantined, report.failed_folders) == (0, {})
    assert sorted(uid for _, _, uid in sink) == list(range(1, 51))


async def test_accepted_deletions_do_not_count_as_accepted_messages(store: SqliteStore) -> None:
    scene, sink = scene_of(store, 5)
    scene.server.folders_by_name["Archive"] = make_messages(10, 15)
    await scene.rounds.run_round()
    sink.refuses = lambda change: change.message is not None
    del scene.server.folders_by_name["Archive"][12]
    scene.server.folders_by_name["INBOX"] |= make_messages(6, 8)
    for _ in range(4):
        assert await fails(scene)
    assert sink[-1] == (Kind.GONE, "Archive", 12)
    assert await in_state(scene, MessageState.QUARANTINED_UNCONFIRMED) == []


async def test_message_is_reported_restored_after_rejected_deletion(store: SqliteStore) -> None:
    scene, sink = scene_of(store, 5)
    await scene.rounds.run_round()
    sink.refuses = lambda change: change.kind is Kind.GONE and change.key.uid == 3
    for uid in (3, 4):
        del scene.server.folders_by_name["INBOX"][uid]
    await scene.run_rounds(4)
    sink.refuses = lambda _: False
    scene.server.folders_by_name["INBOX"][3] = make_message(3)
    await scene.rounds.run_round()
    assert sink[-1] == (Kind.RESTORED, "INBOX", 3)


async def test_a_requested_retry_delivers_the_change_immediately(scenario: Scenario, tmp_path: Path) -> None:
    path, sink = tmp_path / "sync.db", Picky()
    uids = await scenario.deliver("one", "two", "three")
    sink.refuses = lambda change: change.key.uid == uids[1]
    async with SqliteStore(path) as kept:
        sync = Synchronizer(scenario.suite, kept, [ALICE], FakePasswords(), deliver=sink, clock=SteppedClock())
        status = (await sync.once())[ALICE]
        assert (status.status, status.quarantined, len(sink)) == (SyncStatus.UP_TO_DATE, 1, 2)
        sink.refuses = lambda _: False
        await sync.once()
        assert len(sink) == 2
        async with SqliteStore(path, shared=True) as beside:
            await beside.request(OperatorRequest.RETRY)
        await sync.once()
    assert sink[2] == (Kind.NEW, "INBOX", uids[1])


async def test_a_stream_continues_after_a_refused_change(scenario: Scenario) -> None:
    uids, taken = await scenario.deliver("one", "two", "three"), list[int]()
    async with SqliteStore(":memory:") as kept, asyncio.timeout(20):
        sync = Synchronizer(scenario.suite, kept, [ALICE], FakePasswords(), clock=SteppedClock())
        async with sync.changes() as changes:
            async for change in changes:
                if change.key.uid == uids[1]:
                    changes.refuse()
                else:
                    taken.append(change.key.uid)
                if uids[2] in taken:
                    break
    assert uids[0] in taken
