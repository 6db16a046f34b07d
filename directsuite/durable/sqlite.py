"""An SQLite file that is a program's own: locked, private, and opened for transactions in a thread of its own.

file.db, -wal, -shm    not on a network file system; for their owner alone
file.db.lock           locked while a process has it open for writing
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import os
import sqlite3
import stat
import sys
from collections.abc import Callable, Coroutine, Generator, Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

import attrs
import msgspec

from directsuite.core.failures import explain_os_error
from directsuite.core.files import resolve_path
from directsuite.durable.database import (
    NO_VALUES,
    DatabaseRejection,
    Row,
    Statement,
    Tables,
    TransactionFn,
    Values,
    batched,
    expand_values,
)
from directsuite.durable.files import lock_file, make_lock_key
from directsuite.durable.group_commit import GroupCommitter
from directsuite.errors import DirectSuiteError

E = TypeVar("E", bound=DirectSuiteError)
T = TypeVar("T")

_OPEN_DATABASES: dict[tuple[int, int, int], object] = {}
"""The databases that are open for writing, by process id, device and inode."""

_CHECKPOINT_BYTES = 32 * 1024 * 1024  # bytes of changes after which they are put in their places
_FILE_SUFFIXES = ("", "-wal", "-shm", "-journal", ".lock")
_ERRORS = (sqlite3.Error, MemoryError)  # the second is what SQLITE_NOMEM comes as
_PRIMARY_CODE_MASK = 0xFF  # of SQLite's extended error codes, the bits that name the kind
_FILE_ERROR_CODES = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_READONLY,
    }
)
_HINT_BY_ERROR_CODE = {
    sqlite3.SQLITE_FULL: "The disk of the {noun} is full, nothing of this was written: free some disk space.",
    sqlite3.SQLITE_READONLY: "The {noun}'s file can't be written: let this user write to it and to its folder.",
    sqlite3.SQLITE_CANTOPEN: "The {noun}'s file can't be opened: let this user write to it and to its folder.",
    sqlite3.SQLITE_PERM: "The {noun}'s file can't be opened: let this user write to it and to its folder.",
    sqlite3.SQLITE_CORRUPT: "The {noun}'s file is damaged: put a backup in its place, or begin with a new one.",
    sqlite3.SQLITE_NOTADB: "The {noun}'s file is no SQLite database: give the {noun} another path.",
    sqlite3.SQLITE_BUSY: "Another program keeps the {noun}'s file locked: close it there.",
    sqlite3.SQLITE_IOERR: "The {noun}'s file can't be read or written: look after its disk.",
}


@attrs.frozen(kw_only=True)
class SqliteFile(Generic[E]):
    """A kind of file."""

    noun: str
    """What errors call it."""
    error: Callable[[str], E]
    """The class of its errors."""
    application_id: int
    """The number that says in the file which kind it is."""
    version: int = 1
    """Of the tables in it. A file of another version is refused."""
    page_bytes: int = 4096
    """Bytes of a page: large ones suit large values."""

    def explain(self, error: BaseException) -> E:
        """What to do about an error of SQLite, or about whatever else has kept a transaction from being committed."""
        code: int | None = getattr(error, "sqlite_errorcode", None)  # None where it isn't SQLite's own
        about = type(error).__name__ if code is None else getattr(error, "sqlite_errorname", code)
        words = f"SQLite refused what the {self.noun} asked for ({about}): see the error that caused this one."
        if isinstance(error, MemoryError):
            words = "There is no memory left for the {noun}, nothing of this was written: give the process more of it."
        elif code is not None:
            words = _HINT_BY_ERROR_CODE.get(code & _PRIMARY_CODE_MASK, words)
        failure = self.error(words.format(noun=self.noun))
        failure.__cause__ = error
        return failure

    @contextlib.contextmanager
    def translate_errors(self) -> Generator[None]:
        """Within it, errors of SQLite become this kind's."""
        try:
            yield
        except _ERRORS as error:
            raise self.explain(error) from error

    @contextlib.contextmanager
    def open_writer(self, path: Path | None) -> Generator[sqlite3.Connection]:
        """The connection that writes, to a file that is made where there is none. path: None for one in memory."""
        with contextlib.ExitStack() as stack:
            if path is not None:
                stack.enter_context(self._lock(path))
                self._make_private(path)
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
        """A connection to a file that is there, beside whoever has it open. Within it, errors of SQLite are explained.

        It commits by itself; what it writes should be short, for others wait meanwhile.
        """
        try:
            path = Path(os.path.realpath(path))  # where SQLite has the files beside it, whatever link leads there
            is_there = path.exists()
            self._validate_regular_file(path)
        except OSError as error:
            raise self._make_open_error(error) from None
        if not is_there:
            raise self.error(f"There is no {self.noun} at this path: name the one that the worker writes.")
        self._make_private(path)
        with self.translate_errors(), contextlib.closing(_connect(path)) as connection:
            version = self._read_version(connection)
            if read_only:
                connection.execute("PRAGMA query_only = ON")
            if version == 0:
                raise self.error(f"There is no {self.noun} in this file: name the one that the worker writes.")
            yield connection

    def _read_version(self, connection: sqlite3.Connection) -> int:
        """0 for a file in which nothing is."""
        ((version,), (application,), (tables,)) = (
            connection.execute(each).fetchone()
            for each in ("PRAGMA user_version", "PRAGMA application_id", "SELECT count(*) FROM sqlite_master")
        )
        if application != self.application_id and (version or application or tables):
            raise self.error(f"The file is no {self.noun} of this kind: give the {self.noun} another path.")
        if version > self.version:
            raise self.error(
                f"The {self.noun}'s file was written by a newer directsuite: upgrade directsuite to use it."
            )
        if 0 < version < self.version:
            raise self.error(
                f"The {self.noun}'s file was written by an earlier directsuite, whose form this one does not read: "
                f"finish with that one, and give the {self.noun} another path."
            )
        return int(version)

    def _create_file(self, path: Path) -> None:
        """Make the file, for its owner alone; SQLite gives the files beside it the same mode. Raises OSError."""
        self._validate_regular_file(path)
        path.touch(0o600)  # under the lock: closing a file of this process takes SQLite's own locks from it

    def _validate_regular_file(self, path: Path) -> None:
        """Raise an error if the path is a folder, a pipe or a device: SQLite might wait for it forever."""
        if path.exists() and not path.is_file():
            raise self.error(f"The {self.noun}'s path is no regular file: give the {self.noun} another path.")

    def _make_private(self, path: Path) -> None:
        """Take the file, and those beside it, from others: a back-up may have been restored with another mode."""
        if sys.platform == "win32":
            return
        try:
            for suffix in _FILE_SUFFIXES:
                with contextlib.suppress(FileNotFoundError):  # SQLite removes some when it closes the file
                    each = path.with_name(path.name + suffix)
                    if each.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                        each.chmod(stat.S_IRUSR | stat.S_IWUSR)
        except PermissionError:
            raise self.error(
                f"Others than its owner may read the {self.noun}'s file, and this user may not change that: "
                "run as its owner, or make this user its owner."
            ) from None
        except OSError as error:
            raise self._make_open_error(error) from None

    @contextlib.contextmanager
    def _lock(self, path: Path) -> Generator[None]:
        """Lock the file beside the database, and the database itself against a second name for it in this process."""
        with contextlib.ExitStack() as stack:
            try:
                stack.callback(lock_file(path.with_name(f"{path.name}.lock")).release)
                self._create_file(path)
                key, opened = make_lock_key(path.stat()), object()
                if _OPEN_DATABASES.setdefault(key, opened) is not opened:
                    raise BlockingIOError
            except BlockingIOError:
                raise self.error(
                    f"The {self.noun} is open already, in this program or in another: close it there first."
                ) from None
            except OSError as error:
                raise self._make_open_error(error) from None
            stack.callback(_OPEN_DATABASES.pop, key)
            yield

    def _make_open_error(self, error: OSError) -> E:
        """Without the path, which may name somebody."""
        return self.error(
            f"The {self.noun} can't be opened ({explain_os_error(error)}): "
            "give it a path in a folder that this user may write to."
        )


