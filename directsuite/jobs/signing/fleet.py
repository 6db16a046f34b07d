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
from directsuite.jobs.signing.journal import LeasedBatch, LostLeaseError, PostgresJournal, SigningJournalError
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
        max_outage: float = 900.0,
        check_fields: bool = False,
        worker_timeout: float = 30.0,
        tick: float = 2.0,
        grace: float = 30.0,
        clock: Clock | None = None,
        now: Callable[[], float] | None = None,
    ) -> None:
        AT_LEAST_ONE.require("concurrency", concurrency)
        DURATION.require("max_outage", max_outage)
        INTERVAL.require("worker_timeout", worker_timeout)
        INTERVAL.require("tick", tick)
        DURATION.require("grace", grace)
        self._signing = signing
        self._named = named
        self._target = target
        self._signatures = signatures
        self._journal = journal
        self._concurrency = concurrency
        self._max_outage = max_outage
        self._check_fields = check_fields
        self._worker_timeout = worker_timeout
        self._tick = tick
        self._grace = grace
        self._clock = clock
        self._now = now
        self._engine: FleetEngine | None = None
        self._is_ending = False
        self._failure: Exception | None = None
        self._running: _RunningBatch | None = None
        self._batches = self._done = self._failed = 0

    def drain(self) -> None:
        """Let `run`, or the next one, return when the documents under way here have ended; others take the rest."""
        self._stop_starting()
        if self._running is None:
            self._stop()

    @property
    def progress(self) -> FleetSigningProgress:
        """What this worker did so far."""
        running_progress = None if self._running is None else self._running.job.progress
        return FleetSigningProgress(
            chunks=self._batches,
            done=self._done + (0 if running_progress is None else running_progress.done),
            failed=self._failed + (0 if running_progress is None else running_progress.failed),
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
            list_due=self._list_due,
            run_key=self._run_key,
            heartbeat=self._heartbeat,
            on_stop=self._stop_starting,
            concurrency=1,
            grace=self._grace,
            worker_timeout=self._worker_timeout,
            tick=self._tick,
            clock=self._clock or SystemClock(),
        )
        try:
            if not self._is_ending:
                await self._engine.run()
        finally:
            self._engine, self._is_ending = None, False
        if self._failure is not None:
            raise self._failure
        return self.progress

    async def _list_due(self) -> Sequence[tuple[int, None]]:
        """Chunks to take. Where none is left, here or elsewhere, the work is done."""
        batches = await self._journal.list_due(self._worker_timeout)
        if not batches and not await self._journal.count_open_batches():
            self._stop()
        return [(batch, None) for batch in batches]

    async def _run_key(self, key: int) -> None:
        """Sign a chunk, if it is there to be leased."""
        try:
            if self._is_ending:
                await self._journal.pass_over(key)
                return
            batch = await self._journal.lease(key, self._worker_timeout)
            if batch is not None:
                await self._sign(batch)
        except SigningJournalError as error:
            _LOGGER.warning("signing fleet: %s", error)
            self._wake_later(key)
        except Exception as error:  # noqa: BLE001  what `named` or a function of signatures raised, too: `run` does
            self._failure = self._failure or error
            self._is_ending = True
        finally:
            if self._is_ending:
                self._stop()

    async def _sign(self, batch: LeasedBatch) -> None:
        """Sign a leased chunk. Raises JournalError where PostgreSQL is away, or another has the chunk by now."""
        try:
            job = SigningJob(
                self._signing,
                self._iter_documents(await batch.names()),
                self._target,
                self._signatures,
                journal=batch,
                concurrency=self._concurrency,
                max_outage=self._max_outage,
                check_fields=self._check_fields,
                clock=self._clock,
                now=self._now,
            )
            job.signed_before = self._done
            leased = self._running = _RunningBatch(batch, job, asyncio.create_task(job.run()))
            try:
                await asyncio.wait([leased.task])
            finally:
                leased.task.cancel()
                await asyncio.wait([leased.task])
                self._add_up(job)
            if not leased.task.cancelled():
                await _raise_job_error(leased)
        finally:
            self._batches += 1
            with contextlib.suppress(SigningJournalError):  # then patience runs out
                await batch.release()

    def _add_up(self, job: SigningJob) -> None:
        progress = job.progress
        self._running = None
        self._done += progress.done
        self._failed += progress.failed

    async def _iter_documents(self, names: Sequence[str]) -> AsyncGenerator[Pdf]:
        for name in names:
            if self._is_ending:
                return
            yield self._named(name)

    async def _heartbeat(self) -> None:
        """Let others know that this worker lives. What it has in hand ends where another has the chunk by now."""
        leased = self._running
        if leased is None:
            return
        try:
            await leased.batch.confirm()
        except LostLeaseError:
            if self._running is leased:  # else it has ended meanwhile
                leased.task.cancel()
                raise

    def _stop_starting(self) -> None:
        """Begin no further document."""
        self._is_ending = True
        if self._running is not None:
            self._running.job.drain()

    def _stop(self) -> None:
        if self._engine is not None:
            self._engine.stop()

    def _wake_later(self, key: int) -> None:
        if self._engine is not None:
            self._engine.wake_later(key, None)


@attrs.frozen
class _RunningBatch:
    """A chunk's documents, being signed here."""

    batch: LeasedBatch
    job: SigningJob
    task: asyncio.Task[object]


async def _raise_job_error(leased: _RunningBatch) -> None:
    """What a job ended with. Where its journal failed, or the chunk is another's by now, others go on."""
    try:
        leased.task.result()
    except JobStoppedError as error:
        if isinstance(error.__cause__, SigningJournalError):
            raise error.__cause__ from None
        await leased.batch.confirm()  # who has the chunk has taken away what was in the making
        raise
