"""A few connections to PostgreSQL, each call on one of them within a time-out, and its failures in plain words.

A connection that broke is closed, and the next call makes another: nobody has to be told that PostgreSQL is back.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import os
import selectors
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, LiteralString, TypeAlias, TypeVar

import attrs

from directsuite.core.checks import AT_LEAST_ONE, INTERVAL
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
from directsuite.errors import ClosedError, ConfigurationError, DirectSuiteError
from directsuite.secret import Secret, as_secret

if TYPE_CHECKING:
    import psycopg

T = TypeVar("T")
Connection: TypeAlias = "psycopg.AsyncConnection[tuple[Any, ...]]"

TIMEOUT = 30.0
"""Seconds that a call may take."""

_MAX_SETTING_MS = 2**31 - 1  # milliseconds that PostgreSQL's settings take
_ROWS_PER_TURN = 2000  # rows made between two turns of the event loop
_GRACE = 1.0  # seconds in which PostgreSQL may still end a statement whose time is up

_UNREACHABLE = "PostgreSQL can't be reached or broke the connection off: the next call connects again."
_SILENT = "PostgreSQL has not answered in time: the next call connects again."
_REJECTED = "PostgreSQL refused what was asked of it"
_HINT_BY_SQLSTATE = {
    "08": _UNREACHABLE,
    "25006": "PostgreSQL is read-only there: connect to the primary server.",
    "28": "PostgreSQL refused the login: check the user and the password that it was given.",
    "3D": "PostgreSQL has no such database: create it, or name another.",
    "42501": "The user may not do this in PostgreSQL: grant it CREATE, SELECT, INSERT, UPDATE and DELETE.",
    "53100": "PostgreSQL's disk is full, nothing of this was written: free some space.",
    "53": "PostgreSQL has no room for this connection or statement: raise its limits, or run fewer workers.",
    "55P03": "Another transaction holds a lock for too long: see what else uses the database.",
    "57014": _SILENT,
    "57": _UNREACHABLE,
}
"""By SQLSTATE, or the beginning of one; the longest counts."""

_SERVER_ERROR_CLASSES = (
    "08",
    "53",
    "57",
    "58",
)  # SQLSTATE classes that are about no row: connections, resources, operators

_SETTINGS = """
    SELECT set_config('application_name', 'directsuite', false), set_config('client_encoding', 'UTF8', false),
        set_config('statement_timeout', %(ms)s, false), set_config('lock_timeout', %(ms)s, false),
        set_config('idle_in_transaction_session_timeout', %(ms)s, false),
        set_config('default_transaction_isolation', 'read committed', false), current_setting('server_encoding')
