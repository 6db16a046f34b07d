"""The SQLite store: transactions with a sink."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from directsuite.durable.database import Transaction
from directsuite.sync.model import Change, ChangeSet, Key, Kind, MessageRow, MessageState, SinkError, StoredFolder
from directsuite.sync.store import SqliteStore
from tests.statements import sql

MAILBOX = "jane.doe@direct.example"


class TableSink:
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
    return [key for (key,) in await store._database.fetch(sql("SELECT key FROM told"))]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.mark.parametrize(
    "error",
    [ValueError("mine"), sqlite3.IntegrityError("mine"), KeyError("mine")],
    ids=["ValueError", "sqlite3", "KeyError"],
)
async def test_an_exception_of_the_sink_rolls_back_its_commit_only(path: Path, error: Exception) -> None:
    sink = TableSink()
    async with SqliteStore(path, sink) as store:
        lease, other = await store.claim(MAILBOX), await store.claim("other")
        inbox, theirs = await store.make_folder(lease, "INBOX"), await store.make_folder(other, "INBOX")
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


async def test_a_store_is_closed_if_its_sink_fails_to_prepare(path: Path) -> None:
    class Unprepared(TableSink):
        async def prepare(self, transaction: Transaction) -> None:
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        await SqliteStore(path, Unprepared()).open()
    async with SqliteStore(path):
        pass
