"""An SQLite file that is a program's own: locked, private, opened, and given its tables.

file.db, -wal, -shm    not on a network file system; for their owner alone
file.db.lock           locked while a process has it open for writing
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sqlite3
import stat
import sys
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

import attrs

from directsuite.core.failures import reason_of
from directsuite.durable.files import open_locked
from directsuite.errors import DirectSuiteError

E = TypeVar("E", bound=DirectSuiteError)

_CHECKPOINT = 32 * 1024 * 1024  # bytes of changes after which they are put in their places
_BESIDE = ("", "-wal", "-shm", "-journal", ".lock")
_ROWS = 50  # of a statement
_ERRORS = (sqlite3.Error, MemoryError)  # the second is what SQLITE_NOMEM comes as
_PRIMARY = 0xFF  # of SQLite's extended error codes, the bits that name the kind
_WHAT_TO_DO = {
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
    """A kind of file. noun: what errors call it; error: their class. version, tables: of what stands in it.

    application: the number that says so in the file, another for each kind.
    also: statements that are done at each opening for writing. page: bytes; large ones suit large values.
    """

    noun: str
    error: Callable[[str], E]
    application: int
    version: int
    tables: str
    also: tuple[str, ...] = ()
    page: int = 4096

    def explained(self, error: BaseException) -> E:
        """What to do about an error of SQLite, or about whatever else has kept a transaction from being committed."""
        code: int | None = getattr(error, "sqlite_errorcode", None)  # None where it isn't SQLite's own
        about = type(error).__name__ if code is None else getattr(error, "sqlite_errorname", code)
        words = f"SQLite refused what the {self.noun} asked for ({about}): see the error that caused this one."
        if isinstance(error, MemoryError):
            words = "There is no memory left for the {noun}, nothing of this was written: give the process more of it."
        elif code is not None:
            words = _WHAT_TO_DO.get(code & _PRIMARY, words)
        failure = self.error(words.format(noun=self.noun))
        failure.__cause__ = error
        return failure

    @contextlib.contextmanager
    def explaining(self) -> Generator[None]:
        """Within it, errors of SQLite become this kind's."""
        try:
            yield
        except _ERRORS as error:
            raise self.explained(error) from error

    @contextlib.contextmanager
    def writing(self, path: Path | None) -> Generator[sqlite3.Connection]:
        """The connection that writes, to a file that is made where there is none. path: None for one in memory."""
        with contextlib.ExitStack() as stack:
            if path is not None:
                stack.enter_context(self._locked(path))
                self._make(path)
                self._make_private(path)
            with self.explaining():
                connection = stack.enter_context(contextlib.closing(_connected(path)))
                version = self._version(connection)
                if version == 0:
                    connection.execute(f"PRAGMA page_size = {self.page}")
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA synchronous = FULL")
                connection.execute("PRAGMA foreign_keys = ON")
                connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT // self.page}")
                if version == 0:
                    kind = f"PRAGMA application_id = {self.application}; PRAGMA user_version = {self.version};"
                    connection.executescript(f"BEGIN IMMEDIATE; {self.tables} {kind} COMMIT;")
                for statement in self.also:
                    connection.execute(statement)
            yield connection

    @contextlib.contextmanager
    def beside(self, path: Path, *, read_only: bool = False) -> Generator[sqlite3.Connection]:
        """A connection to a file that is there, beside whoever has it open. Within it, errors of SQLite are explained.

        It commits by itself; what it writes should be short, for others wait meanwhile.
        """
        try:
            path = Path(os.path.realpath(path))  # where SQLite has the files beside it, whatever link leads there
            is_there = path.exists()
        except OSError as error:
            raise self._unusable(error) from None
        if not is_there:
            raise self.error(f"There is no {self.noun} at this path: name the one that the worker writes.")
        self._make_private(path)
        with self.explaining(), contextlib.closing(_connected(path)) as connection:
            version = self._version(connection)
            if read_only:
                connection.execute("PRAGMA query_only = ON")
            if version == 0:
                raise self.error(f"There is no {self.noun} in this file: name the one that the worker writes.")
            yield connection

    def _version(self, connection: sqlite3.Connection) -> int:
        """0 for a file in which nothing is."""
        ((version,), (application,), (tables,)) = (
            connection.execute(each).fetchone()
            for each in ("PRAGMA user_version", "PRAGMA application_id", "SELECT count(*) FROM sqlite_master")
        )
        if application != self.application and (version or application or tables):
            raise self.error(f"The file is no {self.noun} of this kind: give the {self.noun} another path.")
        if version > self.version:
            raise self.error(
                f"The {self.noun}'s file was written by a newer directsuite: upgrade directsuite to use it."
            )
        return int(version)

    def _make(self, path: Path) -> None:
        """Make the file, for its owner alone; SQLite gives the files beside it the same mode."""
        try:
            path.touch(0o600)  # under the lock: closing a file of this process takes SQLite's own locks from it
        except OSError as error:
            raise self._unusable(error) from None

    def _make_private(self, path: Path) -> None:
        """Take the file, and those beside it, from others: a back-up may have been restored with another mode."""
        if sys.platform == "win32":
            return
        try:
            for suffix in _BESIDE:
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
            raise self._unusable(error) from None

    @contextlib.contextmanager
    def _locked(self, path: Path) -> Generator[None]:
        try:
            lock = open_locked(path.with_name(f"{path.name}.lock"))
        except BlockingIOError:
            raise self.error(
                f"The {self.noun} is open already: close it there, or give this one another path."
            ) from None
        except OSError as error:
            raise self._unusable(error) from None
        try:
            yield
        finally:
            os.close(lock)

    def _unusable(self, error: OSError) -> E:
        """Without the path, which may name somebody."""
        return self.error(
            f"The {self.noun} can't be opened ({reason_of(error)}): "
            "give it a path in a folder that this user may write to."
        )


def insert(connection: sqlite3.Connection, statement: str, rows: Sequence[Sequence[Any]]) -> None:
    """Insert rows, many with a statement: each gives the interpreter to other threads, and waits until it has it again.

    statement: up to VALUES.
    """
    for start in range(0, len(rows), _ROWS):
        some = rows[start : start + _ROWS]
        marks = f"({', '.join('?' * len(some[0]))})"
        values = [*itertools.chain.from_iterable(some)]
        connection.execute(f"{statement} {', '.join([marks] * len(some))}", values)


def _connected(path: Path | None) -> sqlite3.Connection:
    return sqlite3.connect(":memory:" if path is None else path, timeout=5.0, isolation_level=None)