"""
"""A worker that is paused within a transaction holds locks that others wait for, and what it wrote is there for them to
see then, whatever isolation the database has by default."""

_SCHEMA_LOCK = 0x64732D736368656D
"""Of those who make tables, of whom there may be many at the start of a fleet."""

_CREATE_VERSION_TABLE = (
    "CREATE TABLE IF NOT EXISTS directsuite.version (part text PRIMARY KEY, version integer NOT NULL)"
)


def explain(error: psycopg.Error) -> str:
    """What to do about an error of PostgreSQL, in words without values. The error itself has some, and is no cause."""
    import psycopg

    state = error.sqlstate
    if state is None:
        if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
            return _UNREACHABLE
        return f"{_REJECTED} ({type(error).__name__})."
    advice = (_HINT_BY_SQLSTATE.get(state[:length]) for length in (5, 2))
    return next(filter(None, advice), f"{_REJECTED} (SQLSTATE {state}).")


class Connections:
    """Connections to one database, made when they are needed. They belong to one event loop.

    conninfo: a URI, or keywords and values, as libpq has it; PostgreSQL itself or a pooler in session mode. Raises
    ConfigurationError.
    """

    def __init__(
        self,
        conninfo: str | Secret,
        *,
        error: type[DirectSuiteError],  # what is raised, with what to do about it
        max_connections: int = 4,  # connections at a time
        timeout: float = TIMEOUT,  # seconds for a call, its wait for a connection included
    ) -> None:
        self.conninfo = as_secret(conninfo)
        del conninfo  # this frame may stand in a traceback
        AT_LEAST_ONE.require("connections", max_connections)
        INTERVAL.require("timeout", timeout)
        self.timeout = timeout
        self.error = error
        self.connections_made = 0
        """Connections that were made so far."""
        self.breaks = 0
        """How often PostgreSQL was not reached, was silent, or broke a connection off."""
        self._free = asyncio.Semaphore(max_connections)
        self._idle: list[Connection] = []
        self._process: int | None = None  # in which they were made
        self._closed = False
        problem = _find_conninfo_problem(self.conninfo)
        if problem is not None:
            raise ConfigurationError(problem)

    async def run(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """What work gives, in a transaction that is committed then, and undone where it raises. Raises `error`.

        Where the connection breaks while it commits, nobody can tell here whether it is committed.
        """

        async def transact(connection: Connection) -> T:
            """Begin a transaction, work in it, and commit it."""
            async with connection.transaction():
                return await work(connection)

        with propagate_cancellation():
            return await self._run_bounded(transact)

    async def fetch(
        self, query: LiteralString | bytes, values: Sequence[Any] | Mapping[str, Any] = ()
    ) -> list[tuple[Any, ...]]:
        """The rows that one statement returns, if any, committed by itself. Raises `error`."""

        async def ask(connection: Connection) -> list[tuple[Any, ...]]:
            """Execute the one statement."""
            return await _fetch_rows(await connection.execute(query, values, binary=True))

        with propagate_cancellation():
            return await self._run_bounded(ask)

    @contextlib.asynccontextmanager
    async def borrow(self) -> AsyncGenerator[Connection]:
        """A connection for some statements, without time-out and plain words. One that isn't idle then is closed.

        Raises ConfigurationError in a forked process: both would use the same sockets.
        """
        from psycopg.pq import TransactionStatus

        if self._is_forked():
            raise ConfigurationError(
                "The connections to PostgreSQL were made before a fork: make them in the process that uses them."
            )
        async with self._free:
            connection = self._pop_live_connection() or await self._connect()
            try:
                yield connection
            finally:
                idle = not connection.closed and connection.info.transaction_status is TransactionStatus.IDLE
                if idle and not self._closed:
                    self._idle.append(connection)
                else:
                    await connection.close()

    async def disconnect(self) -> None:
        """Close those that are idle, except in a forked process. The next call connects again."""
        while self._idle and not self._is_forked():
            await self._idle.pop().close()

    async def aclose(self) -> None:
        """Close those that are idle; others when their calls end. Calls raise ClosedError from now on."""
        self._closed = True
        await self.disconnect()

    async def _run_bounded(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        import psycopg

        if self._closed:
            raise ClosedError("The connections to PostgreSQL are closed: keep them open while they are used.")
        bound = asyncio.timeout(self.timeout)
        try:
            # psycopg asks a silent server for ten seconds to end the statement, unless it is cancelled again.
            async with asyncio.timeout(self.timeout + _GRACE), bound, self.borrow() as connection:
                return await work(connection)
        except psycopg.Error as error:
            failure = self.error(explain(error))
        except UnicodeEncodeError:  # which has the text in it
            failure = self.error("A name has half of a surrogate pair in it, which PostgreSQL can't keep: rename it.")
        except TimeoutError:
            if not bound.expired():
                raise
            failure = self.error(_SILENT)
            await self.disconnect()  # they lead where this one led
        self.breaks += failure.explanation in (_UNREACHABLE, _SILENT)
        raise failure  # here, where PostgreSQL's own error is no context of it

    def _pop_live_connection(self) -> Connection | None:
        """An idle connection. Of one that PostgreSQL has ended meanwhile, the end is there to be read."""
        while self._idle:
            connection = self._idle.pop()
            if not connection.closed and not _is_readable(connection.pgconn.socket):
                return connection
            connection.pgconn.finish()
        return None

    def _is_forked(self) -> bool:
        return self._process not in (None, os.getpid())

    async def _connect(self) -> Connection:
        import psycopg

        connection: Connection = await psycopg.AsyncConnection.connect(self.conninfo.reveal(), autocommit=True)
        self._process = os.getpid()
        self.connections_made += 1
        try:
            cursor = await connection.execute(
                _SETTINGS, {"ms": str(min(math.ceil(self.timeout * 1000), _MAX_SETTING_MS))}
            )
            (*_, encoding) = await cursor.fetchone() or ("",)
        except BaseException:
            await connection.close()
            raise
        if encoding != "UTF8":
            await connection.close()
            raise ConfigurationError("PostgreSQL's database has to be encoded in UTF8: create one that is.")
        return connection


class PostgresDatabase:
    """The schema `directsuite` of a database."""

    def __init__(self, connections: Connections) -> None:
        self.connections = connections

    async def open(self, prepare: TransactionFn[object]) -> None:
        """Connect, and do this in a first transaction."""
        try:
            await self.transaction(prepare)
        except BaseException:
            await self.connections.disconnect()
            raise

    async def aclose(self) -> None:
        """Close the connections."""
        await self.connections.aclose()

    async def transaction(self, work: TransactionFn[T]) -> T:
        """What work gives, once that is committed; what it raises, once it is undone."""
        return await self.connections.run(lambda connection: work(PostgresTransaction(connection, self.connections)))

    async def execute(self, statement: Statement, values: Values = NO_VALUES) -> list[Row]:
        """The rows that a statement returns, committed by itself."""
        return await self.connections.fetch(statement.postgres, values)

    async def fetch(
        self, statement: Statement, values: Values = NO_VALUES, make: Callable[[Row], Any] = tuple
    ) -> list[Any]:
        """What is made of each row that a statement reads, with turns for others in between."""
        return await _convert_rows(await self.connections.fetch(statement.postgres, values), make)


@attrs.frozen
class PostgresTransaction:
    """What work does its work with, on one connection."""

    connection: Connection
    _connections: Connections

    def json(self, value: object) -> Any:
        """Return `value` as psycopg takes it for JSON."""
        from psycopg.types.json import Jsonb

        return Jsonb(value)

    def time(self, time: datetime) -> datetime:
        """Return `time` unchanged: psycopg takes it as it is."""
        return time

    async def execute(self, statement: Statement, values: Values = NO_VALUES) -> list[Row]:
        """The rows that a statement returns, if any."""
        return await _fetch_rows(await self.connection.execute(statement.postgres, values, binary=True))

    async def execute_each(self, statement: Statement, rows: Iterable[Values]) -> list[Row]:
        """The rows that a statement returns, done with each of these values: all in one trip to PostgreSQL."""
        found, sent = list[Row](), list(rows)
        if not sent:
            return found
        async with self.connection.cursor(binary=True) as cursor:
            await cursor.executemany(statement.postgres, sent, returning=True)
            async for result in cursor.results():
                found += await _fetch_rows(result)
        return found

    async def insert(self, statement: Statement, rows: Sequence[Sequence[Any]]) -> list[Row]:
        """Insert rows, many with a statement."""
        from psycopg import AsyncRawCursor

        # psycopg parses a query with more than 50 parameters anew each time; for a raw cursor it parses none.
        found = list[Row]()
        async with AsyncRawCursor(self.connection) as cursor:
            for some in batched(rows):
                values = list(itertools.chain.from_iterable(some))
                text = expand_values(statement, len(some), len(some[0])).postgres
                found += await _fetch_rows(await cursor.execute(text, values, binary=True))
        return found

    async def ensure(self, tables: Tables) -> None:
        """Make tables where there are none. Raises the database's error where they are of another version."""
        statements = [statement.postgres for statement in tables.statements]
        await ensure_part(self.connection, tables.part, tables.version, statements, error=self._connections.error)

    def find_rejection(self, error: Exception) -> DatabaseRejection | None:
        """What PostgreSQL says where an error is its own, in words without values, and the connection has held."""
        import psycopg

        if not isinstance(error, psycopg.Error) or self.connection.closed:
            return None
        about = type(error).__name__ if error.sqlstate is None else f"SQLSTATE {error.sqlstate}"
        is_general = (error.sqlstate or "").startswith(_SERVER_ERROR_CLASSES)
        return DatabaseRejection(f"{_REJECTED} ({about}).", is_general)


