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
from directsuite.jobs.signing.workflow import DocumentState, SigningEntry, make_abandoned_entry
from directsuite.secret import Secret
from directsuite.signing.models import Signature


class SigningJournalError(DirectSuiteError):
    """The journal could not be read or written. What was to be written is not."""


@attrs.frozen(kw_only=True)
class Tally:
    """A job in numbers."""

    states: Mapping[DocumentState, int]
    """How many documents are in each state."""
    abandoned: int
    """Stored documents that were abandoned."""
    requested: int
    """How many of those a signature had been requested for: they may have been signed in vain."""


class LostLeaseError(SigningJournalError):
    """The lease is over, here or because another worker has the next: this one has nothing to write any more."""


_FILE = SqliteFile(noun="journal", error=SigningJournalError, application_id=0x6473534A, version=4)
_MAX_WOKEN_BATCHES = 100  # chunks that workers are told of at a time: more than that are leased in no second


def compute_signatures_digest(signatures: Sequence[Signature]) -> str:
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

    def build_shard_name(self, batch: int) -> str:
        """The part of a target's staging folder that is a chunk's: in all processes the same, and no other's."""
        return hashlib.sha256(f"{self._identity} {batch}".encode()).hexdigest()[:16]

    async def claim(self, digest: str) -> None:
        """Make it the journal of what is signed with this. Raises ConfigurationError where it is another's."""
        ((found,),) = await self._database.execute(sql.CLAIM, {"digest": digest, "job": self.job})
        if found != digest:
            raise ConfigurationError(
                "this journal is of a job with other signatures: give this one a journal of its own, or sign as before"
            )

    async def read_claim(self) -> str | None:
        """The digest of what its job signs with; None where no job has claimed it, or what it signs with varies."""
        ((digest,),) = await self._database.fetch(sql.READ_CLAIM, {"job": self.job})
        return None if digest is None else str(digest)

    async def failures(self, *, after: int = 0, most: int | None = None) -> Sequence[SigningEntry]:
        """Documents that failed, in the order in which they came: so many at most, after the one of this number."""
        return await self._database.fetch(sql.FAILURES, {"job": self.job, "after": after, "most": most}, _make_entry)

    async def retry(self, problem: str | None = None) -> int:
        """Have documents that failed tried again, all or those with this problem; how many they are."""

        async def work(transaction: Transaction) -> int:
            """Documents and chunks."""
            renewed = await transaction.execute(sql.RETRY_FAILED, {"job": self.job, "problem": problem})
            await transaction.execute(sql.REOPEN, {"chunks": sorted({batch for (batch,) in renewed})})
            return len(renewed)

        return await self._database.transaction(work)

    async def tally(self) -> Tally:
        """The job in numbers."""
        states = await self._database.fetch(sql.STATES, {"job": self.job})
        ((abandoned, requested),) = await self._database.fetch(sql.COUNTS, {"job": self.job})
        counted = Counter({DocumentState(state): count for state, count in states})
        return Tally(states=counted, abandoned=abandoned, requested=requested)

    async def _open(self, transaction: Transaction, name: str) -> None:
        """The job, and the tables, where there are none."""
        await transaction.ensure(sql.TABLES)
        named = {"name": name, "identity": secrets.token_hex(16)}
        ((self._job, self._identity),) = await transaction.execute(sql.JOB, named)


