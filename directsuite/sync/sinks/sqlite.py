"""Messages as rows of two tables in the store's own database, in the transaction that notes them as done.

    message ──► attachment (by message.id, in the order of number)

`message.present` is 1, or 0 for one that is gone and kept. Of messages present, each has a key of its own.
"""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from directsuite.durable.sqlite import insert
from directsuite.messaging.models import MessageDetail
from directsuite.sync.changes import Change, Key, Kind
from directsuite.sync.sinks.whole_text import whole_text

_TABLES = (
    """
    CREATE TABLE IF NOT EXISTS message (
        id INTEGER PRIMARY KEY,
        mailbox TEXT NOT NULL,
        folder TEXT NOT NULL,
        generation INTEGER NOT NULL,
        uid INTEGER NOT NULL,
        present INTEGER NOT NULL DEFAULT 1,
        digest TEXT,
        message_id TEXT,
        sent TEXT,
        received TEXT,
        sender TEXT,
        reply_to TEXT,
        subject TEXT,
        body TEXT,
        html INTEGER NOT NULL,
        recipients TEXT NOT NULL,
        headers TEXT NOT NULL
    )
    """,
    """
    CREATE UNIQUE INDEX IF NOT EXISTS message_present
    ON message (mailbox, folder, generation, uid) WHERE present = 1
    """,
    """
    CREATE INDEX IF NOT EXISTS message_gone
    ON message (mailbox, folder, generation, uid) WHERE present = 0
    """,
    """
    CREATE TABLE IF NOT EXISTS attachment (
        message INTEGER NOT NULL REFERENCES message (id) ON DELETE CASCADE,
        number INTEGER NOT NULL,
        filename TEXT,
        content_type TEXT,
        content BLOB NOT NULL,
        PRIMARY KEY (message, number)
    )
    """,
)

_PRESENT = """
    SELECT id, digest FROM message
    WHERE mailbox = ? AND folder = ? AND generation = ? AND uid = ? AND present = 1
"""
_GONE = """
    SELECT id, digest FROM message
    WHERE mailbox = ? AND folder = ? AND generation = ? AND uid = ? AND present = 0 ORDER BY id DESC
"""
_CARRY = "UPDATE message SET present = 1, mailbox = ?, folder = ?, generation = ?, uid = ? WHERE id = ?"
_TAKEN = "SELECT 1 FROM message WHERE mailbox = ? AND folder = ? AND generation = ? AND present = 1 AND uid IN ({})"
_INSERT = """
    INSERT INTO message (
        id, mailbox, folder, generation, uid, digest, message_id, sent, received, sender, reply_to, subject, body, html,
        recipients, headers
    ) VALUES
"""
_ATTACH = "INSERT INTO attachment (message, number, filename, content_type, content) VALUES"
_ASKED = 500  # keys of a statement


class SqliteSink:
    """Writes changes into the tables `message` and `attachment`. It begins and ends no transaction.

    keep_gone: whether messages that are gone stay, with present = 0. Times are in ISO 8601, in UTC; recipients are a
    JSON array of {"type", "email"}, headers one of {"name", "value"}; html: 1 where the body is HTML. Halves of
    surrogate pairs are U+FFFD. Raises sqlite3.Error.
    """

    def __init__(self, *, keep_gone: bool = False) -> None:
        self._keep_gone = keep_gone

    def prepare(self, connection: sqlite3.Connection) -> None:
        """Make the tables where they aren't there."""
        for statement in _TABLES:  # one by one: executescript would commit
            connection.execute(statement)

    def write(self, connection: sqlite3.Connection, changes: Sequence[Change]) -> None:
        """Write changes, in their order. One that was written before changes nothing."""
        for place, some in itertools.groupby(changes, _place_of_new):
            run = list(some)
            if place is not None and not _any_taken(connection, place, [change.key.uid for change in run]):
                _insert(connection, run)
            else:
                for change in run:
                    self._write_one(connection, change)

    def _write_one(self, connection: sqlite3.Connection, change: Change) -> None:
        if change.kind is Kind.GONE:
            self._end(connection, _found(connection, _PRESENT, change.key, change.digest))
        else:
            self._put(connection, change)

    def _put(self, connection: sqlite3.Connection, change: Change) -> None:
        here, before = _found(connection, _PRESENT, change.key, change.digest), None
        if change.previous is not None:
            before = _found(connection, _PRESENT, change.previous, change.digest)
        if here is not None:
            if before != here:
                self._end(connection, before)
            return
        if before is None and change.previous is not None:
            before = _found(connection, _GONE, change.previous, change.digest)
        if before is not None or change.message is not None:
            self._end(connection, _found(connection, _PRESENT, change.key, None))  # a key is of one message
        if before is not None:
            connection.execute(_CARRY, (*_values(change.key), before))
        elif change.message is not None:
            _insert(connection, [change])

    def _end(self, connection: sqlite3.Connection, message: int | None) -> None:
        if message is None:
            return
        if self._keep_gone:
            connection.execute("UPDATE message SET present = 0 WHERE id = ?", (message,))
            return
        connection.execute("DELETE FROM attachment WHERE message = ?", (message,))  # foreign_keys may be off
        connection.execute("DELETE FROM message WHERE id = ?", (message,))


