"""The journal of a signing job in PostgreSQL, for many processes: each has some documents, a chunk, for a turn."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import attrs

from directsuite.core.checks import AT_LEAST_ONE
from directsuite.durable.postgres import Connection, Connections, ensure_part
from directsuite.errors import ConfigurationError
from directsuite.jobs.signing import postgres_tables as tables
from directsuite.jobs.signing.entry import Entry, State, entry_of
from directsuite.jobs.signing.keeping import ANOTHER_JOBS, JournalError, Tally, left
from directsuite.secret import Secret

_WOKEN = 100  # chunks that workers are told of at a time: more than that start their turns in no second


class LostChunkError(JournalError):
    """The turn is over, here or because another worker has the next: this one has nothing to write any more."""


class PostgresJournal:
    """The journal of one job. Each method raises JournalError.

        async with PostgresJournal(conninfo, "consents") as journal:
            await journal.add(names)

    conninfo: a URI, or keywords and values, as libpq has it; PostgreSQL itself or a pooler in session mode. job: its
    name in the database. chunk: documents that a worker takes at a time. Raises ConfigurationError where the extra
    `fleet` isn't installed.
    """

    def __init__(self, conninfo: str | Secret, job: str, *, chunk: int = 200) -> None:
        self.connections = Connections(conninfo, error=JournalError)
        del conninfo  # this frame may stand in a traceback
        AT_LEAST_ONE.require("chunk", chunk)
        self._name = job
        self._size = chunk
        self._job: int | None = None
        self._identity = ""

    async def __aenter__(self) -> Self:
        try:
            self._job, self._identity = await self.connections.run(self._prepare)
        except BaseException:
            await self.connections.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.connections.aclose()

    async def _prepare(self, connection: Connection) -> tuple[int, str]:
        """The job's number and identity. It is made, and the tables are, where there are none."""
        await ensure_part(connection, "signing", tables.VERSION, tables.TABLES, error=JournalError)
        ((job, identity),) = await (await connection.execute(tables.JOB, (self._name,))).fetchall()
        return int(job), str(identity)

    @property
    def job(self) -> int:
        """Its number in the database. Raises ConfigurationError where the journal isn't open."""
        if self._job is None:
            raise ConfigurationError("the journal isn't open: async with PostgresJournal(...) as journal")
        return self._job

    async def add(self, names: Iterable[str] | AsyncIterable[str]) -> int:
        """Have documents signed, by their names; how many are new to the job. Raises ConfigurationError."""
        if isinstance(names, str):
            raise ConfigurationError("names has to be a list of them, or another iterable: [name] for one")
        some, added = list[str](), 0
        async for name in _each(names):
            some.append(name)
            if len(some) == self._size:
                added += await self._add(some)
                some.clear()
        return added + await self._add(some)

    def part(self, chunk: int) -> str:
        """The part of a target's workshop that is a chunk's: the same in all processes, and no other journal's."""
        return hashlib.sha256(f"{self._identity} {chunk}".encode()).hexdigest()[:16]

    async def due(self, patience: float) -> Sequence[int]:
        """Chunks that workers are to be told of, by nobody else for so many seconds: a few, till those are taken."""
        values = {"job": self.job, "patience": patience, "most": _WOKEN}
        return [chunk for (chunk,) in await self.connections.fetch(tables.DUE, values)]

    async def take(self, chunk: int, patience: float) -> Chunk | None:
        """A chunk, unless it is done, or has a worker that was heard of within so many seconds."""
        found = await self.connections.fetch(tables.TAKE, (chunk, patience))
        return Chunk(self, self.job, chunk, *found[0]) if found else None

    async def pass_over(self, chunk: int) -> None:
        """Have others told of a chunk at once: who was told of it begins no more turns."""
        await self.connections.fetch(tables.WAKE_ANEW, (chunk,))

    async def open_chunks(self) -> int:
        """How many are not done, those included that workers have."""
        ((count,),) = await self.connections.fetch(tables.OPEN, (self.job,))
        return int(count)

    async def claim(self, digest: str) -> None:
        """Make it the journal of what is signed with this. Raises ConfigurationError where it is another's."""
        ((found,),) = await self.connections.fetch(tables.CLAIM, (digest, self.job))
        if found != digest:
            raise ConfigurationError(ANOTHER_JOBS)

    async def failures(self, *, after: int = 0, most: int | None = None) -> Sequence[Entry]:
        """Documents that failed, in the order in which they came: so many at most, after the one of this number."""
        return [entry_of(values) for values in await self.connections.fetch(tables.FAILURES, (self.job, after, most))]

    async def renew(self, problem: str | None = None) -> int:
        """Have documents that failed tried again, all or those with this problem; how many they are."""
        ((count,),) = await self.connections.fetch(tables.RENEW, {"job": self.job, "problem": problem})
        return int(count)

    async def tally(self) -> Tally:
        """The job in numbers."""
        states = {State(state): count for state, count in await self.connections.fetch(tables.STATES, (self.job,))}
        ((abandoned, asked),) = await self.connections.fetch(tables.COUNTS, (self.job,))
        return Tally(states=states, abandoned=abandoned, asked=asked)

    async def _add(self, names: Sequence[str]) -> int:
        async def add(connection: Connection) -> int:
            """A chunk of those that are new."""
            ((chunk,),) = await (await connection.execute(tables.MAKE_CHUNK, (self.job,))).fetchall()
            cursor = await connection.execute(tables.ADD, (self.job, chunk, [_stored(name) for name in sorted(names)]))
            added = len(await cursor.fetchall())
            if not added:
                await connection.execute(tables.DROP_CHUNK, (chunk,))
            return added

        return await self.connections.run(add) if names else 0


