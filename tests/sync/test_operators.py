"""Requests of operators to a running worker: stop, audit and retry."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import directsuite as ds
from directsuite.sync import Change, SqliteSink, SqliteStore, StoreError, Synchronizer, SyncStatus, synchronizer
from directsuite.sync.model import OperatorRequest
from tests.integration.scenario import ALICE, BOB, Scenario
from tests.sync.mail_service import RecordingSink
from tests.sync.test_synchronizer import EventCounter, FakePasswords, SteppedClock, make_sync
from tests.waiting import poll_until

HEARING = synchronizer._REQUEST_POLL_INTERVAL
"""Seconds after which a request is noticed."""


class Held:
    def __init__(self) -> None:
        self.begun, self.may_end = asyncio.Event(), asyncio.Event()
        self.taken = 0

    async def __call__(self, changes: Sequence[Change]) -> None:
        self.begun.set()
        await self.may_end.wait()
        self.taken += len(changes)


@pytest.mark.exhaustive(limit=1)
@pytest.mark.parametrize("how", ["run", "once"])
async def test_stop_lets_rounds_in_progress_finish_and_starts_none(
    scenario: Scenario, how: str, store: SqliteStore
) -> None:
    sink, clock = Held(), SteppedClock()
    await scenario.deliver("one")
    sync = make_sync(scenario, store, sink, mailboxes=[ALICE, BOB], concurrency=1, clock=clock)
    working = asyncio.create_task(getattr(sync, how)())
    await sink.begun.wait()
    sync.stop()
    done, _ = await asyncio.wait([working], timeout=0.05)
    assert not done
    sink.may_end.set()
    await asyncio.wait_for(working, 5)
    assert sink.taken == 1
    assert [sync.status[name].rounds for name in (ALICE, BOB)] == [1, 0]
    sink.begun.clear()
    await asyncio.wait_for(sync.once(), 5)  # it can run again
    assert sync.status[BOB].status is SyncStatus.UP_TO_DATE


@pytest.mark.parametrize("second", ["run", "once"])
async def test_second_run_is_rejected_until_the_first_has_ended(
    scenario: Scenario, second: str, store: SqliteStore
) -> None:
    sink = Held()
    await scenario.deliver("one")
    sync = make_sync(scenario, store, sink, clock=SteppedClock())
    working = asyncio.create_task(sync.once())
    await sink.begun.wait()
    sink.may_end.set()
    with pytest.raises(ds.ConfigurationError, match="already running"):
        await asyncio.wait_for(getattr(sync, second)(), 5)
    await working
    assert sink.taken == 1
    await sync.once()


async def test_stop_ends_a_waiting_worker_immediately(scenario: Scenario, store: SqliteStore) -> None:
    sync = make_sync(scenario, store, RecordingSink(), clock=SteppedClock())
    async with _at_rest(scenario, sync) as working:
        sync.stop()
        await asyncio.wait_for(working, 5)


@asynccontextmanager
async def _at_rest(scenario: Scenario, sync: Synchronizer) -> AsyncGenerator[asyncio.Task[None]]:
    heard = EventCounter()
    scenario.suite.add_listener(heard)
    working = asyncio.create_task(sync.run())
    try:
        await poll_until(lambda: len(heard.rounds) >= len(sync.status))
        yield working
    finally:
        working.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await working


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sync.db"


async def request_in(path: Path, kind: OperatorRequest, names: Sequence[str]) -> Sequence[str]:
    async with SqliteStore(path, shared=True) as store:
        return await store.request(kind, names)


async def test_a_failing_mailbox_is_retried_immediately_on_request(scenario: Scenario, path: Path) -> None:
    passwords, clock = FakePasswords(wrong={ALICE, BOB}), SteppedClock()
    async with SqliteStore(path, sink=SqliteSink()) as store:
        for name in (ALICE, BOB):
            await store.claim(name)  # known from an earlier run
        sync = make_sync(scenario, store, mailboxes=[ALICE, BOB], password=passwords, clock=clock)
        async with _at_rest(scenario, sync):
            passwords.wrong.clear()
            assert await request_in(path, OperatorRequest.RETRY, [ALICE]) == [ALICE]
            clock.advance(HEARING)
            await poll_until(lambda: sync.status[ALICE].status is SyncStatus.UP_TO_DATE)
            assert sync.status[BOB].status is SyncStatus.FAILING
            assert await store.pending_requests() == []


async def test_quarantined_messages_are_fetched_immediately_on_request(scenario: Scenario, path: Path) -> None:
    told, clock = RecordingSink(), SteppedClock()
    await scenario.deliver("one", "two")
    scenario.sandbox.inject_fault("GetMessagesByUIDs", "status", status=500, times=None)
    async with SqliteStore(path) as store:
        sync = make_sync(scenario, store, told, clock=clock)
        async with _at_rest(scenario, sync):
            assert sync.status[ALICE].quarantined == 2
            scenario.sandbox.clear_faults()
            await request_in(path, OperatorRequest.RETRY, [])
            clock.advance(HEARING)
            await poll_until(lambda: len(told.changes) == 2)
    assert told.subjects == [("new", "one"), ("new", "two")]


async def test_an_audit_is_run_on_request(scenario: Scenario, path: Path) -> None:
    heard, clock = EventCounter(), SteppedClock()
    await scenario.deliver("one")
    async with SqliteStore(path, sink=SqliteSink()) as store:
        sync = make_sync(scenario, store, mailboxes=[ALICE, BOB], clock=clock)
        async with _at_rest(scenario, sync):
            scenario.suite.add_listener(heard)
            await request_in(path, OperatorRequest.AUDIT, [ALICE])
            clock.advance(HEARING)
            await poll_until(lambda: bool(heard.rounds))
        assert heard.requests["GetMessageMetaData"] == 1
        assert len(heard.rounds) == 1
    await request_in(path, OperatorRequest.AUDIT, [])  # while no worker runs
    heard.requests.clear()
    async with SqliteStore(path, sink=SqliteSink()) as store:
        await make_sync(scenario, store, mailboxes=[ALICE, BOB], clock=SteppedClock()).once()
    assert heard.requests["GetMessageMetaData"] == 2


async def test_a_poll_of_an_idle_mailbox_writes_nothing(scenario: Scenario, path: Path) -> None:
    await scenario.deliver("one")
    async with SqliteStore(path, sink=SqliteSink()) as store:
        sync = make_sync(scenario, store, clock=SteppedClock())
        await sync.once()
        with contextlib.closing(sqlite3.connect(path)) as other:
            before = other.execute("PRAGMA data_version").fetchone()
            for _ in range(3):
                await sync.once()
            assert other.execute("PRAGMA data_version").fetchone() == before


def test_requests_need_an_existing_store(path: Path) -> None:
    with pytest.raises(StoreError, match="no store at this path"):
        asyncio.run(request_in(path, OperatorRequest.AUDIT, []))
    assert not path.exists()
    path.touch()
    with pytest.raises(StoreError, match="no store in this file"):
        asyncio.run(request_in(path, OperatorRequest.AUDIT, []))
