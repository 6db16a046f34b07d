"""The rows and the jobs of a fleet: each turn is one worker's, and what the dead leave behind is free again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest

from directsuite.durable.fleet import FleetQueue
from directsuite.sync.fleet import FleetTable
from directsuite.sync.postgres import PostgresStore

pytest.importorskip("procrastinate", reason="procrastinate isn't installed: the extra 'fleet' brings it")
from tests.sync.fleet.fleet_worker import LoggingSink

pytestmark = pytest.mark.postgres

NAMES = [f"{name}@direct.example.test" for name in ("alice", "bob", "carol")]


@pytest.fixture
async def store(conninfo: str) -> AsyncGenerator[PostgresStore]:
    async with PostgresStore(conninfo, sink=LoggingSink()) as store:
        yield store


@pytest.fixture
async def table(store: PostgresStore) -> FleetTable:
    table = FleetTable(store.connections, "me", 3.0)
    await table.prepare()
    await table.add(NAMES)
    return table


async def test_a_round_begins_only_when_it_is_due(table: FleetTable) -> None:
    ((mailbox, _), *_) = await table.list_due()
    begun = await table.claim(mailbox)
    assert begun is not None
    assert begun.round_number == 1
    assert "@" not in repr(begun)
    assert await table.finish(begun, 60.0, None)
    assert await table.claim(mailbox) is None


async def test_due_mailbox_is_woken_by_one_worker_only(table: FleetTable, store: PostgresStore) -> None:
    other = FleetTable(store.connections, "other", 3.0)
    found = await asyncio.gather(*(each.list_due() for each in (table, other, table, other)))
    assert sorted(mailbox for due in found for mailbox, _ in due) == sorted({m for due in found for m, _ in due})
    assert await table.list_due() == []


async def test_end_of_a_restarted_round_is_ignored(table: FleetTable, store: PostgresStore) -> None:
    other = FleetTable(store.connections, "other", 3.0)
    ((mailbox, _), *_) = await table.list_due()
    zombies, others = await table.claim(mailbox), await other.claim(mailbox)
    assert zombies is not None
    assert others is not None
    assert not await table.finish(zombies, 3600.0, "X")
    assert await other.finish(others, 0.0, None)
    assert mailbox in await other.list_own()
    assert mailbox not in await table.list_own()


async def test_a_mailbox_is_woken_at_its_worker_while_that_lives(table: FleetTable, store: PostgresStore) -> None:
    ((mailbox, worker), *_) = await table.list_due()
    assert worker is None
    for seen, expected in ((False, None), (True, "me")):
        if seen:
            await table.heartbeat()
        begun = await table.claim(mailbox)
        assert begun is not None
        await table.finish(begun, 0.0, None)
        assert (mailbox, expected) in await table.list_due()
    await table.leave()
    begun = await table.claim(mailbox)
    assert begun is not None
    await table.finish(begun, 0.0, None)
    assert (mailbox, None) in await table.list_due()


async def test_jobs_of_the_dead_are_removed_or_given_to_all(table: FleetTable, store: PostgresStore) -> None:
    ran = list[int]()

    async def run(mailbox: int) -> None:
        ran.append(mailbox)

    queue = FleetQueue(store.connections, "sync", "living", run, concurrency=2, grace=1.0, worker_timeout=0.0)
    await queue.open()
    try:
        manager = queue._app.job_manager
        dead = await manager.register_worker()
        await queue.wake(1, "dead")
        assert await manager.fetch_job(queues=["directsuite_sync_dead"], worker_id=dead) is not None
        await queue.wake(1, "dead")
        await queue.wake(1, "dead")  # a second one waits no more than once
        await queue.wake(2, "dead")
        await queue.reap()
        await table.reassign()
        jobs = "SELECT queue_name, status::text FROM directsuite.procrastinate_jobs ORDER BY id"
        assert await store.connections.fetch(jobs) == [("directsuite_sync", "todo")] * 2
    finally:
        await queue.aclose()


async def test_a_job_whose_end_was_not_noted_holds_its_mailbox_for_two_looks(
    table: FleetTable, store: PostgresStore
) -> None:
    async def run(_: int) -> None:
        pass

    queue = FleetQueue(store.connections, "sync", "living", run, concurrency=2, grace=1.0, worker_timeout=60.0)
    await queue.open()
    try:
        manager = queue._app.job_manager
        living = await manager.register_worker()
        await queue.wake(1, None)
        job = await manager.fetch_job(queues=["directsuite_sync"], worker_id=living)
        assert job is not None
        assert job.id is not None
        queue._finished_jobs.add(job.id)  # PostgreSQL was away when procrastinate would have noted it
        await queue.wake(1, None)
        left = list[bool]()
        for _ in range(3):
            await queue.reap()
            left.append(await manager.fetch_job(queues=["directsuite_sync"], worker_id=living) is None)
            await queue.release_finished()
        assert left == [True, True, False]
    finally:
        await queue.aclose()
