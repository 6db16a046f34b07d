"""A worker that runs on time of its own, its sink, and what `status` says of it."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path

import attrs

from directsuite.cli.sync_status import MailboxRow, report_of_worker
from directsuite.core.events import Event
from directsuite.sync import RoundFinished, Synchronizer, SyncStatus
from directsuite.sync.status import WorkerStatus, read_status, status_file_of, write_status
from tests.integration.world import PASSWORD, World
from tests.sync.test_synchronizer import HeldClock

AN_HOUR = 3600.0


@attrs.define
class Passwords:
    """Gives passwords; those of `wrong` are wrong."""

    wrong: set[str] = attrs.field(factory=set[str])

    async def __call__(self, address: str) -> str:
        """The password of a mailbox."""
        return "wrong" if address in self.wrong else PASSWORD


@attrs.define
class Running:
    """A worker under way. ended: rounds so far; another: set when one ends."""

    sync: Synchronizer
    clock: HeldClock
    store: Path
    ended: int = 0
    another: asyncio.Event = attrs.field(factory=asyncio.Event)

    def listen(self, event: Event) -> None:
        """Count rounds."""
        if isinstance(event, RoundFinished):
            self.ended += 1
            self.another.set()

    def status(self) -> dict[str, MailboxRow]:
        """What the command `status` says of each mailbox, from the worker's report and the store."""
        report = WorkerStatus(pid=1, started=0.0, written_at=self.clock.now, mailboxes=self.sync.status)
        path = status_file_of(self.store)
        write_status(path, report)
        reporting = report_of_worker(self.store, read_status(path), self.clock.now)
        with ThreadPoolExecutor(1) as beside:  # the command is another process
            report_of_it = beside.submit(asyncio.run, reporting).result()
        return {each.progress.name: each for each in report_of_it.mailboxes}

    def status_of(self, name: str) -> SyncStatus:
        """How a mailbox stands."""
        return self.status()[name].progress.status

    def problem(self, name: str) -> str:
        """What is wrong with a mailbox; empty where nothing is."""
        return self.status()[name].progress.problem or ""

    async def until(self, seen: Callable[[], bool], *, within: float) -> float:
        """Advance the clock until a condition holds. Return the seconds that it took.

        The condition is checked when a round has ended and once a minute: reading the status is slow.
        """
        began = self.clock.now
        async with asyncio.timeout(20):
            while not seen():
                assert self.clock.now - began < within, "it did not come about"
                ended, checked_at = self.ended, self.clock.now
                while self.ended == ended and self.clock.now < checked_at + 60:
                    await self._pass_by(1.0)
        return self.clock.now - began

    async def pass_by(self, seconds: float) -> None:
        """Let so many seconds pass, and each round end that comes due."""
        until = self.clock.now + seconds
        while self.clock.now < until:
            await self._pass_by(1.0)

    async def _pass_by(self, seconds: float) -> None:
        """None passes while a turn is under way."""
        self.clock.pass_by(seconds)
        await _settled()
        while self.ended < sum(each.rounds for each in self.sync.status.values()):
            self.another.clear()
            await self.another.wait()
            await _settled()


async def _settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@asynccontextmanager
async def running(world: World, make: Callable[[HeldClock], Synchronizer], store: Path) -> AsyncGenerator[Running]:
    """A worker, until the block ends."""
    clock = HeldClock()
    worker = Running(make(clock), clock, store)
    world.suite.add_listener(worker.listen)
    looked = asyncio.Event()
    world.suite.add_listener(lambda event: looked.set() if isinstance(event, RoundFinished) else None)
    working = asyncio.create_task(worker.sync.run())
    try:
        began = asyncio.create_task(looked.wait())  # the store's own thread binds it to its sink first
        await asyncio.wait([working, began], return_when=asyncio.FIRST_COMPLETED)
        began.cancel()
        await worker.pass_by(1.0)
        yield worker
        assert not working.done()
    finally:
        working.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await working


def subjects(store: Path) -> list[str]:
    """Subjects of the messages in the SQLite sink, in order; one that is doubled is there twice."""
    with contextlib.closing(sqlite3.connect(store)) as connection:
        return [subject for (subject,) in connection.execute("SELECT subject FROM message ORDER BY subject")]
