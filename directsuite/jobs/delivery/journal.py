"""The journal of messages that are followed: an SQLite file, so that a restart forgets none and tells each end.

message      one row each; those that are over stay until `forget`, so that none is followed twice
recipient    how each stands; gone when the loop has got the message's last change
change       what the loop has not got yet, or not done

It holds addresses of recipients, and no credentials: a mailbox stands in it as a hash.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from directsuite.durable.database import sql
from directsuite.durable.sqlite import SqliteFile
from directsuite.errors import DirectSuiteError
from directsuite.jobs.delivery.changes import DeliveryChange, RecipientStatus, TrackedMessage, TrackingState
from directsuite.jobs.sqlite_journal import SqliteJournal
from directsuite.messaging import arguments
from directsuite.messaging.models import MessageStatus
from directsuite.messaging.tracking import bare


class JournalError(DirectSuiteError):
    """The journal could not be read or written. What was to be written is not."""


_FILE = SqliteFile(
    noun="journal",
    error=JournalError,
    application=0x64734476,
    version=2,
)
_TABLES = (
    sql("""
        CREATE TABLE message (
            number INTEGER PRIMARY KEY, mailbox TEXT NOT NULL, bare_id TEXT NOT NULL, smtp_id TEXT NOT NULL,
            added_at REAL NOT NULL, recipients INTEGER NOT NULL, give_up_after REAL NOT NULL,
            isolated INTEGER NOT NULL DEFAULT 0, is_over INTEGER NOT NULL DEFAULT 0, UNIQUE (mailbox, bare_id)
        )
    """),
    sql("""
        CREATE INDEX message_followed ON message (mailbox) WHERE NOT is_over
    """),
    sql("""
        CREATE TABLE recipient (
            message INTEGER NOT NULL REFERENCES message ON DELETE CASCADE, address TEXT NOT NULL, recipient TEXT,
            status TEXT, step INTEGER NOT NULL, is_end INTEGER NOT NULL, PRIMARY KEY (message, address)
        ) WITHOUT ROWID
    """),
    sql("""
        CREATE TABLE change (
            number INTEGER PRIMARY KEY, message INTEGER NOT NULL REFERENCES message ON DELETE CASCADE,
            key TEXT NOT NULL UNIQUE, recipient TEXT, status TEXT, step INTEGER NOT NULL, details TEXT, sent_at TEXT,
            is_end INTEGER NOT NULL, given_up INTEGER NOT NULL, ends_message INTEGER NOT NULL
        )
    """),
    sql("""
        CREATE INDEX change_message ON change (message)
    """),
)

_ADD = """
    INSERT INTO message (mailbox, bare_id, smtp_id, added_at, recipients, give_up_after) VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT DO NOTHING
"""
_FOLLOWED = """
    SELECT number, smtp_id, added_at, recipients, give_up_after, isolated FROM message
    WHERE mailbox = ? AND NOT is_over ORDER BY number
"""
_SEEN = """
    SELECT message, address, recipient, status, step, is_end FROM recipient JOIN message ON message = number
    WHERE mailbox = ? AND NOT is_over
"""
_SET_RECIPIENT = "INSERT OR REPLACE INTO recipient VALUES (?, ?, ?, ?, ?, ?)"
_ADD_CHANGE = """
    INSERT INTO change (message, key, recipient, status, step, details, sent_at, is_end, given_up, ends_message)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING
"""
_PENDING = """
    SELECT key, smtp_id, recipient, status, step, details, sent_at, is_end, given_up, ends_message
    FROM change JOIN message ON message = message.number WHERE mailbox = ? ORDER BY change.number LIMIT ?
"""
_DONE = "DELETE FROM change WHERE key = ? RETURNING message, ends_message"
_FORGET = """
    DELETE FROM message
    WHERE is_over AND added_at < ? AND NOT EXISTS (SELECT 1 FROM change WHERE message = message.number)
