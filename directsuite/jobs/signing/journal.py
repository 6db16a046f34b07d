"""The journal of a signing job, which knows how far each document is, whatever happens to the program.

Journal          a file of SQLite, for one process
PostgresJournal  for many processes: each leases some documents, a Chunk, at a time
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import weakref
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterable, Generator, Iterable, Mapping, Sequence
from typing import Any

import attrs
import msgspec

from directsuite.core.checks import AT_LEAST_ONE
from directsuite.core.privacy import scrub_class
from directsuite.durable.database import Database, DatabaseContext, Transaction
from directsuite.durable.postgres import Connections, PostgresDatabase
from directsuite.durable.sqlite import SqliteDatabase, SqliteFile
from directsuite.errors import ConfigurationError, DirectSuiteError
from directsuite.jobs.signing import sql
from directsuite.jobs.signing.workflow import Entry, State, abandoned_entry
from directsuite.secret import Secret
from directsuite.signing.models import Signature


class JournalError(DirectSuiteError):
    """The journal could not be read or written. What was to be written is not."""


@attrs.frozen(kw_only=True)
class Tally:
    """A job in numbers."""

    states: Mapping[State, int]
    """How many documents are in each state."""
    abandoned: int
    """Stored documents that were abandoned."""
    requested: int
    """How many of those a signature had been requested for: they may have been signed in vain."""


class LostChunkError(JournalError):
    """The lease is over, here or because another worker has the next: this one has nothing to write any more."""


_FILE = SqliteFile(noun="journal", error=JournalError, application=0x6473534A, version=4)
_WOKEN = 100  # chunks that workers are told of at a time: more than that are leased in no second


def digest_of(signatures: Sequence[Signature]) -> str:
    """What a journal knows a job by: SHA-256, in hex, of what it signs with."""
    fields = [attrs.asdict(each, filter=lambda _, value: value is not None) for each in signatures]
    return hashlib.sha256(msgspec.msgpack.encode(fields, order="sorted")).hexdigest()


class JobJournal:
    """What is known of a whole job. job: its number in the database; identity: no other job's, in whatever database."""

    def __init__(self, database: Database, job: int | None = None, identity: str = "") -> None:
        self._database = database
        self._job = job
        self._identity = identity

    @property
    def job(self) -> int:
        """Its number in the database. Raises ConfigurationError where the journal isn't open."""
        if self._job is None:
            raise ConfigurationError("the journal isn't open: use it within `async with`")
        return self._job

    def part_of(self, chunk: int) -> str:
        """The part of a target's staging folder that is a chunk's: in all processes the same, and no other's."""
        return hashlib.sha256(f"{self._identity} {chunk}".encode()).hexdigest()[:16]

    async def claim(self, digest: str) -> None:
        """Make it the journal of what is signed with this. Raises ConfigurationError where it is another's."""
        ((found,),) = await self._database.execute(sql.CLAIM, {"digest": digest, "job": self.job})
        if found != digest:
            raise ConfigurationError(
                "this journal is of a job with other signatures: give this one a journal of its own, or sign as before"
            )

    async def claimed(self) -> str | None:
        """The digest of what its job signs with; None where no job has claimed it, or what it signs with varies."""
        ((digest,),) = await self._database.fetch(sql.CLAIMED, {"job": self.job})
        return None if digest is None else str(digest)

    async def failures(self, *, after: int = 0, most: int | None = None) -> Sequence[Entry]:
        """Documents that failed, in the order in which they came: so many at most, after the one of this number."""
        return await self._database.fetch(sql.FAILURES, {"job": self.job, "after": after, "most": most}, _entry)

    async def renew(self, problem: str | None = None) -> int:
        """Have documents that failed tried again, all or those with this problem; how many they are."""

        async def work(transaction: Transaction) -> int:
            """Documents and chunks."""
            renewed = await transaction.execute(sql.RENEW, {"job": self.job, "problem": problem})
            await transaction.execute(sql.REOPEN, {"chunks": sorted({chunk for (chunk,) in renewed})})
            return len(renewed)

        return await self._database.transaction(work)

    async def tally(self) -> Tally:
        """The job in numbers."""
        states = await self._database.fetch(sql.STATES, {"job": self.job})
        ((abandoned, requested),) = await self._database.fetch(sql.COUNTS, {"job": self.job})
        counted = Counter({State(state): count for state, count in states})
        return Tally(states=counted, abandoned=abandoned, requested=requested)

    async def _open(self, transaction: Transaction, name: str) -> None:
        """The job, and the tables, where there are none."""
        await transaction.ensure(sql.TABLES)
        named = {"name": name, "identity": secrets.token_hex(16)}
        ((self._job, self._identity),) = await transaction.execute(sql.JOB, named)