async def _fetch_rows(cursor: psycopg.AsyncCursor[Row]) -> list[Row]:
    return [] if cursor.description is None else await cursor.fetchall()


async def _convert_rows(found: list[Row], make: Callable[[Row], Any]) -> list[Any]:
    if make is tuple:
        return found
    made = list[Any]()
    for start in range(0, len(found), _ROWS_PER_TURN):
        if start:
            await asyncio.sleep(0)
        made += map(make, found[start : start + _ROWS_PER_TURN])
    return made


def _is_readable(socket: int) -> bool:
    with selectors.DefaultSelector() as selector:
        selector.register(socket, selectors.EVENT_READ)
        return bool(selector.select(0))


def _find_conninfo_problem(conninfo: Secret) -> str | None:
    try:
        import psycopg
        from psycopg.conninfo import conninfo_to_dict
    except ModuleNotFoundError as error:
        if error.name != "psycopg":
            raise
        return "PostgreSQL needs the package psycopg: pip install 'directsuite[fleet]'"
    except ImportError:
        return "psycopg finds no libpq: pip install 'directsuite[fleet]', which brings one"
    try:
        conninfo_to_dict(conninfo.reveal())
    except psycopg.ProgrammingError:
        return "conninfo has to be a URI or keywords and values: postgresql://user@host/database"
    return None


