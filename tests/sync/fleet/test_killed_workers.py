"""Workers with a store in PostgreSQL are killed every second."""

from __future__ import annotations

import pytest

from directsuite.durable.postgres import Connections
from directsuite.sync.model import StoreError
from tests.sync.killing.traffic import assert_equal, run_with_kills

pytestmark = pytest.mark.process


@pytest.mark.postgres
@pytest.mark.parametrize("seconds", [4, pytest.param(120, marks=pytest.mark.slow)])
async def test_the_sink_has_each_message_once(seconds: int, conninfo: str) -> None:
    listed = await run_with_kills(seconds, conninfo)
    connections = Connections(conninfo, error=StoreError)
    rows = await connections.fetch("SELECT mailbox, folder, uid, subject FROM directsuite.message WHERE present")
    new = await connections.fetch("SELECT subject FROM told WHERE kind = 'new'")
    await connections.aclose()
    assert_equal(
        listed, [(mailbox, folder, uid, subject) for mailbox, folder, uid, subject in rows], [s for (s,) in new]
    )
