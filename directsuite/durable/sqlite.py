"""An SQLite file that one process at a time opens for writing, with transactions in a separate thread.

`DatabaseContext` opens either this database or one in PostgreSQL.

file.db, -wal, -shm    readable by their owner only; not on network file systems
file.db.lock           locked while a process has the file open for writing

A commit flushes the disk, so the jobs of concurrent callers share one:

    run ─► queue ─► BEGIN ─► SAVEPOINT, job, RELEASE ─► … ─► COMMIT ─► callers get their results
                                └─ raises: ROLLBACK TO, and only its caller gets the exception
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import sqlite3
import stat
import sys
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from typing import Any, Self, TypeAlias, TypeVar, cast

import attrs
import msgspec

from directsuite.core.files import DedicatedThread, explain_os_error, resolve_path
from directsuite.durable.database import (
    NO_VALUES,
    DatabaseRejection,
    Row,
    Statement,
    Tables,
    Transaction,
    TransactionFn,
    Values,
    iter_inserts,
)
from directsuite.durable.postgres import PostgresDatabase
from directsuite.errors import ClosedError, ConfigurationError, DirectSuiteError

T = TypeVar("T")

_OPEN_DATABASES: dict[tuple[int, int, int], object] = {}
"""The databases open for writing, by process id, device and inode."""

_CREATING_FILES = threading.Lock()  # a file that one thread creates and closes is not locked by another yet

_CHECKPOINT_BYTES = 32 * 1024 * 1024  # of the write-ahead log, which SQLite then transfers to the database
_FILE_SUFFIXES = ("", "-wal", "-shm", "-journal", ".lock")
_ERRORS = (sqlite3.Error, MemoryError)  # sqlite3 raises MemoryError for SQLITE_NOMEM
_PRIMARY_CODE_MASK = 0xFF  # of an extended error code
_HINT_BY_ERROR_CODE = {
    sqlite3.SQLITE_FULL: "The disk of the {noun} is full, so nothing was written. Free some disk space.",
    sqlite3.SQLITE_READONLY: "The {noun}'s file can't be written. Let this user write to it and to its folder.",
    sqlite3.SQLITE_CANTOPEN: "The {noun}'s file can't be opened. Let this user write to it and to its folder.",
    sqlite3.SQLITE_PERM: "The {noun}'s file can't be opened. Let this user write to it and to its folder.",
    sqlite3.SQLITE_CORRUPT: "The {noun}'s file is damaged. Restore a backup, or start with a new file.{warning}",
    sqlite3.SQLITE_NOTADB: "The {noun}'s file is not an SQLite database. Use another path for the {noun}.",
    sqlite3.SQLITE_BUSY: "Another program has locked the {noun}'s file. Close the file there.",
    sqlite3.SQLITE_IOERR: "The {noun}'s file can't be read or written. Check whether the disk is full or has errors.",
}
_FILE_ERROR_CODES = {*_HINT_BY_ERROR_CODE, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_NOMEM}
_HINT_NO_TRANSACTION_CONTROL = (
    "The store begins and commits the transaction. Use execute and executemany in it, and not executescript."
)
_MAX_TRANSACTION_JOBS = 500  # limits the wait of the first job


@attrs.frozen(kw_only=True)
class SqliteFile:
    """A kind of SQLite file. error: the class of the errors that methods raise."""

    noun: str
    """The name in error messages, for example "store"."""
    error: type[DirectSuiteError]
    application_id: int
    """The number by which the file states its kind."""
    version: int = 1
    """The version of the tables. A file with another version is rejected."""
    page_bytes: int = 4096
    """The size of a page. Large values need large pages."""
    new_file_warning: str = ""
    """A sentence about the effect of a new file, after a space. It is added to errors that suggest one."""

    def explain(self, error: BaseException) -> DirectSuiteError:
        """Return `self.error` for an exception that prevented a commit."""
        code: int | None = getattr(error, "sqlite_errorcode", None)
        about = type(error).__name__ if code is None else getattr(error, "sqlite_errorname", code)
        words = f"SQLite rejected a statement of the {self.noun} ({about}). See the cause of this error."
        if isinstance(error, MemoryError):
            words = "There is no memory left for the {noun}, so nothing was written. Give the process more memory."
        elif code is not None:
            words = _HINT_BY_ERROR_CODE.get(code & _PRIMARY_CODE_MASK, words)
        failure = self.error(words.format(noun=self.noun, warning=self.new_file_warning))
        failure.__cause__ = error
        return failure

    @contextlib.contextmanager
    def translate_errors(self) -> Generator[None]:
        """Raise SQLite's errors in the block as `self.error`."""
        try:
            yield
        except _ERRORS as error:
            raise self.explain(error) from error

    @contextlib.contextmanager
    def open_writer(self, path: Path | None) -> Generator[sqlite3.Connection]:
        """Lock a file, created if missing, and yield a connection for writing. path: None for memory."""
        with contextlib.ExitStack() as stack:
            if path is not None:
                stack.enter_context(self._lock(path))
            with self.translate_errors():
                connection = stack.enter_context(contextlib.closing(_connect(path)))
                version = self._read_version(connection)
                if version == 0:
                    connection.execute(f"PRAGMA page_size = {self.page_bytes}")
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA synchronous = FULL")
                connection.execute("PRAGMA foreign_keys = ON")
                connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_BYTES // self.page_bytes}")
                if version == 0:
                    kind = f"PRAGMA application_id = {self.application_id}; PRAGMA user_version = {self.version};"
                    connection.executescript(f"BEGIN IMMEDIATE; {kind} COMMIT;")
            yield connection

    @contextlib.contextmanager
    def open_shared(self, path: Path, *, read_only: bool = False) -> Generator[sqlite3.Connection]:
        """Yield an autocommit connection to an existing file, which another process may have open for writing.

        Write only briefly, because the other process waits. Raises `self.error` if the file is missing or SQLite fails.
        """
        try:
            path = Path(os.path.realpath(path))  # SQLite's other files are beside a link's target
            is_there = path.exists()
            self._validate_regular_file(path)
        except OSError as error:
            raise self._make_open_error(error) from None
        if not is_there:
            raise self.error(f"There is no {self.noun} at this path. Use the path that the worker uses.")
        self._make_private(path)
        with self.translate_errors(), contextlib.closing(_connect(path)) as connection:
            version = self._read_version(connection)
            if read_only:
                connection.execute("PRAGMA query_only = ON")
            if version == 0:
                raise self.error(f"There is no {self.noun} in this file. Use the path that the worker uses.")
            yield connection

    def _read_version(self, connection: sqlite3.Connection) -> int:
        # An empty file has version 0.
        ((version,), (application,), (tables,)) = (
            connection.execute(each).fetchone()
            for each in ("PRAGMA user_version", "PRAGMA application_id", "SELECT count(*) FROM sqlite_master")
        )
        if application != self.application_id and (version or application or tables):
            raise self.error(f"The file contains another kind of database. Use another path for the {self.noun}.")
        if version > self.version:
            raise self.error(
                f"The {self.noun}'s file was written by a newer directsuite. Upgrade directsuite to use it."
            )
        if 0 < version < self.version:
            raise self.error(
                f"The {self.noun}'s file was written by an earlier directsuite, whose format this one does not read. "
                f"Finish the work with the earlier directsuite, or use another path for the {self.noun}."
                f"{self.new_file_warning}"
            )
        return int(version)

    def _validate_regular_file(self, path: Path) -> None:
        # SQLite might wait forever for a pipe or device.
        if path.exists() and not path.is_file():
            raise self.error(f"The {self.noun}'s path is not a regular file. Use another path for the {self.noun}.")

    def _make_private(self, path: Path) -> None:
        # A restored backup may have permissions for other users.
        if sys.platform == "win32":
            return
        try:
            for suffix in _FILE_SUFFIXES:
                with contextlib.suppress(FileNotFoundError):  # SQLite deletes some files when it closes the database
                    each = path.with_name(path.name + suffix)
                    if each.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                        each.chmod(stat.S_IRUSR | stat.S_IWUSR)
        except PermissionError:
            raise self.error(
                f"Other users than its owner may read the {self.noun}'s file, and this user can't change that. "
                "Run as its owner, or make this user its owner."
            ) from None
        except OSError as error:
            raise self._make_open_error(error) from None

    @contextlib.contextmanager
    def _lock(self, path: Path) -> Generator[None]:
        """Create missing files, make all private, and lock the database by an SQLite transaction in another file.

        Closing any other descriptor of a file would release this process's locks of it.
        """
        lock, opened = path.with_name(f"{path.name}.lock"), object()
        in_use = self.error(f"The {self.noun} is already open, in this program or in another. Close it there first.")
        with contextlib.ExitStack() as stack:
            try:
                with _CREATING_FILES:
                    for each in (lock, path):
                        self._validate_regular_file(each)
                        each.touch(0o600)  # SQLite gives the same mode to its other files
                self._make_private(path)
                connection = stack.enter_context(contextlib.closing(_connect(lock, timeout=0.0)))
                connection.execute("PRAGMA journal_mode = MEMORY")  # creates no file
                connection.execute("BEGIN EXCLUSIVE")
                status = path.stat()
            except sqlite3.Error as error:
                is_locked = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY
                raise (in_use if is_locked else self.explain(error)) from error
            except OSError as error:
                raise self._make_open_error(error) from None
            # Also the database itself, which this process might open under a second name.
            key = os.getpid(), status.st_dev, status.st_ino
            if _OPEN_DATABASES.setdefault(key, opened) is not opened:
                raise in_use
            stack.callback(_OPEN_DATABASES.pop, key)
            yield

    def _make_open_error(self, error: OSError) -> DirectSuiteError:
        # Without the path, which may name a person.
        return self.error(
            f"The {self.noun} can't be opened ({explain_os_error(error)}). "
            "Use a path in a folder that this user may write to."
        )


