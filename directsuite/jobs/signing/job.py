"""Many documents, signed side by side, and each of them once.

source ─► journal: done or failed before? passed over ─► Course, so many at a time ─► target
                                                            └─ the service is in trouble: all wait, then one tries
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Sequence

import attrs
import msgspec

from directsuite.core.clock import Clock, SystemClock
from directsuite.errors import (
    AuthenticationError,
    ClosedError,
    ConfigurationError,
    DirectSuiteError,
)
from directsuite.jobs.signing.course import MISSING, Course
from directsuite.jobs.signing.documents import Pdf
from directsuite.jobs.signing.entry import Entry, State
from directsuite.jobs.signing.journal import Journal, JournalError
from directsuite.jobs.signing.targets import Target
from directsuite.signing.models import Signature
from directsuite.signing.service import Signing

Signatures = Sequence[Signature] | Callable[[Pdf], Sequence[Signature]]
"""What each document is signed with, or a function that says so for each."""

_LOOKED_UP = 200  # documents looked up in the journal at a time
_IN_A_ROW = 20  # documents that fail one after the other, until the job is stopped
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0  # seconds
_RECENT = 900.0  # seconds from which the rate is reckoned


class JobStoppedError(DirectSuiteError):
    """The job can't go on. What is done is done, and the rest is where it was: run it again when the cause is gone."""


@attrs.frozen(kw_only=True)
class SigningProgress:
    """How a run stands. rate: documents a second, of the last 15 minutes. trouble: what is waited for, an error's type.

    passed_over: done or failed in an earlier run. `Journal.tally` counts over all runs.
    """

    done: int
    failed: int
    passed_over: int
    under_way: int
    rate: float
    trouble: str | None


