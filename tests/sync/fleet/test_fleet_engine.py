"""The engine of fleets: it always ends, and leaves no task behind. Migrations of its tables."""

from __future__ import annotations

import asyncio
import functools
import gc
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from directsuite.core.clock import SystemClock
from directsuite.sync.model import StoreError
from tests.statements import sql

if TYPE_CHECKING:
    from tests.sync.fleet.postgres_server import PostgresServer

pytest.importorskip("procrastinate", reason="procrastinate isn't installed: the extra 'fleet' brings it")
from procrastinate.schema import SchemaManager
from psycopg import OperationalError
from psycopg.sql import SQL, Identifier

from directsuite.durable.database import Tables, Transaction
from directsuite.durable.fleet import _SQL, FleetEngine
from directsuite.durable.postgres import PostgresDatabase

pytestmark = pytest.mark.postgres


@attrs.define(eq=False)
class Turns:
    keys: list[int] = attrs.field(factory=lambda: [1])
    begun: asyncio.Event = attrs.field(factory=asyncio.Event)
    may_end: asyncio.Event = attrs.field(factory=asyncio.Event)
    ended: list[int] = attrs.field(factory=list[int])
    looks: int = 0

    async def due(self) -> Sequence[tuple[int, None]]:
        keys, self.keys = self.keys, []
        return [(key, None) for key in keys]

    async def take(self, keys: Sequence[int]) -> None:
        self.begun.set()
        await self.may_end.wait()
        self.ended += keys

    async def look_around(self) -> None:
        self.looks += 1


def make_engine(connections: PostgresDatabase, turns: Turns, kind: str = "test", **options: Any) -> FleetEngine:
    given: dict[str, Any] = {"grace": 30.0, "worker_timeout": 30.0, "tick": 0.05, **options}
    return FleetEngine(
        connections,
        kind,
        "one",
        list_due=turns.due,
        run_keys=turns.take,
        heartbeat=turns.look_around,
        clock=SystemClock(),
        **given,
    )


async def start(
    connections: PostgresDatabase, turns: Turns, kind: str = "test", **options: Any
) -> tuple[FleetEngine, asyncio.Task[None]]:
    """Run an engine until it runs its first key."""
    engine = make_engine(connections, turns, kind, **options)
    running = asyncio.create_task(engine.run())
    await asyncio.wait_for(turns.begun.wait(), 20)
    return engine, running


@pytest.fixture
async def connections(conninfo: str) -> AsyncGenerator[PostgresDatabase]:
    connections = PostgresDatabase(conninfo, error=StoreError)
    yield connections
    await connections.aclose()


@pytest.mark.parametrize("times", [1, 3])
async def test_repeated_cancellation_lets_rounds_finish(connections: PostgresDatabase, times: int) -> None:
    before = asyncio.all_tasks()
    turns = Turns()
    _, running = await start(connections, turns)
    for _ in range(times):
        running.cancel()
        await asyncio.wait([running], timeout=0.05)
        assert not running.done()
    turns.may_end.set()
    await asyncio.wait([running], timeout=20)
    assert running.cancelled()
    assert turns.ended == [1]
    assert asyncio.all_tasks() <= before | {running}


async def test_it_ends_without_tasks_whenever_it_is_cancelled(connections: PostgresDatabase) -> None:
    before = asyncio.all_tasks()
    for turns_of_the_loop in range(0, 60, 3):
        running = asyncio.create_task(make_engine(connections, Turns(keys=[])).run())
        for _ in range(turns_of_the_loop):
            await asyncio.to_thread(lambda: None)
        running.cancel()
        await asyncio.wait([running], timeout=20)
        assert running.cancelled()
        assert asyncio.all_tasks() <= before | {running}


