"""A full disk, or a PostgreSQL that does not respond: the problems of all mailboxes are reported and recovered."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from directsuite.cli.sync_status import build_fleet_report, build_worker_report
from directsuite.core.events import Event
from directsuite.sync import RoundFinished, SqliteSink, SqliteStore, Store, Synchronizer, SyncStatus
from directsuite.sync.model import MailboxStatus
from directsuite.sync.status import WorkerStatus, build_status_path, read_status, write_status
from tests.integration.scenario import ALICE, BOB, Scenario
from tests.statements import query_file, sql
from tests.sync.test_synchronizer import SteppedClock, make_sync

if TYPE_CHECKING:
    from tests.sync.fleet.postgres_server import PostgresServer

pytestmark = pytest.mark.wide

HOUR_SECONDS = 3600.0
SOON = 120.0


@attrs.define
class RunningWorker:
    """A worker of two mailboxes. path: the store's file."""

    sync: Synchronizer
    clock: SteppedClock
    path: Path
    finished_rounds: int = 0
    round_finished: asyncio.Event = attrs.field(factory=asyncio.Event)

    def listen(self, event: Event) -> None:
        if isinstance(event, RoundFinished):
            self.finished_rounds += 1
            self.round_finished.set()

    def read_status(self, name: str) -> Mapping[str, Any]:
        """Return what the command `status` reports about a mailbox."""
        report = WorkerStatus(pid=1, started=0.0, written_at=self.clock.now, mailboxes=self.sync.status)
        write_status(build_status_path(self.path), report)

        async def read_store() -> Sequence[MailboxStatus]:
            async with SqliteStore(self.path, shared=True) as store:
                return await store.status()

        with ThreadPoolExecutor(1) as executor:  # the command is another process
            stored = executor.submit(asyncio.run, read_store()).result()
        rows = build_worker_report(stored, read_status(build_status_path(self.path)), self.clock.now).mailboxes
        return next(row for row in rows if row["mailbox"] == name)

    async def wait_for_status(self, name: str, status: SyncStatus, *, within: float) -> None:
        """Advance the clock until a mailbox has a status, which is read after each round and once a minute."""
        began = self.clock.now
        async with asyncio.timeout(20):
            while self.read_status(name)["status"] != status:
                assert self.clock.now - began < within
                finished, checked_at = self.finished_rounds, self.clock.now
                while self.finished_rounds == finished and self.clock.now < checked_at + 60:
                    await self.advance(1.0)

    async def advance(self, seconds: float) -> None:
        """Advance the clock in steps of a second, and finish the rounds that are due."""
        until = self.clock.now + seconds
        while self.clock.now < until:
            self.clock.advance(1.0)
            await _yield_to_loop()
            while self.finished_rounds < sum(each.rounds for each in self.sync.status.values()):
                self.round_finished.clear()
                await self.round_finished.wait()
                await _yield_to_loop()


async def _yield_to_loop() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@asynccontextmanager
async def run_worker(scenario: Scenario, store: Store, path: Path) -> AsyncGenerator[RunningWorker]:
    clock = SteppedClock()
    sync = make_sync(scenario, store, mailboxes=[ALICE, BOB], clock=clock, now=clock.monotonic)
    worker = RunningWorker(sync, clock, path)
    scenario.suite.add_listener(worker.listen)
    working = asyncio.create_task(sync.run())
    try:
        began = asyncio.create_task(worker.round_finished.wait())  # the store's thread binds it to its sink first
        await asyncio.wait([working, began], return_when=asyncio.FIRST_COMPLETED)
        began.cancel()
        await worker.advance(1.0)
        yield worker
        assert not working.done()
    finally:
        working.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await working


def read_subjects(path: Path) -> list[str]:
    return [subject for (subject,) in query_file(path, "SELECT subject FROM message ORDER BY subject")]


async def test_a_full_disk_is_reported_until_it_has_room(scenario: Scenario, tmp_path: Path) -> None:
    path = tmp_path / "sync.db"
    await scenario.deliver("before")
    async with SqliteStore(path, sink=SqliteSink()) as store, run_worker(scenario, store, path) as worker:
        await worker.wait_for_status(ALICE, SyncStatus.UP_TO_DATE, within=SOON)
        await store._database.execute(sql("PRAGMA max_page_count = 1"))
        await scenario.deliver(*(f"letter {number:03} " + 200 * "x" for number in range(60)))
        await worker.wait_for_status(ALICE, SyncStatus.FAILING, within=SOON)
        assert "disk of the store is full" in worker.read_status(ALICE)["problem"]
        await worker.advance(HOUR_SECONDS)
        unchanged = worker.read_status(BOB)
        assert unchanged["status"] == SyncStatus.UP_TO_DATE  # nothing must be written for this mailbox
        assert unchanged["lag"] == pytest.approx(0, abs=SOON)
        assert len(read_subjects(path)) < 61
        await store._database.execute(sql("PRAGMA max_page_count = 100000"))
        await worker.wait_for_status(ALICE, SyncStatus.UP_TO_DATE, within=400.0)  # not an hour
    found = read_subjects(path)
    assert len(found) == len(set(found)) == 61


@pytest.mark.postgres
async def test_a_silent_postgresql_is_reported_until_it_responds(
    scenario: Scenario, tmp_path: Path, shaky_postgres: PostgresServer
) -> None:
    from directsuite.sync.postgres import PostgresSink, PostgresStore

    path = tmp_path / "status.db"  # only for the report
    async with SqliteStore(path):
        pass
    await scenario.deliver("before")
    async with (
        PostgresStore(shaky_postgres.create_database(), sink=PostgresSink(), timeout=0.5) as store,
        run_worker(scenario, store, path) as worker,
    ):
        await worker.wait_for_status(ALICE, SyncStatus.UP_TO_DATE, within=SOON)
        await scenario.deliver("meanwhile")
        with shaky_postgres.freeze():
            await worker.wait_for_status(ALICE, SyncStatus.FAILING, within=SOON)
            failing = worker.read_status(ALICE)
            assert failing["problem"].startswith("PostgreSQL has not responded in time")
            assert failing["failing_for"] is not None
        for name in (ALICE, BOB):
            await worker.wait_for_status(name, SyncStatus.UP_TO_DATE, within=60.0)
        subjects = await store.database.fetch(sql("SELECT subject FROM directsuite.message ORDER BY subject"))
        assert subjects == [("before",), ("meanwhile",)]
        assert (await build_fleet_report(store, 0.0)).mailboxes == []  # the mailboxes are not in a fleet
