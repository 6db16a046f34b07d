"""Rows of messages: what is told twice is there once, and a transaction that is undone has written nothing."""

from __future__ import annotations

import contextlib
import itertools
import json
import sqlite3
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from directsuite.durable.sqlite import SqliteTransaction, run_sync
from directsuite.messaging.models import MessageDetail
from directsuite.sync.model import Change, Key, Kind
from directsuite.sync.sinks import SqliteSink
from directsuite.sync.store import FILE
from tests.examples import scale_examples
from tests.sync.sinks.sample_changes import make_gone, make_key, make_message, make_moved, make_new, make_restored

A, B, C = make_key(1), make_key(2), make_key(3)
SENT = make_key(7, "INBOX.Sent")


@pytest.fixture(params=[None, "DEFERRED"])
def connection(request: pytest.FixtureRequest) -> Iterator[sqlite3.Connection]:
    made = sqlite3.connect(":memory:", isolation_level=request.param)
    made.execute("PRAGMA foreign_keys = ON")
    do(SqliteSink().prepare, made)
    made.commit()
    yield made
    made.close()


def do(method: Callable[..., Coroutine[Any, Any, None]], connection: sqlite3.Connection, *changes: Any) -> None:
    run_sync(method(SqliteTransaction(connection, FILE), *changes))


def _rows(connection: sqlite3.Connection, present: int = 1) -> list[tuple[Any, ...]]:
    select = (
        "SELECT folder, uid_validity, uid, digest FROM message WHERE present = ? ORDER BY folder, uid_validity, uid, id"
    )
    return [(*row[:3], int(row[3], 16)) for row in connection.execute(select, (present,))]


def _attachments(connection: sqlite3.Connection) -> int:
    (count,) = connection.execute("SELECT count(*) FROM attachment").fetchone()
    assert connection.execute(
        "SELECT count(*) FROM attachment WHERE message NOT IN (SELECT id FROM message)"
    ).fetchone() == (0,)
    return int(count)


def test_a_message_is_a_row_with_its_files(connection: sqlite3.Connection) -> None:
    do(SqliteSink().write, connection, [make_new(A)])
    connection.row_factory = sqlite3.Row
    row = dict(connection.execute("SELECT * FROM message").fetchone())
    assert json.loads(row.pop("recipients")) == [
        {"type": "TO", "email": "nurse@direct.test"},
        {"type": "CC", "email": "bob@direct.test"},
    ]
    assert json.loads(row.pop("headers"))[0] == {"name": "X-Priority", "value": "1"}
    assert row == {
        "id": 1,
        "mailbox": "nurse@direct.test",
        "folder": "INBOX",
        "uid_validity": 1,
        "uid": 1,
        "present": 1,
        "digest": f"{1:032x}",
        "message_id": "<1@direct.test>",
        "sent": None,
        "received": "2026-03-01T12:30:00.000Z",
        "sender": "Dr. Änne Müller <anne@direct.test>",
        "reply_to": None,
        "subject": "Befund 1 – Grüße",
        "body": "Line one of 1\nüber = alles\n",
        "html": 0,
    }
    files = connection.execute("SELECT message, number, filename, content_type, content FROM attachment").fetchall()
    assert [tuple(file) for file in files] == [
        (1, number, each.filename, each.content_type, each.content)
        for number, each in enumerate(make_message().attachments, start=1)
    ]


