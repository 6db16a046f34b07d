"""Workers of a signing fleet: each document once, whoever dies, hangs, or comes back too late."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import attrs
import pytest

import directsuite as ds
from directsuite.jobs.signing import JobStoppedError, Pdf, State, TargetFolder
from directsuite.jobs.signing.fleet import SigningFleet
from directsuite.jobs.signing.journal import Chunk, JournalError, LostChunkError, PostgresJournal
from tests.jobs.signing.fragile_service import SIGNATURE, Fault, FragileService
from tests.jobs.signing.jobs import CONTENT, SIGN
from tests.waiting import happened, until

pytest.importorskip("psycopg", reason="psycopg isn't installed: the extra 'fleet' brings it")

from directsuite.durable.postgres import Connection, Connections, PostgresDatabase

if TYPE_CHECKING:
    from tests.sync.fleet.postgres_server import PostgresServer

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
    """Time that passes soon, unless it is stopped, as in a process that hangs. is_asked: whether somebody waits."""

    def __init__(self) -> None:
        self.goes = asyncio.Event()
        self.goes.set()
        self.is_asked = asyncio.Event()

    def monotonic(self) -> float:
        """It stands."""
        return 0.0

    async def sleep(self, seconds: float) -> None:
        """Give others some turns, one at least."""
        for _ in range(max(1, min(1000, round(10 * seconds)))):
            await asyncio.to_thread(lambda: None)
        if not self.goes.is_set():
            self.is_asked.set()
        await self.goes.wait()


class Interrupted(Connections):
    """Connections that break so many times."""

    faults = 0

    async def _bounded(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        if self.faults:
            self.faults -= 1
            raise JournalError("PostgreSQL is away.")
        return await super()._bounded(work)


class HeldService(FragileService):
    """Answers one request to sign when it is let go; aside: it has acted on it before, and has the answer there."""

    def __init__(self, aside: Path | None) -> None:
        super().__init__()
        self.aside = aside
        self.asked_first = asyncio.Event()
        self.let_go = asyncio.Event()

    async def multi_sign_and_pull(
        self, identifier: str, signatures: Sequence[ds.Signature], *, destination: Path | None = None
    ) -> Path | bytes:
        """Sign a document, the first one late."""
        if not self.asked_first.is_set():
            if self.aside is not None:
                await super().multi_sign_and_pull(identifier, signatures, destination=self.aside)
            self.asked_first.set()
            await self.let_go.wait()
            if self.aside is not None:
                return self.aside.read_bytes() if destination is None else self.aside.rename(destination)
        return await super().multi_sign_and_pull(identifier, signatures, destination=destination)


@attrs.define
class Scene:
    """A fleet's journal, service and folder."""

    journal: PostgresJournal
    connections: Interrupted
    out: Path
    service: FragileService = attrs.field(factory=FragileService)

    def worker(self, **options: Any) -> SigningFleet:
        """A worker, as another process would have it."""
        service: Any = self.service
        signatures = options.pop("signatures", SIGN)
        clock = options.pop("clock", None) or BriefClock()
        return SigningFleet(
            service,
            lambda name: Pdf(name, CONTENT),
            TargetFolder(self.out),
            signatures,
            journal=self.journal,
            clock=clock,
            now=lambda: 0.0,
            **options,
        )

    async def lose_all(self) -> None:
        """As if no worker had been heard of for an hour."""
        await self.connections.fetch(_LONG_AGO)
        ((has_queue,),) = await self.connections.fetch(
            "SELECT to_regclass('directsuite.procrastinate_workers') IS NOT NULL"
        )
        if has_queue:
            await self.connections.fetch(_WORKERS_TOO)

    async def taken(self) -> Chunk:
        """The first chunk that is there to be taken."""
        for key in range(1, 10):
            chunk = await self.journal.lease(key, 30.0)
            if chunk is not None:
                return chunk
        raise AssertionError("there is none")

    async def agrees(self, names: Sequence[str] = NAMES) -> bool:
        """Whether all are done, and signed once, as the journal has it; and no stored document was asked for twice."""
        tally = await self.journal.tally()
        rows = await self.connections.fetch("SELECT name, output_sha FROM directsuite.signing_document")
        noted = {bytes(name).decode(): digest for name, digest in rows}
        outputs = {each.name: each.read_bytes() for each in self.out.iterdir()}
        return (
            tally.states == {State.DONE: len(names)}
            and outputs == dict.fromkeys(names, CONTENT + SIGNATURE)
            and {name: hashlib.sha256(content).hexdigest() for name, content in outputs.items()} == noted
            and set(self.service.asked.values()) == {1}
        )


