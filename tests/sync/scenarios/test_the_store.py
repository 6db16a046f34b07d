"""A full disk, and a PostgreSQL that does not answer: trouble of all mailboxes at once, which is no fault of theirs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from directsuite.cli.sync_status import build_fleet_report
from directsuite.sync import SqliteSink, SqliteStore, Synchronizer, SyncStatus
from tests.integration.scenario import ALICE, BOB, Scenario
from tests.statements import sql
from tests.sync.scenarios.running_worker import HOUR_SECONDS, PasswordSource, read_subjects, run_worker
from tests.sync.test_synchronizer import SteppedClock

if TYPE_CHECKING:
    from tests.sync.fleet.postgres_server import PostgresServer

pytestmark = pytest.mark.wide

SOON = 120.0


async def test_a_full_disk_is_told_and_got_over(scenario: Scenario, tmp_path: Path) -> None:
    path = tmp_path / "sync.db"

    async def at_most(pages: int) -> None:
        await store._database.execute(sql(f"PRAGMA max_page_count = {pages}"))

    def make(clock: SteppedClock) -> Synchronizer:
        return Synchronizer(scenario.suite, store, [ALICE, BOB], PasswordSource(), clock=clock, now=clock.monotonic)

    await scenario.deliver("before")
    async with SqliteStore(path, sink=SqliteSink()) as store, run_worker(scenario, make, path) as worker:
        await worker.advance_until(lambda: worker.get_status(ALICE) is SyncStatus.UP_TO_DATE, within=SOON)
        await at_most(1)  # as many as there are
        await scenario.deliver(*(f"letter {number:03} " + 200 * "x" for number in range(60)))
        await worker.advance_until(lambda: worker.get_status(ALICE) is SyncStatus.FAILING, within=SOON)
        assert "disk of the store is full" in worker.get_problem(ALICE)
        await worker.advance(HOUR_SECONDS)
        assert worker.get_status(BOB) is SyncStatus.UP_TO_DATE  # where nothing happens nothing is to be written
        assert worker.read_status()[BOB]["lag"] == pytest.approx(0, abs=SOON)
        assert len(read_subjects(path)) < 61
        await at_most(100_000)
        await worker.advance_until(
            lambda: worker.get_status(ALICE) is SyncStatus.UP_TO_DATE, within=400.0
        )  # not an hour
    found = read_subjects(path)
    assert len(found) == len(set(found)) == 61


@pytest.mark.postgres
async def test_a_postgresql_that_does_not_answer_is_told_and_waited_for(
    scenario: Scenario, tmp_path: Path, shaky_postgres: PostgresServer
) -> None:
    from directsuite.sync.postgres import PostgresStore
    from directsuite.sync.sinks import PostgresSink

    path = tmp_path / "beside.db"  # only for the report to stand beside something
    async with SqliteStore(path):
        pass

    async def found() -> list[str]:
        rows = await store.database.fetch(sql("SELECT subject FROM directsuite.message ORDER BY subject"))
        return [str(subject) for (subject,) in rows]

    def make(clock: SteppedClock) -> Synchronizer:
        return Synchronizer(scenario.suite, store, [ALICE, BOB], PasswordSource(), clock=clock, now=clock.monotonic)

    conninfo = shaky_postgres.create_database()
    await scenario.deliver("before")
    async with (
        PostgresStore(conninfo, sink=PostgresSink(), timeout=0.5) as store,
        run_worker(scenario, make, path) as worker,
    ):
        await worker.advance_until(lambda: worker.get_status(ALICE) is SyncStatus.UP_TO_DATE, within=SOON)
        await scenario.deliver("meanwhile")
        with shaky_postgres.freeze():
            await worker.advance_until(lambda: worker.get_status(ALICE) is SyncStatus.FAILING, within=SOON)
            assert worker.get_problem(ALICE).startswith("PostgreSQL has not responded in time")
            assert worker.read_status()[ALICE]["failing_for"] is not None
        await worker.advance_until(lambda: worker.get_status(ALICE) is SyncStatus.UP_TO_DATE, within=60.0)
        await worker.advance_until(lambda: worker.get_status(BOB) is SyncStatus.UP_TO_DATE, within=60.0)
        assert await found() == ["before", "meanwhile"]
        report = await build_fleet_report(store, 0.0)
        assert report.mailboxes == []  # nobody gave it to a fleet
