"""A store in PostgreSQL, for any number of processes: their claims and fences keep them apart."""

from __future__ import annotations

import asyncio
import itertools
import operator
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, LiteralString, Self

from directsuite.durable.postgres import TIMEOUT, Connection, Connections, ensure_part
from directsuite.secret import Secret
from directsuite.sync.changes import Change
from directsuite.sync.columns import STATES, folder_of, row_of
from directsuite.sync.postgres_commit import PostgresWriting, apply, check, write
from directsuite.sync.postgres_sink import PostgresSink
from directsuite.sync.status import MailboxStatus, folder_statuses
from directsuite.sync.store import Delta, Folder, Lease, Row, State, StoreError, refuse_another
from directsuite.sync.wishes import Wish

__all__ = ["PostgresSink", "PostgresStore", "PostgresWriting"]

_VERSION = 1
_TABLES = (
    """
    CREATE TABLE directsuite.mailbox (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text NOT NULL UNIQUE, fence bigint NOT NULL
    )
    """,
    """
    CREATE TABLE directsuite.folder (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, mailbox bigint NOT NULL REFERENCES directsuite.mailbox,
        name text NOT NULL, generation bigint NOT NULL, fingerprint bytea, audited_ms bigint, UNIQUE (mailbox, name)
    )
    """,
    """
    CREATE TABLE directsuite.msg (
        folder bigint NOT NULL REFERENCES directsuite.folder, generation bigint NOT NULL, uid bigint NOT NULL,
        state bigint NOT NULL, identity bytea, digest bytea, size bigint NOT NULL, received_ms bigint,
        attempts bigint NOT NULL, retry_ms bigint, PRIMARY KEY (folder, generation, uid)
    )
    """,
    "CREATE INDEX msg_digest ON directsuite.msg (folder, digest) WHERE digest IS NOT NULL",
)
_UNSETTLED = (
    "DROP INDEX IF EXISTS directsuite.msg_waiting",  # from before there was state 7
    "CREATE INDEX msg_unsettled ON directsuite.msg (folder, state) WHERE state IN (2, 4, 5, 7)",
)

_SINK = (
    "CREATE TABLE directsuite.sink (kind text NOT NULL)",
    "CREATE UNIQUE INDEX sink_is_one ON directsuite.sink ((true))",  # for workers of a fleet that begin at once
)
_BIND = "INSERT INTO directsuite.sink (kind) VALUES (%s) ON CONFLICT DO NOTHING"
_BOUND = "SELECT kind FROM directsuite.sink"

_CLAIM = """
    INSERT INTO directsuite.mailbox AS m (name, fence) VALUES (%s, 1)
    ON CONFLICT (name) DO UPDATE SET fence = m.fence + 1 RETURNING id, name, fence
"""
_MAKE = """
    INSERT INTO directsuite.folder (mailbox, name, generation) VALUES (%s, %s, 1)
    ON CONFLICT (mailbox, name) DO NOTHING
"""
_FOLDERS = "SELECT id, name, generation, fingerprint, audited_ms FROM directsuite.folder WHERE mailbox = %s"
_FOLDER = f"{_FOLDERS} AND name = %s"
_STATES = "SELECT uid, state FROM directsuite.msg WHERE folder = %s AND generation = %s"
_ROWS = "SELECT * FROM directsuite.msg WHERE folder = %s AND generation = %s ORDER BY uid"
_ROWS_OF = "SELECT * FROM directsuite.msg WHERE folder = %s AND generation = %s AND uid = ANY(%s) ORDER BY uid"
_CANDIDATES = """
    SELECT * FROM directsuite.msg WHERE folder = %(folder)s AND generation = %(generation)s AND state = 1
    AND identity IS NOT NULL AND received_ms IS NOT NULL ORDER BY uid
"""
_CANARIES = f"({_CANDIDATES} DESC LIMIT 1) UNION ({_CANDIDATES} LIMIT 1) ORDER BY uid DESC"
_NAMED = "SELECT f.name, m.* FROM directsuite.folder f JOIN directsuite.msg m ON m.folder = f.id WHERE f.mailbox = %s"
_IN_ORDER = " ORDER BY m.folder, m.generation, m.uid"
# Digest by digest: where statistics are behind, as in a first synchronisation, any other plan reads whole folders.
_WITH_DIGESTS = """
    SELECT f.name, m.* FROM directsuite.folder f CROSS JOIN unnest(%s::bytea[]) AS wanted (digest) CROSS JOIN LATERAL (
        SELECT * FROM directsuite.msg WHERE folder = f.id AND digest = wanted.digest OFFSET 0
    ) m WHERE f.mailbox = %s ORDER BY m.folder, m.generation, m.uid
"""
_IN_STATE = f"{_NAMED} AND f.name <> ALL(%s) AND m.state = %s{_IN_ORDER}"
_WAITING = (
    f"{_NAMED} AND f.name <> ALL(%s) AND m.state = %s AND m.state IN (2, 4, 5, 7){_IN_ORDER}"  # as its index says
)