@pytest.mark.parametrize("outcome", [None, OperationalError("closed")], ids=["a result", "an error"])
@pytest.mark.parametrize("call", ["prune_stalled_workers", "batch_defer_jobs_async"])
async def test_it_ends_although_psycopg_loses_a_cancellation(
    connections: PostgresDatabase, monkeypatch: pytest.MonkeyPatch, call: str, outcome: Exception | None
) -> None:
    begun = asyncio.Event()

    async def loses(*_: object, **__: object) -> list[Any]:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if outcome is not None:
                raise outcome from None
        return []

    monkeypatch.setattr(f"procrastinate.manager.JobManager.{call}", loses)
    before = asyncio.all_tasks()
    running = asyncio.create_task(make_engine(connections, Turns(), grace=0.2).run())
    await asyncio.wait_for(begun.wait(), 20)
    running.cancel()
    await asyncio.wait([running], timeout=20)
    assert running.cancelled()
    assert asyncio.all_tasks() <= before | {running}


async def test_keys_listed_while_a_wake_fails_are_run(connections: PostgresDatabase) -> None:
    turns = Turns(keys=[])
    engine = make_engine(connections, turns)

    async def due() -> Sequence[tuple[int, None]]:
        with pytest.raises(StoreError):
            await engine.wake({1: None})
        return [(2, None)]

    engine._list_due = due
    with pytest.raises(StoreError):  # the engine is not open
        await engine._wake_due()
    engine._list_due = turns.due
    ended = list[int]()

    async def run_keys(keys: Sequence[int]) -> None:
        ended.extend(keys)
        if len(ended) == 2:
            engine.stop()

    engine._run_keys = run_keys
    await asyncio.wait_for(engine.run(), 20)
    assert sorted(ended) == [1, 2]


async def test_it_ends_while_postgresql_is_stopped(shaky_postgres: PostgresServer) -> None:
    connections = PostgresDatabase(shaky_postgres.create_database(), error=StoreError)
    _, running = await start(connections, Turns(), grace=0.2)
    await asyncio.to_thread(shaky_postgres.stop)
    try:
        running.cancel()
        await asyncio.wait([running], timeout=25)  # less than the pool's connections are waited for
        assert running.cancelled()
    finally:
        await asyncio.to_thread(shaky_postgres.start)
        await connections.aclose()


async def test_worker_with_shorter_timeout_keeps_rounds_of_others(connections: PostgresDatabase) -> None:
    patient, turns = Turns(), Turns(keys=[2])
    first, running = await start(connections, patient)
    [one] = await connections.fetch(sql("SELECT id FROM directsuite.procrastinate_workers"))
    await connections.fetch(sql("SELECT pg_sleep(2.5)"))
    second, other = await start(connections, turns, "other", worker_timeout=1.0)
    assert one in await connections.fetch(sql("SELECT id FROM directsuite.procrastinate_workers"))
    for each in (patient, turns):
        each.may_end.set()
    first.stop()
    second.stop()
    await asyncio.wait_for(asyncio.gather(running, other), 20)


async def test_heartbeats_continue_during_the_grace_period(connections: PostgresDatabase) -> None:
    turns = Turns()
    _, running = await start(connections, turns, worker_timeout=0.6)
    running.cancel()
    looks = turns.looks
    async with asyncio.timeout(20):
        while turns.looks < looks + 8:  # longer than patience
            await asyncio.to_thread(lambda: None)
    turns.may_end.set()
    await asyncio.wait([running], timeout=20)
    assert turns.ended == [1]
    assert await connections.fetch(sql("SELECT id FROM directsuite.procrastinate_jobs")) == []


