"""The number of rounds that the first synchronisation of a large folder needs."""

from __future__ import annotations

import pytest

from directsuite.sync import SqliteStore, fetch
from tests.sync.test_partial_answers import FakeServer, SyncScenario, make_message


@pytest.mark.parametrize(("messages", "rounds"), [(8, 4), (80, 5)])
async def test_the_rounds_of_a_first_synchronisation_are_bounded(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch, messages: int, rounds: int
) -> None:
    monkeypatch.setattr(fetch, "MAX_BATCH_MESSAGES", 2)
    monkeypatch.setattr(fetch, "MIN_BATCHES_PER_ROUND", 1)
    monkeypatch.setattr(fetch, "MAX_ROUNDS_PER_FOLDER", 5)
    scene = SyncScenario(FakeServer({"INBOX": {uid: make_message(uid) for uid in range(1, messages + 1)}}), store)
    taken = 1
    while (await scene.rounds.run_round()).has_more:
        taken += 1
    assert taken == rounds
    assert len(scene.changes) == messages