_WISHES = (
    """
    CREATE TABLE directsuite.wish (
        mailbox bigint NOT NULL REFERENCES directsuite.mailbox, kind text NOT NULL, PRIMARY KEY (mailbox, kind)
    )
    """,
)
_WISH = """
    INSERT INTO directsuite.wish (mailbox, kind)
    SELECT id, %s FROM directsuite.mailbox WHERE %s::text[] = '{}' OR name = ANY(%s)
    ON CONFLICT (mailbox, kind) DO UPDATE SET kind = excluded.kind
    RETURNING (SELECT name FROM directsuite.mailbox b WHERE b.id = mailbox)
"""
_WISHED = "SELECT DISTINCT b.name FROM directsuite.wish w JOIN directsuite.mailbox b ON b.id = w.mailbox"
_IS_WISHED = f"{_WISHED} WHERE b.name = %s"
_GRANTED = """
    DELETE FROM directsuite.wish w USING directsuite.mailbox b WHERE b.id = w.mailbox AND b.name = %s
    RETURNING w.mailbox, w.kind
"""
_GRANTS: Mapping[str, LiteralString] = {
    Wish.AUDIT: "UPDATE directsuite.folder SET audited_ms = 0 WHERE mailbox = %s AND audited_ms IS NOT NULL",
    Wish.RETRY: """
        UPDATE directsuite.msg SET retry_ms = 0 WHERE retry_ms > 0 AND state IN (2, 4, 5, 7)
        AND folder IN (SELECT id FROM directsuite.folder WHERE mailbox = %s)
    """,
}

_STATUS = """
    SELECT b.name, f.name, f.generation, f.audited_ms, m.state, count(m.uid) FROM directsuite.mailbox b
    LEFT JOIN directsuite.folder f ON f.mailbox = b.id LEFT JOIN directsuite.msg m ON m.folder = f.id
    GROUP BY b.id, f.id, m.state ORDER BY b.name COLLATE "C", f.name COLLATE "C", m.state
"""
_PIECE = 2000  # rows made between two turns of the event loop


