"""What an operator wishes for a mailbox, put into the store by another process, and granted with the next turn.

wish ──► a row ──► wished: its turn comes at once ──► grant: what is wished is due, and the row is gone; one commit
"""

from __future__ import annotations

import enum
import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from directsuite.sync.database import STORE, WISHES


class Wish(enum.StrEnum):
    """What can be wished. The names stand in stores."""

    AUDIT = "audit"
    """That everything is compared with the server."""
    RETRY = "retry"
    """That what was set aside, or fails, is tried again at once."""


@runtime_checkable
class GrantsWishes(Protocol):
    """A store in which other processes leave wishes."""

    async def wished(self) -> Sequence[str]:
        """Mailboxes for which there are wishes. Nothing is written."""
        ...

    async def grant(self, mailbox: str) -> bool:
        """Make due what is wished for a mailbox; whether there was anything. Rows and folders are to be read anew."""
        ...


_WISH = "INSERT OR IGNORE INTO wish (mailbox, kind) SELECT id, ? FROM mailbox WHERE name = ?"
_WISHED = "SELECT DISTINCT b.name FROM wish w JOIN mailbox b ON b.id = w.mailbox"
_OF_MAILBOX = "SELECT w.mailbox, w.kind FROM wish w JOIN mailbox b ON b.id = w.mailbox WHERE b.name = ?"
_GRANTS = {
    Wish.AUDIT: "UPDATE folder SET audited_ms = 0 WHERE mailbox = ? AND audited_ms IS NOT NULL",
    Wish.RETRY: """
        UPDATE msg SET retry_ms = 0 WHERE retry_ms > 0 AND state IN (2, 4, 5, 7)
        AND folder IN (SELECT id FROM folder WHERE mailbox = ?)
    """,
}


def wish_in(path: Path, kind: Wish, names: Iterable[str]) -> list[str]:
    """Leave a wish in an SQLite store, beside whoever has it open; for these of its mailboxes, or for all, if none.

    Those for which it was left. Raises StoreError.
    """
    with STORE.beside(path) as connection:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(WISHES)
        known = [name for (name,) in connection.execute("SELECT name FROM mailbox ORDER BY name")]
        wanted = set(names) or set(known)
        left = [name for name in known if name in wanted]
        connection.executemany(_WISH, [(kind, name) for name in left])
        connection.execute("COMMIT")
    return left


def wished(connection: sqlite3.Connection) -> list[str]:
    """Mailboxes of an SQLite store for which there are wishes."""
    return [name for (name,) in connection.execute(_WISHED)]


def is_wished(connection: sqlite3.Connection, mailbox: str) -> bool:
    """Whether there are wishes for one."""
    return connection.execute(_OF_MAILBOX, (mailbox,)).fetchone() is not None


def grant(connection: sqlite3.Connection, mailbox: str) -> bool:
    """Make due what is wished for one, within a transaction; whether there was anything."""
    wishes = connection.execute(_OF_MAILBOX, (mailbox,)).fetchall()
    for identifier, kind in wishes:
        if kind in _GRANTS:  # a later release may know others
            connection.execute(_GRANTS[Wish(kind)], (identifier,))
        connection.execute("DELETE FROM wish WHERE mailbox = ? AND kind = ?", (identifier, kind))
    return bool(wishes)
