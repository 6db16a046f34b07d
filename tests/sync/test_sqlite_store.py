"""The SQLite store: what it keeps, what it undoes, and whom it refuses."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

import pytest

from directsuite.durable.database import Transaction, sql
from directsuite.sync.model import (
    Change,
    ChangeSet,
    Key,
    Kind,
    Lease,
    MessageRow,
    MessageState,
    SinkError,
    StaleLeaseError,
    StoredFolder,
)
from directsuite.sync.store import MEMORY, SqliteStore

MAILBOX = "jane.doe@direct.example"


class TableSink:
    """A sink that notes keys in a table, and may raise after it has written."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error

    async def prepare(self, transaction: Transaction) -> None:
        transaction.connection.execute("CREATE TABLE IF NOT EXISTS told (kind TEXT, key TEXT)")

    async def write(self, transaction: Transaction, changes: Sequence[Change]) -> None:
        transaction.connection.executemany(
            "INSERT INTO told VALUES (?, ?)", [(each.kind, str(each.key)) for each in changes]
        )
        if self.error is not None:
            raise self.error


def make_row(folder: StoredFolder, uid: int, state: MessageState = MessageState.LIVE, **more: Any) -> MessageRow:
    return MessageRow(
        folder=folder.id, uid_validity=more.pop("uid_validity", folder.uid_validity), uid=uid, state=state, **more
    )


def make_new_change(folder: StoredFolder, uid: int) -> Change:
    return Change(kind=Kind.NEW, key=Key(MAILBOX, folder.name, folder.uid_validity, uid))


async def read_keys(store: SqliteStore) -> list[str]:
    return [key for (key,) in await store.database.fetch(sql("SELECT key FROM told"))]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture(params=["file", "memory"])
async def store(request: pytest.FixtureRequest, path: Path) -> AsyncGenerator[SqliteStore]:
    async with SqliteStore(path if request.param == "file" else MEMORY, sink=TableSink()) as store:
        yield store


@pytest.fixture
async def lease(store: SqliteStore) -> Lease:
    return await store.claim(MAILBOX)


@pytest.fixture
async def inbox(store: SqliteStore, lease: Lease) -> StoredFolder:
    return await store.folder(lease, "INBOX")


async def test_a_folder_is_made_once(store: SqliteStore, lease: Lease, inbox: StoredFolder) -> None:
    assert inbox == StoredFolder(id=inbox.id, name="INBOX", uid_validity=1)
    assert await asyncio.gather(*(store.folder(lease, "INBOX") for _ in range(5))) == [inbox] * 5

    async def changes(transaction: Transaction) -> int:
        made: int = transaction.connection.total_changes
        return made

    before = await store.database.transaction(changes)
    await store.folder(lease, "INBOX")
    assert await store.database.transaction(changes) == before


async def test_a_stale_lease_makes_no_folder_but_sees_those_there(
    store: SqliteStore, lease: Lease, inbox: StoredFolder
) -> None:
    await store.claim(MAILBOX)
    assert await store.folder(lease, "INBOX") == inbox
    with pytest.raises(StaleLeaseError):
        await store.folder(lease, "Other")
    assert [folder.name for (mailbox,) in [await store.status()] for folder in mailbox.folders] == ["INBOX"]


async def test_rows_come_back_as_they_were(store: SqliteStore, lease: Lease, inbox: StoredFolder) -> None:
    full = make_row(inbox, 2, identity=b"i" * 12, digest=b"d" * 16, size=5, received_ms=-7, attempts=3, retry_ms=9)
    folder = StoredFolder(id=inbox.id, name="INBOX", uid_validity=1, fingerprint=b"f", audited_ms=1)
    await store.commit(lease, ChangeSet(rows=[full, make_row(inbox, 1, MessageState.POISON)], folders=[folder]), [])
    assert await store.rows(inbox) == [make_row(inbox, 1, MessageState.POISON), full]
    assert await store.states(inbox) == {1: MessageState.POISON, 2: MessageState.LIVE}
    assert all(isinstance(state, MessageState) for state in (await store.states(inbox)).values())
    assert await store.folder(lease, "INBOX") == folder
    assert await store.with_digests(lease, iter([b"d" * 16, b"x"])) == [("INBOX", full)]
    assert await store.unfinished(lease) == [("INBOX", make_row(inbox, 1, MessageState.POISON))]


async def test_sentinels_are_the_newest_and_the_oldest_that_can_be_known_again(
    store: SqliteStore, lease: Lease, inbox: StoredFolder
) -> None:
    async def sentinels(*rows: MessageRow) -> list[int]:
        await store.commit(lease, ChangeSet(rows=list(rows)), [])
        return sorted(each.uid for each in await store.sentinels(inbox))

    seen: dict[str, Any] = {"identity": b"i", "received_ms": 0}
    assert (
        await sentinels(make_row(inbox, 1), make_row(inbox, 9, identity=b"i"), make_row(inbox, 8, received_ms=1)) == []
    )
    assert (
        await sentinels(make_row(inbox, 7, MessageState.MISSING, **seen), make_row(inbox, 6, uid_validity=2, **seen))
        == []
    )
    assert await sentinels(make_row(inbox, 3, **seen)) == [3]
    assert await sentinels(make_row(inbox, 4, **seen), make_row(inbox, 5, **seen)) == [3, 5]


