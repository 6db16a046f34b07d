"""A store in one SQLite file, for one process."""

from __future__ import annotations

import functools
import itertools
import json
import os
import sqlite3
from collections.abc import Awaitable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from directsuite.durable.group_commit import Transactions
from directsuite.durable.sqlite import insert
from directsuite.sync import wishes
from directsuite.sync.changes import Change
from directsuite.sync.columns import STATES, folder_of, row_of, values_of
from directsuite.sync.database import STORE, bind
from directsuite.sync.status import MailboxStatus, statuses
from directsuite.sync.store import Delta, Folder, Lease, Row, StaleLeaseError, State

T = TypeVar("T")

MEMORY = ":memory:"
"""The path of a store that is kept nowhere: it ends when it is closed."""

_CLAIM = "INSERT INTO mailbox (name, fence) VALUES (?, 1) ON CONFLICT (name) DO UPDATE SET fence = fence + 1"
_MAKE = "INSERT INTO folder (mailbox, name, generation) VALUES (?, ?, 1) ON CONFLICT (mailbox, name) DO NOTHING"
_FOLDERS = "SELECT id, name, generation, fingerprint, audited_ms FROM folder WHERE mailbox = ?"
_FOLDER = f"{_FOLDERS} AND name = ?"
_CANDIDATES = """
    SELECT * FROM msg WHERE folder = ? AND generation = ? AND state = ? AND identity IS NOT NULL
    AND received_ms IS NOT NULL ORDER BY uid
"""
_NEWEST, _OLDEST = _CANDIDATES + "DESC LIMIT 1", _CANDIDATES + "LIMIT 1"
# Named, for SQLite prefers the primary key, and reads a folder's every row.
_OF_DIGEST = """
    SELECT f.name, m.* FROM folder f JOIN msg m INDEXED BY msg_digest ON m.folder = f.id
    WHERE f.mailbox = ? AND m.digest = ?
"""
_WAITING = """
    SELECT f.name, m.* FROM folder f JOIN msg m INDEXED BY msg_unsettled ON m.folder = f.id
    WHERE f.mailbox = ? AND m.state = ? AND m.state IN (2, 4, 5, 7) AND f.name NOT IN (SELECT value FROM json_each(?))
"""
_IN_STATE = """
    SELECT f.name, m.* FROM folder f JOIN msg m ON m.folder = f.id
    WHERE f.mailbox = ? AND m.state = ? AND f.name NOT IN (SELECT value FROM json_each(?))
"""
_ROWS = "SELECT * FROM msg WHERE folder = ? AND generation = ? ORDER BY uid"
_ROW = "SELECT * FROM msg WHERE folder = ? AND generation = ? AND uid = ?"

_ORPHANS = """
    UPDATE msg SET state = CASE state WHEN 5 THEN 3 ELSE 4 END, attempts = 0, retry_ms = NULL
    WHERE folder = ? AND state IN (1, 2, 5, 6, 7)
"""
_WRITE = "INSERT OR REPLACE INTO msg VALUES"
_WRITE_FOLDER = """
    INSERT INTO folder (id, mailbox, name, generation, fingerprint, audited_ms) VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (id) DO UPDATE SET
    name = excluded.name, generation = excluded.generation,
    fingerprint = excluded.fingerprint, audited_ms = excluded.audited_ms
"""


class SqliteWriting(Protocol):
    """A sink that writes changes into the store's own database, in the transaction that notes them as done."""

    def prepare(self, connection: sqlite3.Connection) -> None:
        """Create its tables where there are none. Called at each opening, outside of a transaction."""
        ...

    def write(self, connection: sqlite3.Connection, changes: Sequence[Change]) -> None:
        """Write changes; it neither begins nor commits. What it raises undoes the whole commit, and comes out of it.

        In the store's own thread, where nothing else is written meanwhile.
        """
        ...