async def some_more(worker: SigningFleet, running: asyncio.Task[object]) -> None:
    """Return when a worker has done some more. Raises what it ended with."""
    before = worker.progress.done
    running.add_done_callback(lambda _: happened())
    await until(lambda: worker.progress.done > before or running.done())
    if running.done():
        running.result()


@pytest.fixture
async def scene(conninfo: str, tmp_path: Path) -> AsyncIterator[Scene]:
    async with PostgresJournal(conninfo, "consents", chunk=5) as journal:
        assert await journal.add(NAMES) == len(NAMES)
        await journal.connections.aclose()
        journal.connections = connections = Interrupted(conninfo, error=JournalError, most=8)
        journal._database = PostgresDatabase(connections)
        yield Scene(journal, connections, tmp_path / "out")


async def test_workers_share_the_documents_and_sign_each_once(scene: Scene) -> None:
    assert await scene.journal.add([*NAMES, "0.pdf"]) == 0
    assert await scene.journal.open_chunks() == 3
    workers = [scene.worker(concurrency=1) for _ in range(3)]
    ended = await asyncio.gather(*(worker.run() for worker in workers))
    assert sum(each.done for each in ended) == len(NAMES)
    assert sum(each.chunks for each in ended) == 3
    assert await scene.agrees()
    assert (await scene.worker().run()).chunks == 0


async def test_no_two_chunks_have_one_part_of_a_staging_folder(
    scene: Scene, conninfo: str, postgres: PostgresServer
) -> None:
    first, second = await scene.taken(), await scene.taken()
    parts = {await first.part(), await second.part()}
    await scene.lose_all()
    again = await scene.taken()
    assert (again.id, await again.part()) == (first.id, await first.part())  # where the earlier lease's is taken away
    with postgres.lent_database() as elsewhere:
        for place, job in ((conninfo, "other"), (elsewhere, "consents")):
            async with PostgresJournal(place, job) as journal:
                await journal.add(["a.pdf"])
                [key] = await journal.due(30.0)
                chunk = await journal.lease(key, 30.0)
                assert chunk is not None
                parts |= {await chunk.part(), journal.part_of(first.id)}
    assert len(parts) == (2 + 2 + 1)  # elsewhere it is the first chunk, too


async def test_what_a_dead_worker_leaves_is_adopted_if_signed_and_else_abandoned(scene: Scene) -> None:
    chunk = await scene.taken()
    names = await chunk.names()
    service: Any = scene.service
    for number, entry in enumerate(await chunk.entries(names[:3])):
        stored = await scene.service.save(CONTENT)
        source = hashlib.sha256(CONTENT).hexdigest()
        saved = attrs.evolve(entry, state=State.SAVED, identifier=stored.identifier, saved_at=0.0, source_sha=source)
        if number < 2:
            saved = attrs.evolve(saved, state=State.SIGNING)
        await chunk.put(saved)
        if number == 0:
            await service.multi_sign_and_pull(stored.identifier, SIGN, destination=scene.out.with_suffix(".lost"))
    await scene.lose_all()
    await scene.worker().run()
    assert await scene.agrees()
    tally = await scene.journal.tally()
    assert (tally.abandoned, tally.requested) == (1, 1)
    assert scene.service.made == len(NAMES) + 1
    assert scene.service.stored == {}


