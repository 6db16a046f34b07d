"""A worker of a fleet in this process."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence

import pytest

import directsuite as ds
from directsuite.sandbox.server import Sandbox
from directsuite.sync.model import Change, ChangeSet, Lease
from directsuite.sync.postgres import PostgresStore
from tests.integration.scenario import make_raw_message
from tests.statements import sql
from tests.waiting import poll_until

pytest.importorskip("procrastinate", reason="procrastinate isn't installed: the extra 'fleet' brings it")
from directsuite.sync.fleet import Fleet
from tests.sync.fleet.fleet_worker import PASSWORD, LoggingSink, get_password, make_fleet

pytestmark = pytest.mark.postgres

NAMES = [f"{name}@direct.example.test" for name in ("alice", "bob", "carol")]


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


async def list_subjects(store: PostgresStore) -> list[str]:
    return sorted(row[0] for row in await store.database.fetch(sql("SELECT subject FROM told WHERE kind = 'new'")))


async def test_text_instead_of_a_list_is_rejected(suite: ds.DirectSuite, store: PostgresStore) -> None:
    fleet = make_fleet(suite, store)
    for change in (fleet.add, fleet.remove):
        with pytest.raises(ds.InvalidArgumentError, match="names: must be a list"):
            await change(NAMES[0])
    with pytest.raises(ds.InvalidArgumentError, match="folders: must be a list"):
        Fleet(suite, store, get_password, folders="INBOX")


async def test_each_message_is_in_the_sink_once(sandbox: Sandbox, suite: ds.DirectSuite, store: PostgresStore) -> None:
    fleet = make_fleet(suite, store)
    assert await fleet.add(NAMES) == 3
    assert await fleet.add(NAMES) == 0
    for name in NAMES:
        await sandbox.deliver(name, make_raw_message(f"first {name}"))
    running = asyncio.create_task(fleet.run())
    wanted = [f"first {name}" for name in NAMES]

    async def are_there() -> bool:
        return await list_subjects(store) == sorted(wanted)

    await poll_until(are_there)
    wanted.append("second")
    await sandbox.deliver(NAMES[1], make_raw_message("second"))
    await poll_until(are_there)
    fleet.stop()
    await asyncio.wait_for(running, 20)
    status = await fleet.status()
    assert (status.mailboxes, status.waiting, status.failing, status.workers) == (3, 0, {}, 0)
    assert await fleet.remove(NAMES[:1]) == 1


async def test_a_failing_mailbox_backs_off_and_no_log_names_it(
    suite: ds.DirectSuite, store: PostgresStore, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    fleet = make_fleet(suite, store)
    await fleet.add(["broken-jane@direct.example.test", NAMES[0]])
    running = asyncio.create_task(fleet.run())
    rests = list[float]()

    async def failed_again() -> bool:
        ((count,),) = await store.database.fetch(sql("SELECT max(fail_count) FROM directsuite.schedule"))
        return bool(count > len(rests))

    failing = "FROM directsuite.schedule WHERE fail_count > 0"
    for _ in range(2):
        await poll_until(failed_again)
        query = f"SELECT extract(epoch FROM next_due_at - now())::float8 {failing}"  # noqa: S608
        ((rest,),) = await store.database.fetch(sql(query))
        rests.append(rest)
        await store.database.fetch(
            sql("UPDATE directsuite.schedule SET next_due_at = now() WHERE fail_count > 0 RETURNING mailbox")
        )
    await poll_until(failed_again)
    assert (await fleet.status()).failing == {"The password function raised KeyError. Correct the function.": 1}
    assert 20 < rests[0] < 40 < rests[1] < 70
    fleet.stop()
    await asyncio.wait_for(running, 20)
    shown = "\n".join(f"{record.getMessage()} {record.__dict__}" for record in caplog.records)
    assert "directsuite.sync.run" in shown
    assert "jane" not in shown
    assert "alice" not in shown


class BrokenOffStore(PostgresStore):
    breaks = 2

    async def commit(self, lease: Lease, change_set: ChangeSet, changes: Sequence[Change]) -> None:
        if self.breaks:
            self.breaks -= 1
            await self.database.fetch(sql("SELECT pg_terminate_backend(pg_backend_pid())"))
        await super().commit(lease, change_set, changes)


async def test_a_round_interrupted_by_postgresql_is_repeated_immediately(
    sandbox: Sandbox, suite: ds.DirectSuite, conninfo: str
) -> None:
    await sandbox.deliver(NAMES[0], make_raw_message("first"))
    async with BrokenOffStore(conninfo, sink=LoggingSink()) as store:
        fleet = make_fleet(suite, store)
        await fleet.add(NAMES[:1])
        running = asyncio.create_task(fleet.run())

        async def is_there() -> bool:
            return await list_subjects(store) == ["first"]

        await poll_until(is_there, 15)  # less than the back-off of a mailbox that fails
        assert store.breaks == 0
        assert (await fleet.status()).failing == {}
        fleet.stop()
        await asyncio.wait_for(running, 20)


@pytest.mark.parametrize("how", ["stopped", "cancelled"])
async def test_a_worker_ends_after_its_rounds_in_progress(
    sandbox: Sandbox, suite: ds.DirectSuite, conninfo: str, how: str
) -> None:
    begun, may_end, ended = asyncio.Event(), asyncio.Event(), False

    async def deliver(changes: object) -> None:
        nonlocal ended
        begun.set()
        await may_end.wait()
        ended = True

    async with PostgresStore(conninfo) as store:
        fleet = make_fleet(suite, store, deliver=deliver)
        await sandbox.deliver(NAMES[0], make_raw_message("first"))
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
        ((number, fail_count, due),) = await store.database.fetch(
            sql("SELECT fence, fail_count, next_due_at > now() FROM directsuite.schedule")
        )
        assert (number, fail_count, due) == (1, 0, True)
