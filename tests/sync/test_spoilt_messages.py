"""Messages that can't be fetched: a few hold up nobody, and a service that gives none isn't asked for each of them."""

from __future__ import annotations

from collections import Counter

import attrs
import pytest

from directsuite.errors import ResponseDecodeError, ServerError
from directsuite.sync import Kind, SqliteStore
from tests.sync.test_partial_answers import Scene, Server, letter
from tests.sync.test_partial_answers import store as store

HOUR = 3_600_000


async def test_a_service_that_gives_no_message_is_asked_for_few(store: SqliteStore) -> None:
    scene = Scene(Server({"INBOX": {uid: letter(uid) for uid in range(1, 1001)}}), store)
    scene.server.spoilt = set(range(1, 1001))
    for times in range(1, 4):
        report = await scene.rounds.round()
        assert isinstance(report.failed["INBOX"], ServerError)
        assert report.quarantined == 5
        assert scene.server.asked["messages"] <= 40 * times
        assert scene.server.asked["metadata"] == times
    scene.server.spoilt.clear()
    scene.server.asked.clear()
    scene.now_ms += HOUR
    while (await scene.rounds.round()).more:
        pass
    assert Counter(kind for kind, _, _ in scene.told) == {Kind.NEW: 1000}
    assert scene.server.asked["messages"] <= 50


async def test_many_in_a_row_are_quarantined_where_others_can_be_fetched(store: SqliteStore) -> None:
    scene = Scene(Server({"INBOX": {uid: letter(uid) for uid in range(1, 11)}}), store)
    await scene.come_up_to_date()
    scene.server.boxes["INBOX"] |= {uid: letter(uid) for uid in range(11, 61)}
    scene.server.spoilt = set(range(20, 51))
    report = await scene.rounds.round()
    assert not report.failed
    assert report.quarantined == 31
    assert [uid for _, _, uid in scene.told] == [*range(11, 20), *range(51, 61)]
    assert scene.server.asked["metadata"] == 1


@pytest.mark.parametrize("mended", [True, False])
async def test_those_quarantined_are_asked_for_by_and_by(store: SqliteStore, mended: bool) -> None:
    scene = Scene(Server({"INBOX": {uid: letter(uid) for uid in range(1, 11)}}), store)
    await scene.come_up_to_date()
    scene.server.boxes["INBOX"] |= {uid: letter(uid) for uid in range(11, 61)}
    scene.server.spoilt = set(range(11, 61))
    await scene.rounds.round()
    if mended:
        scene.server.spoilt.clear()
    scene.now_ms += HOUR
    for left in (30, 10, 0):
        scene.server.asked.clear()
        report = await scene.rounds.round()
        assert report.more == bool(left)
        assert scene.server.asked["messages"] == min(20, left + 10)
        assert scene.server.asked["uids"] == 1 + (min(20, left + 10) if mended else 0)
        assert len(scene.told) == (50 - left if mended else 0)


async def test_spoilt_ones_at_the_head_of_a_folder_hold_up_no_other(store: SqliteStore) -> None:
    scene = Scene(Server({"INBOX": {uid: letter(uid) for uid in range(1, 111)}}), store)
    scene.server.spoilt = set(range(1, 101))
    report = await scene.rounds.round()
    assert not report.failed
    assert [uid for _, _, uid in scene.told] == list(range(101, 111))


async def test_a_service_that_lists_messages_and_returns_none_sets_none_aside(store: SqliteStore) -> None:
    scene = Scene(Server({"INBOX": {uid: letter(uid) for uid in range(1, 201)}}), store)
    scene.server.returns_none = True
    reports = [await scene.rounds.round() for _ in range(6)]
    assert sum(report.quarantined for report in reports) == 0
    assert isinstance(reports[-1].failed["INBOX"], ResponseDecodeError)
    assert scene.server.asked["metadata"] == 0
    scene.server.returns_none = False
    while (await scene.rounds.round()).more:
        pass
    assert Counter(kind for kind, _, _ in scene.told) == {Kind.NEW: 200}


async def test_copies_without_a_date_are_looked_at_one_by_one(store: SqliteStore) -> None:
    dateless = attrs.evolve(letter(1), received_date=None)
    scene = Scene(Server({"INBOX": {1: dateless}}), store)
    await scene.come_up_to_date()
    scene.server.boxes["INBOX"] |= dict.fromkeys(range(2, 52), dateless)
    await scene.rounds.round()
    assert scene.server.asked["metadata"] == 0
    assert [kind for kind, _, _ in scene.told] == [Kind.NEW] * 50


async def test_messages_carried_over_to_another_numbering_are_counted(store: SqliteStore) -> None:
    scene = Scene(Server({"INBOX": {uid: letter(uid) for uid in range(1, 31)}}), store)
    await scene.come_up_to_date()
    scene.server.boxes["INBOX"] = {31 - uid: letter(uid) for uid in range(1, 31)}
    scene.clock.now += 700
    report = await scene.rounds.round()
    assert report.changes[Kind.MOVED] == len(scene.told) == 30