class LeasedBatch(JobJournal):
    """Documents of a job that one worker has leased: the journal that a SigningJob of them writes.

    Where another worker has a later lease, what writes raises LostChunkError, and nothing is written.
    """

    def __init__(self, database: Database, job: int | None, identity: str, batch: int, lease_number: int) -> None:
        super().__init__(database, job, identity)
        self.id = batch
        self.lease_number = lease_number

    async def get_shard(self) -> str:
        """The part of a target's staging folder that is this chunk's, in whatever lease, and no other journal's."""
        return self.build_shard_name(self.id)

    async def names(self) -> Sequence[str]:
        """Documents that have not come to their end."""
        return [_decode_name(name) for (name,) in await self._database.fetch(sql.NAMES, {"chunk": self.id})]

    async def confirm(self) -> None:
        """Let others know that this worker lives."""
        self._validate_lease(await self._database.execute(sql.CONFIRM_LEASE, self._lease))

    async def release(self) -> None:
        """End the lease: the chunk is done, or there for others."""

        async def release(transaction: Transaction) -> None:
            """Two statements: the second one sees what was committed while the first waited."""
            if await transaction.execute(sql.LOCK_BATCH, self._lease):
                await transaction.execute(sql.RELEASE, self._lease)

        await self._database.transaction(release)

    async def entries(self, names: Sequence[str]) -> list[SigningEntry]:
        """The entry of each of these documents of the chunk. Raises ConfigurationError where it has no such one."""
        known = await self.find_entries(names)
        if len(known) < len(set(names)):
            raise ConfigurationError("a document has another name than the one that it was asked for by: keep its name")
        return [known[name] for name in names]

    async def find_entries(self, names: Sequence[str]) -> Mapping[str, SigningEntry]:
        """The entries of those of these documents that have one."""
        values = {"job": self.job, "chunk": self.id, "names": [_encode_name(name) for name in set(names)]}
        return {entry.name: entry for entry in await self._database.fetch(sql.ENTRIES, values, _make_entry)}

    async def put(self, entry: SigningEntry) -> SigningEntry:
        """Write how far a document is; the entry itself, for whoever goes on with it."""
        self._validate_lease(await self._database.execute(sql.PUT, self._make_values(entry)))
        return entry

    async def abandon(
        self,
        entry: SigningEntry,
        *,
        at: float,
        then: DocumentState = DocumentState.NEW,
        problem: str | None = None,
        service_message: str | None = None,
        is_try: bool = True,
    ) -> SigningEntry:
        """Have nothing to do any more with what is stored for a document. at: Unix time. is_try: whether it counts."""
        abandoned = make_abandoned_entry(entry, then, problem, service_message, is_try=is_try)
        is_stored, is_requested = entry.identifier is not None, entry.state is DocumentState.SIGNING
        counts = {
            "abandoned": int(is_stored and then is not DocumentState.DONE),
            "requested": int(is_stored and is_requested),
        }

        async def abandon(transaction: Transaction) -> None:
            """Record it. The first statement holds the chunk's row, which nobody shares who waits for more."""
            self._validate_lease(await transaction.execute(sql.ADD_COUNTS, counts | self._lease))
            if is_stored:
                values = {"identifier": entry.identifier, "chunk": self.id, "at": at}
                await transaction.execute(sql.ABANDON, values)
            await transaction.execute(sql.SET, self._make_values(abandoned))

        await self._database.transaction(abandon)
        return abandoned

    async def list_abandoned(self, *, after: str = "", limit: int | None = None) -> Sequence[str]:
        """Identifiers of stored documents that are to be deleted, in their order: so many at most, after this one."""
        values = {"chunk": self.id, "after": after, "most": limit}
        return [identifier for (identifier,) in await self._database.fetch(sql.SELECT_ABANDONED, values)]

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
        return {"chunk": self.id, "fence": self.lease_number}

    def _make_values(self, entry: SigningEntry) -> dict[str, Any]:
        return attrs.asdict(entry, recurse=False) | {"state": int(entry.state)} | self._lease

    def _validate_lease(self, found: Sequence[object]) -> None:
        if not found:
            raise LostLeaseError("Another worker has these documents by now: this one was not heard of for too long.")


