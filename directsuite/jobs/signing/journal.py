"""The journal of a signing job, which records the state of each document.

SigningJournal   a job: an SQLite file for one process, or a database in PostgreSQL for many
Lease            a batch of its documents, which one worker may change. A file has one batch

Each lease of a batch has a number. A write fails if the batch has been leased again since.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Mapping, Sequence
from typing import Any

import attrs
import msgspec

from directsuite.core.checks import AT_LEAST_ONE
from directsuite.core.privacy import scrub_class
from directsuite.durable.database import Tables, Transaction, load_statements
from directsuite.durable.postgres import PostgresDatabase
from directsuite.durable.sqlite import Database, DatabaseContext, SqliteDatabase, SqliteFile
from directsuite.errors import ConfigurationError, DirectSuiteError
from directsuite.jobs.signing.workflow import (
    DocumentProblem,
    DocumentState,
    SigningEntry,
    encode_reason,
    parse_reason,
)
from directsuite.signing.models import Signature
from directsuite.wire.models import Secret


class SigningJournalError(DirectSuiteError):
    """The journal could not be read or written. Nothing was written."""


class LostLeaseError(SigningJournalError):
    """The lease has ended, possibly because another worker has the batch. This worker can no longer write."""


@attrs.frozen(kw_only=True)
class Tally:
    """Counts of a job's documents."""

    states: Mapping[DocumentState, int]
    abandoned: int
    """Stored documents that were abandoned."""
    requested: int
    """Those of them for which a signature was requested."""


_FILE = SqliteFile(noun="journal", error=SigningJournalError, application_id=0x6473534A, version=4)
_SQL = load_statements("directsuite.jobs.signing", "journal")
_TABLES = Tables("signing", _SQL["tables"], version=2)
_MAX_WOKEN_BATCHES = 100  # more than workers can lease in a second
_MAX_QUERY_NAMES = 100  # SQLite limits the variables of a statement
_ENTRY_COLUMNS = [field.name for field in attrs.fields(SigningEntry) if field.name != "reason"]
_NOT_OPEN = "the journal is not open: use it within `async with`"


def compute_signatures_digest(signatures: Sequence[Signature]) -> str:
    """Return the SHA-256 of a job's signatures, in hex."""
    fields = [attrs.asdict(each, filter=lambda _, value: value is not None) for each in signatures]
    return hashlib.sha256(msgspec.msgpack.encode(fields, order="sorted")).hexdigest()


