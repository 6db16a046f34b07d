"""Workers of a signing fleet: each document is signed once, even if workers die, hang or resume too late."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import attrs
import pytest

import directsuite as ds
from directsuite.jobs.signing import DocumentState, JobStoppedError, Pdf, TargetFolder
from directsuite.jobs.signing.fleet import SigningFleet
from directsuite.jobs.signing.journal import Lease, LostLeaseError, SigningJournal, SigningJournalError
from tests.jobs.signing.fragile_service import SIGNATURE_BYTES, Fault, FragileService
from tests.jobs.signing.job_factory import PDF_CONTENT, SIGNATURES
from tests.statements import sql
from tests.waiting import notify_waiters, wait_until

pytest.importorskip("psycopg", reason="psycopg isn't installed: the extra 'fleet' brings it")

from directsuite.durable.postgres import Connection, PostgresDatabase

if TYPE_CHECKING:
    from tests.sync.fleet.postgres_server import PostgresServer

pytestmark = pytest.mark.postgres

T = TypeVar("T")
NAMES = [f"{number}.pdf" for number in range(12)]
_LONG_AGO = """
    UPDATE directsuite.signing_chunk
    SET seen_at = seen_at - interval '1 hour', woken_at = woken_at - interval '1 hour' RETURNING id
"""
_WORKERS_TOO = """
    UPDATE directsuite.procrastinate_workers SET last_heartbeat = last_heartbeat - interval '1 hour' RETURNING id
"""


class BriefClock:
    """A clock whose sleeps end soon unless it is stopped. is_asked: set when a sleep waits."""

    def __init__(self) -> None:
        self.goes = asyncio.Event()
        self.goes.set()
        self.is_asked = asyncio.Event()

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        for _ in range(max(1, min(1000, round(10 * seconds)))):
            await asyncio.to_thread(lambda: None)
        if not self.goes.is_set():
            self.is_asked.set()
        await self.goes.wait()


class Interrupted(PostgresDatabase):
    """Connections that fail `faults` times."""

    faults = 0

    async def _run_bounded(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        if self.faults:
            self.faults -= 1
            raise SigningJournalError("PostgreSQL is away.")
        return await super()._run_bounded(work)


class HeldService(FragileService):
    """Delays the response to one signing request. aside: the signed file, if the request was processed before."""

    def __init__(self, aside: Path | None) -> None:
        super().__init__()
        self.aside = aside
        self.asked_first = asyncio.Event()
        self.let_go = asyncio.Event()

    async def multi_sign_and_pull(
        self, identifier: str, signatures: Sequence[ds.Signature], *, destination: Path | None = None
    ) -> Path | bytes:
        if not self.asked_first.is_set():
            if self.aside is not None:
                await super().multi_sign_and_pull(identifier, signatures, destination=self.aside)
            self.asked_first.set()
            await self.let_go.wait()
            if self.aside is not None:
                return self.aside.read_bytes() if destination is None else self.aside.rename(destination)
        return await super().multi_sign_and_pull(identifier, signatures, destination=destination)


@attrs.define
class FleetScenario:
    """A fleet's journal, service and target folder."""

    journal: SigningJournal
    database: Interrupted
    out: Path
    service: FragileService = attrs.field(factory=FragileService)

    def make_worker(self, **options: Any) -> SigningFleet:
        service: Any = self.service
        signatures = options.pop("signatures", SIGNATURES)
        clock = options.pop("clock", None) or BriefClock()
        return SigningFleet(
            service,
            lambda name: Pdf(name, PDF_CONTENT),
            TargetFolder(self.out),
            signatures,
            journal=self.journal,
            clock=clock,
            now=lambda: 0.0,
            **options,
        )

    async def lose_all(self) -> None:
        """Let all leases and workers expire."""
        await self.database.fetch(sql(_LONG_AGO))
        ((has_queue,),) = await self.database.fetch(
            sql("SELECT to_regclass('directsuite.procrastinate_workers') IS NOT NULL")
        )
        if has_queue:
            await self.database.fetch(sql(_WORKERS_TOO))

    async def taken(self) -> Lease:
        for key in range(1, 10):
            chunk = await self.journal.lease_batch(key, 30.0)
            if chunk is not None:
                return chunk
        raise AssertionError("there is none")

    async def agrees(self, names: Sequence[str] = NAMES) -> bool:
        """Return True if journal and outputs agree, and all documents are done and signed with one request each."""
        tally = await self.journal.tally()
        rows = await self.database.fetch(sql("SELECT name, output_sha FROM directsuite.signing_document"))
        noted = {bytes(name).decode(): digest for name, digest in rows}
        outputs = {each.name: each.read_bytes() for each in self.out.iterdir()}
        return (
            tally.states == {DocumentState.DONE: len(names)}
            and outputs == dict.fromkeys(names, PDF_CONTENT + SIGNATURE_BYTES)
            and {name: hashlib.sha256(content).hexdigest() for name, content in outputs.items()} == noted
            and set(self.service.request_counts.values()) == {1}
        )


