"""PostgreSQL stops, restarts, hangs or is newer: one error message, no partial commit, and recovery."""

from __future__ import annotations

import asyncio
import contextlib
import time
import traceback
from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING

import pytest

from directsuite.durable.database import Transaction
from directsuite.errors import ClosedError, ConfigurationError
from directsuite.sync.model import (
    Change,
    ChangeSet,
    Key,
    Kind,
    Lease,
    MessageRow,
    MessageState,
    SinkError,
    StoredFolder,
    StoreError,
)
from directsuite.sync.postgres import PostgresStore
from tests.statements import sql

if TYPE_CHECKING:
    from tests.sync.fleet.postgres_server import PostgresServer

pytestmark = pytest.mark.postgres

MAILBOX = "jane.doe@direct.example"
CHANGE = Change(kind=Kind.NEW, key=Key(MAILBOX, "INBOX", 1, 1))


def change_set(folder: StoredFolder, uid: int) -> ChangeSet:
    return ChangeSet(rows=[MessageRow(folder=folder.id, uid_validity=1, uid=uid, state=MessageState.LIVE)])


def assert_discreet(error: BaseException) -> None:
    shown = "".join(traceback.format_exception(error)) + repr(error)
    for word in ("jane", "127.0.0.1", "tester", "port="):
        assert word not in shown.replace(__file__, "")
    assert error.__cause__ is None
    assert error.__context__ is None


async def claim_inbox(store: PostgresStore) -> tuple[Lease, StoredFolder]:
    lease = await store.claim(MAILBOX)
    return lease, await store.make_folder(lease, "INBOX")


@pytest.fixture
async def store(shaky_postgres: PostgresServer) -> AsyncGenerator[PostgresStore]:
    async with PostgresStore(shaky_postgres.create_database(), timeout=5) as store:
        yield store


async def test_a_restart_between_two_calls_has_no_effect(store: PostgresStore, shaky_postgres: PostgresServer) -> None:
    lease, inbox = await claim_inbox(store)
    await asyncio.gather(*(store.states(inbox) for _ in range(4)))  # on all of its connections
    await asyncio.to_thread(shaky_postgres.stop)
    await asyncio.to_thread(shaky_postgres.start)
    await store.commit(lease, change_set(inbox, 1), ())
    assert await store.states(inbox) == {1: MessageState.LIVE}


async def test_calls_fail_during_a_stop_and_succeed_afterwards(
    store: PostgresStore, shaky_postgres: PostgresServer
) -> None:
    lease, inbox = await claim_inbox(store)
    await asyncio.to_thread(shaky_postgres.stop)
    try:
        for _ in range(2):
            with pytest.raises(StoreError, match="connects again") as raised:
                await store.commit(lease, change_set(inbox, 1), ())
            assert_discreet(raised.value)
            with pytest.raises(StoreError, match="connects again"):
                await store.claim(MAILBOX)
    finally:
        await asyncio.to_thread(shaky_postgres.start)
    await store.commit(lease, change_set(inbox, 1), ())
    assert await store.states(inbox) == {1: MessageState.LIVE}


@pytest.mark.parametrize("mode", ["fast", "immediate"])
async def test_a_commit_during_a_stop_writes_nothing(
    store: PostgresStore, shaky_postgres: PostgresServer, mode: str
) -> None:
    class Stops:
        async def prepare(self, transaction: Transaction) -> None:
            await transaction.connection.execute("CREATE TABLE IF NOT EXISTS told (key text)")

        async def write(self, transaction: Transaction, changes: Sequence[Change]) -> None:
            await transaction.connection.execute("INSERT INTO told VALUES ('x')")
            await asyncio.to_thread(shaky_postgres.stop, mode)
            await transaction.connection.execute("INSERT INTO told VALUES ('y')")

    async with PostgresStore(store.database.conninfo, sink=Stops(), timeout=5) as with_sink:
        lease, inbox = await claim_inbox(with_sink)
        try:
            with pytest.raises(StoreError, match="connects again") as raised:
                await with_sink.commit(lease, change_set(inbox, 1), [CHANGE])
        finally:
            await asyncio.to_thread(shaky_postgres.start)
        assert_discreet(raised.value)
        assert await with_sink.states(inbox) == {}
        assert await with_sink.database.fetch(sql("SELECT * FROM told")) == []


async def test_unresponsive_database_ends_call_at_timeout(shaky_postgres: PostgresServer) -> None:
    async with PostgresStore(shaky_postgres.create_database(), timeout=0.5) as store:
        lease = await store.claim(MAILBOX)
        began = time.monotonic()
        with shaky_postgres.freeze():
            with pytest.raises(StoreError, match="not responded in time") as raised:
                await store.claim(MAILBOX)
            assert_discreet(raised.value)
            assert time.monotonic() - began < 5
            with pytest.raises(StoreError):
                await store.claim(MAILBOX)
        assert (await store.claim(MAILBOX)).lease_number > lease.lease_number


