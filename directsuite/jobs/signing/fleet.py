"""A signing job in many processes. Each worker leases a batch of documents, signs them, and leases the next.

    add ─► batches ─► due: wakes a free worker ─► lease ─► SigningJob of its documents ─► release: done, or due again
                                                   └─ no sign of life for `worker_timeout`: due for other workers

The next worker abandons the stored documents of a dead one, unless they have the signatures. A suspended worker can no
longer write to the journal or publish in a TargetFolder.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
from collections.abc import AsyncGenerator, Callable, Sequence

import attrs

from directsuite.core.checks import AT_LEAST_ONE, DURATION, INTERVAL
from directsuite.core.clock import Clock, SystemClock
from directsuite.core.privacy import scrub_class
from directsuite.durable.fleet import FleetEngine
from directsuite.jobs.signing.documents import Pdf, Target
from directsuite.jobs.signing.job import JobStoppedError, Signatures, SigningJob
from directsuite.jobs.signing.journal import Lease, LostLeaseError, SigningJournal, SigningJournalError
from directsuite.signing.service import Signing

_LOGGER = logging.getLogger("directsuite")


@attrs.frozen(kw_only=True)
class FleetSigningProgress:
    """The numbers of batches (`chunks`) and documents that one worker processed. `SigningJournal.tally` counts all."""

    chunks: int
    done: int
    failed: int


@scrub_class
@attrs.define(eq=False, repr=False, slots=False)
class SigningFleet:
    """A worker of a signing job. Run it in any number of processes.

        async with SigningJournal(conninfo=conninfo, job="consents") as journal:
            await journal.add(names)
            await SigningFleet(suite.signing, StorageFolder(url).named, target, [signature], journal=journal).run()

    named: returns the document of a name.
    journal: an open journal in PostgreSQL.
    concurrency, max_outage, check_fields: as for SigningJob.
    worker_timeout: seconds without a sign of life after which a worker counts as dead, the same in all processes.
    tick: seconds between polls for due batches.
    grace: seconds to finish the documents in progress when `run` is cancelled.
    clock, now: for tests. None: the system clock for the worker, the suite's for the jobs.

    Raises ConfigurationError if an argument is invalid.
    """

    _signing: Signing = attrs.field(alias="signing")
    _named: Callable[[str], Pdf] = attrs.field(alias="named")
    _target: Target = attrs.field(alias="target")
    _signatures: Signatures = attrs.field(alias="signatures")
    _journal: SigningJournal = attrs.field(alias="journal", kw_only=True)
    _concurrency: int = attrs.field(default=10, alias="concurrency", kw_only=True, validator=AT_LEAST_ONE)
    _max_outage: float = attrs.field(default=900.0, alias="max_outage", kw_only=True, validator=DURATION)
    _check_fields: bool = attrs.field(default=False, alias="check_fields", kw_only=True)
    _worker_timeout: float = attrs.field(default=30.0, alias="worker_timeout", kw_only=True, validator=INTERVAL)
    _tick: float = attrs.field(default=2.0, alias="tick", kw_only=True, validator=INTERVAL)
    _grace: float = attrs.field(default=30.0, alias="grace", kw_only=True, validator=DURATION)
    _clock: Clock | None = attrs.field(default=None, alias="clock", kw_only=True)
    _now: Callable[[], float] | None = attrs.field(default=None, alias="now", kw_only=True)
    _engine: FleetEngine | None = attrs.field(default=None, init=False)
    _running: tuple[Lease, SigningJob] | None = attrs.field(default=None, init=False)
    _is_ending: bool = attrs.field(default=False, init=False)
    _failure: Exception | None = attrs.field(default=None, init=False)
    _ended: FleetSigningProgress = attrs.field(default=FleetSigningProgress(chunks=0, done=0, failed=0), init=False)

    def drain(self) -> None:
        """Make `run`, or the next one, return when the documents in progress are finished."""
        self._stop_starting()
        if self._running is None:
            self._stop()

    @property
    def progress(self) -> FleetSigningProgress:
        """The numbers of batches and documents that this worker has processed."""
        ended, running = self._ended, self._running
        if running is None:
            return ended
        progress = running[1].progress
        return attrs.evolve(ended, done=ended.done + progress.done, failed=ended.failed + progress.failed)

    async def run(self) -> FleetSigningProgress:
        """Sign until every document of the job is finished in any process, or until drained.

        If PostgreSQL is not available, this waits, except at the start. If this is cancelled, the batch is released
        when the documents in progress are finished or `grace` is over.

        Raises SigningJournalError, JobStoppedError, ConfigurationError, and exceptions of `named` and of the function
        of signatures. Other workers continue.
        """
        self._failure = None
        self._engine = FleetEngine(
            self._journal.postgres,
            f"signing_{self._journal.job}",
            secrets.token_hex(4),
            list_due=self._list_due,
            run_keys=self._run_keys,
            heartbeat=self._heartbeat,
            on_stop=self._stop_starting,
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
        batches = await self._journal.list_due(self._worker_timeout)
        if not batches and not await self._journal.count_open_batches():
            self._stop()
        return [(batch, None) for batch in batches]

    async def _run_keys(self, keys: Sequence[int]) -> None:
        (key,) = keys
        try:
            lease = await self._journal.lease_batch(key, self._worker_timeout)
            if lease is not None:
                await self._sign(lease)
        except SigningJournalError as error:
            _LOGGER.warning("signing fleet: %s", error)
            if self._engine is not None:
                self._engine.wake_later([key], None)
        except Exception as error:  # noqa: BLE001  also of `named` and `signatures`: `run` raises it
            self._failure = self._failure or error
            self._is_ending = True
        finally:
            if self._is_ending:
                self._stop()

    async def _sign(self, lease: Lease) -> None:
        try:
            if not self._is_ending:
                await self._run_job(lease, await lease.list_names())
        finally:
            with contextlib.suppress(SigningJournalError):  # the lease then ends by timeout
                await lease.release()

    async def _run_job(self, lease: Lease, names: Sequence[str]) -> None:
        job = SigningJob(
            self._signing,
            self._iter_documents(names),
            self._target,
            self._signatures,
            journal=lease,
            concurrency=self._concurrency,
            max_outage=self._max_outage,
            check_fields=self._check_fields,
            clock=self._clock,
            now=self._now,
        )
        job.signed_before = self._ended.done
        self._running = lease, job
        try:
            await job.run()
        except JobStoppedError as error:
            if isinstance(error.__cause__, SigningJournalError):
                raise error.__cause__ from None
            await lease.confirm()  # a new lease removes the staging files, a possible cause
            raise
        finally:
            self._ended = attrs.evolve(self.progress, chunks=self._ended.chunks + 1)
            self._running = None

    async def _iter_documents(self, names: Sequence[str]) -> AsyncGenerator[Pdf]:
        for name in names:
            if self._is_ending:
                return
            yield self._named(name)

    async def _heartbeat(self) -> None:
        running = self._running
        if running is None:
            return
        lease, job = running
        try:
            await lease.confirm()
        except LostLeaseError:
            job.drain()
            if self._running is running:  # else the lease was released during the await
                raise

    def _stop_starting(self) -> None:
        self._is_ending = True
        if self._running is not None:
            self._running[1].drain()

    def _stop(self) -> None:
        if self._engine is not None:
            self._engine.stop()