def _found(connection: sqlite3.Connection, select: str, key: Key, digest: str | None) -> int | None:
    """The id of the first message under the key that has this digest, where both are known."""
    rows: Iterable[tuple[int, str | None]] = connection.execute(select, _values(key))
    return next((found for found, its in rows if digest is None or its is None or its == digest), None)


def _place_of_new(change: Change) -> tuple[str, str, int] | None:
    """The folder, as it is now, of a message that was nowhere before; None for any other change."""
    if change.kind is not Kind.NEW or change.previous is not None or change.message is None:
        return None
    return change.key.mailbox, change.key.folder, change.key.generation


def _any_taken(connection: sqlite3.Connection, place: tuple[str, str, int], uids: Sequence[int]) -> bool:
    """Whether one of these keys is of a message that is present, or of two of these."""
    if len(set(uids)) < len(uids):
        return True
    mailbox, folder, generation, _ = _values(Key(*place, 0))
    for start in range(0, len(uids), _ASKED):
        some = uids[start : start + _ASKED]
        select = _TAKEN.format(", ".join("?" * len(some)))
        if connection.execute(select, (mailbox, folder, generation, *some)).fetchone():
            return True
    return False


def _insert(connection: sqlite3.Connection, changes: Sequence[Change]) -> None:
    """Messages that are under no key yet."""
    (last,) = connection.execute("SELECT coalesce(max(id), 0) FROM message").fetchone()
    messages, attachments = list[tuple[Any, ...]](), list[tuple[Any, ...]]()
    for number, change in enumerate(changes, start=last + 1):
        if change.message is None:
            continue
        messages.append((number, *_values(change.key), change.digest, *_columns(change.message)))
        attachments += (
            (number, place, _text(each.filename), _text(each.content_type), each.content)
            for place, each in enumerate(change.message.attachments, start=1)
        )
    insert(connection, _INSERT, messages)
    insert(connection, _ATTACH, attachments)


def _columns(message: MessageDetail) -> tuple[Any, ...]:
    return (
        _text(message.msg_id),
        _time(message.sent_date),
        _time(message.received_date),
        _text(message.sender),
        _text(message.reply_to),
        _text(message.subject),
        _text(message.body),
        int(message.html_body),
        _json([{"type": str(each.type), "email": each.email} for each in message.recipients]),
        _json([{"name": each.name, "value": each.value} for each in message.headers]),
    )


def _values(key: Key) -> tuple[str, str, int, int]:
    mailbox, folder = (each.encode("utf-8", "backslashreplace").decode() for each in (key.mailbox, key.folder))
    return mailbox, folder, key.generation, key.uid


def _text(text: str | None) -> str | None:
    return None if text is None else whole_text(text)


def _time(time: datetime | None) -> str | None:
    if time is None:
        return None
    if time.tzinfo is UTC:
        return time.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"
    try:
        utc = time.astimezone(UTC)
    except OverflowError:  # on the first and the last day of the calendar
        utc = time.replace(tzinfo=UTC)
    return utc.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _json(values: list[dict[str, Any]]) -> str:
    texts = [{name: _text(value) for name, value in each.items()} for each in values]
    return msgspec.json.encode(texts).decode()