async def test_one_that_comes_back_too_late_writes_nothing(scene: Scene) -> None:
    late = await scene.taken()
    [entry, *_] = await late.entries(await late.names())
    await scene.lose_all()
    now = await scene.taken()
    assert (now.id, now.fence) == (late.id, late.fence + 1)
    for attempt in (
        late.confirm(),
        late.put(attrs.evolve(entry, state=State.SIGNING)),
        late.abandon(attrs.evolve(entry, identifier="x"), at=0.0),
    ):
        with pytest.raises(LostChunkError):
            await attempt
    await late.release()
    assert await now.entries([entry.name]) == [entry]
    assert await now.abandoned() == []
    await now.confirm()
    await now.release()
    with pytest.raises(LostChunkError):
        await now.confirm()  # it would keep others from it
    assert await scene.journal.open_chunks() == 3


@pytest.mark.parametrize("has_signed", [False, True])
async def test_a_worker_that_hangs_while_it_signs_keeps_nothing_when_it_goes_on(has_signed: bool, scene: Scene) -> None:
    held = scene.service = HeldService(scene.out.with_name("aside") if has_signed else None)
    clock = BriefClock()
    hanging = scene.worker(concurrency=1, patience=1e9, clock=clock)
    first = asyncio.create_task(hanging.run())
    await held.asked_first.wait()
    clock.goes.clear()
    await clock.is_asked.wait()
    await scene.lose_all()
    await scene.worker().run()
    assert await scene.agrees()
    clock.goes.set()
    held.let_go.set()
    await first
    assert await scene.agrees()
    assert not (scene.out / ".directsuite").exists()
    assert (await scene.journal.tally()).requested == (not has_signed)


async def test_postgres_is_waited_for(scene: Scene) -> None:
    worker = scene.worker(concurrency=2, patience=1.0)  # a chunk that it could not hand back is free again then
    running = asyncio.create_task(worker.run())
    for _ in range(4):
        await some_more(worker, running)
        scene.connections.faults = 2
    await running
    assert await scene.agrees()


async def test_a_restart_of_postgresql_is_outlived(shaky_postgres: PostgresServer, tmp_path: Path) -> None:
    conninfo = shaky_postgres.new_database()
    async with PostgresJournal(conninfo, "consents", chunk=5) as journal:
        await journal.add(NAMES)
        scene = Scene(journal, Interrupted(conninfo, error=JournalError), tmp_path / "out")
        worker = scene.worker(concurrency=1, patience=1.0)
        running = asyncio.create_task(worker.run())
        await some_more(worker, running)
        await asyncio.to_thread(shaky_postgres.stop)
        assert worker.progress.done < len(NAMES)
        await asyncio.to_thread(shaky_postgres.start)
        await running
        assert await scene.agrees()
        await scene.connections.aclose()


async def test_jobs_in_one_database_leave_each_other_alone(scene: Scene, conninfo: str, tmp_path: Path) -> None:
    async with PostgresJournal(conninfo, "reports") as journal:
        await journal.add(["a.pdf"])
        other = Scene(journal, scene.connections, tmp_path / "reports")
        first, second = await asyncio.gather(scene.worker(concurrency=1).run(), other.worker().run())
    assert (first.chunks, second.chunks) == (3, 1)
    assert [each.name for each in other.out.iterdir()] == ["a.pdf"]
    assert len(list(scene.out.iterdir())) == len(NAMES)


async def test_drained_or_cancelled_it_hands_its_chunk_back(scene: Scene) -> None:
    drained = scene.worker(concurrency=1)
    running = asyncio.create_task(drained.run())
    await some_more(drained, running)
    drained.drain()
    assert (await running).done < len(NAMES)
    at_once = scene.worker()
    running = asyncio.create_task(at_once.run())
    at_once.drain()  # before it begins
    assert (await running).chunks == 0
    cancelled = scene.worker(concurrency=1)
    running = asyncio.create_task(cancelled.run())
    await some_more(cancelled, running)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await scene.worker().run()
    assert await scene.agrees()