async def ensure_part(
    connection: Connection,
    part: str,
    version: int,
    statements: Sequence[LiteralString | bytes],
    *,
    error: type[DirectSuiteError],
) -> bool:
    """Make the tables of a part where there are none, in a transaction. Return True if it made them.

    Raises `error` where they are of another version.
    """
    await lock_schema(connection)
    cursor = await connection.execute("SELECT to_regnamespace('directsuite') IS NULL")
    if await cursor.fetchone() == (True,):  # IF NOT EXISTS would ask for the right to make it even where it exists
        await connection.execute("CREATE SCHEMA directsuite")
    await connection.execute(_CREATE_VERSION_TABLE)
    cursor = await connection.execute("SELECT version FROM directsuite.version WHERE part = %s", (part,))
    found = await cursor.fetchone()
    if found is None:
        for statement in statements:
            await connection.execute(statement)
        await connection.execute("INSERT INTO directsuite.version VALUES (%s, %s)", (part, version))
        return True
    if found[0] > version:
        raise error("The tables in PostgreSQL were made by a newer directsuite: upgrade directsuite to use them.")
    if found[0] < version:
        raise error(
            "The tables in PostgreSQL were made by an earlier directsuite, whose form this one does not read: "
            "finish with that one what it began, or give another database."
        )
    return False


async def lock_schema(connection: Connection) -> None:
    """Keep others from changing the schema until the transaction ends."""
    await connection.execute("SELECT pg_advisory_xact_lock(%s)", (_SCHEMA_LOCK,))


@contextlib.contextmanager
def propagate_cancellation() -> Generator[None]:
    """Raise CancelledError at the end of the block where the task was cancelled within, and the block didn't tell.

    psycopg waits with asyncio.wait_for, which in Python 3.11 gives its result instead where that comes in the same
    moment; and what psycopg does about a cancellation may fail in another way. Who is cancelled once would go on.
    """
    task = asyncio.current_task()
    before = 0 if task is None else task.cancelling()
    try:
        yield
    except Exception:
        if task is not None and task.cancelling() > before:
            raise asyncio.CancelledError from None
        raise
    if task is not None and task.cancelling() > before:
        raise asyncio.CancelledError
