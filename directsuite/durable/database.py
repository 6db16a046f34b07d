"""One seam over SQLite and PostgreSQL: work is a coroutine that is written once, and runs in a transaction of either.

    database.transaction(work) ──► work(transaction): committed when it returns, undone where it raises
    database.execute(statement) ─► one statement, committed by itself
    database.fetch(statement) ───► rows that were committed before

Statements are written for PostgreSQL, in its schema `directsuite`. SQLite's text is derived by the table below, and
written out where that won't do. The same values mean the same: a list stands in `= ANY(:names)` or `<> ALL(:names)`,
and one of bytes in `= ANY(:names::bytea[])`.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Protocol, Self, TypeAlias, TypeVar

import attrs

T = TypeVar("T")
Values: TypeAlias = Mapping[str, Any]
Row: TypeAlias = tuple[Any, ...]

NO_VALUES: Values = {}

_SQLITE_REWRITES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), text)
    for pattern, text in (
        (r"/\*\+ (.*?) \*/", r"\1"),  # what is SQLite's alone stands in a comment
        (r"\bdirectsuite\.", ""),
        (r"\bCREATE (TABLE|UNIQUE INDEX|INDEX)\b", r"CREATE \1 IF NOT EXISTS"),
        (r"\bbigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY\b", "INTEGER PRIMARY KEY"),
        (r"= ANY\((:\w+)::bytea\[\]\)", r"IN (\1)"),
        (r"\bstring_agg\(", "group_concat("),
        (r"\bbytea\b", "BLOB"),
        (r"\bfloat8\b", "REAL"),
        (r"\b(jsonb|timestamptz)\b", "TEXT"),
        (r"= ANY\((:\w+)\)", r"IN (SELECT value FROM json_each(\1))"),
        (r"<> ALL\((:\w+)\)", r"NOT IN (SELECT value FROM json_each(\1))"),
        (r"::\w+", ""),
        (r' COLLATE "C"', ""),
        (r" FOR (UPDATE|SHARE)\b", ""),
    )
)
_PLACEHOLDER = re.compile(r"(?<!:):([a-z]\w*)")
_ROWS_PLACEHOLDER = ":rows"
_BATCH_ROWS = 50  # rows of a statement that inserts many


@attrs.frozen
class Statement:
    """One statement in both dialects. `:name` is the place of a value, `:rows` that of rows to insert."""

    postgres: bytes
    sqlite: str


def sql(text: str, *, sqlite: str | None = None) -> Statement:
    """A statement. sqlite: its text in SQLite, where it isn't what the table above makes of it."""
    derived = text if sqlite is None else sqlite
    for pattern, other in _SQLITE_REWRITES:
        derived = pattern.sub(other, derived)
    rows = text.replace(_ROWS_PLACEHOLDER, "\0")
    return Statement(_PLACEHOLDER.sub(r"%(\1)s", rows).replace("\0", _ROWS_PLACEHOLDER).encode(), derived)


@functools.lru_cache(maxsize=256)
def expand_values(statement: Statement, rows: int, columns: int) -> Statement:
    """A statement with places for so many rows, whose values come one after the other: $1 to $n for PostgreSQL."""
    numbers = itertools.count(1)
    numbered = ", ".join(f"({', '.join(f'${next(numbers)}' for _ in range(columns))})" for _ in range(rows))
    places = ", ".join([f"({', '.join('?' * columns)})"] * rows)
    return Statement(
        statement.postgres.replace(_ROWS_PLACEHOLDER.encode(), numbered.encode()),
        statement.sqlite.replace(_ROWS_PLACEHOLDER, places),
    )


def batched(rows: Sequence[Sequence[Any]]) -> Iterable[Sequence[Sequence[Any]]]:
    """Rows, so many at a time as one statement inserts."""
    return (rows[start : start + _BATCH_ROWS] for start in range(0, len(rows), _BATCH_ROWS))


@attrs.frozen
class Tables:
    """Tables that are made where there are none."""

    part: str
    """Their name among others of a PostgreSQL database."""
    statements: tuple[Statement, ...]
    version: int = 1


@attrs.frozen
class DatabaseRejection:
    """What a database says of a statement."""

    explanation: str
    is_general: bool
    """Whether it is about no row, as with a full disk."""
    cause: BaseException | None = None


class Transaction(Protocol):
    """What work does its work with. It neither begins nor commits. Errors come out as the driver's own."""

    @property
    def connection(self) -> Any:
        """The driver's: a sqlite3.Connection, or a psycopg.AsyncConnection."""
        ...

    def json(self, value: object) -> Any:
        """A value as a column of JSON takes it."""
        ...

    def time(self, time: datetime) -> Any:
        """A time in UTC as a column of times takes it."""
        ...

    async def execute(self, statement: Statement, values: Values = NO_VALUES) -> list[Row]:
        """The rows that a statement returns, if any."""
        ...

    async def execute_each(self, statement: Statement, rows: Iterable[Values]) -> list[Row]:
        """The rows that a statement returns, done with each of these values."""
        ...

    async def insert(self, statement: Statement, rows: Sequence[Sequence[Any]]) -> list[Row]:
        """Insert many rows at a time, at the `:rows` of a statement; what it returns of them, in any order."""
        ...

    async def ensure(self, tables: Tables) -> None:
        """Make tables where there are none."""
        ...

    def find_rejection(self, error: Exception) -> DatabaseRejection | None:
        """What the database says where an error is its own, and it is still there."""
        ...


TransactionFn: TypeAlias = Callable[[Transaction], Coroutine[Any, Any, T]]
"""What is done in one transaction. In SQLite it runs in a thread without an event loop: it may await nothing else."""


class Database(Protocol):
    """A file of SQLite, or PostgreSQL. Methods raise the class of error that the database was given."""

    async def open(self, prepare: TransactionFn[object]) -> None:
        """Connect, and do this in the first transaction. Raises what that raised."""
        ...

    async def aclose(self) -> None:
        """Finish what is under way, and disconnect."""
        ...

    async def transaction(self, work: TransactionFn[T]) -> T:
        """What work gives, once that is committed; what it raises, once all is undone."""
        ...

    async def execute(self, statement: Statement, values: Values = NO_VALUES) -> list[Row]:
        """The rows that a statement returns, committed by itself."""
        ...

    async def fetch(
        self, statement: Statement, values: Values = NO_VALUES, make: Callable[[Row], Any] = tuple
    ) -> list[Any]:
        """The rows of a statement that writes nothing. make: what is made of each; many don't hold the event loop."""
        ...


class DatabaseContext:
    """Has a database open within `async with`. Subclasses set it, and say what its first transaction does."""

    _database: Database

    async def __aenter__(self) -> Self:
        try:
            await self._database.open(self._prepare)
        except BaseException:
            await self._database.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._database.aclose()

    async def _prepare(self, transaction: Transaction) -> None:
        raise NotImplementedError
