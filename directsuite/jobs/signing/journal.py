"""The journal of a signing job: an SQLite file that knows how far each document is, whatever happens to the program.

document     one row each, by its name
abandoned    stored documents that are to be deleted when there is time, for they may be signed or not
job          what is signed with: a journal belongs to one job; and its part of a target's workshop, by chance
"""

from __future__ import annotations

import os
import secrets
import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import attrs

from directsuite.durable.database import sql
from directsuite.durable.sqlite import SqliteFile
from directsuite.errors import ConfigurationError
from directsuite.jobs.signing.entry import Entry, State, entry_of
from directsuite.jobs.signing.keeping import ANOTHER_JOBS, JournalError, Tally, left
from directsuite.jobs.sqlite_journal import SqliteJournal

_AT_A_TIME = 500
"""Names of a statement."""


_FILE = SqliteFile(
    noun="journal",
    error=JournalError,
    application=0x64735367,
)
_TABLES = (
    sql("""
        CREATE TABLE document (
            number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, state INTEGER NOT NULL, identifier TEXT,
            saved_at REAL, source_sha TEXT, output_sha TEXT, tries INTEGER NOT NULL, problem TEXT
        )
    """),
    sql("""
        CREATE INDEX document_state ON document (state)
    """),
    sql("""
        CREATE TABLE abandoned (identifier TEXT PRIMARY KEY, asked INTEGER NOT NULL, at REAL NOT NULL) WITHOUT ROWID
    """),
    sql("""
        CREATE TABLE job (kind TEXT PRIMARY KEY, digest TEXT NOT NULL) WITHOUT ROWID
    """),
    sql("""
        CREATE TABLE tally (name TEXT PRIMARY KEY, count INTEGER NOT NULL) WITHOUT ROWID
    """),
)

_COLUMNS = "number, name, state, identifier, saved_at, source_sha, output_sha, tries, problem"
_PUT = """
    UPDATE document SET state = ?, identifier = ?, saved_at = ?, source_sha = ?, output_sha = ?, tries = ?, problem = ?
    WHERE number = ?
"""
_RENEW = """
    UPDATE document SET state = 1, problem = NULL, tries = 0, source_sha = NULL
    WHERE state = 6 AND problem = coalesce(?, problem)
"""
_COUNT = "INSERT INTO tally VALUES (?, 1) ON CONFLICT (name) DO UPDATE SET count = count + 1"


