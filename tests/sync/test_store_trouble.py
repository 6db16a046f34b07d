"""A full disk, and a PostgreSQL that does not answer: trouble of all mailboxes at once, which is no fault of theirs."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from directsuite.cli.sync_status import build_fleet_report, build_worker_report
from directsuite.core.events import Event
from directsuite.sync import RoundFinished, SqliteSink, SqliteStore, Synchronizer, SyncStatus
from directsuite.sync.model import MailboxStatus
from directsuite.sync.status import WorkerStatus, build_status_path, read_status, write_status
from tests.integration.scenario import ALICE, BOB, Scenario
from tests.statements import sql
from tests.sync.test_synchronizer import SteppedClock, make_sync

if TYPE_CHECKING:
    from tests.sync.fleet.postgres_server import PostgresServer

pytestmark = pytest.mark.wide

HOUR_SECONDS = 3600.0
SOON = 120.0


@attrs.define
class RunningWorker:
    """A worker under way. ended: rounds so far; another: set when one ends."""

    sync: Synchronizer
    clock: SteppedClock
    store: Path
    finished_rounds: int = 0
    round_finished: asyncio.Event = attrs.field(factory=asyncio.Event)

    def listen(self, event: Event) -> None:
        """Count rounds."""
        if isinstance(event, RoundFinished):
            self.finished_rounds += 1
            self.round_finished.set()

    def read_status(self) -> dict[str, Mapping[str, Any]]:
        """What the command `status` says of each mailbox, from the worker's report and the store."""
        report = WorkerStatus(pid=1, started=0.0, written_at=self.clock.now, mailboxes=self.sync.status)
        path = build_status_path(self.store)
        write_status(path, report)

        async def read_store() -> Sequence[MailboxStatus]:
            async with SqliteStore(self.store, shared=True) as store:
                return await store.status()

        with ThreadPoolExecutor(1) as executor:  # the command is another process
            stored = executor.submit(asyncio.run, read_store()).result()
        return {
            each["mailbox"]: each for each in build_worker_report(stored, read_status(path), self.clock.now).mailboxes
        }

    def get_status(self, name: str) -> SyncStatus:
        """How a mailbox stands."""
        return SyncStatus(self.read_status()[name]["status"])

    def get_problem(self, name: str) -> str:
        """What is wrong with a mailbox; empty where nothing is."""
        return str(self.read_status()[name]["problem"] or "")

    async def advance_until(self, seen: Callable[[], bool], *, within: float) -> float:
        """Advance the clock until a condition holds. Return the seconds that it took.

        The condition is checked when a round has ended and once a minute: reading the status is slow.
        """
        began = self.clock.now
        async with asyncio.timeout(20):
            while not seen():
                assert self.clock.now - began < within, "it did not come about"
                ended, checked_at = self.finished_rounds, self.clock.now
                while self.finished_rounds == ended and self.clock.now < checked_at + 60:
                    await self._advance_to(1.0)
        return self.clock.now - began

    async def advance(self, seconds: float) -> None:
        """Let so many seconds pass, and each round end that comes due."""
        until = self.clock.now + seconds
        while self.clock.now < until:
            await self._advance_to(1.0)

    async def _advance_to(self, seconds: float) -> None:
        """None passes while a turn is under way."""
        self.clock.advance(seconds)
        await _yield_to_loop()
        while self.finished_rounds < sum(each.rounds for each in self.sync.status.values()):
            self.round_finished.clear()
            await self.round_finished.wait()
            await _yield_to_loop()


async def _yield_to_loop() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@asynccontextmanager
async def run_worker(
    scenario: Scenario, make: Callable[[SteppedClock], Synchronizer], store: Path
) -> AsyncGenerator[RunningWorker]:
    """A worker, until the block ends."""
    clock = SteppedClock()
    worker = RunningWorker(make(clock), clock, store)
    scenario.suite.add_listener(worker.listen)
    looked = asyncio.Event()
    scenario.suite.add_listener(lambda event: looked.set() if isinstance(event, RoundFinished) else None)
    working = asyncio.create_task(worker.sync.run())
    try:
        began = asyncio.create_task(looked.wait())  # the store's own thread binds it to its sink first
        await asyncio.wait([working, began], return_when=asyncio.FIRST_COMPLETED)
        began.cancel()
        await worker.advance(1.0)
        yield worker
        assert not working.done()
    finally:
        working.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await working


def read_subjects(store: Path) -> list[str]:
    """Subjects of the messages in the SQLite sink, in order; one that is doubled is there twice."""
    with contextlib.closing(sqlite3.connect(store)) as connection:
        return [subject for (subject,) in connection.execute("SELECT subject FROM message ORDER BY subject")]


async def test_a_full_disk_is_told_and_got_over(scenario: Scenario, tmp_path: Path) -> None:
    path = tmp_path / "sync.db"

    async def at_most(pages: int) -> None:
        await store._database.execute(sql(f"PRAGMA max_page_count = {pages}"))

    def make(clock: SteppedClock) -> Synchronizer:
        return make_sync(scenario, store, mailboxes=[ALICE, BOB], clock=clock, now=clock.monotonic)

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
        return make_sync(scenario, store, mailboxes=[ALICE, BOB], clock=clock, now=clock.monotonic)

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
