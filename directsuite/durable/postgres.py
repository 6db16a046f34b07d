"""A database in PostgreSQL, with a pool of connections and a timeout for each call."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import selectors
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

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
    iter_inserts,
)
from directsuite.errors import ClosedError, ConfigurationError, DirectSuiteError
from directsuite.wire.models import Secret, as_secret

if TYPE_CHECKING:
    import psycopg

T = TypeVar("T")
Connection: TypeAlias = "psycopg.AsyncConnection[tuple[Any, ...]]"

TIMEOUT = 30.0
"""Default timeout of a call in seconds."""

_MAX_SETTING_MS = 2**31 - 1  # the largest value of PostgreSQL's timeout settings
_ROWS_PER_TURN = 2000  # rows converted before the event loop may run other tasks
_GRACE = 1.0  # seconds for PostgreSQL to cancel a statement after its timeout

_UNREACHABLE = "PostgreSQL can't be reached, or the connection was lost: the next call connects again."
_SILENT = "PostgreSQL has not responded in time: the next call connects again."
_REJECTED = "PostgreSQL rejected the statement"
_HINT_BY_SQLSTATE = {
    "08": _UNREACHABLE,
    "25P02": "A function caught an error of PostgreSQL, which rolls the transaction back. Let the function raise it.",
    "25006": "The PostgreSQL server is read-only. Connect to the primary server.",
    "28": "PostgreSQL rejected the login. Check the user and the password.",
    "3D": "The database does not exist in PostgreSQL. Create it, or name another.",
    "42501": "The PostgreSQL user lacks a permission. Grant it CREATE, SELECT, INSERT, UPDATE and DELETE.",
    "53100": "PostgreSQL's disk is full, so nothing was written. Free some disk space.",
    "53": "PostgreSQL has no resources left for this connection or statement. Raise its limits, or run fewer workers.",
    "55P03": "Another transaction in PostgreSQL holds a lock for too long. Check what else uses the database.",
    "57014": _SILENT,
    "57": _UNREACHABLE,
}
"""Messages by SQLSTATE, or else by its class of two characters."""

_SERVER_ERROR_CLASSES = ("08", "53", "57", "58")
"""SQLSTATE classes of errors that no row causes: connection, resources, intervention, system."""

_SETTINGS = """
    SELECT set_config('application_name', 'directsuite', false), set_config('client_encoding', 'UTF8', false),
        set_config('statement_timeout', %(ms)s, false), set_config('lock_timeout', %(ms)s, false),
        set_config('idle_in_transaction_session_timeout', %(ms)s, false),
        set_config('default_transaction_isolation', 'read committed', false), current_setting('server_encoding')