class PostgresStore:
    """Keeps what is known of mailboxes in PostgreSQL, in the schema `directsuite`, and beside it what its sink writes.

    conninfo: a URI, or keywords and values, as libpq has it; PostgreSQL itself or a pooler in session mode. sink: one
    that writes in the same transaction. connections: at a time, of this process. timeout: seconds for a method. Each
    method raises StoreError; where that was for a broken connection, the next one connects again.
    """

    def __init__(
        self,
        conninfo: str | Secret,
        sink: PostgresWriting | None = None,
        *,
        connections: int = 4,
        timeout: float = TIMEOUT,
    ) -> None:
        self.connections = Connections(conninfo, error=StoreError, most=connections, timeout=timeout)
        del conninfo  # this frame may stand in a traceback
        self._sink = sink

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def open(self) -> None:
        """Make the tables where there are none. Raises StoreError, and what the sink raised."""

        async def prepare(connection: Connection) -> None:
            """Those of the store, and those of the sink."""
            await ensure_part(connection, "store", _VERSION, _TABLES, error=StoreError)
            await ensure_part(connection, "wishes", _VERSION, _WISHES, error=StoreError)
            await ensure_part(connection, "store: sink", _VERSION, _SINK, error=StoreError)
            await ensure_part(connection, "store: unsettled", _VERSION, _UNSETTLED, error=StoreError)
            if self._sink is not None:
                await self._sink.prepare(connection)

        try:
            await self.connections.run(prepare)
        except BaseException:
            await self.connections.disconnect()
            raise

    async def aclose(self) -> None:
        """Close the connections."""
        await self.connections.aclose()

    @property
    def has_sink(self) -> bool:
        """Whether a sink of its own gets the changes."""
        return self._sink is not None

    async def bind(self, sink: str) -> None:
        """Note which sink is told of what the store knows, if none is noted. Raises ConfigurationError for another."""

        async def work(connection: Connection) -> None:
            """Whoever is first."""
            await connection.execute(_BIND, (sink,))
            ((bound,),) = await (await connection.execute(_BOUND)).fetchall()
            refuse_another(bound, sink)

        await self.connections.run(work)

    async def claim(self, mailbox: str) -> Lease:
        """The right to commit for a mailbox; earlier leases of it are stale from now on."""
        (found,) = await self.connections.fetch(_CLAIM, (mailbox,))
        return Lease(*found)

    async def folder(self, lease: Lease, name: str) -> Folder:
        """A folder, made where there is none. Raises StaleLeaseError where a stale lease would have to make it."""
        found = await self.connections.fetch(_FOLDER, (lease.mailbox, name))
        if not found:

            async def make(connection: Connection) -> None:
                """The folder, unless somebody else was first."""
                await check(connection, lease)
                await connection.execute(_MAKE, (lease.mailbox, name))

            await self.connections.run(make)
            found = await self.connections.fetch(_FOLDER, (lease.mailbox, name))
        return folder_of(found[0])

    async def folders(self, lease: Lease) -> Sequence[Folder]:
        """All folders of the mailbox that are known."""
        return [folder_of(values) for values in await self.connections.fetch(_FOLDERS, (lease.mailbox,))]

    async def states(self, folder: Folder) -> Mapping[int, State]:
        """The state of each uid of the folder's generation."""
        found = await self.connections.fetch(_STATES, (folder.id, folder.generation))
        return {uid: STATES[state] for uid, state in found}

    async def rows(self, folder: Folder, uids: Collection[int] | None = None) -> Sequence[Row]:
        """The rows of the folder's generation, by ascending uid: all, or those of these uids."""
        if uids is None:
            found = await self.connections.fetch(_ROWS, (folder.id, folder.generation))
        else:
            found = await self.connections.fetch(_ROWS_OF, (folder.id, folder.generation, list(uids)))
        return [row_of(values) async for values in _with_pauses(found)]

    async def canaries(self, folder: Folder) -> Sequence[Row]:
        """The newest and the oldest row, by uid, that is LIVE and has an identity and a date; none, one or two."""
        where = {"folder": folder.id, "generation": folder.generation}
        return [row_of(values) for values in await self.connections.fetch(_CANARIES, where)]

    async def with_digests(self, lease: Lease, digests: Iterable[bytes]) -> Sequence[tuple[str, Row]]:
        """Rows of the mailbox with one of these digests, each with its folder's name, by folder, generation and uid."""
        found = await self.connections.fetch(_WITH_DIGESTS, (sorted(set(digests)), lease.mailbox))
        return [(name, row_of(values)) for name, *values in found]

    async def in_state(self, lease: Lease, state: State, *, but: Collection[str] = ()) -> Sequence[tuple[str, Row]]:
        """The mailbox's rows in this state, each with its folder's name, by folder, generation and uid."""
        query = _IN_STATE if state in (State.LIVE, State.GONE, State.IN_DOUBT) else _WAITING
        found = await self.connections.fetch(query, (lease.mailbox, list(but), int(state)))
        return [(name, row_of(values)) async for name, *values in _with_pauses(found)]

    async def commit(self, lease: Lease, delta: Delta, changes: Sequence[Change]) -> None:
        """Write a delta, and hand the changes to the sink, as one. Raises StaleLeaseError, and what the sink raised."""

        async def work(connection: Connection) -> None:
            """Both, unless the lease is stale."""
            await check(connection, lease)
            await apply(connection, lease, delta)
            if self._sink is not None and changes:
                await write(self._sink, connection, changes)

        await self.connections.run(work)

    async def wish(self, kind: Wish, names: Iterable[str] = ()) -> Sequence[str]:
        """Leave a wish for mailboxes, or for all; those for which it was left."""
        wanted = list(names)
        return sorted(name for (name,) in await self.connections.fetch(_WISH, (kind.value, wanted, wanted)))

    async def wished(self) -> Sequence[str]:
        """Mailboxes for which another process has left wishes."""
        return [name for (name,) in await self.connections.fetch(_WISHED)]

    async def grant(self, mailbox: str) -> bool:
        """Make due what is wished for a mailbox; whether there was anything. Rows and folders are to be read anew."""
        if not await self.connections.fetch(_IS_WISHED, (mailbox,)):
            return False

        async def work(connection: Connection) -> bool:
            """As one."""
            wishes = await (await connection.execute(_GRANTED, (mailbox,))).fetchall()
            for identifier, kind in wishes:
                if kind in _GRANTS:  # a later release may know others
                    await connection.execute(_GRANTS[kind], (identifier,))
            return bool(wishes)

        return await self.connections.run(work)

    async def status(self) -> Sequence[MailboxStatus]:
        """What is known of every mailbox, by their names."""
        found = await self.connections.fetch(_STATUS)
        by_name = itertools.groupby(found, key=operator.itemgetter(0))
        return [MailboxStatus(name=name, folders=folder_statuses(of_it)) for name, of_it in by_name]


async def _with_pauses(found: Sequence[Sequence[Any]]) -> AsyncIterator[Sequence[Any]]:
    """Each of many, with turns for others in between."""
    for number, values in enumerate(found, start=1):
        yield values
        if number % _PIECE == 0:
            await asyncio.sleep(0)
