"""A worker of a fleet, in this process: what is due is done, and what is told of it names nobody."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

import pytest

import directsuite as ds
from directsuite.sandbox.server import Sandbox
from directsuite.sync.changes import Change
from directsuite.sync.fleet_queue import FleetQueue
from directsuite.sync.fleet_table import FleetTable
from directsuite.sync.postgres import PostgresStore
from directsuite.sync.store import Delta, Lease

if TYPE_CHECKING:
    from tests.sync.fleet.postgres_server import PostgresServer

pytest.importorskip("procrastinate", reason="procrastinate isn't installed: the extra 'fleet' brings it")
from tests.sync.fleet.fleet_worker import PASSWORD, LoggingSink, fleet_of

NAMES = [f"{name}@direct.example.test" for name in ("alice", "bob", "carol")]


def raw(subject: str) -> bytes:
    """A message as it goes over the wire."""
    return (
        f"From: dr@elsewhere.test\r\nSubject: {subject}\r\nMessage-ID: <{subject}@elsewhere.test>\r\n"
        "Date: Fri, 01 May 2026 11:00:00 +0000\r\n\r\nText\r\n"
    ).encode()


async def until(seen: Callable[[], Awaitable[bool]], seconds: float = 30) -> None:
    """Return when something is so; the processes and servers that make it so are real."""
    async with asyncio.timeout(seconds):
        while not await seen():  # noqa: ASYNC110
            await asyncio.sleep(0.05)


@pytest.fixture
async def sandbox() -> AsyncGenerator[Sandbox]:
    async with Sandbox() as sandbox:
        for name in NAMES:
            await sandbox.add_account(name, PASSWORD)
        async with ds.DirectSuite(ds.Settings(message_url=sandbox.message_url, burst=1000)) as suite:
            for name in NAMES:
                await suite.mailbox(name, PASSWORD).create_folder("INBOX.Archive")
        yield sandbox


@pytest.fixture
async def suite(sandbox: Sandbox) -> AsyncGenerator[ds.DirectSuite]:
    async with ds.DirectSuite(ds.Settings(message_url=sandbox.message_url, burst=1000)) as suite:
        yield suite


@pytest.fixture
async def store(conninfo: str) -> AsyncGenerator[PostgresStore]:
    async with PostgresStore(conninfo, sink=LoggingSink()) as store:
        yield store


async def subjects(store: PostgresStore) -> list[str]:
    return sorted(row[0] for row in await store.connections.fetch("SELECT subject FROM told WHERE kind = 'new'"))


async def test_what_arrives_is_in_the_sink_once(sandbox: Sandbox, suite: ds.DirectSuite, store: PostgresStore) -> None:
    fleet = fleet_of(suite, store)
    assert await fleet.add(NAMES) == 3
    assert await fleet.add(NAMES) == 0
    for name in NAMES:
        await sandbox.deliver(name, raw(f"first {name}"))
    running = asyncio.create_task(fleet.run())
    wanted = [f"first {name}" for name in NAMES]

    async def are_there() -> bool:
        return await subjects(store) == sorted(wanted)

    await until(are_there)
    wanted.append("second")
    await sandbox.deliver(NAMES[1], raw("second"))
    await until(are_there)
    fleet.stop()
    await asyncio.wait_for(running, 20)
    status = await fleet.status()
    assert (status.mailboxes, status.waiting, status.failing, status.workers) == (3, 0, {}, 0)
    assert await fleet.remove(NAMES[:1]) == 1


async def test_a_failing_mailbox_waits_longer_each_time_and_no_log_names_it(
    suite: ds.DirectSuite, store: PostgresStore, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    fleet = fleet_of(suite, store)
    await fleet.add(["broken-jane@direct.example.test", NAMES[0]])
    running = asyncio.create_task(fleet.run())

    async def failed() -> bool:
        return bool((await fleet.status()).failing)

    rests = list[float]()
    for _ in range(2):
        await until(failed)
        query: Any = "SELECT extract(epoch FROM next_due_at - now())::float8 FROM directsuite.turn WHERE fail_count > 0"
        ((rest,),) = await store.connections.fetch(query)
        rests.append(rest)
        seen = len(rests)
        await store.connections.fetch(
            "UPDATE directsuite.turn SET next_due_at = now() WHERE fail_count > 0 RETURNING mailbox"
        )

        async def failed_again(times: int = seen) -> bool:
            ((count,),) = await store.connections.fetch("SELECT max(fail_count) FROM directsuite.turn")
            return bool(count > times)

        await until(failed_again)
    assert (await fleet.status()).failing == {"ConfigurationError": 1}
    assert 20 < rests[0] < 40 < rests[1] < 70
    fleet.stop()
    await asyncio.wait_for(running, 20)
    shown = "\n".join(f"{record.getMessage()} {record.__dict__}" for record in caplog.records)
    assert "directsuite.sync.turn" in shown
    assert "jane" not in shown
    assert "alice" not in shown


@pytest.mark.slow  # a turn that fails late waits for its back-off, in real time
async def test_a_restart_of_postgresql_is_outlived(
    sandbox: Sandbox, suite: ds.DirectSuite, shaky_postgres: PostgresServer
) -> None:
    async with PostgresStore(shaky_postgres.new_database(), sink=LoggingSink(), timeout=5) as store:
        fleet = fleet_of(suite, store)
        await fleet.add(NAMES)
        running = asyncio.create_task(fleet.run())
        wanted = list(NAMES)
        for name in NAMES:
            await sandbox.deliver(name, raw(name))

        async def are_there() -> bool:
            try:
                return await subjects(store) == sorted(wanted)
            except ds.DirectSuiteError:
                return False

        for number in range(2):
            await until(are_there)
            await asyncio.to_thread(shaky_postgres.stop)
            wanted += [f"{number} {name}" for name in NAMES]
            for name in NAMES:
                await sandbox.deliver(name, raw(f"{number} {name}"))
            await asyncio.to_thread(shaky_postgres.start)
            # Whose turn failed meanwhile is due later: a fleet's operator doesn't wait for that, nor does this test.
            await _make_all_due(store)
        await until(are_there, 40)
        fleet.stop()
        await asyncio.wait_for(running, 30)


@pytest.mark.parametrize("how", ["stopped", "cancelled"])
async def test_a_turn_under_way_is_ended_before_the_worker_is(
    sandbox: Sandbox, suite: ds.DirectSuite, conninfo: str, how: str
) -> None:
    begun, may_end, ended = asyncio.Event(), asyncio.Event(), False

    async def deliver(changes: object) -> None:
        nonlocal ended
        begun.set()
        await may_end.wait()
        ended = True

    async with PostgresStore(conninfo) as store:
        fleet = fleet_of(suite, store, deliver=deliver)
        await sandbox.deliver(NAMES[0], raw("first"))
        await fleet.add(NAMES[:1])
        running = asyncio.create_task(fleet.run())
        await asyncio.wait_for(begun.wait(), 20)
        if how == "stopped":
            fleet.stop()
        else:
            running.cancel()
        done, _ = await asyncio.wait([running], timeout=0.2)
        assert not done
        may_end.set()
        await asyncio.wait([running], timeout=10)
        assert running.cancelled() == (how == "cancelled")
        assert ended
        ((number, fail_count, due),) = await store.connections.fetch(
            "SELECT number, fail_count, next_due_at > now() FROM directsuite.turn"
        )
        assert (number, fail_count, due) == (1, 0, True)


class HeldStore(PostgresStore):
    """Commits only when it may: a worker that was paused in the middle of a turn."""

    may_commit: asyncio.Event
    held: asyncio.Event

    async def commit(self, lease: Lease, delta: Delta, changes: Sequence[Change]) -> None:
        """As soon as it may."""
        self.held.set()
        await self.may_commit.wait()
        await super().commit(lease, delta, changes)


async def test_a_worker_that_was_paused_within_a_turn_writes_nothing_when_it_goes_on(
    sandbox: Sandbox, suite: ds.DirectSuite, store: PostgresStore, conninfo: str
) -> None:
    await sandbox.deliver(NAMES[0], raw("first"))
    fleet = fleet_of(suite, store)
    await fleet.add(NAMES[:1])
    ((mailbox,),) = await store.connections.fetch("SELECT mailbox FROM directsuite.turn")
    async with HeldStore(conninfo, sink=LoggingSink()) as held:
        held.may_commit, held.held = asyncio.Event(), asyncio.Event()
        paused = asyncio.create_task(fleet_of(suite, held)._take_turn(mailbox))
        await asyncio.wait_for(held.held.wait(), 20)
        await fleet._take_turn(mailbox)
        assert await subjects(store) == ["first"]
        held.may_commit.set()
        await asyncio.wait_for(paused, 20)
    assert await subjects(store) == ["first"]
    query = "SELECT number, fail_count, last_error FROM directsuite.turn"
    assert await store.connections.fetch(query) == [(2, 0, None)]


async def _make_all_due(store: PostgresStore) -> None:
    for _ in range(20):
        try:
            await store.connections.fetch("UPDATE directsuite.turn SET next_due_at = now() RETURNING mailbox")
        except ds.DirectSuiteError:
            continue
        return


@pytest.fixture
async def table(store: PostgresStore) -> FleetTable:
    table = FleetTable(store.connections, "me", 3.0)
    await table.prepare()
    await table.add(NAMES)
    return table


async def test_a_turn_begins_only_when_it_is_due(table: FleetTable) -> None:
    ((mailbox, _), *_) = await table.due()
    begun = await table.begin(mailbox)
    assert begun is not None
    assert begun.number == 1
    assert "@" not in repr(begun)
    assert await table.finish(begun, 60.0, None)
    assert await table.begin(mailbox) is None


async def test_who_is_due_is_woken_by_one_alone(table: FleetTable, store: PostgresStore) -> None:
    other = FleetTable(store.connections, "other", 3.0)
    found = await asyncio.gather(*(each.due() for each in (table, other, table, other)))
    assert sorted(mailbox for due in found for mailbox, _ in due) == sorted({m for due in found for m, _ in due})
    assert await table.due() == []


async def test_the_end_of_a_turn_that_another_has_begun_anew_is_void(table: FleetTable, store: PostgresStore) -> None:
    other = FleetTable(store.connections, "other", 3.0)
    ((mailbox, _), *_) = await table.due()
    zombies, others = await table.begin(mailbox), await other.begin(mailbox)
    assert zombies is not None
    assert others is not None
    assert not await table.finish(zombies, 3600.0, "X")
    assert await other.finish(others, 0.0, None)
    assert mailbox in await other.own()
    assert mailbox not in await table.own()


async def test_a_mailbox_is_woken_at_its_worker_while_that_lives(table: FleetTable, store: PostgresStore) -> None:
    ((mailbox, worker), *_) = await table.due()
    assert worker is None
    for seen, expected in ((False, None), (True, "me")):
        if seen:
            await table.seen()
        begun = await table.begin(mailbox)
        assert begun is not None
        await table.finish(begun, 0.0, None)
        assert (mailbox, expected) in await table.due()
    await table.leave()
    begun = await table.begin(mailbox)
    assert begun is not None
    await table.finish(begun, 0.0, None)
    assert (mailbox, None) in await table.due()


async def test_jobs_of_the_dead_are_removed_or_given_to_all(table: FleetTable, store: PostgresStore) -> None:
    ran = list[int]()

    async def run(mailbox: int) -> None:
        ran.append(mailbox)

    queue = FleetQueue(store.connections, "living", run, turns=2, grace=1.0, patience=0.0)
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
        jobs = "SELECT queue_name, status::text FROM directsuite.procrastinate_jobs ORDER BY id"
        assert await store.connections.fetch(jobs) == [("directsuite_sync", "todo")] * 2
    finally:
        await queue.aclose()
