"""A signing job in many processes. Each worker leases a batch of documents, signs them, and leases the next.

    add ─► batches ─► due: wakes a free worker ─► lease ─► SigningJob of its documents ─► release: done, or due again
                                                   └─ no sign of life for `worker_timeout`: due for other workers

The next worker abandons the stored documents of a dead one, unless they have the signatures. A suspended worker can no
longer write to the journal or publish in a TargetFolder.
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
    """Batches (`chunks`) and documents processed by this worker. `PostgresJournal.tally` counts all."""

    chunks: int
    done: int
    failed: int


@scrub_class
class SigningFleet:
    """A worker of a signing job. Run it in any number of processes.

        async with PostgresJournal(conninfo, "consents") as journal:
            await journal.add(names)
            await SigningFleet(suite.signing, StorageFolder(url).named, target, [signature], journal=journal).run()

    named: returns the document of a name.
    journal: an open journal.
    concurrency, max_outage, check_fields: as for SigningJob.
    worker_timeout: seconds without a sign of life after which a worker counts as dead, the same in all processes.
    tick: seconds between polls for due batches.
    grace: seconds to finish the documents in progress when `run` is cancelled.
    clock, now: for tests. None: the system clock for the worker, the suite's for the jobs.

    Raises ConfigurationError if an argument is invalid.
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
        """Make `run`, or the next one, return when the documents in progress are finished."""
        self._stop_starting()
        if self._running is None:
            self._stop()

    @property
    def progress(self) -> FleetSigningProgress:
        """The progress of this worker."""
        running_progress = None if self._running is None else self._running.job.progress
        return FleetSigningProgress(
            chunks=self._batches,
            done=self._done + (0 if running_progress is None else running_progress.done),
            failed=self._failed + (0 if running_progress is None else running_progress.failed),
        )

    async def run(self) -> FleetSigningProgress:
        """Sign until every document of the job is finished in any process, or until drained.

        Outages of PostgreSQL are waited out, except at the start. If this is cancelled, the batch is released when the
        documents in progress are finished or `grace` is over.

        Raises SigningJournalError, JobStoppedError, ConfigurationError, and exceptions of `named` and of the function
        of signatures. Other workers continue.
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
        """Return the batches to lease. Stop after the last."""
        batches = await self._journal.list_due(self._worker_timeout)
        if not batches and not await self._journal.count_open_batches():
            self._stop()
        return [(batch, None) for batch in batches]

    async def _run_key(self, key: int) -> None:
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
        except Exception as error:  # noqa: BLE001  also of `named` and `signatures`: `run` raises it
            self._failure = self._failure or error
            self._is_ending = True
        finally:
            if self._is_ending:
                self._stop()

    async def _sign(self, batch: LeasedBatch) -> None:
        """Sign a batch. Raises SigningJournalError if PostgreSQL is not available or the lease has ended."""
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
            with contextlib.suppress(SigningJournalError):  # the lease then ends by timeout
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
        """Record that this worker is alive. Cancel the job if its lease has ended."""
        leased = self._running
        if leased is None:
            return
        try:
            await leased.batch.confirm()
        except LostLeaseError:
            if self._running is leased:  # else the job has ended during the await
                leased.task.cancel()
                raise

    def _stop_starting(self) -> None:
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
    batch: LeasedBatch
    job: SigningJob
    task: asyncio.Task[object]


async def _raise_job_error(leased: _RunningBatch) -> None:
    """Raise the error of an ended job, or SigningJournalError, after which `run` continues."""
    try:
        leased.task.result()
    except JobStoppedError as error:
        if isinstance(error.__cause__, SigningJournalError):
            raise error.__cause__ from None
        await leased.batch.confirm()  # a new lease removes the staging files, a possible cause
        raise
