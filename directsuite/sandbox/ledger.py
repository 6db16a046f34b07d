"""The ledger of effects: what really happened on the server, whatever the client was told.

A service records each side effect in the same transaction that makes it, so that the ledger and the state
cannot disagree; a test then compares what its client was told with what the ledger says.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from typing import Any

SCHEMA = """
CREATE TABLE IF NOT EXISTS effect(
  id INTEGER PRIMARY KEY, operation TEXT NOT NULL, subject TEXT NOT NULL, detail TEXT NOT NULL, at INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS effect_operation ON effect(operation);
"""


def record(connection: sqlite3.Connection, *, operation: str, subject: str, at: int, **detail: Any) -> None:
    """Write down one effect inside the caller's transaction.

    operation: the specification's name, such as `Send`. subject: what was changed, such as a document identifier or
    the new message's smtpId. at: milliseconds since 1970. detail: what a test may want to look at (JSON values).
    """
    connection.execute(
        "INSERT INTO effect(operation, subject, detail, at) VALUES(?, ?, ?, ?)",
        (operation, subject, json.dumps(detail), at),
    )


def effects(connection: sqlite3.Connection, operation: str | None = None) -> list[Mapping[str, Any]]:
    """All effects in the order in which they happened, or those of one operation."""
    rows = connection.execute(
        "SELECT id, operation, subject, detail, at FROM effect WHERE ?1 IS NULL OR operation = ?1 ORDER BY id",
        (operation,),
    )
    return [{**dict(row), "detail": json.loads(row["detail"])} for row in rows]
