"""The tables and jobs of a fleet: one worker has a round, and rounds of dead workers are free again."""

from __future__ import annotations

import asyncio
from typing import Any

import attrs
import pytest

from directsuite.sync.fleet import FleetTable, LeasedRound
from directsuite.sync.postgres import PostgresStore
from tests.statements import sql

pytest.importorskip("procrastinate", reason="procrastinate isn't installed: the extra 'fleet' brings it")
from tests.sync.fleet.test_fleet_engine import Turns, make_engine

pytestmark = pytest.mark.postgres

NAMES = [f"{name}@direct.example.test" for name in ("alice", "bob", "carol")]


@pytest.fixture
async def table(store: PostgresStore) -> FleetTable:
    table = FleetTable(store.database, "me", 3.0)
    await table.prepare()
    await table.add(NAMES)
    return table


async def finish(table: FleetTable, leased: LeasedRound, next_in: float) -> None:
    assert await table.finish([attrs.evolve(leased, next_in=next_in)]) == {leased.mailbox}


async def let_claims_expire(store: PostgresStore) -> None:
    await store.database.fetch(
        sql(
            "UPDATE directsuite.schedule SET woken_at = woken_at - interval '3.1 s', "
            "next_due_at = next_due_at - interval '3.1 s' RETURNING 1"
        )
    )


async def test_a_round_starts_only_when_it_is_due(table: FleetTable) -> None:
    mailboxes = [mailbox for mailbox, _ in await table.list_due()]
    begun, *others = await table.claim(mailboxes)
    assert {each.mailbox for each in (begun, *others)} == set(mailboxes)
    assert begun.round_number == 1
    assert "@" not in repr(begun)
    await finish(table, begun, 60.0)
    await finish(table, others[0], 0.0)
    assert [each.mailbox for each in await table.claim(mailboxes)] == [others[0].mailbox]


async def test_a_round_due_soon_is_listed_when_it_is_due(table: FleetTable, store: PostgresStore) -> None:
    mailboxes = [mailbox for mailbox, _ in await table.list_due()]
    now, soon, later = await table.claim(mailboxes)
    await table.finish(
        [attrs.evolve(now, next_in=0.0), attrs.evolve(soon, next_in=0.5), attrs.evolve(later, next_in=60.0)], wakes=True
    )
    await store.database.fetch(
        sql("UPDATE directsuite.schedule SET next_due_at = next_due_at - interval '0.6 s' RETURNING 1")
    )
    assert [mailbox for mailbox, _ in await table.list_due()] == [soon.mailbox]


async def test_due_mailbox_is_woken_by_one_worker_only(table: FleetTable, store: PostgresStore) -> None:
    other = FleetTable(store.database, "other", 3.0)
    found = await asyncio.gather(*(each.list_due() for each in (table, other, table, other)))
    assert sorted(mailbox for due in found for mailbox, _ in due) == sorted({m for due in found for m, _ in due})
    assert await table.list_due() == []


async def test_concurrent_claims_have_different_mailboxes(table: FleetTable, store: PostgresStore) -> None:
    mailboxes = [mailbox for mailbox, _ in await table.list_due()]
    tables = [FleetTable(store.database, f"worker {number}", 3.0) for number in range(4)]
    claimed = await asyncio.gather(*(each.claim(mailboxes) for each in tables))
    assert sorted(leased.mailbox for batch in claimed for leased in batch) == sorted(mailboxes)


async def test_mailbox_of_a_worker_is_free_when_its_heartbeats_end(table: FleetTable, store: PostgresStore) -> None:
    other = FleetTable(store.database, "other", 3.0)
    mailboxes = [mailbox for mailbox, _ in await table.list_due()]
    held, lost, _ = await table.claim(mailboxes)
    await let_claims_expire(store)
    assert await table.heartbeat([held]) == (3, set(mailboxes))
    assert held.mailbox not in {mailbox for mailbox, _ in await other.list_due()}
    assert held.mailbox not in {each.mailbox for each in await other.claim(mailboxes)}
    await table.heartbeat([held, lost])  # which does not extend the claim of the other worker
    await let_claims_expire(store)
    assert len(await table.claim(mailboxes)) == 3


async def test_end_of_a_restarted_round_is_ignored(table: FleetTable, store: PostgresStore) -> None:
    other = FleetTable(store.database, "other", 3.0)
    ((mailbox, _), *_) = await table.list_due()
    (zombies,) = await table.claim([mailbox])
    assert await other.claim([mailbox]) == []
    await let_claims_expire(store)
    (others,) = await other.claim([mailbox])
    assert await table.finish([attrs.evolve(zombies, next_in=3600.0, problem="X")]) == set()
    await finish(other, others, 0.0)
    assert mailbox in (await other.heartbeat())[1]
    assert mailbox not in (await table.heartbeat())[1]


async def test_a_mailbox_is_woken_at_its_worker_while_that_lives(table: FleetTable, store: PostgresStore) -> None:
    ((mailbox, worker), *_) = await table.list_due()
    assert worker is None
    for seen, expected in ((False, None), (True, "me")):
        if seen:
            await table.heartbeat()
        (begun,) = await table.claim([mailbox])
        await finish(table, begun, 0.0)
        assert (mailbox, expected) in await table.list_due()
    await let_claims_expire(store)  # the worker is busy
    assert (mailbox, None) in await table.list_due()
    await table.leave()
    (begun,) = await table.claim([mailbox])
    await finish(table, begun, 0.0)
    assert (mailbox, None) in await table.list_due()


async def test_old_jobs_are_deleted_and_share_batches(store: PostgresStore) -> None:
    engine: Any = make_engine(store.database, Turns(), "sync", batch=50)
    await engine.open()
    try:
        manager = engine._app.job_manager
        dead = await manager.register_worker()
        await engine.wake(dict.fromkeys(range(60), "dead") | dict.fromkeys(range(100, 115)))
        jobs = "SELECT queue_name, jsonb_array_length(args -> 'keys') FROM directsuite.procrastinate_jobs ORDER BY 1, 2"
        shared = [("directsuite_sync", 5), ("directsuite_sync", 10)]
        assert await store.database.fetch(sql(jobs)) == [
            *shared,
            ("directsuite_sync_dead", 10),
            ("directsuite_sync_dead", 50),
        ]
        assert await manager.fetch_job(queues=["directsuite_sync_dead"], worker_id=dead) is not None
        await engine.delete_old_jobs()
        assert len(await store.database.fetch(sql(jobs))) == 4
        await store.database.fetch(
            sql(
                "UPDATE directsuite.procrastinate_events SET at = at - interval '61 s' WHERE job_id IN "
                "(SELECT id FROM directsuite.procrastinate_jobs WHERE right(queue_name, 5) = '_dead') RETURNING 1"
            )
        )
        await engine.delete_old_jobs()
        assert await store.database.fetch(sql(jobs)) == shared
    finally:
        await engine.aclose()