@scrub_class
@attrs.define(eq=False, slots=False)
class Lease:
    """Documents that one worker has leased: the journal of their SigningJob.

    `put`, `abandon` and `confirm` raise LostLeaseError, and write nothing, if the lease has ended.
    """

    _database: Database = attrs.field(repr=False)
    _job: int
    batch: int
    number: int
    """The number of the lease, 0 for a journal in a file, whose lease ends when the file is closed."""
    shard: str
    """The name of the batch's staging folder: unique, and the same for all leases."""
    is_in_use: bool = attrs.field(default=False, init=False)
    """True while a SigningJob uses the lease."""

    async def claim(self, digest: str) -> None:
        """Reserve the journal for signatures with this digest. Raises ConfigurationError if it has others."""
        ((found,),) = await self._database.execute(_SQL["claim"], {"digest": digest, "job": self._job})
        if found != digest:
            raise ConfigurationError(
                "the journal belongs to a job with other signatures: use a new journal, or the signatures of that job"
            )

    async def list_names(self) -> Sequence[str]:
        """Return the names of unfinished documents."""
        return [_decode_name(name) for (name,) in await self._database.fetch(_SQL["names"], {"chunk": self.batch})]

    async def confirm(self) -> None:
        """Record that this worker is alive."""
        _require_lease(await self._database.execute(_SQL["confirm_lease"], self._key))

    async def release(self) -> None:
        """End the lease, if it has not ended. Other workers can lease the batch if a document is unfinished."""

        async def release(transaction: Transaction) -> None:
            """End the lease in a second statement, to see what was committed while the first waited for the lock."""
            if await transaction.execute(_SQL["lock_batch"], self._key):
                await transaction.execute(_SQL["release"], self._key)

        await self._database.transaction(release)

    async def entries(self, names: Sequence[str]) -> list[SigningEntry]:
        """Return an entry per name. Create missing ones in a file, raise ConfigurationError for them in PostgreSQL."""
        known = await self.find_entries(names)
        new = [(self._job, self.batch, _encode_name(name)) for name in dict.fromkeys(names) if name not in known]
        if new and self.number:
            raise ConfigurationError(
                "a document has a different name than was requested: "
                "`named` must return a Pdf with the name that it receives"
            )
        if new:
            await self._database.transaction(lambda transaction: transaction.insert(_SQL["add"], new))
            known = await self.find_entries(names)
        return [known[name] for name in names]

    async def find_entries(self, names: Iterable[str]) -> Mapping[str, SigningEntry]:
        """Return entries by name. Ignore names that are not in the batch."""
        encoded, entries = [_encode_name(name) for name in set(names)], dict[str, SigningEntry]()
        for start in range(0, len(encoded), _MAX_QUERY_NAMES):
            values = {"job": self._job, "chunk": self.batch, "names": encoded[start : start + _MAX_QUERY_NAMES]}
            found = await self._database.fetch(_SQL["entries"], values, _make_entry)
            entries.update((entry.name, entry) for entry in found)
        return entries

    async def put(self, entry: SigningEntry) -> SigningEntry:
        """Write an entry, and return it."""
        _require_lease(await self._database.execute(_SQL["put"], self._make_values(entry)))
        return entry

    async def abandon(
        self,
        entry: SigningEntry,
        *,
        at: float,
        then: DocumentState = DocumentState.NEW,
        reason: DocumentProblem | str | None = None,
        service_message: str | None = None,
        is_try: bool = True,
    ) -> SigningEntry:
        """Record that a document's stored document, if any, must be deleted. Write and return the new entry.

        at: Unix time. then: the new state. is_try: count an attempt if that is NEW. reason, service_message: ignored
        for NEW.
        """
        is_new = then is DocumentState.NEW
        abandoned = attrs.evolve(
            entry,
            state=then,
            identifier=None,
            saved_at=None,
            tries=entry.tries + (is_new and is_try),
            reason=entry.reason if is_new else reason,
            service_message=entry.service_message if is_new else service_message,
            output_sha=entry.output_sha if then is DocumentState.DONE else None,
        )
        is_stored, is_requested = entry.identifier is not None, entry.state is DocumentState.SIGNING
        counts = {
            "abandoned": int(is_stored and then is not DocumentState.DONE),
            "requested": int(is_stored and is_requested),
        }

        async def abandon(transaction: Transaction) -> None:
            """Write entry, counts and identifier. Locking the batch's row first prevents deadlocks."""
            _require_lease(await transaction.execute(_SQL["add_counts"], counts | self._key))
            if is_stored:
                values = {"identifier": entry.identifier, "chunk": self.batch, "at": at}
                await transaction.execute(_SQL["abandon"], values)
            await transaction.execute(_SQL["put"], self._make_values(abandoned))

        await self._database.transaction(abandon)
        return abandoned

    async def list_abandoned(self, *, after: str = "", limit: int | None = None) -> Sequence[str]:
        """Return identifiers of stored documents to delete, sorted, greater than `after`."""
        values = {"chunk": self.batch, "after": after, "most": limit}
        return [identifier for (identifier,) in await self._database.fetch(_SQL["select_abandoned"], values)]

    async def forget(self, identifiers: Iterable[str]) -> None:
        """Remove stored documents from the list of those to delete."""
        await self._database.execute(_SQL["forget"], {"identifiers": list(identifiers)})

    async def forget_expired(self, now: float, lifetime: float) -> None:
        """Forget the job's stored documents abandoned more than `lifetime` seconds ago. now: Unix time."""

        async def forget(transaction: Transaction) -> None:
            await transaction.execute(_SQL["correct_future"], {"job": self._job, "now": now})
            await transaction.execute(_SQL["forget_before"], {"job": self._job, "at": now - lifetime})

        await self._database.transaction(forget)

    @property
    def _key(self) -> dict[str, Any]:
        return {"chunk": self.batch, "fence": self.number}

    def _make_values(self, entry: SigningEntry) -> dict[str, Any]:
        values = {name: getattr(entry, name) for name in _ENTRY_COLUMNS}
        return values | {"state": int(entry.state), "problem": encode_reason(entry.reason)} | self._key