class SqliteDatabase:
    """A file of one kind, for one process. Commits share a flush of the disk; reads have a connection of their own.

    path: None for one in memory, which ends when it is closed. shared: for a short look beside the process that has
    the file open, which is there already.
    """

    def __init__(self, path: str | os.PathLike[str] | None, kind: SqliteFile[Any], *, shared: bool = False) -> None:
        self._kind = kind
        self._shared = shared
        where = None if path is None else resolve_path(path, "path")
        connect = kind.open_writer if where is None or not shared else kind.open_shared
        self._writer = GroupCommitter(
            functools.partial(connect, where),  # type: ignore[arg-type]
            begin="BEGIN IMMEDIATE",
            explain=kind.explain,
        )
        # What is in memory belongs to one connection; its reads, too, give nothing before what they saw is committed.
        self._reader = self._writer
        if where is not None:
            self._reader = GroupCommitter(
                functools.partial(kind.open_shared, where, read_only=True), begin="BEGIN", explain=kind.explain
            )

    async def open(self, prepare: TransactionFn[object]) -> None:
        """Open the file, made where there is none, and do this in a first transaction; not beside another process."""
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
        """Finish what is under way, and close the file."""
        try:
            await self._reader.aclose()
        finally:
            await self._writer.aclose()

    async def transaction(self, work: TransactionFn[T]) -> T:
        """What work gives, once that is committed; what it raises, once it is undone."""
        return await self._run(self._writer, lambda transaction: run_sync(work(transaction)))

    async def execute(self, statement: Statement, values: Values = NO_VALUES) -> list[Row]:
        """The rows that a statement returns, committed by itself."""
        return await self._run(self._writer, lambda transaction: transaction.open_cursor(statement, values).fetchall())

    async def fetch(
        self, statement: Statement, values: Values = NO_VALUES, make: Callable[[Row], Any] = tuple
    ) -> list[Any]:
        """What is made of each row that a statement reads, in the file's own thread."""
        return await self._run(
            self._reader, lambda transaction: [make(row) for row in transaction.open_cursor(statement, values)]
        )

    async def _run(self, committer: GroupCommitter, work: Callable[[SqliteTransaction], T]) -> T:
        with self._kind.translate_errors():
            return await committer.run(lambda connection: work(SqliteTransaction(connection, self._kind)))