class SigningJob:
    """Signs the documents of a source into a target, each exactly once, whatever happens meanwhile.

        async with ds.DirectSuite(settings, token=token) as suite, Journal("signing.db") as journal:
            job = SigningJob(suite.signing, Folder("in"), TargetFolder("out"), [signature], journal=journal)
            progress = await job.run()

    A run that was broken off, by a crash too, goes on with the next one. signatures: one or several, at least. journal:
    an opened one, of this job alone. at_a_time: documents under way side by side. patience: seconds for which the
    service may be in trouble until `run` gives up. clock, now: for tests. Raises ConfigurationError.
    """

    def __init__(
        self,
        signing: Signing,
        source: AsyncIterable[Pdf],
        target: Target,
        signatures: Signatures,
        *,
        journal: Journal,
        at_a_time: int = 10,
        patience: float = 900.0,
        clock: Clock | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        if not callable(signatures) and not signatures:
            raise ConfigurationError("there is nothing to sign with: give at least one signature")
        self._signing = signing
        self._source = source
        self._target = target
        self._signatures = signatures
        self._journal = journal
        self._at_a_time = at_a_time
        self._patience = patience
        self._clock = clock or SystemClock()
        self._now = now
        self._open = asyncio.Event()
        self._open.set()
        self._ends = False
        self._done = self._failed = self._passed_over = 0
        self._in_a_row = 0  # of those that failed
        self._taken = set[int]()
        self._began = self._clock.monotonic()
        self._recent = deque[float]()
        self._troubled: tuple[float, str] | None = None  # since when, and the error's type
        self._stopped: JobStoppedError | None = None

    def pause(self) -> None:
        """Begin no further document; those under way are brought to their end."""
        self._open.clear()

    def resume(self) -> None:
        """Go on after a pause."""
        self._open.set()

    def drain(self) -> None:
        """Let `run` return when the documents under way have come to their end."""
        self._ends = True
        self._open.set()

    @property
    def progress(self) -> SigningProgress:
        """How this run stands."""
        return SigningProgress(
            done=self._done,
            failed=self._failed,
            passed_over=self._passed_over,
            under_way=len(self._taken),
            rate=self._rate(),
            trouble=None if self._troubled is None else self._troubled[1],
        )

    async def run(self) -> SigningProgress:
        """Bring every document of the source to its end: signed and at the target, or failed.

        Documents that failed in an earlier run are passed over, until `Journal.renew`. Cancelled, it leaves what is
        under way to the next run. Raises JobStoppedError, ConfigurationError, JournalError, and what the source raises.
        """
        if not callable(self._signatures):
            await self._journal.claim(_digest(self._signatures))
        self._ends, self._stopped, self._troubled = False, None, None
        async with self._target.workshop() as workshop:
            course = Course(
                signing=self._signing, journal=self._journal, target=self._target, workshop=workshop, now=self._now
            )
            await self._delete_abandoned()
            async with contextlib.aclosing(self._unfinished()) as unfinished:
                turn = asyncio.Lock()
                async with asyncio.TaskGroup() as group:
                    for _ in range(self._at_a_time):
                        group.create_task(self._work(course, unfinished, turn))
            await self._delete_abandoned()
        if self._stopped is not None:
            raise self._stopped
        return self.progress

    async def _unfinished(self) -> AsyncGenerator[tuple[Entry, Pdf]]:
        """Documents of the source that have not come to their end, each once."""
        some = list[Pdf]()
        async for pdf in self._source:
            some.append(pdf)
            if len(some) == _LOOKED_UP:
                async for each in self._looked_up(some):
                    yield each
                some.clear()
        async for each in self._looked_up(some):
            yield each

    async def _looked_up(self, some: Sequence[Pdf]) -> AsyncGenerator[tuple[Entry, Pdf]]:
        entries = await self._journal.entries([pdf.name for pdf in some])
        for entry, pdf in zip(entries, some, strict=True):
            if entry.state.is_final or entry.number in self._taken:
                self._passed_over += entry.state.is_final
            else:
                yield entry, pdf

    async def _work(self, course: Course, unfinished: AsyncGenerator[tuple[Entry, Pdf]], turn: asyncio.Lock) -> None:
        while True:
            await self._open.wait()
            async with turn:
                if self._ends:
                    return
                found = await anext(unfinished, None)
            if found is None:
                return
            entry, pdf = found
            self._taken.add(entry.number)
            try:
                await self._bring(course, entry, pdf)
            finally:
                self._taken.discard(entry.number)

    async def _bring(self, course: Course, entry: Entry, pdf: Pdf) -> None:
        """A document's way to its end, as often as the service is in trouble meanwhile."""
        signatures = self._signatures(pdf) if callable(self._signatures) else self._signatures
        pause = _FIRST_PAUSE
        while True:
            try:
                end = await course.go(entry, pdf, signatures)
            except (AuthenticationError, ClosedError, ConfigurationError, JournalError) as error:
                return self._stop(error.explanation, error)
            except DirectSuiteError as error:
                if self._is_over(error):
                    return self._stop("the service is in trouble, and has been for too long", error)
                await self._clock.sleep(max(pause, error.retry_after or 0.0))
                pause = min(_LONGEST_PAUSE, 2 * pause)
                [entry] = await self._journal.entries([entry.name])
            except OSError as error:
                return self._stop(f"the target can't be written ({_reason(error)})", error)
            else:
                return self._note(end)

    def _is_over(self, error: DirectSuiteError) -> bool:
        """Whether there is no more waiting for the service."""
        now = self._clock.monotonic()
        if self._troubled is None:
            self._troubled = now, type(error).__name__
        return self._ends or now - self._troubled[0] > self._patience

    def _note(self, end: Entry) -> None:
        self._troubled = None
        self._recent.append(self._clock.monotonic())
        if end.state is State.DONE:
            self._done += 1
            self._in_a_row = 0
            return
        self._failed += 1
        self._in_a_row += 1
        if self._in_a_row >= _IN_A_ROW:
            self._stop(f"{_IN_A_ROW} documents failed one after the other, at last with {end.problem}")

    def _stop(self, why: str, cause: Exception | None = None) -> None:
        """Begin nothing more; what others have under way comes to its end."""
        self.drain()
        if self._stopped is None:
            self._stopped = JobStoppedError(f"{why}: see to it, and run the job again")
            self._stopped.__cause__ = cause

    def _rate(self) -> float:
        """Documents a second."""
        now = self._clock.monotonic()
        while self._recent and self._recent[0] < now - _RECENT:
            self._recent.popleft()
        return len(self._recent) / max(1.0, min(_RECENT, now - self._began))

    async def _delete_abandoned(self) -> None:
        """What can't be deleted now expires by itself."""
        identifiers = await self._journal.abandoned()
        deleted = list[str]()
        for start in range(0, len(identifiers), self._at_a_time):
            some = identifiers[start : start + self._at_a_time]
            deleted += [each for each in await asyncio.gather(*map(self._delete, some)) if each is not None]
        await self._journal.forget(deleted)

    async def _delete(self, identifier: str) -> str | None:
        try:
            await self._signing.delete(identifier)
        except MISSING:
            return identifier
        except DirectSuiteError:
            return None
        return identifier


def _reason(error: OSError) -> str:
    return os.strerror(error.errno) if error.errno is not None else type(error).__name__


def _digest(signatures: Sequence[Signature]) -> str:
    return hashlib.sha256(msgspec.msgpack.encode([attrs.astuple(each) for each in signatures])).hexdigest()