class Chunk(JobJournal):
    """Documents of a job that one worker has leased: the journal that a SigningJob of them writes.

    Where another worker has a later lease, what writes raises LostChunkError, and nothing is written.
    """

    def __init__(self, database: Database, job: int | None, identity: str, chunk: int, fence: int) -> None:
        super().__init__(database, job, identity)
        self.id = chunk
        self.fence = fence

    async def part(self) -> str:
        """The part of a target's staging folder that is this chunk's, in whatever lease, and no other journal's."""
        return self.part_of(self.id)

    async def names(self) -> Sequence[str]:
        """Documents that have not come to their end."""
        return [_name(name) for (name,) in await self._database.fetch(sql.NAMES, {"chunk": self.id})]

    async def confirm(self) -> None:
        """Let others know that this worker lives."""
        self._refuse_lost(await self._database.execute(sql.SEEN, self._lease))

    async def release(self) -> None:
        """End the lease: the chunk is done, or there for others."""

        async def release(transaction: Transaction) -> None:
            """Two statements: the second one sees what was committed while the first waited."""
            if await transaction.execute(sql.HOLD, self._lease):
                await transaction.execute(sql.RELEASE, self._lease)

        await self._database.transaction(release)

    async def entries(self, names: Sequence[str]) -> list[Entry]:
        """The entry of each of these documents of the chunk. Raises ConfigurationError where it has no such one."""
        known = await self.known(names)
        if len(known) < len(set(names)):
            raise ConfigurationError("a document has another name than the one that it was asked for by: keep its name")
        return [known[name] for name in names]

    async def known(self, names: Sequence[str]) -> Mapping[str, Entry]:
        """The entries of those of these documents that have one."""
        values = {"job": self.job, "chunk": self.id, "names": [_stored(name) for name in set(names)]}
        return {entry.name: entry for entry in await self._database.fetch(sql.ENTRIES, values, _entry)}

    async def put(self, entry: Entry) -> Entry:
        """Write how far a document is; the entry itself, for whoever goes on with it."""
        self._refuse_lost(await self._database.execute(sql.PUT, self._values(entry)))
        return entry

    async def abandon(
        self,
        entry: Entry,
        *,
        at: float,
        then: State = State.NEW,
        problem: str | None = None,
        service_message: str | None = None,
        is_try: bool = True,
    ) -> Entry:
        """Have nothing to do any more with what is stored for a document. at: Unix time. is_try: whether it counts."""
        abandoned = abandoned_entry(entry, then, problem, service_message, is_try=is_try)
        is_stored, is_requested = entry.identifier is not None, entry.state is State.SIGNING
        counts = {"abandoned": int(is_stored and then is not State.DONE), "requested": int(is_stored and is_requested)}

        async def abandon(transaction: Transaction) -> None:
            """Record it. The first statement holds the chunk's row, which nobody shares who waits for more."""
            self._refuse_lost(await transaction.execute(sql.COUNT, counts | self._lease))
            if is_stored:
                values = {"identifier": entry.identifier, "chunk": self.id, "at": at}
                await transaction.execute(sql.ABANDON, values)
            await transaction.execute(sql.SET, self._values(abandoned))

        await self._database.transaction(abandon)
        return abandoned

    async def abandoned(self, *, after: str = "", most: int | None = None) -> Sequence[str]:
        """Identifiers of stored documents that are to be deleted, in their order: so many at most, after this one."""
        values = {"chunk": self.id, "after": after, "most": most}
        return [identifier for (identifier,) in await self._database.fetch(sql.ABANDONED, values)]

    async def forget(self, identifiers: Iterable[str]) -> None:
        """These stored documents are deleted, or have expired."""
        await self._database.execute(sql.FORGET, {"identifiers": list(identifiers)})

    async def forget_expired(self, now: float, lifetime: float) -> None:
        """Forget what was abandoned more than `lifetime` seconds ago, also by others of the job. now: Unix time.

        What was abandoned at a time in the future counts as abandoned now.
        """

        async def forget(transaction: Transaction) -> None:
            """Run both statements."""
            await transaction.execute(sql.CORRECT_FUTURE, {"job": self.job, "now": now})
            await transaction.execute(sql.FORGET_BEFORE, {"job": self.job, "at": now - lifetime})

        await self._database.transaction(forget)

    @property
    def _lease(self) -> dict[str, Any]:
        return {"chunk": self.id, "fence": self.fence}

    def _values(self, entry: Entry) -> dict[str, Any]:
        return attrs.asdict(entry, recurse=False) | {"state": int(entry.state)} | self._lease

    def _refuse_lost(self, found: Sequence[object]) -> None:
        if not found:
            raise LostChunkError("Another worker has these documents by now: this one was not heard of for too long.")


