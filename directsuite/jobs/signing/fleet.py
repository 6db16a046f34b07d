"""A signing job of many processes: each takes a chunk of the documents, signs them, and takes the next.

    add ─► chunks ─► due: a free worker is woken ─► lease ─► a SigningJob of its documents ─► release: done, or due
                                                  └─ not heard of for `patience`: due for others, with the next lease

A worker that died leaves documents whose outcome nobody knows: who takes them over abandons what is stored for them,
unless it shows the signatures. One that only was paused can write nothing more, and keep nothing in a TargetFolder.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import AsyncGenerator, Callable, Sequence

import attrs

from directsuite.core.checks import AT_LEAST_ONE, DURATION, INTERVAL
from directsuite.core.clock import Clock, SystemClock
from directsuite.core.privacy import scrub_class
from directsuite.durable.fleet import FleetEngine
from directsuite.jobs.signing.documents import Pdf
from directsuite.jobs.signing.job import JobStoppedError, Signatures, SigningJob
from directsuite.jobs.signing.journal import Chunk, JournalError, LostChunkError, PostgresJournal
from directsuite.jobs.signing.targets import Target
from directsuite.signing.service import Signing

_LOGGER = logging.getLogger("directsuite")


@attrs.frozen(kw_only=True)
class FleetSigningProgress:
    """What this worker did. chunks: leases of them. `PostgresJournal.tally` counts over all workers."""

    chunks: int
    done: int
    failed: int


@scrub_class
class SigningFleet:
    """A worker of a signing job: `run` it in as many processes as you like.

        async with PostgresJournal(conninfo, "consents") as journal:
            await journal.add(names)
            await SigningFleet(suite.signing, StorageFolder(url).named, target, [signature], journal=journal).run()

    named: gives the document of a name. journal: an open one. concurrency, service_patience, check_fields: those of
    SigningJob. patience: seconds after which a worker that isn't heard of counts as dead; the same in all processes.
    tick: seconds between two polls of what is due. grace: seconds that documents under way get when `run` is
    cancelled. clock: for tests, the machine's unless given, and the suite's for the jobs; now: likewise. Raises
    ConfigurationError.
    """

    def __init__(
        self,
        signing: Signing,
        named: Callable[[str], Pdf],
        target: Target,
        signatures: Signatures,
        *,
        journal: PostgresJournal,
        concurrency: int = 10,
        service_patience: float = 900.0,
        check_fields: bool = False,
        patience: float = 30.0,
        tick: float = 2.0,
        grace: float = 30.0,
        clock: Clock | None = None,
        now: Callable[[], float] | None = None,
    ) -> None:
        AT_LEAST_ONE.require("concurrency", concurrency)
        DURATION.require("service_patience", service_patience)
        INTERVAL.require("patience", patience)
        INTERVAL.require("tick", tick)
        DURATION.require("grace", grace)
        self._signing = signing
        self._named = named
        self._target = target
        self._signatures = signatures
        self._journal = journal
        self._concurrency = concurrency
        self._service_patience = service_patience
        self._check_fields = check_fields
        self._patience = patience
        self._tick = tick
        self._grace = grace
        self._clock = clock
        self._now = now
        self._engine: FleetEngine | None = None
        self._ends = False
        self._failure: Exception | None = None
        self._leased: _LeasedChunk | None = None
        self._chunks = self._done = self._failed = 0

    def drain(self) -> None:
        """Let `run`, or the next one, return when the documents under way here have ended; others take the rest."""
        self._end()
        if self._leased is None:
            self._stop()

    @property
    def progress(self) -> FleetSigningProgress:
        """What this worker did so far."""
        under_way = None if self._leased is None else self._leased.job.progress
        return FleetSigningProgress(
            chunks=self._chunks,
            done=self._done + (0 if under_way is None else under_way.done),
            failed=self._failed + (0 if under_way is None else under_way.failed),
        )

    async def run(self) -> FleetSigningProgress:
        """Work until every document of the job has come to its end, here or elsewhere, or until drained.

        PostgreSQL is waited for where it is away later than at the beginning. Cancelled, it hands its chunk back when
        the documents under way have come to their end, or their grace has. Raises JournalError, JobStoppedError,
        ConfigurationError, and what `named` or the function of signatures raises; others go on then.
        """
        self._failure = None
        self._engine = FleetEngine(
            self._journal.connections,
            f"signing_{self._journal.job}",
            secrets.token_hex(4),
            due=self._due,
            take=self._take,
            heartbeat=self._let_hear,
            ending=self._end,
            concurrency=1,
            grace=self._grace,
            patience=self._patience,
            tick=self._tick,
            clock=self._clock or SystemClock(),
        )
        try:
            if not self._ends:
                await self._engine.run()
        finally:
            self._engine, self._ends = None, False
        if self._failure is not None:
            raise self._failure
        return self.progress

    async def _due(self) -> Sequence[tuple[int, None]]:
        """Chunks to take. Where none is left, here or elsewhere, the work is done."""
        chunks = await self._journal.due(self._patience)
        if not chunks and not await self._journal.open_chunks():
            self._stop()
        return [(chunk, None) for chunk in chunks]

    async def _take(self, key: int) -> None:
        """Sign a chunk, if it is there to be leased."""
        try:
            if self._ends:
                await self._journal.pass_over(key)
                return
            chunk = await self._journal.lease(key, self._patience)
            if chunk is not None:
                await self._sign(chunk)
        except JournalError as error:
            _LOGGER.warning("signing fleet: %s", error)
            self._wake_later(key)
        except Exception as error:  # noqa: BLE001  what `named` or a function of signatures raised, too: `run` does
            self._failure = self._failure or error
            self._ends = True
        finally:
            if self._ends:
                self._stop()

    async def _sign(self, chunk: Chunk) -> None:
        """Sign a leased chunk. Raises JournalError where PostgreSQL is away, or another has the chunk by now."""
        try:
            job = SigningJob(
                self._signing,
                self._documents(await chunk.names()),
                self._target,
                self._signatures,
                journal=chunk,
                concurrency=self._concurrency,
                patience=self._service_patience,
                check_fields=self._check_fields,
                clock=self._clock,
                now=self._now,
            )
            job.signed_before = self._done
            leased = self._leased = _LeasedChunk(chunk, job, asyncio.create_task(job.run()))
            try:
                await asyncio.wait([leased.working])
            finally:
                leased.working.cancel()
                await asyncio.wait([leased.working])
                self._add_up(job)
            if not leased.working.cancelled():
                await _raise_of(leased)
        finally:
            self._chunks += 1
            with contextlib.suppress(JournalError):  # then patience runs out
                await chunk.release()

    def _add_up(self, job: SigningJob) -> None:
        progress = job.progress
        self._leased = None
        self._done += progress.done
        self._failed += progress.failed

    async def _documents(self, names: Sequence[str]) -> AsyncGenerator[Pdf]:
        for name in names:
            if self._ends:
                return
            yield self._named(name)

    async def _let_hear(self) -> None:
        """Let others know that this worker lives. What it has in hand ends where another has the chunk by now."""
        leased = self._leased
        if leased is None:
            return
        try:
            await leased.chunk.confirm()
        except LostChunkError:
            if self._leased is leased:  # else it has ended meanwhile
                leased.working.cancel()
                raise

    def _end(self) -> None:
        """Begin no further document."""
        self._ends = True
        if self._leased is not None:
            self._leased.job.drain()

    def _stop(self) -> None:
        if self._engine is not None:
            self._engine.stop()

    def _wake_later(self, key: int) -> None:
        if self._engine is not None:
            self._engine.wake_later(key, None)


@attrs.frozen
class _LeasedChunk:
    """A chunk's documents, being signed here."""

    chunk: Chunk
    job: SigningJob
    working: asyncio.Task[object]


async def _raise_of(leased: _LeasedChunk) -> None:
    """What a job ended with. Where its journal failed, or the chunk is another's by now, others go on."""
    try:
        leased.working.result()
    except JobStoppedError as error:
        if isinstance(error.__cause__, JournalError):
            raise error.__cause__ from None
        await leased.chunk.confirm()  # who has the chunk has taken away what was in the making
        raise
