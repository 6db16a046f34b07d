"""A signing job of many processes: each takes a chunk of the documents, signs them, and takes the next.

    add ─► chunks ─► take ─► a SigningJob of the chunk's documents ─► leave: done, or there for others
                       └─ heard of again and again; not for `patience` seconds: another takes it, with the next turn

A worker that died leaves documents whose outcome nobody knows: who takes them over abandons what is stored for them,
unless it shows the signatures. One that only was paused can write nothing more, and keep nothing in a TargetFolder.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import attrs

from directsuite.core.clock import Clock, SystemClock
from directsuite.errors import ConfigurationError
from directsuite.jobs.signing.documents import Pdf
from directsuite.jobs.signing.job import JobStoppedError, Signatures, SigningJob
from directsuite.jobs.signing.keeping import JournalError
from directsuite.jobs.signing.postgres_journal import Chunk, LostChunkError, PostgresJournal
from directsuite.jobs.signing.targets import Target
from directsuite.signing.service import Signing

_LOGGER = logging.getLogger("directsuite")


@attrs.frozen(kw_only=True)
class FleetSigningProgress:
    """What this worker did. chunks: turns of them. `PostgresJournal.tally` counts over all workers."""

    chunks: int
    done: int
    failed: int


class SigningFleet:
    """A worker of a signing job: `run` it in as many processes as you like.

        async with PostgresJournal(conninfo, "consents") as journal:
            await journal.add(names)
            await SigningFleet(suite.signing, StorageFolder(url).named, target, [signature], journal=journal).run()

    named: gives the document of a name. journal: an open one. at_a_time, service_patience: those of SigningJob.
    patience: seconds after which a worker that isn't heard of counts as dead; the same in all processes. tick: seconds
    between two looks at what others have left. clock, now: for tests. Raises ConfigurationError.
    """

    def __init__(
        self,
        signing: Signing,
        named: Callable[[str], Pdf],
        target: Target,
        signatures: Signatures,
        *,
        journal: PostgresJournal,
        at_a_time: int = 10,
        service_patience: float = 900.0,
        patience: float = 30.0,
        tick: float = 2.0,
        clock: Clock | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        if patience <= 0 or tick <= 0:
            raise ConfigurationError("patience and tick have to be more than 0 seconds")
        self._signing = signing
        self._named = named
        self._target = target
        self._signatures = signatures
        self._journal = journal
        self._at_a_time = at_a_time
        self._service_patience = service_patience
        self._patience = patience
        self._tick = tick
        self._clock = clock or SystemClock()
        self._now = now
        self._ends = False
        self._job: SigningJob | None = None
        self._chunks = self._done = self._failed = 0

    def drain(self) -> None:
        """Let `run` return when the documents under way here have come to their end; others take the rest."""
        self._ends = True
        if self._job is not None:
            self._job.drain()

    @property
    def progress(self) -> FleetSigningProgress:
        """What this worker did so far."""
        under_way = None if self._job is None else self._job.progress
        return FleetSigningProgress(
            chunks=self._chunks,
            done=self._done + (0 if under_way is None else under_way.done),
            failed=self._failed + (0 if under_way is None else under_way.failed),
        )

    async def run(self) -> FleetSigningProgress:
        """Work until every document of the job has come to its end, here or elsewhere, or until drained.

        PostgreSQL is waited for while it is away. Cancelled, it hands its chunk back as it is. Raises JobStoppedError,
        ConfigurationError, and what `named` or the function of signatures raises; others go on then.
        """
        self._ends = False
        while not self._ends:
            try:
                chunk = await self._journal.take(self._patience)
                if chunk is not None:
                    await self._sign(chunk)
                    continue
                if not await self._journal.open_chunks():
                    break
            except JournalError as error:
                _LOGGER.warning("signing fleet: %s", error)
            await self._clock.sleep(self._tick)
        return self.progress

    async def _sign(self, chunk: Chunk) -> None:
        """A turn of a chunk. Raises JournalError where PostgreSQL is away, or another has the chunk by now."""
        try:
            names = await chunk.names()
            job = self._job = SigningJob(
                self._signing,
                _documents(names, self._named),
                _TurnAtTarget(self._target, chunk.turn),
                self._signatures,
                journal=chunk,
                at_a_time=self._at_a_time,
                patience=self._service_patience,
                clock=self._clock,
                now=self._now,
            )
            if self._ends:
                return
            heard = asyncio.create_task(self._let_hear(chunk))
            working = asyncio.create_task(job.run())
            try:
                await asyncio.wait([heard, working], return_when=asyncio.FIRST_COMPLETED)
            finally:
                await _cancelled(heard, working)
                self._add_up(job)
            if not working.cancelled():
                await _raise_of(working, chunk)
            if not heard.cancelled():
                heard.result()
        finally:
            self._chunks += 1
            with contextlib.suppress(JournalError):  # then patience runs out
                await chunk.leave()

    def _add_up(self, job: SigningJob) -> None:
        progress = job.progress
        self._job = None
        self._done += progress.done
        self._failed += progress.failed

    async def _let_hear(self, chunk: Chunk) -> None:
        """Again and again. Ends where another has the chunk by now."""
        while True:
            await self._clock.sleep(self._patience / 3)
            try:
                await chunk.confirm()
            except LostChunkError:
                raise
            except JournalError as error:
                _LOGGER.warning("signing fleet: %s", error)


@attrs.frozen
class _TurnAtTarget:
    """A target in which this turn of a chunk has a workshop of its own."""

    _target: Target
    _turn: int

    def workshop(self, part: str, turn: int = 0) -> AbstractAsyncContextManager[Path]:
        """Of this turn; what an earlier one has in the making is taken away."""
        return self._target.workshop(part, self._turn)

    def check(self, name: str) -> None:
        """As the target."""
        self._target.check(name)

    async def keep(self, name: str, file: Path) -> None:
        """As the target."""
        await self._target.keep(name, file)


async def _documents(names: Sequence[str], named: Callable[[str], Pdf]) -> AsyncGenerator[Pdf]:
    for name in names:
        yield named(name)


async def _cancelled(*tasks: asyncio.Task[object]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def _raise_of(working: asyncio.Task[object], chunk: Chunk) -> None:
    """What a job ended with. Where its journal failed, or the chunk is another's by now, others go on."""
    try:
        working.result()
    except JobStoppedError as error:
        if isinstance(error.__cause__, JournalError):
            raise error.__cause__ from None
        await chunk.confirm()  # who has the chunk has taken away what was in the making
        raise
