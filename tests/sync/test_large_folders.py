"""A large folder: how many rounds it takes, each of which reads the listing and the states of all that is there."""

from __future__ import annotations

import pytest

from directsuite.sync import SqliteStore, fetch, remote
from tests.sync.test_partial_answers import Scene, Server, letter
from tests.sync.test_partial_answers import store as store


@pytest.mark.parametrize(("messages", "rounds"), [(8, 4), (80, 5)])
async def test_the_rounds_of_a_first_synchronisation_are_bounded(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch, messages: int, rounds: int
) -> None:
    for module in (fetch, remote):
        monkeypatch.setattr(module, "MOST", 2)
    monkeypatch.setattr(fetch, "BATCHES", 1)
    monkeypatch.setattr(fetch, "ROUNDS", 5)
    scene = Scene(Server({"INBOX": {uid: letter(uid) for uid in range(1, messages + 1)}}), store)
    taken = 1
    while (await scene.rounds.round()).more:
        taken += 1
    assert taken == rounds
    assert len(scene.told) == messages