_OCCUPIED = [make_new(A), make_gone(A), make_new(A, 2), make_restored(A, B, 1)]
_STORIES: dict[str, tuple[list[Change], list[tuple[Any, ...]], list[tuple[Any, ...]]]] = {
    "new": ([make_new(A), make_new(B, 2)], [("INBOX", 1, 1, 1), ("INBOX", 1, 2, 2)], []),
    "gone": ([make_new(A), make_new(B, 2), make_gone(A)], [("INBOX", 1, 2, 2)], [("INBOX", 1, 1, 1)]),
    "moved": ([make_new(A), make_moved(A, SENT)], [("INBOX.Sent", 1, 7, 1)], []),
    "moved whole": ([make_new(A), make_moved(A, SENT, with_message=True)], [("INBOX.Sent", 1, 7, 1)], []),
    "moved unseen": ([make_moved(A, SENT, with_message=True)], [("INBOX.Sent", 1, 7, 1)], []),
    "moved, not to be had": ([make_moved(A, SENT)], [], []),
    "moved to where it is": (
        [make_new(A), make_new(SENT), make_moved(A, SENT)],
        [("INBOX.Sent", 1, 7, 1)],
        [("INBOX", 1, 1, 1)],
    ),
    "restored": ([make_new(A), make_gone(A), make_restored(A, SENT)], [("INBOX.Sent", 1, 7, 1)], []),
    "restored under its key": ([make_new(A), make_gone(A), make_restored(A, A)], [("INBOX", 1, 1, 1)], []),
    "key of another": (_OCCUPIED, [("INBOX", 1, 1, 2), ("INBOX", 1, 2, 1)], []),
    "key of another, gone late": ([*_OCCUPIED, make_gone(A, 1)], [("INBOX", 1, 1, 2), ("INBOX", 1, 2, 1)], []),
    "other content": ([make_new(A), make_new(A, 2)], [("INBOX", 1, 1, 2)], [("INBOX", 1, 1, 1)]),
    "twins": ([make_new(A), make_new(B), make_gone(A)], [("INBOX", 1, 2, 1)], [("INBOX", 1, 1, 1)]),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("story", _STORIES)
@pytest.mark.parametrize("keep_gone", [False, True])
def test_each_change_twice_is_each_change_once(connection: sqlite3.Connection, story: str, keep_gone: bool) -> None:
    changes, present, kept = _STORIES[story]
    sink = SqliteSink(keep_gone=keep_gone)
    for change in changes:
        for _ in range(2):
            do(sink.write, connection, [change])
    rows = _rows(connection), _rows(connection, 0)
    assert rows == (present, kept if keep_gone else [])
    assert _attachments(connection) == 2 * sum(map(len, rows))


def test_a_batch_told_again_whole_changes_nothing(connection: sqlite3.Connection) -> None:
    batch = [make_new(A), make_new(B, 2), make_moved(A, SENT, 1)]
    sink = SqliteSink()
    for _ in range(2):
        do(sink.write, connection, batch)
        assert _rows(connection) == [("INBOX", 1, 2, 2), ("INBOX.Sent", 1, 7, 1)]


def test_many_messages_are_written_as_each_alone(connection: sqlite3.Connection) -> None:
    batch = [make_new(make_key(uid), uid) for uid in range(1, 121)]
    do(SqliteSink().write, connection, batch)
    tables = ["SELECT * FROM message ORDER BY id", "SELECT * FROM attachment ORDER BY message, number"]
    together = [connection.execute(select).fetchall() for select in tables]
    connection.execute("DELETE FROM attachment")
    connection.execute("DELETE FROM message")
    for change in batch:
        do(SqliteSink().write, connection, [change])
    assert [connection.execute(select).fetchall() for select in tables] == together


uids = st.integers(1, 4)


def told_of(kind: Kind, uid: int, before: int, digest: int) -> Change:
    told = {Kind.NEW: make_new(make_key(uid), digest), Kind.GONE: make_gone(make_key(uid), digest)}
    return told.get(kind) or make_moved(make_key(before), make_key(uid), digest, with_message=True)


@settings(max_examples=scale_examples(100))
@given(
    told=st.lists(st.builds(told_of, st.sampled_from(Kind), uids, uids, st.integers(1, 2)), max_size=8),
    keep=st.booleans(),
)
def test_in_one_batch_or_in_many_it_comes_to_the_same(told: list[Change], keep: bool) -> None:
    outcomes = list[Any]()
    for parts in ([told], [[each] for each in told]):
        with contextlib.closing(sqlite3.connect(":memory:")) as connection:
            connection.execute("PRAGMA foreign_keys = ON")
            sink = SqliteSink(keep_gone=keep)
            do(sink.prepare, connection)
            for part in parts:
                do(sink.write, connection, part)
            outcomes.append((_rows(connection), _rows(connection, 0), _attachments(connection)))
    assert outcomes[0] == outcomes[1]


def test_rolled_back_changes_leave_nothing(connection: sqlite3.Connection) -> None:
    sink = SqliteSink()
    if connection.isolation_level is None:
        connection.execute("BEGIN IMMEDIATE")
    do(sink.write, connection, [make_new(A), make_new(B, 2)])
    assert connection.in_transaction
    connection.rollback()
    assert (_rows(connection), _attachments(connection)) == ([], 0)


def test_preparing_and_writing_commit_nothing(connection: sqlite3.Connection) -> None:
    connection.execute("DROP TABLE attachment")
    connection.commit()
    connection.execute("BEGIN")
    do(SqliteSink().prepare, connection)
    do(SqliteSink().prepare, connection)
    assert connection.in_transaction
    connection.rollback()
    assert connection.execute("SELECT name FROM sqlite_master WHERE name = 'attachment'").fetchall() == []


def test_keys_swap_within_a_batch(connection: sqlite3.Connection) -> None:
    sink = SqliteSink()
    do(sink.write, connection, [make_new(A, 1), make_new(B, 2)])
    again = [make_key(1, uid_validity=2), make_key(2, uid_validity=2)]
    do(sink.write, connection, [make_moved(A, again[1], 1), make_moved(B, again[0], 2)])
    assert _rows(connection) == [("INBOX", 2, 1, 2), ("INBOX", 2, 2, 1)]


def test_hostile_text_is_taken(connection: sqlite3.Connection) -> None:
    text = "\ud800\0'; DROP TABLE message; --\udfff"
    where = Key(text, text, 1, 1)
    message = MessageDetail(subject=text, sender=text, body=text)
    for kind, _ in itertools.product((Kind.NEW, Kind.GONE), range(2)):
        do(SqliteSink(keep_gone=True).write, connection, [Change(kind=kind, key=where, message=message)])
    (row,) = connection.execute("SELECT subject, present FROM message").fetchall()
    assert row == ("\ufffd\ufffd'; DROP TABLE message; --\ufffd", 0)
