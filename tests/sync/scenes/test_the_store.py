"""A full disk, and a PostgreSQL that does not answer: trouble of all mailboxes at once, which is no fault of theirs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from directsuite.cli.sync_status import report_of_fleet
from directsuite.durable.database import sql
from directsuite.sync import SqliteSink, SqliteStore, Synchronizer, SyncStatus
from tests.integration.world import ALICE, BOB, World
from tests.sync.scenes.stage import AN_HOUR, Passwords, running, subjects
from tests.sync.test_synchronizer import HeldClock

if TYPE_CHECKING:
    from tests.sync.fleet.postgres_server import PostgresServer

pytestmark = pytest.mark.wide

SOON = 120.0


async def test_a_full_disk_is_told_and_got_over(world: World, tmp_path: Path) -> None:
    path = tmp_path / "sync.db"

    async def at_most(pages: int) -> None:
        await store.database.execute(sql(f"PRAGMA max_page_count = {pages}"))

    def make(clock: HeldClock) -> Synchronizer:
        return Synchronizer(world.suite, store, [ALICE, BOB], Passwords(), clock=clock, now=clock.monotonic)

    await world.deliver("before")
    async with SqliteStore(path, sink=SqliteSink()) as store, running(world, make, path) as worker:
        await worker.until(lambda: worker.status_of(ALICE) is SyncStatus.UP_TO_DATE, within=SOON)
        await at_most(1)  # as many as there are
        await world.deliver(*(f"letter {number:03} " + 200 * "x" for number in range(60)))
        await worker.until(lambda: worker.status_of(ALICE) is SyncStatus.FAILING, within=SOON)
        assert "disk of the store is full" in worker.problem(ALICE)
        await worker.pass_by(AN_HOUR)
        assert worker.status_of(BOB) is SyncStatus.UP_TO_DATE  # where nothing happens nothing is to be written
        assert worker.status()[BOB].lag == pytest.approx(0, abs=SOON)
        assert len(subjects(path)) < 61
        await at_most(100_000)
        await worker.until(lambda: worker.status_of(ALICE) is SyncStatus.UP_TO_DATE, within=400.0)  # not an hour
    found = subjects(path)
    assert len(found) == len(set(found)) == 61


async def test_a_postgresql_that_does_not_answer_is_told_and_waited_for(
    world: World, tmp_path: Path, shaky_postgres: PostgresServer
) -> None:
    from directsuite.sync.postgres import PostgresStore
    from directsuite.sync.sinks import PostgresSink

    path = tmp_path / "beside.db"  # only for the report to stand beside something
    async with SqliteStore(path):
        pass

    async def found() -> list[str]:
        rows = await store.connections.fetch("SELECT subject FROM directsuite.message ORDER BY subject")
        return [str(subject) for (subject,) in rows]

    def make(clock: HeldClock) -> Synchronizer:
        return Synchronizer(world.suite, store, [ALICE, BOB], Passwords(), clock=clock, now=clock.monotonic)

    conninfo = shaky_postgres.new_database()
    await world.deliver("before")
    async with PostgresStore(conninfo, sink=PostgresSink(), timeout=0.5) as store, running(world, make, path) as worker:
        await worker.until(lambda: worker.status_of(ALICE) is SyncStatus.UP_TO_DATE, within=SOON)
        await world.deliver("meanwhile")
        with shaky_postgres.frozen():
            await worker.until(lambda: worker.status_of(ALICE) is SyncStatus.FAILING, within=SOON)
            assert worker.problem(ALICE).startswith("PostgreSQL has not answered in time")
            assert worker.status()[ALICE].failing_for is not None
        await worker.until(lambda: worker.status_of(ALICE) is SyncStatus.UP_TO_DATE, within=60.0)
        await worker.until(lambda: worker.status_of(BOB) is SyncStatus.UP_TO_DATE, within=60.0)
        assert await found() == ["before", "meanwhile"]
        report = await report_of_fleet(store.connections.conninfo, 0.0)
        assert report.mailboxes == []  # nobody gave it to a fleet