@scrub_class
class Journal(Chunk, DatabaseContext):
    """Keeps a job's journal in a file, which is made where there is none. One process has it open at a time.

    Each method raises JournalError.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(SqliteDatabase(path, _FILE), None, "", 0, 0)

    async def _prepare(self, transaction: Transaction) -> None:
        """The one job, and its one chunk."""
        await self._open(transaction, "")
        values = {"job": self.job}
        found = await transaction.execute(sql.CHUNKS, values) or await transaction.execute(sql.MAKE_CHUNK, values)
        ((self.id,),) = found

    async def entries(self, names: Sequence[str]) -> list[Entry]:
        """The entry of each of these documents, made where there is none."""
        known = await self.known(names)
        new = [(self.job, self.id, _stored(name)) for name in dict.fromkeys(names) if name not in known]
        if new:
            await self._database.transaction(lambda transaction: transaction.insert(sql.ADD, new))
            known = await self.known(names)
        return [known[name] for name in names]


_IN_USE = weakref.WeakSet[Chunk]()


@contextlib.contextmanager
def exclusive(journal: Chunk) -> Generator[None]:
    """Keep other runs from a journal: each would take what the other has under way for left by an earlier one.

    Raises ConfigurationError where one goes on with it.
    """
    if journal in _IN_USE:
        raise ConfigurationError("another run goes on with this journal: wait for its end, or give this one its own")
    _IN_USE.add(journal)
    try:
        yield
    finally:
        _IN_USE.discard(journal)


@scrub_class
class PostgresJournal(JobJournal, DatabaseContext):
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
        super().__init__(PostgresDatabase(self.connections))
        self._name = job
        self._size = chunk

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

    async def due(self, patience: float) -> Sequence[int]:
        """Chunks that workers are to be told of, by nobody else for so many seconds: a few, till those are taken."""
        values = {"job": self.job, "patience": patience, "most": _WOKEN}
        return [chunk for (chunk,) in await self._database.execute(sql.DUE, values)]

    async def lease(self, chunk: int, patience: float) -> Chunk | None:
        """A chunk, unless it is done, or has a worker that was heard of within so many seconds."""
        found = await self._database.execute(sql.LEASE, {"chunk": chunk, "patience": patience})
        return Chunk(self._database, self.job, self._identity, chunk, *found[0]) if found else None

    async def pass_over(self, chunk: int) -> None:
        """Have others told of a chunk at once: who was told of it leases none any more."""
        await self._database.execute(sql.WAKE_ANEW, {"chunk": chunk})

    async def open_chunks(self) -> int:
        """How many are not done, those included that workers have."""
        ((count,),) = await self._database.fetch(sql.OPEN, {"job": self.job})
        return int(count)

    async def _prepare(self, transaction: Transaction) -> None:
        await self._open(transaction, self._name)

    async def _add(self, names: Sequence[str]) -> int:
        async def add(transaction: Transaction) -> int:
            """A chunk of those that are new."""
            ((chunk,),) = await transaction.execute(sql.MAKE_CHUNK, {"job": self.job})
            rows = [(self.job, chunk, _stored(name)) for name in sorted(set(names))]
            added = len(await transaction.insert(sql.ADD, rows))
            if not added:
                await transaction.execute(sql.DROP_CHUNK, {"chunk": chunk})
            return added

        return await self._database.transaction(add) if names else 0


async def _each(names: Iterable[str] | AsyncIterable[str]) -> AsyncGenerator[str]:
    if isinstance(names, AsyncIterable):
        async for name in names:
            yield name
        return
    for name in names:
        yield name


def _entry(values: Sequence[Any]) -> Entry:
    """The entry of a row, its values in their order."""
    number, name, state, identifier, saved_at, source_sha, source_stamp, output_sha, tries, problem, service_message = (
        values
    )
    return Entry(
        number=number,
        name=_name(name),
        state=State(state),
        identifier=identifier,
        saved_at=saved_at,
        source_sha=source_sha,
        source_stamp=source_stamp,
        output_sha=output_sha,
        tries=tries,
        problem=problem,
        service_message=service_message,
    )


def _stored(name: str) -> bytes:
    """That of a file may be no Unicode text."""
    return name.encode("utf-8", "surrogatepass")


def _name(stored: bytes) -> str:
    return bytes(stored).decode("utf-8", "surrogatepass")