async def test_other_signatures_are_refused(scene: Scene) -> None:
    await scene.worker().run()
    await scene.journal.add(["more.pdf"])
    with pytest.raises(ds.ConfigurationError, match="a journal of its own"):
        await scene.worker(signatures=[ds.Signature(name="other")]).run()
    await scene.worker().run()
    assert (await scene.journal.tally()).states == {State.DONE: len(NAMES) + 1}


async def test_trouble_that_lasts_ends_a_worker_and_others_go_on(scene: Scene) -> None:
    scene.service.faults = [Fault.NOT_SENT] * 1000
    with pytest.raises(JobStoppedError, match="too long"):
        await scene.worker(service_patience=-1).run()
    scene.service.faults = []
    await scene.worker().run()
    assert await scene.agrees()


async def test_failures_are_tried_again_alone(scene: Scene) -> None:
    await scene.journal.add(["../x.pdf"])
    worker = await scene.worker().run()
    assert (worker.done, worker.failed) == (len(NAMES), 1)
    [failed] = await scene.journal.failures()
    assert await scene.journal.renew(failed.problem) == 1
    again = await scene.worker().run()
    assert (again.done, again.failed, again.chunks) == (0, 1, 1)


async def test_a_document_under_another_name_ends_the_worker(scene: Scene) -> None:
    def other(name: str) -> Pdf:
        """Not the one that was asked for."""
        return Pdf(f"other-{name}", CONTENT)

    worker = scene.worker()
    worker._named = other
    with pytest.raises(ds.ConfigurationError, match="keep its name"):
        await worker.run()


async def test_closed_connections_end_a_worker(scene: Scene) -> None:
    await scene.connections.aclose()
    with pytest.raises(ds.ClosedError):
        await scene.worker().run()


async def test_a_journal_that_is_not_open_is_told(scene: Scene, conninfo: str) -> None:
    journal = PostgresJournal(conninfo, "consents")
    for call in (journal.tally, journal.failures, journal.open_chunks):
        with pytest.raises(ds.ConfigurationError, match="the journal isn't open"):
            await call()
    with pytest.raises(ds.ConfigurationError, match="chunk has to be 1 or more"):
        PostgresJournal(conninfo, "consents", chunk=0)
    with pytest.raises(ds.ConfigurationError, match=r"\[name\] for one"):
        await scene.journal.add("Ada.pdf")


async def test_a_worker_that_comes_late_leaves_its_successor_s_staging_folder_alone(scene: Scene) -> None:
    await scene.journal.add(NAMES)
    [chunk, *_] = await scene.journal.due(60.0)
    first = await scene.journal.lease(chunk, 60.0)
    assert first is not None
    await scene.journal.connections.fetch(_LONG_AGO)
    second = await scene.journal.lease(chunk, 60.0)
    assert second is not None
    target = TargetFolder(scene.out)
    async with target.staging_dir(await second.part(), second.fence) as room:
        (room / "1.pdf").write_bytes(CONTENT)
        async with target.staging_dir(await first.part(), first.fence):
            assert (room / "1.pdf").exists()
        assert (room / "1.pdf").exists()


async def test_what_expired_is_forgotten_whichever_chunk_it_was_of(scene: Scene) -> None:
    chunks = [await scene.journal.lease(each, 60.0) for each in await scene.journal.due(60.0)]
    taken = [each for each in chunks if each is not None]
    assert len(taken) > 1
    for chunk in taken:
        [entry, *_] = await chunk.entries(await chunk.names())
        stored = attrs.evolve(entry, state=State.SAVED, identifier=f"of {entry.name}", saved_at=0.0)
        await chunk.abandon(await chunk.put(stored), at=0.0)
    assert [len(await each.abandoned()) for each in taken] == [1] * len(taken)
    await taken[0].forget_expired(1.0, 0.0)
    assert [len(await each.abandoned()) for each in taken] == [0] * len(taken)
