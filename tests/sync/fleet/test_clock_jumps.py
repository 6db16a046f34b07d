"""Stored times of a fleet after PostgreSQL's clock was wrong."""

from __future__ import annotations

import asyncio

import attrs
import psycopg
import pytest

from directsuite.core.clock import SystemClock
from directsuite.sync.fleet import FleetTable
from directsuite.sync.postgres import PostgresStore

pytest.importorskip("procrastinate", reason="procrastinate isn't installed: the extra 'fleet' brings it")
from tests.sync.fleet.test_shared_rate import acquire, open_rate

pytestmark = pytest.mark.postgres

MAILBOX = "alice@direct.example.test"
JUMPS = ["-2 years", "-1 hour", "1 hour", "2 years"]


@pytest.fixture
async def table(store: PostgresStore) -> FleetTable:
    table = FleetTable(store.database, "me", 30.0)
    await table.prepare()
    await table.add([MAILBOX])
    return table


def change(conninfo: str, statement: str, jump: str) -> None:
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute(statement.encode(), (jump,))


async def run_round(table: FleetTable, *, next_in: float) -> int:
    ((mailbox, _),) = await table.list_due()
    (leased,) = await table.claim([mailbox])
    assert await table.finish([attrs.evolve(leased, next_in=next_in)])
    return mailbox


@pytest.mark.parametrize(
    ("jump", "is_now"), [("-2 years", True), ("-1 hour", True), ("1 hour", False), ("2 years", True)]
)
async def test_round_is_due_after_the_clock_is_set_right(
    jump: str, is_now: bool, table: FleetTable, conninfo: str
) -> None:
    mailbox = await run_round(table, next_in=30.0)
    change(conninfo, "UPDATE directsuite.schedule SET next_due_at = next_due_at + %s::interval", jump)
    assert [found for found, _ in await table.list_due()] == ([mailbox] if is_now else [])
    assert bool(await table.claim([mailbox])) is is_now
    if not is_now:  # an hour is no longer than a pause can be: it passes
        change(
            conninfo, "UPDATE directsuite.schedule SET next_due_at = next_due_at - %s::interval", "1 hour 30 seconds"
        )
        assert [found for found, _ in await table.list_due()] == [mailbox]


async def test_pause_between_rounds_may_be_as_long_as_the_interval(store: PostgresStore, table: FleetTable) -> None:
    patient = FleetTable(store.database, "me", 30.0, max_pause=10 * 86_400.0)
    mailbox = await run_round(patient, next_in=9 * 86_400.0)
    assert await patient.claim([mailbox]) == []


async def test_pause_between_rounds_is_a_day_at_most(table: FleetTable) -> None:
    mailbox = await run_round(table, next_in=3 * 86_400.0)
    assert await table.claim([mailbox]) == []


@pytest.mark.parametrize("jump", JUMPS)
async def test_mailbox_is_woken_again_after_the_clock_is_set_right(jump: str, table: FleetTable, conninfo: str) -> None:
    ((mailbox, _),) = await table.list_due()
    assert await table.list_due() == []  # a worker was woken for it
    change(conninfo, "UPDATE directsuite.schedule SET woken_at = woken_at + %s::interval", jump)
    assert [found for found, _ in await table.list_due()] == [mailbox]


@pytest.mark.parametrize("jump", JUMPS)
async def test_dead_worker_counts_as_dead_after_the_clock_is_set_right(
    jump: str, table: FleetTable, store: PostgresStore, conninfo: str
) -> None:
    await table.heartbeat()
    assert (await table.read_status()).workers == 1
    await run_round(table, next_in=0.0)
    change(conninfo, "UPDATE directsuite.worker SET seen_at = seen_at + %s::interval", jump)
    assert (await table.read_status()).workers == 0
    assert [worker for _, worker in await table.list_due()] == [None]
    await FleetTable(store.database, "other", 30.0).leave()
    with psycopg.connect(conninfo) as connection:
        (left,) = connection.execute("SELECT count(*) FROM directsuite.worker").fetchone() or (None,)
    assert left == (1 if "hour" in jump else 0)


@pytest.mark.parametrize(
    ("jump", "is_now"), [("-2 years", True), ("-1 hour", True), ("1 hour", False), ("2 years", True)]
)
async def test_requests_continue_after_the_clock_is_corrected(jump: str, is_now: bool, conninfo: str) -> None:
    async with open_rate(conninfo) as rate:
        await asyncio.wait_for(acquire(rate, SystemClock()), 10)
    change(conninfo, "UPDATE directsuite.rate SET arrival = arrival + %s::interval", jump)
    async with open_rate(conninfo) as rate:
        if is_now:
            await asyncio.wait_for(acquire(rate, SystemClock()), 10)
            return
        while rate._asking is None or not rate._asking.done():  # a service may ask for a pause of an hour
            assert not rate.try_acquire()
            await asyncio.sleep(0)
            if rate._asking is not None:
                await asyncio.wait([rate._asking])
        assert 3500 < rate.seconds_until_slot() < 3601