@attrs.frozen
class SqliteTransaction:
    """What work does its work with, in the file's own thread. Nothing here waits for anything but the disk."""

    connection: sqlite3.Connection
    _kind: SqliteFile[Any]

    def json(self, value: object) -> str:
        """A value as text in JSON."""
        return msgspec.json.encode(value).decode()

    def time(self, time: datetime) -> str:
        """A time in UTC as text in ISO 8601."""
        return time.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"

    def open_cursor(self, statement: Statement, values: Values) -> sqlite3.Cursor:
        """The rows of a statement, one after the other. Each of a list of bytes has a place; another goes as JSON."""
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
        """The rows that a statement returns, if any."""
        return self.open_cursor(statement, values).fetchall()

    async def execute_each(self, statement: Statement, rows: Iterable[Values]) -> list[Row]:
        """The rows that a statement returns, done with each of these values."""
        return [row for values in rows for row in self.open_cursor(statement, values).fetchall()]

    async def insert(self, statement: Statement, rows: Sequence[Sequence[Any]]) -> list[Row]:
        """Insert rows, many with a statement: each gives the interpreter away, and waits to have it again."""
        found = list[Row]()
        for some in batched(rows):
            values = list(itertools.chain.from_iterable(some))
            found += self.connection.execute(expand_values(statement, len(some), len(some[0])).sqlite, values)
        return found

    async def ensure(self, tables: Tables) -> None:
        """Make tables where there are none."""
        for statement in tables.statements:
            self.connection.execute(statement.sqlite)

    def find_rejection(self, error: Exception) -> DatabaseRejection | None:
        """What SQLite says where an error is its own."""
        if not isinstance(error, sqlite3.Error):
            return None
        return DatabaseRejection(self._kind.explain(error).explanation, is_about_no_row(error), error)


def is_about_no_row(error: sqlite3.Error) -> bool:
    """Whether an error of SQLite is about its file, the disk or memory."""
    return getattr(error, "sqlite_errorcode", 0) & _PRIMARY_CODE_MASK in _FILE_ERROR_CODES


def run_sync(work: Coroutine[Any, Any, T]) -> T:
    """What a coroutine gives that awaits nothing but its transaction: there is no event loop here to wait in."""
    try:
        work.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    work.close()
    raise RuntimeError("Within a transaction of SQLite await nothing but what the transaction has.")


def _connect(path: Path | None) -> sqlite3.Connection:
    return sqlite3.connect(":memory:" if path is None else path, timeout=5.0, isolation_level=None)
