"""Messages that cannot be fetched delay no others, and cost few requests."""

from __future__ import annotations

from collections import Counter

import attrs
import pytest

from directsuite.errors import ResponseDecodeError, ServerError
from directsuite.sync import Kind, SqliteStore
from tests.sync.test_partial_answers import FakeServer, SyncScenario, make_message, make_messages

HOUR = 3_600_000


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


async def test_many_unfetchable_messages_are_quarantined_if_others_succeed(store: SqliteStore) -> None:
    scene = SyncScenario(FakeServer({"INBOX": make_messages(1, 10)}), store)
    await scene.synchronise()
    scene.server.folders_by_name["INBOX"] |= make_messages(11, 60)
    scene.server.unfetchable_uids = set(range(20, 51))
    report = await scene.rounds.run_round()
    assert not report.failed_folders
    assert report.quarantined == 31
    assert [uid for _, _, uid in scene.changes] == [*range(11, 20), *range(51, 61)]
    assert scene.server.request_counts["metadata"] == 1


@pytest.mark.parametrize("mended", [True, False])
async def test_quarantined_messages_are_retried_gradually(store: SqliteStore, mended: bool) -> None:
    scene = SyncScenario(FakeServer({"INBOX": make_messages(1, 10)}), store)
    await scene.synchronise()
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