class SqliteStore:
    """Keeps what is known of mailboxes in an SQLite file, and beside it what its sink writes. It is opened once.

    path: of the file, or MEMORY. Commits of several mailboxes share a flush of the disk. Each method raises StoreError.
    """

    def __init__(self, path: str | os.PathLike[str], sink: SqliteWriting | None = None) -> None:
        self._path = None if path == MEMORY else Path(path).resolve()
        self._sink = sink
        self._writer = Transactions(self._writing, begin="BEGIN IMMEDIATE", explain=STORE.explained)
        # What is in memory belongs to one connection; its reads, too, give nothing before what they saw is committed.
        self._reader = self._writer
        if self._path is not None:
            self._reader = Transactions(
                functools.partial(STORE.beside, self._path, read_only=True), begin="BEGIN", explain=STORE.explained
            )

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def open(self) -> None:
        """Open the file, made where there is none. Raises StoreError, and what the sink raised."""
        try:
            await self._writer.open()
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

    @property
    def has_sink(self) -> bool:
        """Whether a sink of its own gets the changes."""
        return self._sink is not None

    async def bind(self, sink: str) -> None:
        """Note which sink is told of what the store knows, if none is noted. Raises ConfigurationError for another."""
        await _explaining(self._writer.do(lambda connection: bind(connection, sink)))

    async def claim(self, mailbox: str) -> Lease:
        """The right to commit for a mailbox; earlier leases of it are stale from now on."""

        def work(connection: sqlite3.Connection) -> Lease:
            """One claim more."""
            connection.execute(_CLAIM, (mailbox,))
            return Lease(
                *connection.execute("SELECT id, name, fence FROM mailbox WHERE name = ?", (mailbox,)).fetchone()
            )

        return await _explaining(self._writer.do(work))

    async def folder(self, lease: Lease, name: str) -> Folder:
        """A folder, made where there is none. Raises StaleLeaseError where a stale lease would have to make it."""

        def read(connection: sqlite3.Connection) -> Sequence[Folder]:
            """The folder as it is."""
            return [folder_of(values) for values in connection.execute(_FOLDER, (lease.mailbox, name))]

        def make(connection: sqlite3.Connection) -> Sequence[Folder]:
            """The folder, new unless somebody else was first."""
            _check(connection, lease)
            connection.execute(_MAKE, (lease.mailbox, name))
            return read(connection)

        return (await _explaining(self._reader.do(read)) or await _explaining(self._writer.do(make)))[0]

    async def folders(self, lease: Lease) -> Sequence[Folder]:
        """All folders of the mailbox that are known."""

        def work(connection: sqlite3.Connection) -> Sequence[Folder]:
            """All of them."""
            return [folder_of(values) for values in connection.execute(_FOLDERS, (lease.mailbox,))]

        return await _explaining(self._reader.do(work))

    async def states(self, folder: Folder) -> Mapping[int, State]:
        """The state of each uid of the folder's generation."""

        def work(connection: sqlite3.Connection) -> Mapping[int, State]:
            """All of them."""
            found = connection.execute(
                "SELECT uid, state FROM msg WHERE folder = ? AND generation = ?", (folder.id, folder.generation)
            )
            return {uid: STATES[state] for uid, state in found}

        return await _explaining(self._reader.do(work))

    async def rows(self, folder: Folder, uids: Collection[int] | None = None) -> Sequence[Row]:
        """The rows of the folder's generation, by ascending uid: all, or those of these uids."""
        of_it = (folder.id, folder.generation)

        def work(connection: sqlite3.Connection) -> Sequence[Row]:
            """All, or each by its key."""
            if uids is None:
                return [row_of(values) for values in connection.execute(_ROWS, of_it)]
            found = (connection.execute(_ROW, (*of_it, uid)).fetchone() for uid in sorted(uids))
            return [row_of(values) for values in found if values is not None]

        return await _explaining(self._reader.do(work))

    async def canaries(self, folder: Folder) -> Sequence[Row]:
        """The newest and the oldest row, by uid, that is LIVE and has an identity and a date; none, one or two."""

        def work(connection: sqlite3.Connection) -> Sequence[Row]:
            """The last and the first of them."""
            of_it = (folder.id, folder.generation, State.LIVE)
            found = {row_of(values): None for end in (_NEWEST, _OLDEST) for values in connection.execute(end, of_it)}
            return list(found)

        return await _explaining(self._reader.do(work))

    async def with_digests(self, lease: Lease, digests: Iterable[bytes]) -> Sequence[tuple[str, Row]]:
        """Rows of the mailbox with one of these digests, each with its folder's name, by folder, generation and uid."""
        wanted = frozenset(digests)

        def work(connection: sqlite3.Connection) -> Sequence[tuple[str, Row]]:
            """Each digest by the index."""
            found = (connection.execute(_OF_DIGEST, (lease.mailbox, digest)) for digest in wanted)
            return _named(itertools.chain.from_iterable(found))

        return await _explaining(self._reader.do(work))

    async def in_state(self, lease: Lease, state: State, *, but: Collection[str] = ()) -> Sequence[tuple[str, Row]]:
        """The mailbox's rows in this state, each with its folder's name, by folder, generation and uid."""
        statement = _IN_STATE if state in (State.LIVE, State.GONE, State.IN_DOUBT) else _WAITING

        def work(connection: sqlite3.Connection) -> Sequence[tuple[str, Row]]:
            """All of them."""
            return _named(connection.execute(statement, (lease.mailbox, state, json.dumps(list(but)))))

        return await _explaining(self._reader.do(work))

    async def commit(self, lease: Lease, delta: Delta, changes: Sequence[Change]) -> None:
        """Write a delta, and hand the changes to the sink, as one. Raises StaleLeaseError, and what the sink raised."""
        of_the_sink = list[sqlite3.Error]()

        def work(connection: sqlite3.Connection) -> None:
            """Both, unless the lease is stale."""
            _check(connection, lease)
            _apply(connection, lease, delta)
            if self._sink is not None and changes:
                try:
                    self._sink.write(connection, changes)
                except sqlite3.Error as error:
                    of_the_sink.append(error)
                    raise

        try:
            await self._writer.do(work)
        except (sqlite3.Error, MemoryError) as error:
            if error in of_the_sink:
                raise
            raise STORE.explained(error) from error

    async def wished(self) -> Sequence[str]:
        """Mailboxes for which another process has left wishes."""
        return await _explaining(self._reader.do(wishes.wished))

    async def grant(self, mailbox: str) -> bool:
        """Make due what is wished for a mailbox; whether there was anything. Rows and folders are to be read anew."""
        if not await _explaining(self._reader.do(lambda connection: wishes.is_wished(connection, mailbox))):
            return False
        return await _explaining(self._writer.do(lambda connection: wishes.grant(connection, mailbox)))

    async def status(self) -> Sequence[MailboxStatus]:
        """What is known of every mailbox, by their names."""
        return await _explaining(self._reader.do(statuses))

    @contextmanager
    def _writing(self) -> Generator[sqlite3.Connection]:
        with STORE.writing(self._path) as connection:
            if self._sink is not None:
                self._sink.prepare(connection)
            yield connection


async def _explaining(asked: Awaitable[T]) -> T:
    with STORE.explaining():
        return await asked


def _check(connection: sqlite3.Connection, lease: Lease) -> None:
    found = connection.execute("SELECT fence FROM mailbox WHERE id = ?", (lease.mailbox,)).fetchone()
    if found != (lease.fence,):
        raise StaleLeaseError("Another worker has claimed the mailbox since: claim it anew before the next round.")


def _apply(connection: sqlite3.Connection, lease: Lease, delta: Delta) -> None:
    folders = [
        (each.id, lease.mailbox, each.name, each.generation, each.fingerprint, each.audited_ms)
        for each in delta.folders
    ]
    connection.executemany(_ORPHANS, [(folder,) for folder in delta.orphaned])
    insert(connection, _WRITE, [values_of(row) for row in delta.rows])
    connection.executemany(_WRITE_FOLDER, folders)


def _named(found: Iterable[Sequence[Any]]) -> list[tuple[str, Row]]:
    named = ((name, row_of(values)) for name, *values in found)
    return sorted(named, key=lambda each: (each[1].folder, each[1].generation, each[1].uid))