class Journal(SqliteJournal):
    """Keeps a job's journal in a file, which is made where there is none. One process has it open at a time.

    Each method raises JournalError.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(path, _FILE, _TABLES)

    turn = 0
    """One process at a time has the file, so none comes late."""

    async def part(self) -> str:
        """The part of a target's workshop that is this job's, wherever its file is moved."""

        def work(connection: sqlite3.Connection) -> str:
            """Made where there is none: two machines may have files of one path, and one target."""
            connection.execute("INSERT INTO job VALUES ('part', ?) ON CONFLICT DO NOTHING", (secrets.token_hex(8),))
            (found,) = connection.execute("SELECT digest FROM job WHERE kind = 'part'").fetchone()
            return str(found)

        return await self._do(work)

    async def claim(self, digest: str) -> None:
        """Make it the journal of what is signed with this. Raises ConfigurationError where it is another's."""

        def work(connection: sqlite3.Connection) -> str:
            """The digest that it belongs to."""
            connection.execute("INSERT INTO job VALUES ('signing', ?) ON CONFLICT DO NOTHING", (digest,))
            (found,) = connection.execute("SELECT digest FROM job WHERE kind = 'signing'").fetchone()
            return str(found)

        if await self._do(work) != digest:
            raise ConfigurationError(ANOTHER_JOBS)

    async def claimed(self) -> str | None:
        """The digest of what its job signs with; None where no job has claimed it, or what it signs with varies."""

        def work(connection: sqlite3.Connection) -> str | None:
            """It changes nothing."""
            found = connection.execute("SELECT digest FROM job WHERE kind = 'signing'").fetchone()
            return None if found is None else str(found[0])

        return await self._do(work)

    async def entries(self, names: Sequence[str]) -> list[Entry]:
        """The entry of each of these documents, made where there is none."""

        def work(connection: sqlite3.Connection) -> list[Entry]:
            """All of them in one transaction."""
            known = _known(connection, names)
            for name in names:
                if name not in known:
                    values = (_stored(name),)
                    made = connection.execute("INSERT INTO document (name, state, tries) VALUES (?, 1, 0)", values)
                    known[name] = Entry(number=made.lastrowid or 0, name=name)
            return [known[name] for name in names]

        return await self._do(work)

    async def known(self, names: Sequence[str]) -> Mapping[str, Entry]:
        """The entries of those of these documents that have one."""
        return await self._do(lambda connection: _known(connection, names))

    async def put(self, entry: Entry) -> Entry:
        """Write how far a document is; the entry itself, for whoever goes on with it."""
        await self._do(lambda connection: _put(connection, entry))
        return entry

    async def abandon(self, entry: Entry, *, at: float, then: State = State.NEW, problem: str | None = None) -> Entry:
        """Have nothing to do any more with what is stored for a document. at: Unix time."""
        abandoned = left(entry, then, problem)
        asked = entry.state is State.SIGNING

        def work(connection: sqlite3.Connection) -> None:
            """Both in one transaction."""
            if entry.identifier is not None:
                connection.execute("INSERT OR IGNORE INTO abandoned VALUES (?, ?, ?)", (entry.identifier, asked, at))
                for name in ("abandoned",) * (then is not State.DONE) + ("asked",) * asked:
                    connection.execute(_COUNT, (name,))
            _put(connection, abandoned)

        await self._do(work)
        return abandoned

    async def abandoned(self, *, after: str = "", most: int | None = None) -> Sequence[str]:
        """Identifiers of stored documents that are to be deleted, in their order: so many at most, after this one."""
        select = "SELECT identifier FROM abandoned WHERE identifier > ? ORDER BY identifier LIMIT ?"
        values = (after, -1 if most is None else most)
        return await self._do(lambda connection: [each for (each,) in connection.execute(select, values)])

    async def forget(self, identifiers: Iterable[str]) -> None:
        """These stored documents are deleted, or have expired."""
        values = [(each,) for each in identifiers]
        await self._do(lambda connection: connection.executemany("DELETE FROM abandoned WHERE identifier = ?", values))

    async def forget_before(self, at: float) -> None:
        """What was abandoned before this, in Unix time, has expired."""
        await self._do(lambda connection: connection.execute("DELETE FROM abandoned WHERE at < ?", (at,)))

    async def failures(self, *, after: int = 0, most: int | None = None) -> Sequence[Entry]:
        """Documents that failed, in the order in which they came: so many at most, after the one of this number."""
        select = f"SELECT {_COLUMNS} FROM document WHERE state = 6 AND number > ? ORDER BY number LIMIT ?"  # noqa: S608
        values = (after, -1 if most is None else most)
        return await self._do(lambda connection: [entry_of(each) for each in connection.execute(select, values)])

    async def renew(self, problem: str | None = None) -> int:
        """Have documents that failed tried again, all or those with this problem; how many they are."""
        return await self._do(lambda connection: connection.execute(_RENEW, (problem,)).rowcount)

    async def tally(self) -> Tally:
        """The job in numbers."""

        def work(connection: sqlite3.Connection) -> Tally:
            """All of one moment."""
            states = Counter[State]()
            for state, count in connection.execute("SELECT state, count(*) FROM document GROUP BY state"):
                states[State(state)] = count
            counts = dict(connection.execute("SELECT name, count FROM tally"))
            return Tally(states=states, abandoned=counts.get("abandoned", 0), asked=counts.get("asked", 0))

        return await self._do(work)


def _known(connection: sqlite3.Connection, names: Sequence[str]) -> dict[str, Entry]:
    known = dict[str, Entry]()
    for start in range(0, len(names), _AT_A_TIME):
        some = [_stored(name) for name in names[start : start + _AT_A_TIME]]
        marks = ", ".join("?" * len(some))
        found = connection.execute(f"SELECT {_COLUMNS} FROM document WHERE name IN ({marks})", some)  # noqa: S608
        known |= {entry.name: entry for entry in map(entry_of, found)}
    return known


def _stored(name: str) -> str | bytes:
    """A name as it stands in the file: that of a file may be no Unicode text, which SQLite takes as bytes only."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return name.encode("utf-8", "surrogatepass")
    return name


def _put(connection: sqlite3.Connection, entry: Entry) -> None:
    values = attrs.astuple(entry)[2:]
    connection.execute(_PUT, (*values, entry.number))