async def some_more(worker: SigningFleet, running: asyncio.Task[object]) -> None:
    """Wait until a worker has made progress. Raises the exception that ended it."""
    before = worker.progress.done
    running.add_done_callback(lambda _: notify_waiters())
    await wait_until(lambda: worker.progress.done > before or running.done())
    if running.done():
        running.result()


@pytest.fixture
async def scenario(conninfo: str, tmp_path: Path) -> AsyncIterator[FleetScenario]:
    async with SigningJournal(conninfo=conninfo, job="consents", chunk=5) as journal:
        assert await journal.add(NAMES) == len(NAMES)
        await journal.postgres.aclose()
        journal._database = database = Interrupted(conninfo, error=SigningJournalError, max_connections=8)
        yield FleetScenario(journal, database, tmp_path / "out")


async def test_workers_share_the_documents_and_sign_each_once(scenario: FleetScenario) -> None:
    assert await scenario.journal.add([*NAMES, "0.pdf"]) == 0
    assert await scenario.journal.count_open_batches() == 3
    workers = [scenario.make_worker(concurrency=1) for _ in range(3)]
    ended = await asyncio.gather(*(worker.run() for worker in workers))
    assert sum(each.done for each in ended) == len(NAMES)
    assert sum(each.chunks for each in ended) == 3
    assert await scenario.agrees()
    assert (await scenario.make_worker().run()).chunks == 0


async def test_batches_have_separate_staging_folders(
    scenario: FleetScenario, conninfo: str, postgres: PostgresServer
) -> None:
    first, second = await scenario.taken(), await scenario.taken()
    parts = {first.shard, second.shard}
    await scenario.lose_all()
    again = await scenario.taken()
    assert (again.batch, again.shard) == (first.batch, first.shard)  # where the earlier lease's files are deleted
    assert again.number > first.number
    with postgres.borrow_database() as elsewhere:
        for place, job in ((conninfo, "other"), (elsewhere, "consents")):
            async with SigningJournal(conninfo=place, job=job) as journal:
                await journal.add(["a.pdf"])
                [key] = await journal.list_due(30.0)
                chunk = await journal.lease_batch(key, 30.0)
                assert chunk is not None
                parts |= {chunk.shard, journal._make_lease(first.batch, 1).shard}
    assert len(parts) == (2 + 2 + 1)  # 1: the first batch in the other database


