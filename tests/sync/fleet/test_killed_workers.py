"""Workers with a store in PostgreSQL are killed every second."""

from __future__ import annotations

import pytest

from directsuite.durable.postgres import PostgresDatabase
from directsuite.sync.model import StoreError
from tests.statements import sql
from tests.sync.killing.traffic import assert_equal, run_with_kills

pytestmark = pytest.mark.process


@pytest.mark.postgres
@pytest.mark.parametrize("seconds", [4, pytest.param(120, marks=pytest.mark.slow)])
async def test_the_sink_has_each_message_once(seconds: int, conninfo: str) -> None:
    listed = await run_with_kills(seconds, conninfo)
    connections = PostgresDatabase(conninfo, error=StoreError)
    rows = await connections.fetch(sql("SELECT mailbox, folder, uid, subject FROM directsuite.message WHERE present"))
    new = await connections.fetch(sql("SELECT subject FROM told WHERE kind = 'new'"))
    await connections.aclose()
    assert_equal(
        listed, [(mailbox, folder, uid, subject) for mailbox, folder, uid, subject in rows], [s for (s,) in new]
    )
