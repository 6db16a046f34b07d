"""The SQLite file of a store.

mailbox ─► folder ─► msg; a mailbox's fence counts its claims
  └────► wish, left there by other processes
sink: at most one row, of whoever was told of what the others say
"""

from __future__ import annotations

import sqlite3

from directsuite.durable.sqlite import SqliteFile
from directsuite.sync.store import StoreError, refuse_another

WISHES = """
    CREATE TABLE IF NOT EXISTS wish (
        mailbox INTEGER NOT NULL REFERENCES mailbox, kind TEXT NOT NULL, PRIMARY KEY (mailbox, kind)
    ) WITHOUT ROWID
"""
"""Made wherever it is missing: a store from before it was thought of is none the worse."""

SINK = "CREATE TABLE IF NOT EXISTS sink (kind TEXT NOT NULL)"
"""As WISHES; a store from before it was thought of is bound by its next run."""

UNSETTLED = """
    CREATE INDEX IF NOT EXISTS msg_unsettled ON msg (folder, state) WHERE state IN (2, 4, 5, 7)
"""
"""As WISHES; a store from before there was state 7 has another index, of which a query for these makes no use."""

_BIND = "INSERT INTO sink (kind) SELECT ? WHERE NOT EXISTS (SELECT * FROM sink)"

STORE = SqliteFile(
    noun="store",
    error=StoreError,
    application=0x64735379,
    version=1,
    page=16384,  # its sink may keep messages whole
    also=(WISHES, SINK, UNSETTLED, "DROP INDEX IF EXISTS msg_waiting"),
    tables="""
CREATE TABLE mailbox (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, fence INTEGER NOT NULL);
CREATE TABLE folder (
    id INTEGER PRIMARY KEY, mailbox INTEGER NOT NULL REFERENCES mailbox, name TEXT NOT NULL,
    generation INTEGER NOT NULL, fingerprint BLOB, audited_ms INTEGER, UNIQUE (mailbox, name)
);
CREATE TABLE msg (
    folder INTEGER NOT NULL REFERENCES folder, generation INTEGER NOT NULL, uid INTEGER NOT NULL,
    state INTEGER NOT NULL, identity BLOB, digest BLOB, size INTEGER NOT NULL, received_ms INTEGER,
    attempts INTEGER NOT NULL, retry_ms INTEGER, PRIMARY KEY (folder, generation, uid)
) WITHOUT ROWID;
CREATE INDEX msg_digest ON msg (folder, digest) WHERE digest IS NOT NULL;
""",
)


def bind(connection: sqlite3.Connection, sink: str) -> None:
    """Bind a store to a sink, within a transaction. Raises ConfigurationError where it is bound to another."""
    connection.execute(_BIND, (sink,))
    (bound,) = connection.execute("SELECT kind FROM sink").fetchone()
    refuse_another(bound, sink)
