"""What databases in SQLite and PostgreSQL have in common: statements, and the interface of a transaction.

    database.transaction(work) ──► work(transaction): committed if it returns, rolled back if it raises
    database.execute(statement) ─► one statement, committed immediately
    database.fetch(statement) ───► committed rows

Statements are in files with the suffixes `.postgres.sql`, for the schema `directsuite`, and `.sqlite.sql`. A list is a
value in `= ANY(:names)`, and in SQLite JSON (`json_each(:names)`); a list of bytes is a value in `IN (:names)`.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from datetime import datetime
from importlib import resources
from typing import Any, Protocol, TypeAlias, TypeVar

import attrs

T = TypeVar("T")
Values: TypeAlias = Mapping[str, Any]
Row: TypeAlias = tuple[Any, ...]

NO_VALUES: Values = {}

_PLACEHOLDER = re.compile(r"(?<!:):([a-z]\w*)")
_ROWS_PLACEHOLDER = ":rows"
_BATCH_ROWS = 50  # rows per INSERT


@attrs.frozen
class Statement:
    """A statement in both dialects. `:name` is a placeholder of a value, `:rows` of the rows to insert."""

    postgres: bytes
    sqlite: str


def load_statements(package: str, name: str) -> Mapping[str, Statement]:
    """Return the statements of `name`.postgres.sql and `name`.sqlite.sql in a package, by their names.

    A line `-- name: NAME` begins a statement. If a file is missing, its statements are empty.
    """
    texts = [_read_statements(package, f"{name}.{dialect}.sql") for dialect in ("postgres", "sqlite")]
    names = texts[0] | texts[1]
    return {each: Statement(_to_postgres(texts[0].get(each, "")), texts[1].get(each, "")) for each in names}


def _read_statements(package: str, name: str) -> dict[str, str]:
    file = resources.files(package).joinpath(name)
    if not file.is_file():
        return {}
    _, *pieces = re.split(r"^-- name: (\w+)\n", file.read_text("utf-8"), flags=re.MULTILINE)
    return dict(zip(pieces[::2], pieces[1::2], strict=True))


def _to_postgres(text: str) -> bytes:
    rows = text.replace(_ROWS_PLACEHOLDER, "\0")
    return _PLACEHOLDER.sub(r"%(\1)s", rows).replace("\0", _ROWS_PLACEHOLDER).encode()


@functools.lru_cache(maxsize=256)
def _expand_rows(statement: Statement, rows: int, columns: int) -> Statement:
    numbers = itertools.count(1)
    numbered = ", ".join(f"({', '.join(f'${next(numbers)}' for _ in range(columns))})" for _ in range(rows))
    places = ", ".join([f"({', '.join('?' * columns)})"] * rows)
    return Statement(
        statement.postgres.replace(_ROWS_PLACEHOLDER.encode(), numbered.encode()),
        statement.sqlite.replace(_ROWS_PLACEHOLDER, places),
    )


def iter_inserts(statement: Statement, rows: Sequence[Sequence[Any]]) -> Iterator[tuple[Statement, list[Any]]]:
    """Yield statements for 50 rows each, and their values. Placeholders are `?`, and in PostgreSQL $1 to $n."""
    for start in range(0, len(rows), _BATCH_ROWS):
        some = rows[start : start + _BATCH_ROWS]
        yield _expand_rows(statement, len(some), len(some[0])), list(itertools.chain.from_iterable(some))


@attrs.frozen
class Tables:
    """Tables to create if they are missing."""

    part: str
    """The name under which PostgreSQL stores their version."""
    statement: Statement
    """The statement that creates all tables."""
    version: int = 1


@attrs.frozen
class DatabaseRejection:
    """Why the database rejected a statement."""

    explanation: str
    is_general: bool
    """True if the cause is not a row, but for example a full disk."""
    cause: BaseException | None = None


class Transaction(Protocol):
    """The methods for a `TransactionFn`. They raise the driver's errors, and neither begin nor commit."""

    @property
    def connection(self) -> Any:
        """The sqlite3.Connection or psycopg.AsyncConnection."""
        ...

    def json(self, value: object) -> Any:
        """Return a value converted for a JSON column."""
        ...

    def time(self, time: datetime) -> Any:
        """Return a UTC time converted for a column."""
        ...

    async def execute(self, statement: Statement, values: Values = NO_VALUES) -> list[Row]:
        """Execute a statement, and return its rows."""
        ...

    async def insert(self, statement: Statement, rows: Sequence[Sequence[Any]]) -> list[Row]:
        """Insert rows in batches. Return the rows that the statement returns, in any order."""
        ...

    async def ensure(self, tables: Tables) -> None:
        """Create missing tables. Raises the database's error if PostgreSQL has another version of them."""
        ...

    def raise_suppressed_error(self) -> None:
        """Raise the database's error if it has given up the transaction, although the caller raised no error."""
        ...

    def find_rejection(self, error: Exception) -> DatabaseRejection | None:
        """Return why the database rejected a statement, or None if the error is another one."""
        ...


TransactionFn: TypeAlias = Callable[[Transaction], Coroutine[Any, Any, T]]
"""May await only the transaction's methods, because SQLite's thread has no event loop."""