@attrs.frozen
class Chunk:
    """Documents of a job that are one worker's, for a turn: the journal that a SigningJob of them writes.

    Where another worker has begun a later turn, what writes raises LostChunkError, and nothing is written.
    """

    _journal: PostgresJournal
    _job: int
    id: int
    turn: int

    async def names(self) -> Sequence[str]:
        """Documents that have not come to their end."""
        return [_name(name) for (name,) in await self._journal.connections.fetch(tables.NAMES, (self.id,))]

    async def confirm(self) -> None:
        """Let others know that this worker lives."""
        self._refuse_lost(await self._journal.connections.fetch(tables.SEEN, (self.id, self.turn)))

    async def part(self) -> str:
        """The part of a target's workshop that is this chunk's, in whatever turn."""
        return self._journal.part(self.id)

    async def leave(self) -> None:
        """End the turn: the chunk is done, or there for others."""

        async def leave(connection: Connection) -> None:
            """Two statements: the second one sees what was committed while the first waited."""
            held = await (await connection.execute(tables.HOLD, (self.id, self.turn))).fetchall()
            if held:
                await connection.execute(tables.LEAVE, (self.id, self.turn))

        await self._journal.connections.run(leave)

    async def claim(self, digest: str) -> None:
        """Make it the journal of what is signed with this. Raises ConfigurationError where it is another's."""
        await self._journal.claim(digest)

    async def entries(self, names: Sequence[str]) -> list[Entry]:
        """The entry of each of these documents of the chunk. Raises ConfigurationError where it has no such one."""
        known = await self.known(names)
        if len(known) < len(set(names)):
            raise ConfigurationError("a document has another name than the one that it was asked for by: keep its name")
        return [known[name] for name in names]

    async def known(self, names: Sequence[str]) -> Mapping[str, Entry]:
        """The entries of those of these documents that the chunk has."""
        values = (self._job, self.id, [_stored(name) for name in names])
        return {
            each.name: each for each in map(entry_of, await self._journal.connections.fetch(tables.ENTRIES, values))
        }

    async def put(self, entry: Entry) -> Entry:
        """Write how far a document is; the entry itself, for whoever goes on with it."""
        self._refuse_lost(await self._journal.connections.fetch(tables.PUT, self._values(entry)))
        return entry

    async def abandon(self, entry: Entry, *, at: float, then: State = State.NEW, problem: str | None = None) -> Entry:
        """Have nothing to do any more with what is stored for a document. at: Unix time."""
        abandoned = left(entry, then, problem)
        is_stored, asked = entry.identifier is not None, entry.state is State.SIGNING

        async def abandon(connection: Connection) -> None:
            """All of it. The first statement holds the chunk's row, which nobody shares who waits for more."""
            counts = (int(is_stored and then is not State.DONE), int(is_stored and asked), self.id, self.turn)
            self._refuse_lost(await (await connection.execute(tables.COUNT, counts)).fetchall())
            if is_stored:
                await connection.execute(tables.ABANDON, (entry.identifier, self.id, at))
            await connection.execute(tables.SET, self._values(abandoned))

        await self._journal.connections.run(abandon)
        return abandoned

    async def abandoned(self, *, after: str = "", most: int | None = None) -> Sequence[str]:
        """Identifiers of stored documents that are to be deleted, in their order: so many at most, after this one."""
        found = await self._journal.connections.fetch(tables.ABANDONED, (self.id, after, most))
        return [identifier for (identifier,) in found]

    async def forget(self, identifiers: Iterable[str]) -> None:
        """These stored documents are deleted, or have expired."""
        await self._journal.connections.fetch(tables.FORGET, (list(identifiers),))

    async def forget_before(self, at: float) -> None:
        """What was abandoned before this, in Unix time, has expired."""
        await self._journal.connections.fetch(tables.FORGET_BEFORE, (self._job, at))

    def _values(self, entry: Entry) -> dict[str, Any]:
        return attrs.asdict(entry) | {"state": int(entry.state), "chunk": self.id, "turn": self.turn}

    def _refuse_lost(self, found: Sequence[object]) -> None:
        if not found:
            raise LostChunkError("Another worker has these documents by now: this one was not heard of for too long.")


async def _each(names: Iterable[str] | AsyncIterable[str]) -> AsyncGenerator[str]:
    if isinstance(names, AsyncIterable):
        async for name in names:
            yield name
        return
    for name in names:
        yield name


def _stored(name: str) -> bytes:
    """That of a file may be no Unicode text."""
    return name.encode("utf-8", "surrogatepass")


def _name(stored: bytes) -> str:
    return bytes(stored).decode("utf-8", "surrogatepass")
