"""A mailbox whose turn raises what nobody expected fails alone, and is tried again."""

from __future__ import annotations

import asyncio
import logging

import pytest

from directsuite.sync import RoundFinished, SqliteStore, Standing, Synchronizer
from tests.integration.world import ALICE, World
from tests.sync.test_synchronizer import HeldClock, Passwords, Told

NO_TEXT = "jos\udce9@direct.example.test"
"""As a shell gives an address in Latin-1: SQLite can't keep it, and says that with an error of Python's own."""

FAULT = "A fault of directsuite itself (UnicodeEncodeError): report it."


async def test_a_fault_at_one_mailbox_harms_no_other(world: World, caplog: pytest.LogCaptureFixture) -> None:
    told = Told()
    await world.deliver("hers")
    async with SqliteStore(":memory:") as store:
        sync = Synchronizer(world.suite, store, [NO_TEXT, ALICE], Passwords(), deliver=told, clock=world.clock)
        status = await sync.once()
    assert (status[NO_TEXT].standing, status[NO_TEXT].problem) == (Standing.FAILING, FAULT)
    assert status[ALICE].standing is Standing.IN_STEP
    assert told.subjects == [("new", "hers")]
    (record,) = (record for record in caplog.records if record.levelno == logging.ERROR)
    assert FAULT in record.getMessage()
    assert "sqlite.py" in record.getMessage()
    assert "jos" not in caplog.text


async def test_a_fault_is_no_end_of_a_run(world: World) -> None:
    finished = asyncio.Queue[RoundFinished]()
    world.suite.add_listener(lambda event: finished.put_nowait(event) if isinstance(event, RoundFinished) else None)
    clock = HeldClock()
    async with SqliteStore(":memory:") as store, asyncio.timeout(20):
        sync = Synchronizer(world.suite, store, [NO_TEXT, ALICE], Passwords(), deliver=Told(), clock=clock)
        async with asyncio.TaskGroup() as group:
            group.create_task(sync.run())
            for _ in range(2):
                rounds = [await finished.get() for _ in range(2)]
                assert {each.failure for each in rounds} == {None, "UnicodeEncodeError"}
                for _ in range(20):
                    await asyncio.sleep(0)
                clock.pass_by(120.0)
            sync.stop()
    assert sync.status[NO_TEXT].failures >= 2
