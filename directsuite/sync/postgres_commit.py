"""A commit in PostgreSQL, within its transaction: the lease, the delta, and the store's own sink."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from directsuite.durable.postgres import Connection
from directsuite.sync.changes import Change
from directsuite.sync.columns import values_of
from directsuite.sync.commits import SinkError
from directsuite.sync.store import Delta, Lease, StaleLeaseError

if TYPE_CHECKING:
    import psycopg

_FENCE = "SELECT fence FROM directsuite.mailbox WHERE id = %s FOR UPDATE"
_ORPHANS = """
    UPDATE directsuite.msg SET state = CASE state WHEN 5 THEN 3 ELSE 4 END, attempts = 0, retry_ms = NULL
    WHERE folder = ANY(%s) AND state IN (1, 2, 5, 6, 7)
"""
_WRITE = """
    INSERT INTO directsuite.msg SELECT * FROM unnest(
        %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bytea[], %s::bytea[], %s::bigint[], %s::bigint[],
        %s::bigint[], %s::bigint[])
    ON CONFLICT (folder, generation, uid) DO UPDATE SET
        state = excluded.state, identity = excluded.identity, digest = excluded.digest, size = excluded.size,
        received_ms = excluded.received_ms, attempts = excluded.attempts, retry_ms = excluded.retry_ms
"""
_WRITE_FOLDER = """
    UPDATE directsuite.folder SET name = %s, generation = %s, fingerprint = %s, audited_ms = %s
    WHERE id = %s AND mailbox = %s
"""

_OF_THE_SERVER = ("08", "53", "57", "58")  # SQLSTATE classes that are about no row: connections, resources, operators


class PostgresWriting(Protocol):
    """A sink that writes changes into the store's own database, in the transaction that notes them as done."""

    async def prepare(self, connection: psycopg.AsyncConnection[tuple[Any, ...]]) -> None:
        """Make its tables where there are none. Called at each opening, in a transaction; one process at a time."""
        ...

    async def write(self, connection: psycopg.AsyncConnection[tuple[Any, ...]], changes: Sequence[Change]) -> None:
        """Write changes; it neither begins nor commits. What it raises undoes the whole commit, and comes out of it.

        Only an error of PostgreSQL comes out as SinkError or StoreError, for its text has values in it.
        """
        ...


async def check(connection: Connection, lease: Lease) -> None:
    """Raise StaleLeaseError for a lease that is stale; no other can be claimed until the transaction ends."""
    cursor = await connection.execute(_FENCE, (lease.mailbox,))
    if await cursor.fetchone() != (lease.fence,):
        raise StaleLeaseError("Another worker has claimed the mailbox since: claim it anew before the next round.")


async def apply(connection: Connection, lease: Lease, delta: Delta) -> None:
    """Write a delta."""
    if delta.orphaned:
        await connection.execute(_ORPHANS, (delta.orphaned,))
    rows = {(row.folder, row.generation, row.uid): row for row in delta.rows}  # one statement, one row once
    if rows:
        columns = zip(*map(values_of, rows.values()), strict=True)
        await connection.execute(_WRITE, [list(column) for column in columns])
    for each in delta.folders:
        of_it = (each.name, each.generation, each.fingerprint, each.audited_ms, each.id, lease.mailbox)
        await connection.execute(_WRITE_FOLDER, of_it)


async def write(sink: PostgresWriting, connection: Connection, changes: Sequence[Change]) -> None:
    """Hand changes to the sink. Raises what it raised; SinkError in place of an error of PostgreSQL."""
    import psycopg

    try:
        await sink.write(connection, changes)
        return
    except psycopg.Error as error:
        if connection.closed:
            raise
        about = type(error).__name__ if error.sqlstate is None else f"SQLSTATE {error.sqlstate}"
        is_general = (error.sqlstate or "").startswith(_OF_THE_SERVER)
    raise SinkError(
        f"PostgreSQL refused what the sink asked for ({about}): nothing of this batch is written", is_general=is_general
    )
