"""The behaviour of every store, in SQLite and PostgreSQL."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import attrs
import pytest

from directsuite.durable.database import Tables, Transaction
from directsuite.errors import ConfigurationError
from directsuite.sync.fleet import FleetMailbox, FleetTable
from directsuite.sync.model import (
    UNFINISHED_STATES,
    Change,
    ChangeSet,
    Kind,
    Lease,
    MessageState,
    OperatorRequest,
    QuarantinedMessage,
    SinkError,
    StaleLeaseError,
    StoredFolder,
)
from directsuite.sync.postgres import PostgresStore
from directsuite.sync.store import MEMORY, SqliteStore, Store
from tests.integration.scenario import SleepDrivenClock
from tests.statements import sql
from tests.sync.test_partial_answers import FakeServer, make_message, make_messages, make_rounds
from tests.sync.test_sqlite_store import MAILBOX
from tests.sync.test_sqlite_store import make_new_change as new
from tests.sync.test_sqlite_store import make_row as row


class SinkRejectedError(Exception):
    pass


class FailingTableSink:
    rejects_all = False
    rejected_key: str | None = None
    suppressed_key: str | None = None

    async def prepare(self, transaction: Transaction) -> None:
        await transaction.ensure(Tables("told", sql("CREATE TABLE directsuite.told (key text)")))

    async def write(self, transaction: Transaction, changes: Sequence[Change]) -> None:
        keys = [str(each.key) for each in changes]
        await transaction.insert(sql("INSERT INTO directsuite.told VALUES :rows"), [(key,) for key in keys])
        if self.rejects_all or self.rejected_key in keys:
            raise SinkRejectedError
        if self.suppressed_key in keys:
            with contextlib.suppress(Exception):
                await transaction.execute(sql("SELECT key FROM directsuite.missing"))


class StoreScenario:
    def __init__(self, store: SqliteStore | PostgresStore, sink: FailingTableSink) -> None:
        self.store = store
        self.sink = sink

    async def read_keys(self) -> list[str]:
        return [key for (key,) in await self.store._database.fetch(sql("SELECT key FROM directsuite.told"))]


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
async def scenario(request: pytest.FixtureRequest) -> AsyncGenerator[StoreScenario]:
    sink = FailingTableSink()
    if request.param == "sqlite":
        async with SqliteStore(MEMORY, sink=sink) as sqlite_store:
            yield StoreScenario(sqlite_store, sink)
        return
    async with PostgresStore(request.getfixturevalue("conninfo"), sink=sink) as store:
        yield StoreScenario(store, sink)


@pytest.fixture
def store(scenario: StoreScenario) -> Store:
    return scenario.store


@pytest.fixture
async def lease(store: Store) -> Lease:
    return await store.claim(MAILBOX)


@pytest.fixture
async def inbox(store: Store, lease: Lease) -> StoredFolder:
    return await store.make_folder(lease, "INBOX")


async def test_a_change_that_the_stores_sink_rejects_delays_no_other(store: Store, scenario: StoreScenario) -> None:
    server, now = FakeServer({"INBOX": make_messages(1, 10)}), [0]
    rounds = make_rounds(server, store, now_ms=lambda: now[0])
    scenario.sink.rejected_key = f"{MAILBOX}/INBOX/1/4"
    report = await rounds.run_round()
    assert (report.quarantined, report.failed_folders) == (1, {})
    everything = [f"{MAILBOX}/INBOX/1/{uid}" for uid in range(1, 11)]
    assert await scenario.read_keys() == [each for each in everything if each != scenario.sink.rejected_key]
    quarantined = QuarantinedMessage(
        number=1,
        mailbox=MAILBOX,
        folder="INBOX",
        uid_validity=1,
        uid=4,
        problem="SinkRejectedError",
        attempts=1,
        retry_ms=900_000,
    )
    assert await scenario.store.quarantined() == [quarantined]
    assert not any(name in repr(quarantined) for name in ("jane", "INBOX"))
    scenario.sink.rejected_key = None
    now[0] = 900_000
    assert (await rounds.run_round()).changes[Kind.NEW] == 1
    assert sorted(await scenario.read_keys()) == sorted(everything)
    assert await scenario.store.quarantined() == []
    scenario.sink.rejects_all = True
    server.folders_by_name["INBOX"] |= make_messages(11, 40)
    with pytest.raises(SinkError):
        await rounds.run_round()
    assert await store.unfinished(await store.claim(MAILBOX)) == []


async def test_an_error_that_a_sink_suppresses_loses_no_message(store: Store, scenario: StoreScenario) -> None:
    rounds = make_rounds(FakeServer({"INBOX": make_messages(1, 10)}), store)
    scenario.sink.suppressed_key = f"{MAILBOX}/INBOX/1/4"
    report = await rounds.run_round()
    assert report.changes[Kind.NEW] + report.quarantined == 10
    assert len(await scenario.read_keys()) == report.changes[Kind.NEW]


@pytest.mark.exhaustive(limit=2)
@pytest.mark.parametrize("size", [2**63 - 1, 2**63, 2**64, 2**70, -(2**63) - 1])
async def test_a_message_with_any_size_is_stored(store: Store, scenario: StoreScenario, size: int) -> None:
    server = FakeServer({"INBOX": {1: attrs.evolve(make_message(1), size=size), 2: make_message(2)}})
    clock = SleepDrivenClock()
    rounds = make_rounds(server, store, clock=clock, now_ms=lambda: round(clock.now * 1000))
    assert not (await rounds.run_round()).failed_folders
    del server.folders_by_name["INBOX"][2]
    for _ in range(2):
        clock.now += 86_400  # a day, after which everything is compared again
        assert not (await rounds.run_round()).failed_folders
    assert len(await scenario.read_keys()) == 3


async def test_each_claim_has_a_higher_fence_and_the_same_mailbox(store: Store) -> None:
    first, second = await store.claim(MAILBOX), await store.claim(MAILBOX)
    assert (first.mailbox, first.name) == (second.mailbox, second.name) == (first.mailbox, MAILBOX)
    assert second.lease_number > first.lease_number
    assert (await store.claim("another@direct.example")).mailbox != first.mailbox


async def test_mailbox_is_listed_with_messages_after_its_first_commit(store: Store, lease: Lease) -> None:
    await store.claim("other")
    inbox = await store.make_folder(lease, "INBOX")
    assert await store.mailboxes_with_messages() == []
    await store.commit(lease, ChangeSet(rows=[row(inbox, 1)]), ())
    assert await store.mailboxes_with_messages() == [MAILBOX]
    assert sorted(await store.mailbox_names()) == sorted([MAILBOX, "other"])


async def test_a_folder_is_created_once(store: Store, lease: Lease) -> None:
    found = await asyncio.gather(*(store.make_folder(lease, "Früher/Ä ' \"") for _ in range(6)))
    assert len(set(found)) == 1
    assert found[0].uid_validity == 1
    assert (found[0].fingerprint, found[0].audited_ms) == (None, None)


async def test_all_folders_of_the_mailbox_are_known(scenario: StoreScenario, lease: Lease, inbox: StoredFolder) -> None:
    sent = await scenario.store.make_folder(lease, "Sent")
    theirs = await scenario.store.claim("another@direct.example")
    await scenario.store.make_folder(theirs, "INBOX")
    assert {folder.id for folder in await scenario.store.folders(lease)} == {inbox.id, sent.id}
    assert scenario.store.sink_name == "FailingTableSink"


async def test_the_problem_is_stored_while_a_message_is_quarantined(
    scenario: StoreScenario, lease: Lease, inbox: StoredFolder
) -> None:
    async def commit(state: MessageState, uid: int, problem: str | None) -> None:
        it = row(inbox, uid, state, attempts=1, retry_ms=uid)
        problems = {} if problem is None else {it.key: problem}
        await scenario.store.commit(lease, ChangeSet(rows=[it], problems=problems), ())

    await commit(MessageState.POISON, 1, "ServerError")
    await commit(MessageState.QUARANTINED_UNCONFIRMED, 2, "ValueError")
    await commit(MessageState.QUARANTINED_UNCONFIRMED, 2, None)  # tried once more
    await commit(MessageState.POISON, 3, None)  # by an earlier release
    found = [(each.uid, each.problem, each.retry_ms) for each in await scenario.store.quarantined()]
    assert found == [(1, "ServerError", 1), (2, "ValueError", 2), (3, None, 3)]
    await commit(MessageState.LIVE, 1, None)
    await commit(MessageState.LIVE, 2, None)
    await commit(MessageState.POISON, 3, "ServerError")
    assert [each.uid for each in await scenario.store.quarantined()] == [3]
    kept = await scenario.store._database.fetch(sql("SELECT uid FROM directsuite.quarantine"))
    assert [uid for (uid,) in kept] == [3]


async def test_a_stale_lease_makes_no_folder(store: Store, lease: Lease, inbox: StoredFolder) -> None:
    await store.claim(MAILBOX)
    assert await store.folders(lease) == [inbox]
    with pytest.raises(StaleLeaseError, match="Let only one worker"):
        await store.make_folder(lease, "Sent")


async def test_rows_are_read_as_they_were_written(store: Store, lease: Lease, inbox: StoredFolder) -> None:
    full = row(
        inbox,
        2**40,
        MessageState.POISON,
        identity=b"\0" * 12,
        digest=bytes(range(16)),
        size=2**33,
        received_ms=-1,
        attempts=3,
        retry_ms=2**45,
    )
    bare = row(inbox, 3)
    await store.commit(lease, ChangeSet(rows=[full, bare]), ())
    assert await store.rows(inbox) == [bare, full]
    assert await store.states(inbox) == {3: MessageState.LIVE, 2**40: MessageState.POISON}


async def test_the_last_of_several_rows_of_a_message_counts(store: Store, lease: Lease, inbox: StoredFolder) -> None:
    await store.commit(
        lease,
        ChangeSet(rows=[row(inbox, 1), row(inbox, 1, MessageState.MISSING), row(inbox, 1, MessageState.DELETED)]),
        (),
    )
    assert await store.states(inbox) == {1: MessageState.DELETED}


async def test_a_folder_is_read_as_it_was_written(store: Store, lease: Lease, inbox: StoredFolder) -> None:
    changed = StoredFolder(id=inbox.id, name="INBOX", uid_validity=4, fingerprint=b"\x01\0", audited_ms=2**44)
    await store.commit(lease, ChangeSet(folders=[changed]), ())
    assert await store.make_folder(lease, "INBOX") == changed


async def test_renumbered_folders_first_then_rows(store: Store, lease: Lease, inbox: StoredFolder) -> None:
    states = (
        MessageState.LIVE,
        MessageState.MISSING,
        MessageState.DELETED,
        MessageState.UNRESOLVED,
        MessageState.POISON,
    )
    await store.commit(lease, ChangeSet(rows=[row(inbox, n, state) for n, state in enumerate(states, start=1)]), ())
    change_set = ChangeSet(renumbered=[inbox.id], rows=[row(inbox, 1), row(inbox, 3, MessageState.LIVE)])
    await store.commit(lease, change_set, ())
    found = await store.states(inbox)
    assert found == {
        1: MessageState.LIVE,
        2: MessageState.UNRESOLVED,
        3: MessageState.LIVE,
        4: MessageState.UNRESOLVED,
        5: MessageState.DELETED,
    }


async def test_rows_are_found_by_digest_in_their_mailbox_alone(store: Store, lease: Lease, inbox: StoredFolder) -> None:
    sent = await store.make_folder(lease, "Sent")
    theirs = await store.claim("another@direct.example")
    elsewhere = await store.make_folder(theirs, "INBOX")
    here = [row(inbox, 1, digest=b"a" * 16), row(inbox, 2, digest=b"b" * 16), row(sent, 1, digest=b"a" * 16)]
    await store.commit(lease, ChangeSet(rows=[*here, row(inbox, 3)]), ())
    await store.commit(theirs, ChangeSet(rows=[row(elsewhere, 1, digest=b"a" * 16)]), ())
    found = await store.with_digests(lease, [b"a" * 16, b"a" * 16, b"c" * 16])
    assert found == [("INBOX", here[0]), ("Sent", here[2])]
    assert not await store.with_digests(lease, [])


async def test_unfinished_rows_are_found(store: Store, lease: Lease, inbox: StoredFolder) -> None:
    rows = [row(inbox, uid, each) for uid, each in enumerate((*MessageState, *MessageState), start=1)]
    await store.commit(lease, ChangeSet(rows=rows), ())
    assert await store.unfinished(lease) == [("INBOX", each) for each in rows if each.state in UNFINISHED_STATES]


async def test_sentinels_are_the_first_and_last_comparable_rows(
    store: Store, lease: Lease, inbox: StoredFolder
) -> None:
    assert await store.sentinels(inbox) == []
    one = row(inbox, 5, identity=b"i" * 12, received_ms=1)
    blind = [row(inbox, 1, received_ms=1), row(inbox, 2, identity=b"i" * 12)]
    gone = row(inbox, 9, MessageState.DELETED, identity=b"i" * 12, received_ms=9)
    await store.commit(lease, ChangeSet(rows=[one, *blind, gone]), ())
    assert await store.sentinels(inbox) == [one]
    others = [row(inbox, uid, identity=b"i" * 12, received_ms=1) for uid in (6, 7)]
    await store.commit(lease, ChangeSet(rows=others), ())
    assert await store.sentinels(inbox) == [others[1], one]


async def test_changes_and_delta_are_one(scenario: StoreScenario, lease: Lease, inbox: StoredFolder) -> None:
    await scenario.store.commit(lease, ChangeSet(rows=[row(inbox, 1)]), [new(inbox, 1)])
    scenario.sink.rejects_all = True
    with pytest.raises(SinkRejectedError):
        await scenario.store.commit(lease, ChangeSet(rows=[row(inbox, 2)], renumbered=[inbox.id]), [new(inbox, 2)])
    assert await scenario.store.states(inbox) == {1: MessageState.LIVE}
    assert await scenario.read_keys() == [str(new(inbox, 1).key)]
    scenario.sink.rejects_all = False
    await scenario.store.commit(lease, ChangeSet(rows=[row(inbox, 2)]), [new(inbox, 2)])
    assert len(await scenario.read_keys()) == 2


async def test_a_stale_lease_writes_nothing(scenario: StoreScenario, lease: Lease, inbox: StoredFolder) -> None:
    await scenario.store.claim(MAILBOX)
    with pytest.raises(StaleLeaseError) as raised:
        await scenario.store.commit(lease, ChangeSet(rows=[row(inbox, 1)]), [new(inbox, 1)])
    assert "jane" not in repr(raised.value)
    assert await scenario.store.states(inbox) == {}
    assert await scenario.read_keys() == []


async def test_the_status_counts_rows_by_state(scenario: StoreScenario, lease: Lease, inbox: StoredFolder) -> None:
    await scenario.store.claim("another@direct.example")
    sent = await scenario.store.make_folder(lease, "Sent")
    await scenario.store.commit(
        lease, ChangeSet(rows=[row(inbox, 1), row(inbox, 2), row(inbox, 3, MessageState.DELETED)]), ()
    )
    other, own = await scenario.store.status()
    assert (other.name, other.folders) == ("another@direct.example", [])
    assert [(each.name, dict(each.messages)) for each in own.folders] == [
        (inbox.name, {MessageState.LIVE: 2, MessageState.DELETED: 1}),
        (sent.name, {}),
    ]
    assert not any(name in repr(own) for name in (MAILBOX, "INBOX"))


async def test_concurrent_claim_and_commit_are_serialised(store: Store, inbox: StoredFolder) -> None:
    for uid in range(1, 20):
        lease = await store.claim(MAILBOX)
        results = await asyncio.gather(
            store.commit(lease, ChangeSet(rows=[row(inbox, uid)]), ()), store.claim(MAILBOX), return_exceptions=True
        )
        written = uid in await store.states(inbox)
        assert written == (results[0] is None)
        assert written or isinstance(results[0], StaleLeaseError)


async def test_a_cancelled_commit_leaves_the_store_usable(store: Store, lease: Lease, inbox: StoredFolder) -> None:
    for uid in range(1, 12):
        committing = asyncio.ensure_future(store.commit(lease, ChangeSet(rows=[row(inbox, uid)]), ()))
        for _ in range(uid):
            await asyncio.sleep(0)
        committing.cancel()
        await asyncio.gather(committing, return_exceptions=True)
    await store.commit(lease, ChangeSet(rows=[row(inbox, 100)]), ())
    assert 100 in await store.states(inbox)


async def request(store: Store, kind: OperatorRequest, names: Sequence[str], tmp_path: Path) -> Sequence[str]:
    if isinstance(store, PostgresStore):
        async with PostgresStore(store.database.conninfo) as other:
            return await other.request(kind, names)
    async with SqliteStore(tmp_path / "sync.db", shared=True) as beside:
        return await beside.request(kind, names)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
async def file_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[SqliteStore | PostgresStore]:
    if request.param == "sqlite":
        async with SqliteStore(tmp_path / "sync.db") as sqlite_store:
            yield sqlite_store
        return
    async with PostgresStore(request.getfixturevalue("conninfo")) as store:
        yield store


async def test_a_store_is_bound_to_its_first_sink(file_store: SqliteStore | PostgresStore, tmp_path: Path) -> None:
    await file_store.status()  # which binds nothing
    await file_store.bind("maildir 1")
    await file_store.bind("maildir 1")
    await file_store.aclose()
    if isinstance(file_store, PostgresStore):
        again: SqliteStore | PostgresStore = PostgresStore(file_store.database.conninfo)
    else:
        again = SqliteStore(tmp_path / "sync.db")
    async with again:
        with pytest.raises(ConfigurationError, match=r"another sink \(maildir 1, not TableSink\)\. Use a separate"):
            await again.bind("TableSink")
        await again.bind("maildir 1")


async def test_concurrent_binds_accept_one_sink(store: Store) -> None:
    names = [f"maildir {number % 3}" for number in range(12)]
    results = await asyncio.gather(*(store.bind(name) for name in names), return_exceptions=True)
    bound = {name for name, result in zip(names, results, strict=True) if result is None}
    assert len(bound) == 1
    assert [isinstance(result, ConfigurationError) for result in results] == [name not in bound for name in names]


async def test_the_repr_of_leases_and_folders_has_no_names(lease: Lease, inbox: StoredFolder) -> None:
    assert "jane" not in repr(lease)
    assert "INBOX" not in repr(inbox)


async def test_a_request_of_another_process_is_applied_once(
    file_store: SqliteStore | PostgresStore, tmp_path: Path
) -> None:
    lease, theirs = await file_store.claim(MAILBOX), await file_store.claim("another@direct.example")
    folders = [await file_store.make_folder(lease, "INBOX"), await file_store.make_folder(theirs, "INBOX")]
    sent = await file_store.make_folder(lease, "Sent")  # never audited, because some messages are not fetched
    for each, of_it in zip((lease, theirs), folders, strict=True):
        audited = attrs.evolve(of_it, audited_ms=5)
        poison = row(of_it, 1, MessageState.POISON, attempts=3, retry_ms=2**45)
        await file_store.commit(each, ChangeSet(rows=[poison, row(of_it, 2)], folders=[audited]), ())

    assert await file_store.pending_requests() == []
    assert not await file_store.apply_requests(MAILBOX)
    assert await request(file_store, OperatorRequest.AUDIT, [MAILBOX, "nobody@direct.example"], tmp_path) == [MAILBOX]
    assert await request(file_store, OperatorRequest.AUDIT, [MAILBOX], tmp_path) == [MAILBOX]
    assert await file_store.pending_requests() == [MAILBOX]
    assert await file_store.apply_requests(MAILBOX)
    assert not await file_store.apply_requests(MAILBOX)
    assert [(each.name, each.audited_ms) for each in await file_store.folders(lease)] == [("INBOX", 0), ("Sent", None)]
    assert [each.retry_ms for each in await file_store.rows(folders[0])] == [2**45, None]

    assert await request(file_store, OperatorRequest.RETRY, [], tmp_path) == ["another@direct.example", MAILBOX]
    assert sorted(await file_store.pending_requests()) == ["another@direct.example", MAILBOX]
    assert await file_store.apply_requests(MAILBOX)
    assert await file_store.pending_requests() == ["another@direct.example"]
    assert [(each.attempts, each.retry_ms) for each in await file_store.rows(folders[0])] == [(3, 0), (0, None)]
    assert [each.retry_ms for each in await file_store.rows(folders[1])] == [2**45, None]
    assert sent.audited_ms is None


@pytest.mark.postgres
async def test_a_mailbox_with_a_request_is_due_immediately_in_a_fleet(conninfo: str) -> None:
    async with PostgresStore(conninfo) as store:
        table = FleetTable(store.database, "me", 30.0)
        await table.prepare()
        await table.add([MAILBOX])

        async def after_a_round(rest: float, problem: str | None, *, is_up_to_date: bool = False) -> FleetMailbox:
            ((mailbox, _),) = await table.list_due()
            (begun,) = await table.claim([mailbox])
            failures = 0 if problem is None else 1
            await table.finish(
                [attrs.evolve(begun, next_in=rest, problem=problem, failures=failures, is_up_to_date=is_up_to_date)]
            )
            (found,) = await table.list_mailboxes()
            return found

        found = await after_a_round(0.0, None)  # there is more to fetch
        assert (found.rounds, found.up_to_date_at, found.failures, found.problem) == (1, None, 0, None)
        await store.request(OperatorRequest.RETRY)
        found = await after_a_round(1000.0, None)  # several rounds had no progress
        assert found.up_to_date_at is None
        found = await after_a_round(1000.0, "It fails.")
        assert (found.up_to_date_at, found.failures, found.problem) == (None, 1, "It fails.")
        assert await store.apply_requests(MAILBOX)
        found = await after_a_round(1000.0, None, is_up_to_date=True)
        assert found.up_to_date_at is not None
        assert found.due_at - found.up_to_date_at == pytest.approx(1000.0)
        assert await table.list_due() == []
        assert await table.reschedule_now([MAILBOX, "nobody@direct.example"]) == 1
        assert len(await table.list_due()) == 1