@scrub_class
class SigningJournal(LeasedBatch, DatabaseContext):
    """Keeps a job's journal in a file, which is made where there is none. One process has it open at a time.

    Each method raises JournalError.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(SqliteDatabase(path, _FILE), None, "", 0, 0)

    async def _prepare(self, transaction: Transaction) -> None:
        """The one job, and its one chunk."""
        await self._open(transaction, "")
        values = {"job": self.job}
        found = await transaction.execute(sql.BATCHES, values) or await transaction.execute(sql.MAKE_BATCH, values)
        ((self.id,),) = found

    async def entries(self, names: Sequence[str]) -> list[SigningEntry]:
        """The entry of each of these documents, made where there is none."""
        known = await self.find_entries(names)
        new = [(self.job, self.id, _encode_name(name)) for name in dict.fromkeys(names) if name not in known]
        if new:
            await self._database.transaction(lambda transaction: transaction.insert(sql.ADD, new))
            known = await self.find_entries(names)
        return [known[name] for name in names]


_IN_USE = weakref.WeakSet[LeasedBatch]()


@contextlib.contextmanager
def lock_journal(journal: LeasedBatch) -> Generator[None]:
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
        self.connections = Connections(conninfo, error=SigningJournalError)
        del conninfo  # this frame may stand in a traceback
        AT_LEAST_ONE.require("chunk", chunk)
        super().__init__(PostgresDatabase(self.connections))
        self._name = job
        self._batch_size = chunk

    async def add(self, names: Iterable[str] | AsyncIterable[str]) -> int:
        """Have documents signed, by their names; how many are new to the job. Raises ConfigurationError."""
        if isinstance(names, str):
            raise ConfigurationError("names has to be a list of them, or another iterable: [name] for one")
        some, added = list[str](), 0
        async for name in _iter_names(names):
            some.append(name)
            if len(some) == self._batch_size:
                added += await self._add(some)
                some.clear()
        return added + await self._add(some)

    async def list_due(self, worker_timeout: float) -> Sequence[int]:
        """Chunks that workers are to be told of, by nobody else for so many seconds: a few, till those are taken."""
        values = {"job": self.job, "patience": worker_timeout, "most": _MAX_WOKEN_BATCHES}
        return [batch for (batch,) in await self._database.execute(sql.TAKE_DUE_BATCHES, values)]

    async def lease(self, batch: int, worker_timeout: float) -> LeasedBatch | None:
        """A chunk, unless it is done, or has a worker that was heard of within so many seconds."""
        found = await self._database.execute(sql.LEASE, {"chunk": batch, "patience": worker_timeout})
        return LeasedBatch(self._database, self.job, self._identity, batch, *found[0]) if found else None

    async def pass_over(self, batch: int) -> None:
        """Have others told of a chunk at once: who was told of it leases none any more."""
        await self._database.execute(sql.CLEAR_WOKEN, {"chunk": batch})

    async def count_open_batches(self) -> int:
        """How many are not done, those included that workers have."""
        ((count,),) = await self._database.fetch(sql.COUNT_OPEN_BATCHES, {"job": self.job})
        return int(count)

    async def _prepare(self, transaction: Transaction) -> None:
        await self._open(transaction, self._name)

    async def _add(self, names: Sequence[str]) -> int:
        async def add(transaction: Transaction) -> int:
            """A chunk of those that are new."""
            ((batch,),) = await transaction.execute(sql.MAKE_BATCH, {"job": self.job})
            rows = [(self.job, batch, _encode_name(name)) for name in sorted(set(names))]
            added = len(await transaction.insert(sql.ADD, rows))
            if not added:
                await transaction.execute(sql.DROP_BATCH, {"chunk": batch})
            return added

        return await self._database.transaction(add) if names else 0


async def _iter_names(names: Iterable[str] | AsyncIterable[str]) -> AsyncGenerator[str]:
    if isinstance(names, AsyncIterable):
        async for name in names:
            yield name
        return
    for name in names:
        yield name


def _make_entry(values: Sequence[Any]) -> SigningEntry:
    """The entry of a row, its values in their order."""
    number, name, state, identifier, saved_at, source_sha, source_stamp, output_sha, tries, problem, service_message = (
        values
    )
    return SigningEntry(
        number=number,
        name=_decode_name(name),
        state=DocumentState(state),
        identifier=identifier,
        saved_at=saved_at,
        source_sha=source_sha,
        source_stamp=source_stamp,
        output_sha=output_sha,
        tries=tries,
        problem=problem,
        service_message=service_message,
    )


def _encode_name(name: str) -> bytes:
    """That of a file may be no Unicode text."""
    return name.encode("utf-8", "surrogatepass")


def _decode_name(stored: bytes) -> str:
    return bytes(stored).decode("utf-8", "surrogatepass")
