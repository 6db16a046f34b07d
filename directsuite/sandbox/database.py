"""The sandbox's state in SQLite, with one writer thread.

    await database.write(work)      runs work(connection) in the writer thread, in a transaction; when the call
                                    returns, the changes survive kill -9 and power loss (WAL, synchronous=FULL)
    await database.read(work)       runs it on a read-only connection, in a transaction with a consistent snapshot
    database.post(work)             starts a write without waiting for it; later writes run after it

Work that arrives during a commit shares the next transaction (group commit). Each piece of work has its own
savepoint, so that an exception rolls back only its own changes.

The ledger records the side effects of the services, each in the transaction that makes it. Tests compare the ledger
with what their client has reported.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import queue
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar, copy_context
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeAlias, TypeVar

T = TypeVar("T")
P = ParamSpec("P")
Work: TypeAlias = Callable[Concatenate[sqlite3.Connection, P], T]
"""Runs in a transaction, with further arguments."""
TransactionFn = Callable[[sqlite3.Connection], Any]
_Job = tuple[TransactionFn, "asyncio.Future[Any] | None"]

SCHEMA = """
CREATE TABLE IF NOT EXISTS effect(
  id INTEGER PRIMARY KEY, operation TEXT NOT NULL, subject TEXT NOT NULL, detail TEXT NOT NULL, at INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS effect_operation ON effect(operation);
"""

CLOSED_TEXT = "the sandbox is closed"

EFFECTS = ContextVar[list[str]]("EFFECTS")
"""The effects (operation and subject) of the request in progress, for the list of calls."""

_FILE_NAME, _LOCK_NAME = "sandbox.sqlite3", "sandbox.lock"
_MAX_GROUP_JOBS = 256  # pieces of work that share a commit


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
            self._writer = self._reader = _DatabaseThread("sandbox-writer", writing, "BEGIN IMMEDIATE", _MAX_GROUP_JOBS)
            opening.callback(self._writer.close)
            if folder is not None:
                reading = _connect(location, "PRAGMA query_only=ON")
                self._reader = _DatabaseThread("sandbox-reader", reading, "BEGIN", 1)
                opening.callback(self._reader.close)
            self._opened = opening.pop_all()

    async def write(self, work: Work[P, T], /, *arguments: P.args, **options: P.kwargs) -> T:
        """Return the result of `work`, run in a transaction. Its exception rolls it back and is raised."""
        effects, context = EFFECTS.get([]), copy_context()
        before = len(effects)
        try:
            result: T = await self._writer.submit(
                lambda connection: context.run(work, connection, *arguments, **options)
            )
        except Exception:
            del effects[before:]
            raise
        return result

    async def read(self, work: Work[P, T], /, *arguments: P.args, **options: P.kwargs) -> T:
        """Return the result of `work`, which may only read and sees all completed writes. Raises its exception."""
        result: T = await self._reader.submit(lambda connection: work(connection, *arguments, **options))
        return result

    def post(self, work: Callable[[sqlite3.Connection], object]) -> None:
        """Submit `work` without waiting; thread-safe. If it fails, it is rolled back and the error ignored."""
        self._writer.put(work, None)

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
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "busy_timeout=5000"):
            connection.execute(f"PRAGMA {pragma}")
        connection.executescript(script)
    except BaseException:
        connection.close()
        raise
    return connection


class _DatabaseThread:
    def __init__(self, name: str, connection: sqlite3.Connection, begin: str, max_group_jobs: int) -> None:
        self.connection = connection
        self.changes = 0
        self._begin = begin
        self._max_group_jobs = max_group_jobs
        self._rejection_reason = ""  # empty while work is accepted
        self._closing = threading.Lock()  # no work may follow the None that ends the queue
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: TransactionFn) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.put(work, future)
        return future

    def put(self, work: TransactionFn, future: asyncio.Future[Any] | None) -> None:
        with self._closing:
            if self._rejection_reason:
                raise RuntimeError(self._rejection_reason)
            self._jobs.put((work, future))

    def close(self) -> None:
        self._stop_accepting(CLOSED_TEXT)
        self._thread.join()
        self.connection.close()

    def _stop_accepting(self, reason: str) -> None:
        with self._closing:
            self._rejection_reason = self._rejection_reason or reason
            self._jobs.put(None)

    def _run(self) -> None:
        group = list[_Job]()
        try:
            while group := self._take_group():
                self._execute(group)
        except BaseException as error:  # noqa: BLE001  passed to the callers
            self._stop_accepting(f"the sandbox's database failed ({type(error).__name__}): restart the sandbox")
            while group:  # callers that already have a result are not affected
                for _, future in group:
                    _set_result(future, None, RuntimeError(self._rejection_reason))
                group = self._take_group()

    def _take_group(self) -> list[_Job]:
        """Wait for work, and return the work for one transaction, or an empty list after `close`."""
        group = list[_Job]()
        job = self._jobs.get()
        while job is not None:
            group.append(job)
            if len(group) == self._max_group_jobs:
                return group
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                return group
        if group:
            self._jobs.put(None)
        return group

    def _execute(self, group: list[_Job]) -> None:
        outcomes: list[tuple[asyncio.Future[Any] | None, Any, BaseException | None]] = []
        try:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")  # a rollback had failed
            self.connection.execute(self._begin)
            changes = self.connection.total_changes
            for work, future in group:
                outcomes.append((future, *self._run_job(work)))
            self.connection.execute("COMMIT")
            self.changes += self.connection.total_changes != changes
        except BaseException as error:  # noqa: BLE001  such as a full disk: the entire group fails
            with contextlib.suppress(BaseException):
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")
            outcomes = [(future, None, error) for _, future in group]
        for future, value, failure in outcomes:
            _set_result(future, value, failure)

    def _run_job(self, work: TransactionFn) -> tuple[Any, BaseException | None]:
        self.connection.execute("SAVEPOINT work")
        try:
            value = work(self.connection)
        except BaseException as error:  # noqa: BLE001  passed to the caller
            self.connection.execute("ROLLBACK TO work")
            self.connection.execute("RELEASE work")
            return None, error
        self.connection.execute("RELEASE work")
        return value, None


def _set_result(future: asyncio.Future[Any] | None, value: Any, failure: BaseException | None) -> None:
    if future is None:
        return

    def resolve_future() -> None:
        if future.done():  # the caller was cancelled in the meantime
            return
        if failure is None:
            future.set_result(value)
        else:  # a future does not accept StopIteration
            future.set_exception(RuntimeError(repr(failure)) if isinstance(failure, StopIteration) else failure)

    with contextlib.suppress(RuntimeError):  # the caller's event loop is closed
        future.get_loop().call_soon_threadsafe(resolve_future)
