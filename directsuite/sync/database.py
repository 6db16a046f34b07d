"""The SQLite file of a store: locked, opened, and given its tables.

store.db, -wal, -shm   mailbox ─► folder ─► msg; a mailbox's fence counts its claims. Not on a network file system
store.db.lock          locked while a process has the store open
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import sys
from collections.abc import Generator
from pathlib import Path

from directsuite.sync.store import StoreError as StoreError

if sys.platform != "win32":
    import fcntl

SCHEMA = 1
"""The version of the tables, which stands in the file."""

_TABLES = """
BEGIN IMMEDIATE;
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
CREATE INDEX msg_waiting ON msg (folder, state) WHERE state IN (2, 4, 5);
PRAGMA user_version = 1;
COMMIT;
"""

_PRIMARY = 0xFF  # of SQLite's extended error codes, the bits that name the kind
_WHAT_TO_DO = {
    sqlite3.SQLITE_FULL: "There is no room for the store's file, nothing of this was written: free some disk space.",
    sqlite3.SQLITE_READONLY: "The store's file can't be written: let this user write to it and to its folder.",
    sqlite3.SQLITE_CANTOPEN: "The store's file can't be opened: let this user write to it and to its folder.",
    sqlite3.SQLITE_PERM: "The store's file can't be opened: let this user write to it and to its folder.",
    sqlite3.SQLITE_CORRUPT: "The store's file is damaged: put a backup in its place, or begin with a new one.",
    sqlite3.SQLITE_NOTADB: "The store's file is no SQLite database: give the store another path.",
    sqlite3.SQLITE_BUSY: "Another program keeps the store's file locked: close it there.",
    sqlite3.SQLITE_IOERR: "The store's file can't be read or written: look after its disk.",
}


def explained(error: sqlite3.Error) -> StoreError:
    """What to do about an error of SQLite."""
    code: int | None = getattr(error, "sqlite_errorcode", None)  # None where Python's own module raised it
    about = "Python" if code is None else error.sqlite_errorname
    other = f"SQLite refused what the store asked for ({about}): see the error that caused this one."
    failure = StoreError(other if code is None else _WHAT_TO_DO.get(code & _PRIMARY, other))
    failure.__cause__ = error
    return failure


@contextlib.contextmanager
def writing(path: Path | None) -> Generator[sqlite3.Connection]:
    """The connection that writes to a store, which is made where there is none. path: None for one in memory."""
    with contextlib.ExitStack() as stack:
        if path is not None:
            stack.enter_context(_locked(path))
            _make_private(path)
        try:
            connection = stack.enter_context(contextlib.closing(_connected(path)))
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if version > SCHEMA:
                raise StoreError("The store's file was written by a newer directsuite: upgrade directsuite to use it.")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA foreign_keys = ON")
            if version == 0:
                connection.executescript(_TABLES)
        except sqlite3.Error as error:
            raise explained(error) from error
        yield connection


@contextlib.contextmanager
def reading(path: Path) -> Generator[sqlite3.Connection]:
    """A connection that reads what was committed, while the other one writes."""
    with contextlib.ExitStack() as stack:
        try:
            connection = stack.enter_context(contextlib.closing(_connected(path)))
            connection.execute("PRAGMA query_only = ON")
        except sqlite3.Error as error:
            raise explained(error) from error
        yield connection


def _connected(path: Path | None) -> sqlite3.Connection:
    return sqlite3.connect(":memory:" if path is None else path, timeout=5.0, isolation_level=None)


def _make_private(path: Path) -> None:
    """Make the file, for its owner alone; SQLite gives the files beside it the same mode."""
    try:
        path.touch(0o600)  # under the lock: closing a file of this process takes SQLite's own locks from it
    except OSError as error:
        raise _unusable(error) from None


@contextlib.contextmanager
def _locked(path: Path) -> Generator[None]:
    if sys.platform == "win32":
        yield
        return
    try:
        lock = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise _unusable(error) from None
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreError("The store is open already: close it there, or give this one another path.") from None
        except OSError as error:
            raise _unusable(error) from None
        yield
    finally:
        os.close(lock)


def _unusable(error: OSError) -> StoreError:
    """Without the path, which may name a mailbox."""
    reason = os.strerror(error.errno) if error.errno is not None else type(error).__name__
    return StoreError(f"The store can't be opened ({reason}): give it a path in a folder that this user may write to.")
