"""A listing that is compared with the previous one."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

import directsuite as ds
from directsuite.sync.remote import Remote
from tests.core import responses
from tests.core.scripted_server import ScriptedServer
from tests.core.scripted_suite import ALICE, PASSWORD, open_suite

LISTED = {"success": True, "uids": [3, 1, 2, 3]}


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with ScriptedServer(responses.respond(LISTED)) as running:
        yield running


async def test_a_listing_identical_to_the_previous_one_is_none(server: ScriptedServer) -> None:
    more = {"success": True, "uids": [1, 2, 3, 4]}
    server.enqueue(*map(responses.respond, (LISTED, LISTED, more)), responses.respond(LISTED, status=500))
    async with open_suite(server, retry=ds.RetryPolicy.none()) as suite:
        remote = Remote(suite.mailbox(ALICE, PASSWORD))
        first = await remote.list_uids("INBOX")
        assert first is not None
        assert [*first.uids] == [1, 2, 3]
        assert await remote.list_uids("INBOX", first.etag) is None
        third = await remote.list_uids("INBOX", first.etag)
        assert third is not None
        assert [*third.uids] == [1, 2, 3, 4]
        with pytest.raises(ds.ServerError):
            await remote.list_uids("INBOX", first.etag)