@attrs.define(eq=False)
class _Job:
    work: Callable[[sqlite3.Connection], Any]
    future: asyncio.Future[Any]
    result: Any = None
    error: BaseException | None = None

    def fail(self, error: BaseException) -> None:
        if self.error is None:
            self.error = error


class GroupCommitter:
    """Runs transactions on one connection in one thread, for callers in one event loop. Can be opened once.

    connect: opens and closes a connection with isolation_level=None.
    begin: the statement that begins a transaction; BEGIN, for reads, locks nothing.
    """

    def __init__(
        self, kind: SqliteFile, connect: Callable[[], AbstractContextManager[sqlite3.Connection]], begin: str
    ) -> None:
        self._kind = kind
        self._connect = connect
        self._begin = begin
        self._thread = DedicatedThread()
        self._at_close = contextlib.ExitStack()
        self._connection: sqlite3.Connection | None = None
        self._queue = deque[_Job]()
        self._process = 0
        self._is_scheduled = False
        self._is_at_work = False

    async def open(self) -> None:
        """Connect. Raises the exceptions of `connect`. Call `aclose` even if this raises."""
        self._process = os.getpid()
        self._connection = await self._thread.start(self._open)

    def _open(self) -> sqlite3.Connection:
        connection = self._at_close.enter_context(self._connect())
        connection.set_authorizer(self._authorize)
        return connection

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` in a transaction, and return its result after the commit. Roll it back if it raises.

        If the caller is cancelled, the work may be committed anyway. Raises the exception of `work`, the file's error
        if the commit fails, ClosedError if not open, and ConfigurationError in a forked process.
        """
        if self._connection is None:
            raise ClosedError(f"The {self._kind.noun} is closed, or not open yet. Use it within `async with`.")
        if self._process != os.getpid():
            raise ConfigurationError(
                f"The {self._kind.noun} was opened before a fork. Open it in the process that uses it."
            )
        loop = asyncio.get_running_loop()
        job = _Job(work, loop.create_future())
        self._queue.append(job)
        if not self._is_scheduled:
            self._is_scheduled = True
            # After the tasks that are ready, and those that these make ready: their jobs join the same transaction.
            loop.call_soon(loop.call_soon, self._submit)
        result: T = await job.future
        return result

    async def aclose(self) -> None:
        """Finish the queued jobs, and disconnect, also if this is cancelled. Do nothing in a forked process."""
        if self._process != os.getpid():
            return
        self._submit()
        self._connection = None
        closing = asyncio.wrap_future(self._thread.submit(self._at_close.close))
        self._thread.release()
        await asyncio.shield(closing)

    def _submit(self) -> None:
        if self._connection is not None:  # else `aclose` has submitted the jobs
            self._thread.submit(self._commit_queued, self._connection)

    def _commit_queued(self, connection: sqlite3.Connection) -> None:
        self._is_scheduled = False  # a job that is added from now on may be missed here
        while self._queue:
            jobs = [self._queue.popleft() for _ in range(min(len(self._queue), _MAX_TRANSACTION_JOBS))]
            waiting = deque(jobs)
            try:
                while waiting:
                    self._transact(connection, waiting)
            except BaseException as error:  # noqa: BLE001  the callers get it
                for job in jobs:
                    job.fail(error)
            with contextlib.suppress(RuntimeError):  # the event loop is closed
                jobs[0].future.get_loop().call_soon_threadsafe(_resolve_jobs, jobs)

    def _transact(self, connection: sqlite3.Connection, waiting: deque[_Job]) -> None:
        """Run the waiting jobs. Some remain if SQLite rolls the transaction back before they start."""
        begun = list[_Job]()
        try:
            if connection.in_transaction:
                connection.rollback()  # the rollback of the previous transaction failed
            connection.execute(self._begin)
            is_alone = len(waiting) == 1
            while waiting:
                job = waiting.popleft()
                if not job.future.cancelled():
                    begun.append(job)
                    self._attempt(connection, job, is_alone=is_alone)
            if not connection.in_transaction:
                raise sqlite3.OperationalError(
                    "SQLite has rolled back the transaction, but a function suppressed the error. Let it raise."
                )
            connection.commit()
        except BaseException as error:  # noqa: BLE001  the callers get it
            self._is_at_work = False
            if not begun:
                begun.extend(waiting)
                waiting.clear()
            for job in begun:
                job.fail(self._kind.explain(error))
            with contextlib.suppress(BaseException):
                if connection.in_transaction:
                    connection.rollback()

    def _attempt(self, connection: sqlite3.Connection, job: _Job, *, is_alone: bool) -> None:
        """Run one job, without a savepoint if it is alone. If it fails, roll back to the savepoint.

        Raises its exception if there is no savepoint, or no transaction any more.
        """
        if not is_alone:
            connection.execute("SAVEPOINT directsuite")
        self._is_at_work = True
        try:
            job.result = job.work(connection)
        except BaseException as error:
            self._is_at_work = False
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_AUTH:
                error.add_note(_HINT_NO_TRANSACTION_CONTROL)
            text = "The function passed to the transaction raised StopIteration. Raise another exception."
            job.fail(RuntimeError(text) if isinstance(error, StopIteration) else error)
            if is_alone or not connection.in_transaction:
                raise  # SQLite may roll back the transaction itself, for example on a full disk
            connection.execute("ROLLBACK TO directsuite")
        self._is_at_work = False
        if not is_alone:
            connection.execute("RELEASE directsuite")

    def _authorize(self, action: int, *_: str | None) -> int:
        # A job must not end the transaction that it shares with others.
        forbidden = self._is_at_work and action == sqlite3.SQLITE_TRANSACTION
        return sqlite3.SQLITE_DENY if forbidden else sqlite3.SQLITE_OK


def _resolve_jobs(jobs: Sequence[_Job]) -> None:
    for job in jobs:
        if job.future.done():  # cancelled
            continue
        if job.error is None:
            job.future.set_result(job.result)
        else:
            job.future.set_exception(job.error)


class SqliteDatabase:
    """A database in an SQLite file. Concurrent commits share a flush; reads use a second connection.

    path: None for memory.
    shared: True to use an existing file that another process may have open for writing.
    """

    def __init__(self, path: str | os.PathLike[str] | None, kind: SqliteFile, *, shared: bool = False) -> None:
        self._kind = kind
        self._shared = shared
        where = None if path is None else resolve_path(path, "path")
        connect = kind.open_writer if where is None or not shared else kind.open_shared
        self._writer = GroupCommitter(kind, functools.partial(connect, where), "BEGIN IMMEDIATE")  # type: ignore[arg-type]
        # A database in memory has a single connection.
        self._reader = self._writer
        if where is not None:
            self._reader = GroupCommitter(kind, functools.partial(kind.open_shared, where, read_only=True), "BEGIN")

    async def open(self, prepare: TransactionFn[object]) -> None:
        """Open the file. Unless it is shared, run `prepare` in the first transaction."""
        try:
            await self._writer.open()
            if not self._shared:
                await self.transaction(prepare)
            if self._reader is not self._writer:
                await self._reader.open()
        except BaseException:
            await self.aclose()
            raise

    async def aclose(self) -> None:
        """Close the file after the transactions in progress."""
        try:
            await self._reader.aclose()
        finally:
            await self._writer.aclose()

    async def transaction(self, work: TransactionFn[T]) -> T:
        """Run `work` in a transaction, and return its result. Roll back if it raises."""
        return await self._run(self._writer, lambda transaction: run_sync(work(transaction)))

    async def execute(self, statement: Statement, values: Values = NO_VALUES) -> list[Row]:
        """Execute and commit one statement."""
        return await self._run(self._writer, lambda transaction: transaction.open_cursor(statement, values).fetchall())

    async def fetch(
        self, statement: Statement, values: Values = NO_VALUES, make: Callable[[Row], Any] = tuple
    ) -> list[Any]:
        """Return rows, converted by `make` in the database's thread."""
        return await self._run(
            self._reader, lambda transaction: [make(row) for row in transaction.open_cursor(statement, values)]
        )

    async def _run(self, committer: GroupCommitter, work: Callable[[_SqliteTransaction], T]) -> T:
        with self._kind.translate_errors():
            return await committer.run(lambda connection: work(_SqliteTransaction(connection, self._kind)))


@attrs.frozen
class _SqliteTransaction:
    # Implements `Transaction`. The coroutines never suspend.

    connection: sqlite3.Connection
    _kind: SqliteFile

    def json(self, value: object) -> str:
        return msgspec.json.encode(value).decode()

    def time(self, time: datetime) -> str:
        return time.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"

    def open_cursor(self, statement: Statement, values: Values) -> sqlite3.Cursor:
        """Execute a statement. A list becomes JSON or, in `IN (:name)`, a placeholder for each item."""
        text, bound = statement.sqlite, dict[str, Any]()
        for name, value in values.items():
            if not isinstance(value, list):
                bound[name] = value
            elif f"IN (:{name})" not in text:
                bound[name] = json.dumps(value)
            else:
                places = {f"{name}{number}": each for number, each in enumerate(cast("list[bytes]", value))}
                text = text.replace(f"(:{name})", f"({', '.join(f':{place}' for place in places)})")
                bound |= places
        return self.connection.execute(text, bound)

    async def execute(self, statement: Statement, values: Values = NO_VALUES) -> list[Row]:
        return self.open_cursor(statement, values).fetchall()

    async def insert(self, statement: Statement, rows: Sequence[Sequence[Any]]) -> list[Row]:
        # In batches, because each statement releases and reacquires the GIL.
        found = list[Row]()
        for some, values in iter_inserts(statement, rows):
            found += self.connection.execute(some.sqlite, values)
        return found

    async def ensure(self, tables: Tables) -> None:
        for each in tables.statement.sqlite.split(";\n"):
            self.connection.execute(each)

    def raise_suppressed_error(self) -> None:
        pass  # the committer does this

    def find_rejection(self, error: Exception) -> DatabaseRejection | None:
        if not isinstance(error, sqlite3.Error):
            return None
        return DatabaseRejection(self._kind.explain(error).explanation, is_about_no_row(error), error)


def is_about_no_row(error: sqlite3.Error) -> bool:
    """Return True if the error concerns the file, the disk or memory, not a row."""
    return getattr(error, "sqlite_errorcode", 0) & _PRIMARY_CODE_MASK in _FILE_ERROR_CODES


def run_sync(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine without an event loop, and return its result. Raises RuntimeError if it suspends."""
    try:
        work.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    work.close()
    raise RuntimeError(
        "The transaction awaited something else. In an SQLite transaction, await only the methods of the transaction."
    )


def _connect(path: Path | None, timeout: float = 5.0) -> sqlite3.Connection:
    # A store that is not closed may be deleted in another thread.
    return sqlite3.connect(
        ":memory:" if path is None else path, timeout=timeout, isolation_level=None, check_same_thread=False
    )


Database: TypeAlias = SqliteDatabase | PostgresDatabase


class DatabaseContext:
    """Opens a database within `async with`. Subclasses set `_database` and define `_prepare`, the first transaction."""

    _database: Database

    async def open(self) -> None:
        """Connect, and create missing tables."""
        await self._database.open(self._prepare)

    async def aclose(self) -> None:
        """Disconnect, after the transactions in progress."""
        await self._database.aclose()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    async def _prepare(self, transaction: Transaction) -> None:
        raise NotImplementedError