async def test_a_job_deleted_by_others_ends_without_an_error(
    connections: PostgresDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    turns = Turns()
    worker, running = await start(connections, turns)

    async def delete_jobs(transaction: Transaction) -> None:
        await transaction.execute(_SQL["search_path"])  # for procrastinate's trigger
        await transaction.execute(sql("DELETE FROM directsuite.procrastinate_jobs"))

    await connections.transaction(delete_jobs)
    turns.may_end.set()
    worker.stop()
    await asyncio.wait_for(running, 20)
    gc.collect()
    assert turns.ended == [1]
    assert "never retrieved" not in caplog.text


SHIPPED = {each.name: each.read_bytes() for each in sorted(Path(SchemaManager.get_migrations_path()).glob("*.sql"))}

_OF_THE_QUEUE = """
    SELECT proname, pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = 'directsuite'::regnamespace
    UNION SELECT table_name || '.' || column_name, data_type || is_nullable || coalesce(column_default, '')
    FROM information_schema.columns WHERE table_schema = 'directsuite'
    UNION SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'directsuite'
    UNION SELECT tgname || tgrelid::regclass, pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal
    UNION SELECT typname, enumlabel FROM pg_enum JOIN pg_type ON pg_type.oid = enumtypid ORDER BY 1, 2
"""


@pytest.mark.parametrize("first", ["03.02", "03.04.00_01"])
async def test_tables_of_older_procrastinate_are_migrated_at_start(
    connections: PostgresDatabase, postgres: PostgresServer, first: str
) -> None:
    async def apply(transaction: Transaction, name: str) -> None:
        await transaction.ensure(Tables("queue", _SQL["migration_table"]))
        await transaction.execute(_SQL["search_path"])
        await transaction.connection.execute(SHIPPED[name])
        await transaction.execute(_SQL["record_migration"], {"name": name})

    for name in SHIPPED:
        if name < first + "~":
            await connections.transaction(functools.partial(apply, name=name))
    await asyncio.gather(*(opened(connections) for _ in range(4)))
    rows = await connections.fetch(sql("SELECT name FROM directsuite.queue_migration ORDER BY name"))
    assert [name for (name,) in rows] == list(SHIPPED)
    with postgres.borrow_database() as conninfo:
        fresh = PostgresDatabase(conninfo, error=StoreError)
        await opened(fresh)
        assert await connections.fetch(sql(_OF_THE_QUEUE)) == await fresh.fetch(sql(_OF_THE_QUEUE))
        await fresh.aclose()


async def opened(connections: PostgresDatabase) -> None:
    queue = make_engine(connections, Turns())
    await queue.open()
    await queue.aclose()


@pytest.mark.parametrize("silent", [0, 3_600], ids=["heard of now", "of more patience than this one"])
async def test_migrations_that_break_older_workers_wait_for_them(connections: PostgresDatabase, silent: int) -> None:
    await opened(connections)
    last = list(SHIPPED)[-1]
    assert "_post_" in last
    await connections.fetch(sql("DELETE FROM directsuite.queue_migration WHERE name = :name"), {"name": last})
    noted = "SELECT count(*) FROM directsuite.queue_migration WHERE name = :name"
    older = "INSERT INTO directsuite.procrastinate_workers VALUES (DEFAULT, now() - make_interval(secs => :silent))"
    await connections.fetch(sql(older), {"silent": silent})
    await opened(connections)
    assert await connections.fetch(sql(noted), {"name": last}) == [(0,)]
    await connections.fetch(sql("DELETE FROM directsuite.procrastinate_workers"))
    await opened(connections)
    assert await connections.fetch(sql(noted), {"name": last}) == [(1,)]


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
async def test_workers_start_together_with_any_default_isolation(postgres: PostgresServer, isolation: str) -> None:
    conninfo = postgres.create_database()
    several = [PostgresDatabase(conninfo, error=StoreError) for _ in range(4)]
    default = SQL("ALTER DATABASE {} SET default_transaction_isolation TO {}")
    async with several[0].borrow() as connection:
        await connection.execute(default.format(Identifier(connection.info.dbname), isolation))
    await several[0].disconnect()
    await asyncio.gather(*map(opened, several))
    assert await several[0].fetch(sql("SELECT count(*) FROM directsuite.queue_migration")) == [(len(SHIPPED),)]
    queue = make_engine(several[0], Turns())
    await queue.open()
    asked = await queue._app.connector.execute_query_one_async("SHOW transaction_isolation")
    assert asked == {"transaction_isolation": "read committed"}
    await queue.aclose()
    for each in several:
        await each.aclose()
