"""Messages in folders, in SQLite: bytes kept once per content, metadata kept beside them ready to be answered.

A message is a row (folder, uid) that points to its content; copying one copies the row. Content that no message
points to any more is removed by a trigger, whichever way its last message went. All functions take the connection of
a read or write that is going on, and folder ids from folders.py.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from directsuite.sandbox.messaging.folders import take_uids

if TYPE_CHECKING:
    from directsuite.sandbox.messaging.parsing import Content

SCHEMA = """
CREATE TABLE IF NOT EXISTS content(
  id INTEGER PRIMARY KEY, digest TEXT NOT NULL UNIQUE, message_id TEXT, sender TEXT NOT NULL, subject TEXT NOT NULL,
  sent INTEGER, metadata BLOB NOT NULL, detail BLOB NOT NULL, raw BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS message(
  folder INTEGER NOT NULL REFERENCES folder(id) ON DELETE CASCADE, uid INTEGER NOT NULL,
  content INTEGER NOT NULL REFERENCES content(id), received INTEGER NOT NULL,
  seen INTEGER NOT NULL DEFAULT 0, deleted INTEGER NOT NULL DEFAULT 0, PRIMARY KEY(folder, uid)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS message_content ON message(content);
CREATE TRIGGER IF NOT EXISTS content_forgotten AFTER DELETE ON message
  WHEN NOT EXISTS (SELECT 1 FROM message WHERE content = OLD.content)
  BEGIN DELETE FROM content WHERE id = OLD.content; END;
"""


Transfer = Callable[[sqlite3.Connection, int, int, Iterable[int]], dict[int, int]]
"""copy or move: from a folder, to a folder, which uids; the new uid of each. Within one folder nothing is done."""


class Flag(Enum):
    """A mark on a message; the value is the statement that sets it where it is not set so already."""

    SEEN = (
        "UPDATE message SET seen = :value WHERE folder = :folder AND seen != :value"
        " AND uid IN (SELECT value FROM json_each(:uids)) RETURNING uid"
    )
    DELETED = (
        "UPDATE message SET deleted = :value WHERE folder = :folder AND deleted != :value"
        " AND uid IN (SELECT value FROM json_each(:uids)) RETURNING uid"
    )


class Selection(NamedTuple):
    """Which messages of a folder are wanted: those that meet every criterion given.

    begin_ms, end_ms: received then or between, in milliseconds since 1970. sender, subject: text to find in the
    header, case-blind.
    """

    uids: Sequence[int] | None = None
    unread: bool = False
    begin_ms: int | None = None
    end_ms: int | None = None
    sender: str | None = None
    subject: str | None = None


class Count(NamedTuple):
    """How many messages a folder has."""

    all: int
    unread: int
    deleted: int


class StoredMessage(NamedTuple):
    """A message as it is listed; number is its place in the folder, members its part of the JSON (parsing.Content)."""

    uid: int
    number: int
    received_ms: int
    sent_ms: int | None
    members: bytes


class StoredBytes(NamedTuple):
    """A message as it came."""

    uid: int
    message_id: str | None
    raw: bytes


def append(connection: sqlite3.Connection, folder: int, content: Content, *, received_ms: int) -> int:
    """Add an unread message to a folder; its uid."""
    (uid,) = take_uids(connection, folder, 1)
    connection.execute(
        "INSERT INTO content(digest, message_id, sender, subject, sent, metadata, detail, raw)"
        " VALUES(?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT(digest) DO NOTHING",
        (
            content.digest,
            content.message_id,
            content.sender,
            content.subject,
            content.sent_ms,
            content.metadata,
            content.detail,
            content.raw,
        ),
    )
    connection.execute(
        "INSERT INTO message(folder, uid, content, received) SELECT ?, ?, id, ? FROM content WHERE digest = ?",
        (folder, uid, received_ms, content.digest),
    )
    return uid


def copy(connection: sqlite3.Connection, folder: int, destination: int, uids: Iterable[int]) -> dict[int, int]:
    """Copy messages, in the order of their uids, with flags and received date; the new uid of each.

    Within one folder nothing is copied.
    """
    if folder == destination:
        return {}
    rows = connection.execute(
        "SELECT uid, content, received, seen, deleted FROM message"
        " WHERE folder = ? AND uid IN (SELECT value FROM json_each(?)) ORDER BY uid",
        (folder, _listed(uids)),
    ).fetchall()
    new_uids = take_uids(connection, destination, len(rows))
    connection.executemany(
        "INSERT INTO message(folder, uid, content, received, seen, deleted) VALUES(?, ?, ?, ?, ?, ?)",
        [(destination, new_uid, *tuple(row)[1:]) for new_uid, row in zip(new_uids, rows, strict=True)],
    )
    return {row["uid"]: new_uid for new_uid, row in zip(new_uids, rows, strict=True)}


def move(connection: sqlite3.Connection, folder: int, destination: int, uids: Iterable[int]) -> dict[int, int]:
    """Move messages; the new uid of each. Within one folder nothing is moved."""
    moved = copy(connection, folder, destination, uids)
    remove(connection, folder, moved)
    return moved


def remove(connection: sqlite3.Connection, folder: int, uids: Iterable[int]) -> list[int]:
    """Remove messages for good; the uids that there were."""
    rows = connection.execute(
        "DELETE FROM message WHERE folder = ? AND uid IN (SELECT value FROM json_each(?)) RETURNING uid",
        (folder, _listed(uids)),
    )
    return sorted(row["uid"] for row in rows.fetchall())


def renumber(connection: sqlite3.Connection, folder: int, first: int) -> int:
    """Give a folder's messages other uids, in their order from `first`, as a restored server does; how many."""
    rows = connection.execute("SELECT uid FROM message WHERE folder = ? ORDER BY uid", (folder,))
    uids = [row["uid"] for row in rows.fetchall()]
    connection.execute("UPDATE message SET uid = -uid WHERE folder = ?", (folder,))  # uids are unique at every step
    connection.executemany(
        "UPDATE message SET uid = ? WHERE folder = ? AND uid = ?",
        [(new, folder, -old) for new, old in enumerate(uids, first)],
    )
    connection.execute("UPDATE folder SET next_uid = ? WHERE id = ?", (first + len(uids), folder))
    return len(uids)


def mark(connection: sqlite3.Connection, folder: int, uids: Iterable[int], flag: Flag, *, value: bool) -> list[int]:
    """Set or clear a flag; the uids of the messages that this changed."""
    rows = connection.execute(flag.value, {"value": value, "folder": folder, "uids": _listed(uids)})
    return sorted(row["uid"] for row in rows.fetchall())


def count(connection: sqlite3.Connection, folder: int) -> Count:
    """How many messages, unread messages and messages marked as deleted a folder has."""
    row = connection.execute(
        'SELECT count(*) AS "all", total(seen = 0) AS unread, total(deleted) AS deleted FROM message WHERE folder = ?',
        (folder,),
    ).fetchone()
    return Count(all=row["all"], unread=int(row["unread"]), deleted=int(row["deleted"]))


def uids(connection: sqlite3.Connection, folder: int) -> list[int]:
    """All uids of a folder, ascending."""
    return [row[0] for row in connection.execute("SELECT uid FROM message WHERE folder = ? ORDER BY uid", (folder,))]


def messages(connection: sqlite3.Connection, folder: int, selection: Selection, *, whole: bool) -> list[StoredMessage]:
    """The selected messages in the order of their uids, whole or as metadata."""
    criteria = selection._asdict() | {
        "folder": folder,
        "whole": whole,
        "uids": None if selection.uids is None else _listed(selection.uids),
        "sender": None if selection.sender is None else selection.sender.casefold(),
        "subject": None if selection.subject is None else selection.subject.casefold(),
    }
    rows = connection.execute(
        """
        SELECT uid, number, received, sent, CASE WHEN :whole THEN detail ELSE metadata END
        FROM (SELECT uid, content, received, seen, row_number() OVER (ORDER BY uid) AS number
              FROM message WHERE folder = :folder)
        JOIN content ON content.id = content
        WHERE (:uids IS NULL OR uid IN (SELECT value FROM json_each(:uids)))
          AND (NOT :unread OR NOT seen)
          AND (:begin_ms IS NULL OR received >= :begin_ms)
          AND (:end_ms IS NULL OR received <= :end_ms)
          AND (:sender IS NULL OR instr(sender, :sender) > 0)
          AND (:subject IS NULL OR instr(subject, :subject) > 0)
        ORDER BY uid
        """,
        criteria,
    )
    return [StoredMessage(*row) for row in rows]


def raw_messages(connection: sqlite3.Connection, folder: int, uids: Iterable[int]) -> list[StoredBytes]:
    """The bytes of messages in the order of their uids; unknown uids are skipped."""
    rows = connection.execute(
        "SELECT uid, message_id, raw FROM message JOIN content ON content.id = content"
        " WHERE folder = ? AND uid IN (SELECT value FROM json_each(?)) ORDER BY uid",
        (folder, _listed(uids)),
    )
    return [StoredBytes(*row) for row in rows]


def _listed(uids: Iterable[int]) -> str:
    return json.dumps(list(uids))