"""
"""The timeouts release the locks of a worker that hangs in a transaction."""

_SCHEMA_LOCK = 0x64732D736368656D
"""The advisory lock for creating tables, because workers may start at the same time."""

_CREATE_VERSION_TABLE = (
    "CREATE TABLE IF NOT EXISTS directsuite.version (part text PRIMARY KEY, version integer NOT NULL)"
)


def explain(error: psycopg.Error) -> str:
    """Return a message without values. Do not chain the error, whose text contains values."""
    import psycopg

    state = error.sqlstate
    if state is None:
        if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
            return _UNREACHABLE
        return f"{_REJECTED} ({type(error).__name__})."
    advice = (_HINT_BY_SQLSTATE.get(state[:length]) for length in (5, 2))
    return next(filter(None, advice), f"{_REJECTED} (SQLSTATE {state}). See PostgreSQL's log.")


class PostgresDatabase:
    """The schema `directsuite` of a PostgreSQL database. Connections are opened on demand, in one event loop.

    conninfo: a libpq connection string, of PostgreSQL or of a pooler in session mode.
    error: the class of the errors that methods raise.
    timeout: seconds for a call, including the wait for a connection.

    Raises ConfigurationError if an argument is invalid or psycopg is not installed.
    """

    def __init__(
        self,
        conninfo: str | Secret,
        *,
        error: type[DirectSuiteError],
        max_connections: int = 4,
        timeout: float = TIMEOUT,
    ) -> None:
        self.conninfo = as_secret(conninfo)
        del conninfo  # a traceback may show the variables of this frame
        AT_LEAST_ONE.require("connections", max_connections)
        INTERVAL.require("timeout", timeout)
        self.timeout = timeout
        self.error = error
        self.breaks = 0
        """The number of calls that failed because of a lost connection or a timeout."""
        self._free = asyncio.Semaphore(max_connections)
        self._idle: list[Connection] = []
        self._process: int | None = None  # that opened the connections
        self._closed = False
        _validate_conninfo(self.conninfo)

    async def open(self, prepare: TransactionFn[object]) -> None:
        """Connect and prepare. It can be opened again if this raises."""
        try:
            await self.transaction(prepare)
        except BaseException:
            await self.disconnect()
            raise

    async def transaction(self, work: TransactionFn[T]) -> T:
        """Run `work` in a transaction. If the connection is lost during the commit, the outcome is unknown."""

        async def transact(connection: Connection) -> T:
            async with connection.transaction():
                return await work(_PostgresTransaction(connection, self.error))

        return await self._run_bounded(transact)

    async def execute(self, statement: Statement, values: Values = NO_VALUES) -> list[Row]:
        """Execute and commit one statement."""
        return await self._run_bounded(
            lambda connection: _PostgresTransaction(connection, self.error).execute(statement, values)
        )

    async def fetch(
        self, statement: Statement, values: Values = NO_VALUES, make: Callable[[Row], Any] = tuple
    ) -> list[Any]:
        """Return converted rows."""
        found, made = await self.execute(statement, values), list[Any]()
        for start in range(0, len(found), _ROWS_PER_TURN):
            if start:
                await asyncio.sleep(0)  # other tasks must not wait until a very large folder is read
            made += map(make, found[start : start + _ROWS_PER_TURN])
        return made

    @contextlib.asynccontextmanager
    async def borrow(self) -> AsyncGenerator[Connection]:
        """Yield a connection, without a timeout. Raises psycopg's errors; ConfigurationError in a forked process."""
        from psycopg.pq import TransactionStatus

        if self._is_forked():
            raise ConfigurationError(
                "The connections to PostgreSQL were opened before a fork. Open them in the process that uses them."
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
        """Close the idle connections, except in a forked process. The next call connects again."""
        while self._idle and not self._is_forked():
            await self._idle.pop().close()

    async def aclose(self) -> None:
        """Close the idle connections now, and the others after their calls. New calls raise ClosedError."""
        self._closed = True
        await self.disconnect()

    async def _run_bounded(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        import psycopg

        if self._closed:
            raise ClosedError("The connections to PostgreSQL are closed. Close them only after their last use.")
        bound = asyncio.timeout(self.timeout)
        # psycopg waits ten seconds for the server to cancel the statement; the longer timeout shortens that.
        longer = asyncio.timeout(self.timeout + _GRACE)
        try:
            with propagate_cancellation():
                async with longer, bound, self.borrow() as connection:
                    return await work(connection)
        except psycopg.Error as error:
            failure = self.error(explain(error))
        except UnicodeEncodeError:  # whose text contains the name
            failure = self.error("A name contains a lone surrogate, which PostgreSQL can't store. Rename it.")
        except TimeoutError:
            if not bound.expired():
                raise
            failure = self.error(_SILENT)
            await self.disconnect()  # the idle ones have the same unresponsive server
        self.breaks += failure.explanation in (_UNREACHABLE, _SILENT)
        raise failure  # here, so that psycopg's error is not its context

    def _pop_live_connection(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()
            # A socket that PostgreSQL has closed is readable.
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
        try:
            milliseconds = min(math.ceil(self.timeout * 1000), _MAX_SETTING_MS)
            cursor = await connection.execute(_SETTINGS, {"ms": str(milliseconds)})
            (*_, encoding) = await cursor.fetchone() or ("",)
            if encoding != "UTF8":
                raise ConfigurationError(
                    "The PostgreSQL database is not encoded in UTF8. Create one with this encoding."
                )
        except BaseException:
            await connection.close()
            raise
        return connection


@attrs.frozen
class _PostgresTransaction:
    # Implements `Transaction`.

    connection: Connection
    _error: type[DirectSuiteError]

    def json(self, value: object) -> Any:
        from psycopg.types.json import Jsonb

        return Jsonb(value)

    def time(self, time: datetime) -> datetime:
        return time

    async def execute(self, statement: Statement, values: Values = NO_VALUES) -> list[Row]:
        return await _fetch_rows(await self.connection.execute(statement.postgres, values, binary=True))

    async def insert(self, statement: Statement, rows: Sequence[Sequence[Any]]) -> list[Row]:
        from psycopg import AsyncRawCursor

        # psycopg parses queries with more than 50 parameters each time; a raw cursor does not.
        found = list[Row]()
        async with AsyncRawCursor(self.connection) as cursor:
            for some, values in iter_inserts(statement, rows):
                found += await _fetch_rows(await cursor.execute(some.postgres, values, binary=True))
        return found

    async def ensure(self, tables: Tables) -> None:
        connection = self.connection
        await lock_schema(connection)
        cursor = await connection.execute("SELECT to_regnamespace('directsuite') IS NULL")
        if await cursor.fetchone() == (True,):  # IF NOT EXISTS always requires the permission to create it
            await connection.execute("CREATE SCHEMA directsuite")
        await connection.execute(_CREATE_VERSION_TABLE)
        cursor = await connection.execute("SELECT version FROM directsuite.version WHERE part = %s", (tables.part,))
        found = await cursor.fetchone()
        if found is None:
            await connection.execute(tables.statement.postgres)
            insert = "INSERT INTO directsuite.version VALUES (%s, %s)"
            await connection.execute(insert, (tables.part, tables.version))
        elif found[0] > tables.version:
            raise self._error(
                "The tables in PostgreSQL were created by a newer directsuite. Upgrade directsuite to use them."
            )
        elif found[0] < tables.version:
            raise self._error(
                "The tables in PostgreSQL were created by an earlier directsuite, whose format this one does not read. "
                "Finish the work with the earlier directsuite, or use another database."
            )

    def raise_suppressed_error(self) -> None:
        import psycopg
        from psycopg.pq import TransactionStatus

        # After an error, COMMIT rolls back with success. psycopg ignores a connection that was lost before COMMIT.
        if self.connection.closed:
            raise psycopg.OperationalError
        if self.connection.info.transaction_status is not TransactionStatus.INTRANS:
            raise psycopg.errors.InFailedSqlTransaction

    def find_rejection(self, error: Exception) -> DatabaseRejection | None:
        import psycopg

        if not isinstance(error, psycopg.Error) or self.connection.closed:
            return None
        is_general = (error.sqlstate or "").startswith(_SERVER_ERROR_CLASSES)
        return DatabaseRejection(explain(error), is_general)


async def _fetch_rows(cursor: psycopg.AsyncCursor[Row]) -> list[Row]:
    return [] if cursor.description is None else await cursor.fetchall()


def _is_readable(socket: int) -> bool:
    with selectors.DefaultSelector() as selector:
        selector.register(socket, selectors.EVENT_READ)
        return bool(selector.select(0))


def _validate_conninfo(conninfo: Secret) -> None:
    try:
        import psycopg
        from psycopg.conninfo import conninfo_to_dict
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name != "psycopg":
            raise
        problem = "PostgreSQL requires psycopg with libpq. In a copy of the repository, run: pip install '.[fleet]'"
    else:
        try:
            conninfo_to_dict(conninfo.reveal())
        except psycopg.ProgrammingError:
            problem = "conninfo must be a URI or keywords and values, for example postgresql://user@host/database"
        else:
            return
    raise ConfigurationError(problem)


async def lock_schema(connection: Connection) -> None:
    """Lock the schema until the transaction ends."""
    await connection.execute("SELECT pg_advisory_xact_lock(%s)", (_SCHEMA_LOCK,))


@contextlib.contextmanager
def propagate_cancellation() -> Generator[None]:
    """Raise CancelledError at the end of the block if the task was cancelled in it.

    psycopg may suppress a cancellation: in Python 3.11, or if its cleanup fails.
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
