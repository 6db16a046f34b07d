"""A listing that is identical to the previous one is not decoded."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

import directsuite as ds
from directsuite.core import attempt, outcome
from directsuite.sync.remote import Remote
from tests.core import responses
from tests.core.scripted_server import ScriptedServer
from tests.core.scripted_suite import ALICE, PASSWORD, open_suite

LISTED = {"success": True, "uids": [3, 1, 2, 3]}


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with ScriptedServer(responses.respond(LISTED)) as running:
        yield running


@pytest.fixture
def statuses(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    statuses, interpret = list[int](), outcome.interpret

    def counted(operation: Any, answer: Any, *args: Any) -> Any:
        statuses.append(answer.status)
        return interpret(operation, answer, *args)

    monkeypatch.setattr(attempt, "interpret", counted)
    return statuses


async def test_an_identical_listing_is_not_decoded(server: ScriptedServer, statuses: list[int]) -> None:
    server.enqueue(
        responses.respond(LISTED), responses.respond(LISTED), responses.respond({"success": True, "uids": [1, 2, 3, 4]})
    )
    async with open_suite(server) as suite:
        remote = Remote(suite.mailbox(ALICE, PASSWORD))
        first = await remote.list_uids("INBOX")
        assert first is not None
        assert [*first.uids] == [1, 2, 3]
        assert await remote.list_uids("INBOX", first.etag) is None
        assert statuses == [200]
        third = await remote.list_uids("INBOX", first.etag)
    assert third is not None
    assert [*third.uids] == [1, 2, 3, 4]
    assert statuses == [200, 200]


async def test_an_error_with_a_known_body_is_raised(server: ScriptedServer) -> None:
    server.enqueue(responses.respond(LISTED), responses.respond(LISTED, status=500))
    async with open_suite(server, retry=ds.RetryPolicy.none()) as suite:
        remote = Remote(suite.mailbox(ALICE, PASSWORD))
        first = await remote.list_uids("INBOX")
        assert first is not None
        with pytest.raises(ds.ServerError):
            await remote.list_uids("INBOX", first.etag)
