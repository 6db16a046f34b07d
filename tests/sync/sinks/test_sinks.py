"""The sinks of the package: a change that is delivered twice is in the sink once."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from directsuite.durable.database import Transaction
from directsuite.messaging.models import MessageHeader
from directsuite.sync.model import Change, ChangeSet, Key, Kind
from directsuite.sync.postgres import PostgresStore
from directsuite.sync.sinks.maildir import MaildirSink
from directsuite.sync.store import MEMORY, SqliteStore, Store, TableSink
from tests.examples import scale_examples
from tests.statements import sql
from tests.sync.sinks.maildirs import make_expected, read_files
from tests.sync.sinks.sample_changes import (
    RECEIVED_AT,
    make_gone,
    make_key,
    make_message,
    make_moved,
    make_new,
    make_restored,
)

A, B, C = make_key(1), make_key(2), make_key(3)
SENT = make_key(7, "INBOX.Sent")
A2, B2 = make_key(1, uid_validity=2), make_key(2, uid_validity=2)
IN_A, IN_B, IN_SENT = ("INBOX", 1, 1, 1), ("INBOX", 1, 2, 2), ("INBOX.Sent", 1, 7, 1)
_OCCUPIED = [make_new(A), make_gone(A), make_new(A, 2), make_restored(A, B, 1)]

Row = tuple[str, int, int, int]
"""Folder, uid_validity, uid and number of a message."""

STORIES: dict[str, tuple[list[Change], list[Row], list[Row]]] = {
    "new": ([make_new(A), make_new(B, 2)], [IN_A, IN_B], []),
    "gone": ([make_new(A), make_new(B, 2), make_gone(A)], [IN_B], [IN_A]),
    "moved": ([make_new(A), make_moved(A, SENT)], [IN_SENT], []),
    "moved with its message": ([make_new(A), make_moved(A, SENT, with_message=True)], [IN_SENT], []),
    "moved before it was new": ([make_moved(A, SENT, with_message=True)], [IN_SENT], []),
    "moved without its message": ([make_moved(A, SENT)], [], []),
    "moved to where it is": ([make_new(A), make_new(SENT), make_moved(A, SENT)], [IN_SENT], [IN_A]),
    "moved after another": ([make_new(A), make_new(B, 2), make_moved(A, SENT)], [IN_B, IN_SENT], []),
    "restored": ([make_new(A), make_gone(A), make_restored(A, SENT)], [IN_SENT], []),
    "restored under its key": ([make_new(A), make_gone(A), make_restored(A, A)], [IN_A], []),
    "restored after its key was used": (_OCCUPIED, [("INBOX", 1, 1, 2), ("INBOX", 1, 2, 1)], []),
    "deleted late": ([*_OCCUPIED, make_gone(A, 1)], [("INBOX", 1, 1, 2), ("INBOX", 1, 2, 1)], []),
    "other content": ([make_new(A), make_new(A, 2)], [("INBOX", 1, 1, 2)], [IN_A]),
    "equal content": ([make_new(A), make_new(B), make_gone(A)], [("INBOX", 1, 2, 1)], [IN_A]),
    "keys that swap": (
        [make_new(A), make_new(B, 2), make_moved(A, B2), make_moved(B, A2, 2)],
        [("INBOX", 2, 1, 2), ("INBOX", 2, 2, 1)],
        [],
    ),
    "numbers that look alike": (
        [make_new(make_key(11, uid_validity=1)), make_new(make_key(1, uid_validity=11))],
        [("INBOX", 1, 11, 1), ("INBOX", 11, 1, 1)],
        [],
    ),
}


class TableScenario:
    """A store with a sink of tables."""

    def __init__(self, store: Store) -> None:
        self.store = store

    async def write(self, *changes: Change) -> None:
        await self.store.commit(await self.store.claim("nurse@direct.test"), ChangeSet(), changes)

    async def select(self, text: str) -> list[tuple[Any, ...]]:
        return await self.store._database.fetch(sql(text))

    async def read_rows(self, present: str = "present") -> list[tuple[Any, ...]]:
        columns = "folder, uid_validity, uid, digest"
        rows = await self.select(f"SELECT {columns} FROM directsuite.message WHERE {present} ORDER BY {columns}")  # noqa: S608
        return [(*place, int(digest, 16)) for *place, digest in rows]

    async def count_attachments(self) -> int:
        ((count,),) = await self.select("SELECT count(*) FROM directsuite.attachment")
        return int(count)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def database(request: pytest.FixtureRequest) -> str:
    return MEMORY if request.param == "sqlite" else request.getfixturevalue("conninfo")


def make_store(database: str, sink: TableSink) -> Store:
    return SqliteStore(MEMORY, sink) if database == MEMORY else PostgresStore(database, sink)


@pytest.fixture
async def tables(database: str) -> AsyncGenerator[TableScenario]:
    async with make_store(database, TableSink()) as store:
        yield TableScenario(store)


@pytest.mark.exhaustive(limit=5)
@pytest.mark.parametrize("keep_gone", [False, True])
@pytest.mark.parametrize("story", STORIES)
async def test_tables_have_each_change_once(database: str, story: str, keep_gone: bool) -> None:
    changes, present, kept = STORIES[story]
    async with make_store(database, TableSink(keep_gone=keep_gone)) as store:
        tables = TableScenario(store)
        for change in changes:
            for _ in range(2):
                await tables.write(change)
        assert await tables.read_rows() == present
        deleted = await tables.read_rows("NOT present")
        assert deleted == (kept if keep_gone else [])
        assert await tables.count_attachments() == 2 * (len(present) + len(deleted))


@pytest.mark.exhaustive(limit=3)
@pytest.mark.parametrize("story", STORIES)
async def test_maildirs_have_each_change_once(tmp_path: Path, story: str) -> None:
    changes, present, _ = STORIES[story]
    for change in changes:
        for _ in range(2):
            await MaildirSink(tmp_path)([change])
    numbers = {
        name: [number for row, *_, number in present if row == folder]
        for name, folder in (("inbox", "INBOX"), ("sent", "INBOX.Sent"))
    }
    assert read_files(tmp_path) == make_expected(**{name: each for name, each in numbers.items() if each})


async def test_a_message_is_a_row_with_its_attachments(tables: TableScenario) -> None:
    await tables.write(make_new(A))
    columns = "mailbox, message_id, sender, subject, body, html, sent, received, recipients, headers"
    ((*texts, received, recipients, headers),) = await tables.select(f"SELECT {columns} FROM directsuite.message")  # noqa: S608
    message = make_message()
    assert texts == ["nurse@direct.test", message.msg_id, message.sender, message.subject, message.body, False, None]
    if isinstance(tables.store, SqliteStore):
        assert received == "2026-03-01T12:30:00.000Z"
        assert recipients == '[{"type":"TO","email":"nurse@direct.test"},{"type":"CC","email":"bob@direct.test"}]'
    else:
        assert received == RECEIVED_AT
        assert headers[0] == {"name": "X-Priority", "value": "1"}
    columns = "number, filename, content_type, content"
    attachments = await tables.select(f"SELECT {columns} FROM directsuite.attachment ORDER BY number")  # noqa: S608
    assert attachments == [
        (number, each.filename, each.content_type, each.content)
        for number, each in enumerate(message.attachments, start=1)
    ]


async def test_large_batches_are_written_completely(tables: TableScenario) -> None:
    await tables.write(*(make_new(make_key(uid), uid) for uid in range(1, 121)))
    assert await tables.read_rows() == [("INBOX", 1, uid, uid) for uid in range(1, 121)]
    assert await tables.count_attachments() == 240


class FailingSink(TableSink):
    async def write(self, transaction: Transaction, changes: Sequence[Change]) -> None:
        await super().write(transaction, changes)
        raise ValueError


async def test_rolled_back_changes_leave_nothing(database: str) -> None:
    async with make_store(database, FailingSink()) as store:
        tables = TableScenario(store)
        with pytest.raises(ValueError):
            await tables.write(make_new(A), make_new(B, 2))
        assert (await tables.read_rows(), await tables.count_attachments()) == ([], 0)


async def test_file_without_the_indexes_for_queries_can_be_opened_and_written(tmp_path: Path) -> None:
    for change in (make_new(A), make_new(B, 2)):
        async with SqliteStore(tmp_path / "sync.db", TableSink()) as store:
            tables = TableScenario(store)
            await tables.write(change)
            for index in ("message_received", "message_sender"):
                await store._database.execute(sql(f"DROP INDEX {index}"))
            assert await tables.read_rows() == [IN_A, IN_B][: change.key.uid]


async def test_text_that_a_database_cannot_store_is_replaced(tables: TableScenario) -> None:
    text = "\ud800\0'; DROP TABLE message; --\udfff"
    message = make_message(subject=text, sender=text, body=text, headers=[MessageHeader(name="\0", value="\udfff")])
    change = Change(kind=Kind.NEW, key=Key(text, text, 1, 1), message=message)
    for _ in range(2):
        await tables.write(change)
    found = await tables.select("SELECT subject FROM directsuite.message")
    assert found == [("\ufffd\ufffd'; DROP TABLE message; --\ufffd",)]


async def test_sender_may_be_longer_than_an_entry_of_an_index(tables: TableScenario) -> None:
    sender = f"{random.Random(0).randbytes(4_000).hex()}@example.test"
    await tables.write(attrs.evolve(make_new(A), message=make_message(sender=sender)))
    assert await tables.select("SELECT sender FROM directsuite.message") == [(sender,)]


async def test_dates_at_the_ends_of_the_calendar_are_kept(tables: TableScenario) -> None:
    east, west = timezone(timedelta(hours=3)), timezone(-timedelta(hours=3))
    for uid, date in enumerate((datetime(1, 1, 1, tzinfo=east), datetime(9999, 12, 31, 23, tzinfo=west)), start=1):
        change = make_new(make_key(uid), uid)
        await tables.write(attrs.evolve(change, message=make_message(received_date=date)))
    assert len(await tables.read_rows()) == 2


UIDS = st.integers(1, 4)


def make_change(kind: Kind, uid: int, previous: int, number: int) -> Change:
    if kind is Kind.NEW:
        return make_new(make_key(uid), number)
    if kind is Kind.GONE:
        return make_gone(make_key(uid), number)
    return make_moved(make_key(previous), make_key(uid), number, with_message=True)


@settings(max_examples=scale_examples(60))
@given(
    changes=st.lists(st.builds(make_change, st.sampled_from(Kind), UIDS, UIDS, st.integers(1, 2)), max_size=8),
    keep_gone=st.booleans(),
)
def test_one_batch_has_the_effect_of_many(changes: list[Change], keep_gone: bool) -> None:
    async def write(batches: Sequence[Sequence[Change]]) -> list[Any]:
        async with SqliteStore(MEMORY, TableSink(keep_gone=keep_gone)) as store:
            tables = TableScenario(store)
            for batch in batches:
                await tables.write(*batch)
            rows = [await tables.read_rows(), await tables.read_rows("NOT present")]
            assert len({row[:3] for row in rows[0]}) == len(rows[0])
            return [*rows, await tables.count_attachments()]

    assert asyncio.run(write([changes])) == asyncio.run(write([[each] for each in changes]))