"""


class Journal(SqliteJournal):
    """Keeps the journal in a file, which is made where there is none. One process has it open at a time.

    Trackers may share it, of one mailbox or several. Opening it, `forget` and each method of a tracker raise
    JournalError where it can't be read or written.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(path, _FILE, _TABLES)
        self._by_mailbox = dict[str, TrackingState]()

    async def forget(self, before: datetime) -> int:
        """Forget messages that are over, were added before this, and whose changes are done; how many they are.

        One that is added again is followed anew. before: an aware datetime. Raises InvalidArgumentError.
        """
        moment = arguments.aware(before, "before").timestamp()
        return await self._do(lambda connection: connection.execute(_FORGET, (moment,)).rowcount)

    def _state_of(self, mailbox: str) -> TrackingState:
        """What trackers of this mailbox share."""
        return self._by_mailbox.setdefault(mailbox, TrackingState())

    async def _add(
        self, mailbox: str, smtp_id: str, *, at: float, recipients: int, give_up_after: float
    ) -> TrackedMessage | None:
        """Follow a message; None where it was followed before. at: Unix time."""
        values = mailbox, bare(smtp_id), smtp_id, at, recipients, give_up_after

        def work(connection: sqlite3.Connection) -> int | None:
            """The row's number, where it is new."""
            made = connection.execute(_ADD, values)
            return made.lastrowid if made.rowcount else None

        number = await self._do(work)
        if number is None:
            return None
        return TrackedMessage(
            number=number,
            mailbox=mailbox,
            smtp_id=smtp_id,
            added_at=at,
            recipients=recipients,
            give_up_after=give_up_after,
        )

    async def _load(self, mailbox: str) -> list[TrackedMessage]:
        """The messages of a mailbox that are not over, as they were added."""

        def work(connection: sqlite3.Connection) -> list[TrackedMessage]:
            """All of one moment."""
            found = {
                number: TrackedMessage(
                    number=number,
                    mailbox=mailbox,
                    smtp_id=smtp_id,
                    added_at=at,
                    recipients=recipients,
                    give_up_after=give_up_after,
                    isolated=bool(isolated),
                )
                for number, smtp_id, at, recipients, give_up_after, isolated in connection.execute(
                    _FOLLOWED, (mailbox,)
                )
            }
            for number, address, recipient, status, step, is_end in connection.execute(_SEEN, (mailbox,)):
                found[number].seen[address] = RecipientStatus(recipient, _status(status), step, bool(is_end))
            return list(found.values())

        return await self._do(work)

    async def _record(self, changed: Iterable[tuple[TrackedMessage, Sequence[tuple[str, DeliveryChange]]]]) -> None:
        """Add these changes, and end the messages that they end, in one transaction."""
        rows = [(message.number, address, change) for message, changes in changed for address, change in changes]

        def work(connection: sqlite3.Connection) -> None:
            """All in one transaction."""
            for number, address, change in rows:
                stands = number, address, change.recipient, change.status, change.step, change.is_end
                connection.execute(_SET_RECIPIENT, stands)
                sent_at = None if change.sent_at is None else change.sent_at.isoformat()
                how = change.details, sent_at, change.is_end, change.given_up, change.ends_message
                connection.execute(
                    _ADD_CHANGE, (number, change.key, change.recipient, change.status, change.step, *how)
                )
                if change.ends_message:
                    connection.execute("UPDATE message SET is_over = 1 WHERE number = ?", (number,))

        await self._do(work)

    async def _set_isolated(self, messages: Iterable[TrackedMessage], *, isolated: bool) -> None:
        """Whether each of these is asked for in a request of its own from now on."""
        rows = [(isolated, message.number) for message in messages]
        statement = "UPDATE message SET isolated = ? WHERE number = ?"
        await self._do(lambda connection: connection.executemany(statement, rows).rowcount)

    async def _pending(self, mailbox: str, most: int) -> list[DeliveryChange]:
        """The first changes of a mailbox that are not done."""
        return await self._do(
            lambda connection: [_change(values) for values in connection.execute(_PENDING, (mailbox, most))]
        )

    async def _acknowledge(self, key: str) -> None:
        """Delete a change that is done."""

        def work(connection: sqlite3.Connection) -> None:
            """With what only changes to come would have needed."""
            row = connection.execute(_DONE, (key,)).fetchone()
            if row is not None and row[1]:
                connection.execute("DELETE FROM recipient WHERE message = ?", (row[0],))

        await self._do(work)


def _status(text: str | None) -> MessageStatus | None:
    return None if text is None else MessageStatus(text)


def _change(values: Sequence[Any]) -> DeliveryChange:
    key, smtp_id, recipient, status, step, details, sent_at, is_end, given_up, ends_message = values
    return DeliveryChange(
        key=key,
        smtp_id=smtp_id,
        recipient=recipient,
        status=_status(status),
        step=step,
        details=details,
        sent_at=None if sent_at is None else datetime.fromisoformat(sent_at),
        is_end=bool(is_end),
        given_up=bool(given_up),
        ends_message=bool(ends_message),
    )