async def test_document_of_dead_worker_is_adopted_if_signed_else_abandoned(scenario: FleetScenario) -> None:
    chunk = await scenario.taken()
    names = await chunk.list_names()
    service: Any = scenario.service
    for number, entry in enumerate(await chunk.entries(names[:3])):
        stored = await scenario.service.save(PDF_CONTENT)
        source = hashlib.sha256(PDF_CONTENT).hexdigest()
        saved = attrs.evolve(
            entry, state=DocumentState.SAVED, identifier=stored.identifier, saved_at=0.0, source_sha=source
        )
        if number < 2:
            saved = attrs.evolve(saved, state=DocumentState.SIGNING)
        await chunk.put(saved)
        if number == 0:
            await service.multi_sign_and_pull(
                stored.identifier, SIGNATURES, destination=scenario.out.with_suffix(".lost")
            )
    await scenario.lose_all()
    await scenario.make_worker().run()
    assert await scenario.agrees()
    tally = await scenario.journal.tally()
    assert (tally.abandoned, tally.requested) == (1, 1)
    assert scenario.service.documents_created == len(NAMES) + 1
    assert scenario.service.stored == {}


async def test_worker_with_expired_lease_writes_nothing(scenario: FleetScenario) -> None:
    late = await scenario.taken()
    [entry, *_] = await late.entries(await late.list_names())
    await scenario.lose_all()
    now = await scenario.taken()
    assert (now.batch, now.number) == (late.batch, late.number + 1)
    for attempt in (
        late.confirm(),
        late.put(attrs.evolve(entry, state=DocumentState.SIGNING)),
        late.abandon(attrs.evolve(entry, identifier="x"), at=0.0),
    ):
        with pytest.raises(LostLeaseError):
            await attempt
    await late.release()
    assert await now.entries([entry.name]) == [entry]
    assert await now.list_abandoned() == []
    await now.confirm()
    await now.release()
    with pytest.raises(LostLeaseError):
        await now.confirm()  # it would block other workers
    assert await scenario.journal.count_open_batches() == 3


@pytest.mark.parametrize("has_signed", [False, True])
async def test_worker_that_hangs_while_signing_publishes_nothing(has_signed: bool, scenario: FleetScenario) -> None:
    held = scenario.service = HeldService(scenario.out.with_name("aside") if has_signed else None)
    clock = BriefClock()
    hanging = scenario.make_worker(concurrency=1, worker_timeout=1e9, clock=clock)
    first = asyncio.create_task(hanging.run())
    await held.asked_first.wait()
    clock.goes.clear()
    await clock.is_asked.wait()
    await scenario.lose_all()
    await scenario.make_worker().run()
    assert await scenario.agrees()
    clock.goes.set()
    held.let_go.set()
    await first
    assert await scenario.agrees()
    assert not (scenario.out / ".directsuite").exists()
    assert (await scenario.journal.tally()).requested == (not has_signed)


async def test_outage_of_postgresql_is_waited_out(scenario: FleetScenario) -> None:
    worker = scenario.make_worker(concurrency=2, worker_timeout=1.0)  # a batch that was not released is free soon
    running = asyncio.create_task(worker.run())
    for _ in range(4):
        await some_more(worker, running)
        scenario.database.faults = 2
    await running
    assert await scenario.agrees()


async def test_restart_of_postgresql_is_waited_out(shaky_postgres: PostgresServer, tmp_path: Path) -> None:
    conninfo = shaky_postgres.create_database()
    async with SigningJournal(conninfo=conninfo, job="consents", chunk=5) as journal:
        await journal.add(NAMES)
        scene = FleetScenario(journal, Interrupted(conninfo, error=SigningJournalError), tmp_path / "out")
        worker = scene.make_worker(concurrency=1, worker_timeout=1.0)
        running = asyncio.create_task(worker.run())
        await some_more(worker, running)
        await asyncio.to_thread(shaky_postgres.stop)
        assert worker.progress.done < len(NAMES)
        await asyncio.to_thread(shaky_postgres.start)
        await running
        assert await scene.agrees()
        await scene.database.aclose()


async def test_jobs_in_one_database_leave_each_other_alone(
    scenario: FleetScenario, conninfo: str, tmp_path: Path
) -> None:
    async with SigningJournal(conninfo=conninfo, job="reports") as journal:
        await journal.add(["a.pdf"])
        other = FleetScenario(journal, scenario.database, tmp_path / "reports")
        first, second = await asyncio.gather(scenario.make_worker(concurrency=1).run(), other.make_worker().run())
    assert (first.chunks, second.chunks) == (3, 1)
    assert [each.name for each in other.out.iterdir()] == ["a.pdf"]
    assert len(list(scenario.out.iterdir())) == len(NAMES)


