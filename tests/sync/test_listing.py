"""What a look at a folder costs: an answer that was seen before isn't decoded."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

import directsuite as ds
from directsuite.core import attempt, outcome
from directsuite.sync.remote import DirectRemote
from tests.core import plays
from tests.core.opened import ALICE, PASSWORD, opened
from tests.core.scripted_server import ScriptedServer

LISTED = {"success": True, "uids": [3, 1, 2, 3]}


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with ScriptedServer(plays.answer(LISTED)) as running:
        yield running


@pytest.fixture
def statuses(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Those of the answers that were decoded."""
    statuses, interpret = list[int](), outcome.interpret

    def counted(operation: Any, answer: Any, *args: Any) -> Any:
        statuses.append(answer.status)
        return interpret(operation, answer, *args)

    monkeypatch.setattr(attempt, "interpret", counted)
    return statuses


async def test_the_same_answer_is_known_by_its_bytes(server: ScriptedServer, statuses: list[int]) -> None:
    server.plays(plays.answer(LISTED), plays.answer(LISTED), plays.answer({"success": True, "uids": [1, 2, 3, 4]}))
    async with opened(server) as suite:
        remote = DirectRemote(suite.mailbox(ALICE, PASSWORD))
        first = await remote.uids("INBOX")
        assert first is not None
        assert [*first.uids] == [1, 2, 3]
        assert await remote.uids("INBOX", first.mark) is None
        assert statuses == [200]
        third = await remote.uids("INBOX", first.mark)
    assert third is not None
    assert [*third.uids] == [1, 2, 3, 4]
    assert statuses == [200, 200]


async def test_an_error_is_one_whatever_its_bytes_are(server: ScriptedServer) -> None:
    server.plays(plays.answer(LISTED), plays.answer(LISTED, status=500))
    async with opened(server, retry=ds.RetryPolicy.none()) as suite:
        remote = DirectRemote(suite.mailbox(ALICE, PASSWORD))
        first = await remote.uids("INBOX")
        assert first is not None
        with pytest.raises(ds.ServerError):
            await remote.uids("INBOX", first.mark)