async def test_hanging_commit_blocks_mailbox_only_until_timeout(conninfo: str) -> None:
    async with PostgresStore(conninfo, timeout=0.4) as store:
        lease = await store.claim(MAILBOX)
        async with store.database.borrow() as hung:  # a process that was stopped keeps its locks
            await hung.execute("BEGIN")
            await hung.execute("SELECT fence FROM directsuite.mailbox WHERE id = %s FOR UPDATE", (lease.mailbox,))
            for _ in range(3):
                with contextlib.suppress(StoreError):
                    await store.claim(MAILBOX)
            await store.claim(MAILBOX)


async def test_a_claim_waits_for_the_commit_that_it_would_make_stale(conninfo: str) -> None:
    class Waits:
        claiming: asyncio.Task[Lease]

        async def prepare(self, transaction: Transaction) -> None:
            pass

        async def write(self, transaction: Transaction, changes: Sequence[Change]) -> None:
            self.claiming = asyncio.create_task(waited.claim(MAILBOX))
            done, _ = await asyncio.wait([self.claiming], timeout=0.3)
            assert not done

    sink = Waits()
    async with PostgresStore(conninfo, sink=sink) as waited:
        lease, inbox = await claim_inbox(waited)
        await waited.commit(lease, change_set(inbox, 1), [CHANGE])
        assert (await sink.claiming).lease_number == lease.lease_number + 1


async def test_errors_contain_no_values_of_postgresql(conninfo: str) -> None:
    class Faulty:
        async def prepare(self, transaction: Transaction) -> None:
            await transaction.connection.execute("CREATE TABLE IF NOT EXISTS told (key text CHECK (key = ''))")

        async def write(self, transaction: Transaction, changes: Sequence[Change]) -> None:
            await transaction.connection.execute("INSERT INTO told VALUES (%s)", (str(changes[0].key),))

    async with PostgresStore(conninfo, sink=Faulty()) as store:
        lease, inbox = await claim_inbox(store)
        with pytest.raises(SinkError, match="SQLSTATE 23514") as raised:
            await store.commit(lease, change_set(inbox, 1), [CHANGE])
        assert_discreet(raised.value)
        assert await store.states(inbox) == {}


async def test_a_lost_connection_that_the_sink_suppresses_fails_the_commit(conninfo: str) -> None:
    class Careless:
        async def prepare(self, transaction: Transaction) -> None:
            pass

        async def write(self, transaction: Transaction, changes: Sequence[Change]) -> None:
            with contextlib.suppress(Exception):
                await transaction.connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")

    async with PostgresStore(conninfo, sink=Careless()) as store:
        lease, inbox = await claim_inbox(store)
        with pytest.raises(StoreError, match="the connection was lost"):
            await store.commit(lease, change_set(inbox, 1), [CHANGE])
        assert await store.states(inbox) == {}


@pytest.mark.parametrize("name", ["a\0b", "a\ud800b"])
async def test_a_name_that_postgresql_cannot_store_is_reported(conninfo: str, name: str) -> None:
    async with PostgresStore(conninfo) as store:
        lease = await store.claim(MAILBOX)
        with pytest.raises(StoreError) as raised:
            await store.make_folder(lease, name)
        assert_discreet(raised.value)


@pytest.mark.parametrize(("later", "told"), [(1, "Upgrade directsuite"), (-1, "Finish the work with the earlier")])
async def test_tables_of_another_release_are_rejected(conninfo: str, later: int, told: str) -> None:
    async with PostgresStore(conninfo) as store:
        query = "UPDATE directsuite.version SET version = version + :later"
        await store.database.fetch(sql(query), {"later": later})
        with pytest.raises(StoreError, match=told):
            await PostgresStore(conninfo).open()


async def test_many_open_it_at_once(conninfo: str) -> None:
    stores = [PostgresStore(conninfo) for _ in range(8)]
    await asyncio.gather(*(store.open() for store in stores))
    await asyncio.gather(*(store.aclose() for store in stores))
    with pytest.raises(ClosedError):
        await stores[0].claim(MAILBOX)


@pytest.mark.parametrize("conninfo", ["not a conninfo hunter2", "postgresql://u:hunter2@h:x y/db?bad=1"])
def test_invalid_conninfo_is_rejected_without_being_shown(conninfo: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        PostgresStore(conninfo)
    assert "hunter2" not in "".join(traceback.format_exception(raised.value)).replace(conninfo, "", 0).split("E  ")[-1]
    assert "hunter2" not in str(raised.value)


async def test_an_unknown_host_or_database_is_reported(postgres: PostgresServer) -> None:
    for wrong in ("host=127.0.0.1 port=1 dbname=secretname", postgres.make_conninfo("secretname")):
        with pytest.raises(StoreError) as raised:
            await PostgresStore(wrong, timeout=5).open()
        assert "secretname" not in str(raised.value)


async def test_a_time_out_may_be_longer_than_postgresql_s_own(shared_database: str) -> None:
    async with PostgresStore(shared_database, timeout=3_000_000.0) as store:  # in milliseconds more than 31 bits
        assert await store.database.fetch(sql("SELECT 1")) == [(1,)]