async def test_a_delta_is_applied_in_its_order(store: SqliteStore, lease: Lease, inbox: StoredFolder) -> None:
    kinds = {
        1: MessageState.LIVE,
        2: MessageState.MISSING,
        3: MessageState.DELETED,
        4: MessageState.UNRESOLVED,
        5: MessageState.POISON,
    }
    await store.commit(lease, ChangeSet(rows=[make_row(inbox, uid, state) for uid, state in kinds.items()]), [])
    change_set = ChangeSet(renumbered=[inbox.id], rows=[make_row(inbox, 1), make_row(inbox, 3)])
    await store.commit(lease, change_set, [])
    assert await store.states(inbox) == {
        1: MessageState.LIVE,
        2: MessageState.UNRESOLVED,
        3: MessageState.LIVE,
        4: MessageState.UNRESOLVED,
        5: MessageState.DELETED,
    }


async def test_other_mailboxes_are_left_alone(store: SqliteStore, lease: Lease, inbox: StoredFolder) -> None:
    other = await store.claim("other")
    theirs = await store.folder(other, "INBOX")
    assert theirs.id != inbox.id
    for each, folder in ((lease, inbox), (other, theirs)):
        await store.commit(each, ChangeSet(rows=[make_row(folder, 1, MessageState.MISSING, digest=b"d")]), [])
    await store.commit(lease, ChangeSet(renumbered=[inbox.id]), [])
    assert await store.states(theirs) == {1: MessageState.MISSING}
    assert [each.folder for _, each in await store.with_digests(other, [b"d"])] == [theirs.id]
    assert [(each.folder, each.state) for _, each in await store.unfinished(lease)] == [
        (inbox.id, MessageState.UNRESOLVED)
    ]


async def test_a_stale_lease_writes_nothing(store: SqliteStore, lease: Lease, inbox: StoredFolder) -> None:
    again = await store.claim(MAILBOX)
    assert again.lease_number == lease.lease_number + 1
    with pytest.raises(StaleLeaseError, match="Let only one worker"):
        await store.commit(lease, ChangeSet(rows=[make_row(inbox, 1)]), [make_new_change(inbox, 1)])
    assert (await store.states(inbox), await read_keys(store)) == ({}, [])
    await store.commit(again, ChangeSet(rows=[make_row(inbox, 1)]), [make_new_change(inbox, 1)])
    assert (await store.states(inbox), await read_keys(store)) == (
        {1: MessageState.LIVE},
        [str(make_new_change(inbox, 1).key)],
    )


@pytest.mark.parametrize(
    "error",
    [ValueError("mine"), sqlite3.IntegrityError("mine"), KeyError("mine")],
    ids=["ValueError", "sqlite3", "KeyError"],
)
async def test_what_a_sink_raises_undoes_its_commit_and_no_other(path: Path, error: Exception) -> None:
    sink = TableSink()
    async with SqliteStore(path, sink) as store:
        lease, other = await store.claim(MAILBOX), await store.claim("other")
        inbox, theirs = await store.folder(lease, "INBOX"), await store.folder(other, "INBOX")
        sink.error = error
        results = await asyncio.gather(
            store.commit(other, ChangeSet(rows=[make_row(theirs, 1)]), []),
            store.commit(lease, ChangeSet(rows=[make_row(inbox, 1)]), [make_new_change(inbox, 1)]),
            store.commit(other, ChangeSet(rows=[make_row(theirs, 2)]), []),
            return_exceptions=True,
        )
        raised = results[1]
        if isinstance(error, sqlite3.Error):
            assert isinstance(raised, SinkError)
            raised = raised.__cause__
        assert raised is error
        assert (results[0], results[2]) == (None, None)
        assert (await store.states(inbox), await read_keys(store)) == ({}, [])
        assert list(await store.states(theirs)) == [1, 2]


async def test_a_sink_that_raises_while_preparing_leaves_the_store_closed(path: Path) -> None:
    class Unprepared(TableSink):
        async def prepare(self, transaction: Transaction) -> None:
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        await SqliteStore(path, Unprepared()).open()
    async with SqliteStore(path):
        pass


async def test_two_hundred_mailboxes_share_commits(path: Path) -> None:
    async with SqliteStore(path) as store:
        leases = await asyncio.gather(*(store.claim(str(number)) for number in range(200)))
        folders = await asyncio.gather(*(store.folder(lease, "INBOX") for lease in leases))
        statements = list[str]()

        async def trace(transaction: Transaction) -> None:
            transaction.connection.set_trace_callback(statements.append)

        await store.database.transaction(trace)
        deltas = [ChangeSet(rows=[make_row(folder, 1)]) for folder in folders]
        await asyncio.gather(*(store.commit(*each, []) for each in zip(leases, deltas, strict=True)))
        commits = statements.count("COMMIT")
        assert commits <= 20
        # A change that is alone in its transaction needs no savepoint.
        assert sum(statement.startswith("RELEASE") for statement in statements) >= 200 - commits
        assert [len(await store.states(folder)) for folder in folders] == [1] * 200


async def test_status_counts_by_mailbox_and_folder(store: SqliteStore, lease: Lease, inbox: StoredFolder) -> None:
    await store.claim("a mailbox without folders")
    empty = await store.folder(lease, "Empty")
    audited = StoredFolder(id=inbox.id, name="INBOX", uid_validity=2, audited_ms=5)
    rows = [make_row(inbox, 1), make_row(inbox, 2), make_row(inbox, 1, MessageState.DELETED, uid_validity=2)]
    await store.commit(lease, ChangeSet(rows=rows, folders=[audited]), [])
    bare, full = await store.status()
    assert (bare.name, bare.folders) == ("a mailbox without folders", [])
    assert [(folder.name, folder.uid_validity, folder.audited_ms, folder.messages) for folder in full.folders] == [
        (empty.name, 1, None, {}),
        ("INBOX", 2, 5, {MessageState.LIVE: 2, MessageState.DELETED: 1}),
    ]
    assert MAILBOX not in repr(full)
    assert "INBOX" not in repr(full)