async def test_drained_or_cancelled_worker_releases_its_batch(scenario: FleetScenario) -> None:
    drained = scenario.make_worker(concurrency=1)
    running = asyncio.create_task(drained.run())
    await some_more(drained, running)
    drained.drain()
    assert (await running).done < len(NAMES)
    at_once = scenario.make_worker()
    running = asyncio.create_task(at_once.run())
    at_once.drain()
    assert (await running).chunks == 0
    cancelled = scenario.make_worker(concurrency=1)
    running = asyncio.create_task(cancelled.run())
    await some_more(cancelled, running)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await scenario.make_worker().run()
    assert await scenario.agrees()


async def test_different_signatures_are_rejected(scenario: FleetScenario) -> None:
    await scenario.make_worker().run()
    await scenario.journal.add(["more.pdf"])
    with pytest.raises(ds.ConfigurationError, match="use a new journal"):
        await scenario.make_worker(signatures=[ds.Signature(name="other")]).run()
    await scenario.make_worker().run()
    assert (await scenario.journal.tally()).states == {DocumentState.DONE: len(NAMES) + 1}


async def test_lasting_outage_stops_one_worker_only(scenario: FleetScenario) -> None:
    scenario.service.faults = [Fault.NOT_SENT] * 1000
    with pytest.raises(JobStoppedError, match="too long"):
        await scenario.make_worker(max_outage=-1).run()
    scenario.service.faults = []
    await scenario.make_worker().run()
    assert await scenario.agrees()


async def test_only_failures_are_retried(scenario: FleetScenario) -> None:
    await scenario.journal.add(["../x.pdf"])
    worker = await scenario.make_worker().run()
    assert (worker.done, worker.failed) == (len(NAMES), 1)
    [failed] = await scenario.journal.failures()
    assert await scenario.journal.retry(failed.problem) == 1
    again = await scenario.make_worker().run()
    assert (again.done, again.failed, again.chunks) == (0, 1, 1)


async def test_document_with_another_name_stops_worker(scenario: FleetScenario) -> None:
    def other(name: str) -> Pdf:
        return Pdf(f"other-{name}", PDF_CONTENT)

    worker = scenario.make_worker()
    worker._named = other
    with pytest.raises(ds.ConfigurationError, match="a different name than was requested"):
        await worker.run()


async def test_closed_connections_stop_worker(scenario: FleetScenario) -> None:
    await scenario.database.aclose()
    with pytest.raises(ds.ClosedError):
        await scenario.make_worker().run()


async def test_closed_journal_is_rejected(scenario: FleetScenario, conninfo: str) -> None:
    journal = SigningJournal(conninfo=conninfo, job="consents")
    for call in (journal.tally, journal.failures, journal.count_open_batches):
        with pytest.raises(ds.ConfigurationError, match="the journal is not open"):
            await call()
    with pytest.raises(ds.ConfigurationError, match=r"\[name\] for a single document"):
        await scenario.journal.add("Ada.pdf")


async def test_expired_documents_are_forgotten_in_every_batch(scenario: FleetScenario) -> None:
    taken = [await scenario.taken() for _ in range(3)]
    for chunk in taken:
        [entry, *_] = await chunk.entries(await chunk.list_names())
        stored = attrs.evolve(entry, state=DocumentState.SAVED, identifier=f"of {entry.name}", saved_at=0.0)
        await chunk.abandon(await chunk.put(stored), at=0.0)
    assert [len(await each.list_abandoned()) for each in taken] == [1] * len(taken)
    await taken[0].forget_expired(1.0, 0.0)
    assert [len(await each.list_abandoned()) for each in taken] == [0] * len(taken)
