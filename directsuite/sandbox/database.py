"""The sandbox's state in SQLite, with one writer thread.

    await database.write(work)      runs work(connection) in the writer thread, in a transaction; when the call
                                    returns, the changes survive kill -9 (WAL, synchronous=NORMAL)
    await database.read(work)       runs it on a read-only connection, in a transaction with a consistent snapshot
    database.post(work)             starts a write without waiting for it; later writes run after it

The ledger records the side effects of the services, each in the transaction that makes it. Tests compare the ledger
with what their client has reported.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
import sys
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeAlias, TypeVar

T = TypeVar("T")
P = ParamSpec("P")
Work: TypeAlias = Callable[Concatenate[sqlite3.Connection, P], T]
"""Runs in a transaction, with further arguments."""

SCHEMA = """
CREATE TABLE IF NOT EXISTS effect(
  id INTEGER PRIMARY KEY, operation TEXT NOT NULL, subject TEXT NOT NULL, detail TEXT NOT NULL, at INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS effect_operation ON effect(operation);
"""

CLOSED_TEXT = "the sandbox is closed"

EFFECTS = ContextVar[list[str]]("EFFECTS")
"""The effects (operation and subject) of the request in progress, for the list of calls."""

_FILE_NAME, _LOCK_NAME = "sandbox.sqlite3", "sandbox.lock"


class FolderInUseError(OSError):
    """Another sandbox uses the folder. Both would delete each other's new files."""

    def __init__(self) -> None:
        super().__init__("another sandbox uses this folder: end it, or choose another folder")


class SandboxDatabase:
    """The database in `folder`, or in memory if it is None, with the tables of `schemas`.

    Raises FolderInUseError, sqlite3.Error if the file cannot be read, and OSError if its permissions cannot be
    restricted to its owner. read(), write() and post() raise RuntimeError after close().
    """

    def __init__(self, folder: Path | None, schemas: Iterable[str]) -> None:
        with contextlib.ExitStack() as opening:
            location = ":memory:"
            if folder is not None:
                folder.mkdir(0o700, parents=True, exist_ok=True)
                opening.enter_context(contextlib.closing(lock_file(folder / _LOCK_NAME)))
                (folder / _FILE_NAME).touch(0o600)
                make_private(*(folder / (_FILE_NAME + suffix) for suffix in ("", "-wal", "-shm")))
                location = str(folder / _FILE_NAME)
            writing = _connect(location, "\n".join(schemas))
            self._writer = self._reader = _DatabaseThread("sandbox-writer", writing, "BEGIN IMMEDIATE")
            opening.callback(self._writer.close)
            if folder is not None:
                reading = _connect(location, "PRAGMA query_only=ON")
                self._reader = _DatabaseThread("sandbox-reader", reading, "BEGIN")
                opening.callback(self._reader.close)
            self._opened = opening.pop_all()

    async def write(self, work: Work[P, T], /, *arguments: P.args, **options: P.kwargs) -> T:
        """Return the result of `work`, run in a transaction. Its exception rolls it back and is raised."""
        effects, context = EFFECTS.get([]), copy_context()
        before = len(effects)
        try:
            return await asyncio.wrap_future(
                self._writer.submit(lambda connection: context.run(work, connection, *arguments, **options))
            )
        except Exception:
            del effects[before:]
            raise

    async def read(self, work: Work[P, T], /, *arguments: P.args, **options: P.kwargs) -> T:
        """Return the result of `work`, which may only read and sees all completed writes. Raises its exception."""
        return await asyncio.wrap_future(
            self._reader.submit(lambda connection: work(connection, *arguments, **options))
        )

    def post(self, work: Callable[[sqlite3.Connection], object]) -> None:
        """Submit `work` without waiting; thread-safe. If it fails, it is rolled back and the error ignored."""
        self._writer.submit(work)

    @property
    def changes(self) -> int:
        """The number of committed transactions with changes."""
        return self._writer.changes

    def close(self) -> None:
        """Finish the submitted work, then close the connections."""
        self._opened.close()


def record_effect(connection: sqlite3.Connection, *, operation: str, subject: str, at: int, **detail: Any) -> None:
    """Record an effect in the ledger, in the caller's transaction.

    operation: the name in the specification, such as `Send`.
    subject: the id of what was changed, such as a document identifier or the smtpId of a new message.
    at: milliseconds since 1970.
    detail: further JSON values for tests.
    """
    connection.execute(
        "INSERT INTO effect(operation, subject, detail, at) VALUES(?, ?, ?, ?)",
        (operation, subject, json.dumps(detail), at),
    )
    if (effects := EFFECTS.get(None)) is not None:
        effects.append(f"{operation} {subject}")


def list_effects(connection: sqlite3.Connection, operation: str | None = None) -> list[Mapping[str, Any]]:
    """Return all effects, or those of one operation, oldest first."""
    rows = connection.execute(
        "SELECT id, operation, subject, detail, at FROM effect "
        "WHERE :operation IS NULL OR operation = :operation ORDER BY id",
        {"operation": operation},
    )
    return [{**dict(row), "detail": json.loads(row["detail"])} for row in rows]


def make_private(*files: Path) -> None:
    """Restrict the permissions of existing files to their owner, except on Windows. Raises OSError."""
    for file in files:
        with contextlib.suppress(FileNotFoundError):
            if file.stat().st_mode & 0o077 and sys.platform != "win32":
                file.chmod(0o600)


def lock_file(file: Path) -> sqlite3.Connection:
    """Return a connection that locks the file until it is closed. Raises FolderInUseError if the file is locked."""
    file.touch(0o600)
    make_private(file)
    connection = sqlite3.connect(file, isolation_level=None, check_same_thread=False, timeout=0)
    try:
        connection.execute("BEGIN EXCLUSIVE")
    except BaseException as error:
        connection.close()
        if getattr(error, "sqlite_errorcode", None) != sqlite3.SQLITE_BUSY:
            raise
    else:
        return connection
    raise FolderInUseError


def _connect(location: str, script: str) -> sqlite3.Connection:
    connection = sqlite3.connect(location, isolation_level=None, check_same_thread=False, timeout=5.0)
    try:
        connection.row_factory = sqlite3.Row
        for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON", "busy_timeout=5000"):
            connection.execute(f"PRAGMA {pragma}")
        connection.executescript(script)
    except BaseException:
        connection.close()
        raise
    return connection


class _DatabaseThread:
    """A connection in a separate thread, in which each piece of work has a transaction."""

    def __init__(self, name: str, connection: sqlite3.Connection, begin: str) -> None:
        self.connection = connection
        self.changes = 0
        self._begin = begin
        self._executor = ThreadPoolExecutor(1, name)

    def submit(self, work: Callable[[sqlite3.Connection], T]) -> Future[T]:
        try:
            return self._executor.submit(self._run, work)
        except RuntimeError:
            raise RuntimeError(CLOSED_TEXT) from None

    def close(self) -> None:
        self._executor.shutdown()
        self.connection.close()

    def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")  # a rollback had failed
            self.connection.execute(self._begin)
            changes = self.connection.total_changes
            result = work(self.connection)
            self.connection.execute("COMMIT")
        except BaseException as error:
            with contextlib.suppress(BaseException):
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")
            if isinstance(error, StopIteration):  # which a future cannot raise in a coroutine
                raise RuntimeError(repr(error)) from error
            raise
        self.changes += self.connection.total_changes != changes
        return result