def _require_lease(found: Sequence[object]) -> None:
    if not found:
        raise LostLeaseError(
            "this worker's lease of the documents has ended, because it sent no sign of life for too long: "
            "another worker signs them"
        )


@scrub_class
class SigningJournal(DatabaseContext):
    """The journal of a job: an SQLite file, or tables in PostgreSQL. Each method raises SigningJournalError.

        async with SigningJournal("signing.db") as journal:  # created if necessary
            ...
        async with SigningJournal(conninfo=conninfo, job="consents") as journal:
            await journal.add(names)

    path: the file, for a SigningJob. Only one process can open it at a time.
    conninfo: PostgreSQL, or a connection pooler in session mode, for a SigningFleet: a URI, or keywords and values as
        for libpq.
    job: name of the job in PostgreSQL.
    chunk: number of documents that a worker leases at a time.

    Raises ConfigurationError if an argument is invalid, or for `conninfo` without the extra `fleet`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        conninfo: str | Secret | None = None,
        job: str | None = None,
        chunk: int = 200,
    ) -> None:
        AT_LEAST_ONE.require("chunk", chunk)
        self._job: int | None = None
        self._name = job or ""
        self._identity = ""
        self._lease: Lease | None = None
        self._batch_size = chunk
        if path is not None and conninfo is None and job is None:
            self._database: Database = SqliteDatabase(path, _FILE)
        elif path is None and conninfo is not None and job:
            self._database = PostgresDatabase(conninfo, error=SigningJournalError)
        else:
            raise ConfigurationError("pass either a path, or conninfo and job")
        del conninfo  # a traceback may show the variables of this frame

    @property
    def job(self) -> int:
        """The job's number in the database. Raises ConfigurationError if the journal is not open."""
        if self._job is None:
            raise ConfigurationError(_NOT_OPEN)
        return self._job

    @property
    def lease(self) -> Lease:
        """The lease of a journal in a file. Raises ConfigurationError for PostgreSQL, or if the journal is not open."""
        if isinstance(self._database, PostgresDatabase):
            raise ConfigurationError("the journal is in PostgreSQL, for a SigningFleet: a SigningJob needs a file")
        if self._lease is None:
            raise ConfigurationError(_NOT_OPEN)
        return self._lease

    @property
    def postgres(self) -> PostgresDatabase:
        """The database of a journal in PostgreSQL. Raises ConfigurationError for a file."""
        if not isinstance(self._database, PostgresDatabase):
            raise ConfigurationError("the journal is a file, for a SigningJob: a SigningFleet needs one in PostgreSQL")
        return self._database

    async def add(self, names: Iterable[str] | AsyncIterable[str]) -> int:
        """Add documents by name. Return how many are new.

        Raises ConfigurationError if `names` is a string, or the journal is a file: its SigningJob adds them.
        """
        _ = self.postgres  # raises for a file
        if isinstance(names, str):
            raise ConfigurationError(
                "names must be a list or another iterable, not a string: use [name] for a single document"
            )
        some, added = list[str](), 0
        async for name in _iter_names(names):
            some.append(name)
            if len(some) == self._batch_size:
                added += await self._add(some)
                some.clear()
        return added + await self._add(some)

    async def read_claim(self) -> str | None:
        """Return the digest of the job's signatures. None: not claimed, or the signatures vary."""
        ((digest,),) = await self._database.fetch(_SQL["read_claim"], {"job": self.job})
        return None if digest is None else str(digest)

    async def failures(self, *, after: int = 0, most: int | None = None) -> Sequence[SigningEntry]:
        """Return the failed documents with numbers above `after`, by number, at most `most`."""
        return await self._database.fetch(
            _SQL["failures"], {"job": self.job, "after": after, "most": most}, _make_entry
        )

    async def retry(self, problem: str | None = None) -> int:
        """Let failed documents be signed again: all, or those with this problem (code or text). Return their number."""
        reason = parse_reason(problem)
        values = {"job": self.job, "all": reason is None, "problem": encode_reason(reason)}

        async def work(transaction: Transaction) -> int:
            renewed = await transaction.execute(_SQL["retry_failed"], values)
            await transaction.execute(_SQL["reopen"], {"chunks": sorted({batch for (batch,) in renewed})})
            return len(renewed)

        return await self._database.transaction(work)

    async def tally(self) -> Tally:
        """Return the numbers of documents by state, and of abandoned stored documents."""
        states = await self._database.fetch(_SQL["states"], {"job": self.job})
        ((abandoned, requested),) = await self._database.fetch(_SQL["counts"], {"job": self.job})
        counted = Counter({DocumentState(state): count for state, count in states})
        return Tally(states=counted, abandoned=abandoned, requested=requested)

    async def list_due(self, worker_timeout: float) -> Sequence[int]:
        """Return batches that can be leased, and were not returned recently.

        worker_timeout: seconds without a sign of life that end a lease, and until a batch is returned again.
        """
        values = {"job": self.job, "patience": worker_timeout, "most": _MAX_WOKEN_BATCHES}
        return [batch for (batch,) in await self._database.execute(_SQL["take_due_batches"], values)]

    async def lease_batch(self, batch: int, worker_timeout: float) -> Lease | None:
        """Lease a batch. Return None if it is done, or another worker has it. worker_timeout: as for `list_due`."""
        found = await self._database.execute(_SQL["lease"], {"chunk": batch, "patience": worker_timeout})
        return self._make_lease(batch, *found[0]) if found else None

    async def count_open_batches(self) -> int:
        """Return the number of batches with unfinished documents."""
        ((count,),) = await self._database.fetch(_SQL["count_open_batches"], {"job": self.job})
        return int(count)

    async def _prepare(self, transaction: Transaction) -> None:
        await transaction.ensure(_TABLES)
        named = {"name": self._name, "identity": secrets.token_hex(16)}
        ((self._job, self._identity),) = await transaction.execute(_SQL["job"], named)
        if isinstance(self._database, SqliteDatabase):
            values = {"job": self.job}
            found = await transaction.execute(_SQL["batches"], values) or await transaction.execute(
                _SQL["make_batch"], values
            )
            self._lease = self._make_lease(found[0][0], 0)

    def _make_lease(self, batch: int, number: int) -> Lease:
        shard = hashlib.sha256(f"{self._identity} {batch}".encode()).hexdigest()[:16]
        return Lease(self._database, self.job, batch, number, shard)

    async def _add(self, names: Sequence[str]) -> int:
        async def add(transaction: Transaction) -> int:
            ((batch,),) = await transaction.execute(_SQL["make_batch"], {"job": self.job})
            rows = [(self.job, batch, _encode_name(name)) for name in sorted(set(names))]
            added = len(await transaction.insert(_SQL["add"], rows))
            if not added:
                await transaction.execute(_SQL["drop_batch"], {"chunk": batch})
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
    number, name, state, *others, problem, service_message = values  # in the order of the fields
    row: list[Any] = [number, _decode_name(name), DocumentState(state), *others, parse_reason(problem), service_message]
    return SigningEntry(*row)


def _encode_name(name: str) -> bytes:
    return name.encode("utf-8", "surrogatepass")


def _decode_name(stored: bytes) -> str:
    return bytes(stored).decode("utf-8", "surrogatepass")
