"""Many documents, signed side by side, and each of them once.

source ─► Intake: done or failed before? passed over ─► Course, so many at a time ─► target
                                                            └─ the service is in trouble: each waits, longer and longer
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import deque
from collections.abc import AsyncIterable, Awaitable, Callable, Sequence

import attrs
import msgspec

from directsuite.core.clock import Clock, SystemClock
from directsuite.errors import (
    AuthenticationError,
    ClosedError,
    ConfigurationError,
    DirectSuiteError,
    NotFoundError,
    PermissionDeniedError,
    RateLimitedError,
)
from directsuite.jobs.signing.course import Course
from directsuite.jobs.signing.documents import Pdf
from directsuite.jobs.signing.entry import Entry, State
from directsuite.jobs.signing.intake import Intake, Lookup
from directsuite.jobs.signing.keeping import JournalError, Keeping
from directsuite.jobs.signing.leftovers import delete_abandoned
from directsuite.jobs.signing.targets import Target, reason
from directsuite.signing.models import Signature
from directsuite.signing.service import Signing

Signatures = Sequence[Signature] | Callable[[Pdf], Sequence[Signature]]
"""What each document is signed with, or a function that says so for each."""

_IN_A_ROW = 20  # documents that fail one after the other, until the job is stopped
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0  # seconds
_SUSPECT = 8  # failures of the service with one document, while others come through
_RECENT = 900.0  # seconds from which the rate is reckoned

_HOPELESS = (AuthenticationError, ClosedError, ConfigurationError, JournalError, NotFoundError, PermissionDeniedError)
"""What is the same for every document, and doesn't pass by waiting; NotFoundError is about the service's URL."""


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
        journal: Keeping,
        at_a_time: int = 10,
        patience: float = 900.0,
        clock: Clock | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        if not callable(signatures) and not signatures:
            raise ConfigurationError("there is nothing to sign with: give at least one signature")
        if at_a_time < 1:
            raise ConfigurationError("at_a_time has to be at least 1")
        _refuse_to_sign_its_own(source, target)
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
        self._ending = asyncio.Event()
        self._intake: Intake | None = None
        self._done = self._failed = 0
        self._in_a_row = 0  # of those that failed
        self._began = self._clock.monotonic()
        self._recent = deque[float]()
        self._troubled: tuple[float, str] | None = None  # since when, and the error's type
        self._failure: Exception | None = None

    def pause(self) -> None:
        """Begin no further document; those under way are brought to their end."""
        self._open.clear()

    def resume(self) -> None:
        """Go on after a pause."""
        self._open.set()

    def drain(self) -> None:
        """Let `run` return when the documents under way have come to their end, or can't without waiting for it.

        To end at once, cancel the task: what is under way is left to the next run.
        """
        self._ending.set()
        self._open.set()
        if self._intake is not None:
            self._intake.stop()

    @property
    def progress(self) -> SigningProgress:
        """How this run stands."""
        return SigningProgress(
            done=self._done,
            failed=self._failed,
            passed_over=0 if self._intake is None else self._intake.passed_over,
            under_way=0 if self._intake is None else self._intake.under_way,
            rate=self._rate(),
            trouble=None if self._troubled is None else self._troubled[1],
        )

    async def run(self) -> SigningProgress:
        """Bring every document of the source to its end: signed and at the target, or failed.

        Documents that failed in an earlier run are passed over, until `run_failed`, or `Journal.renew`. Cancelled, it
        leaves what is under way to the next run. Raises JobStoppedError, ConfigurationError, JournalError, and what the
        source raises.
        """

        async def look_up(pdfs: Sequence[Pdf]) -> Sequence[Entry | None]:
            """All are wanted."""
            return await self._journal.entries([pdf.name for pdf in pdfs])

        return await self._run(look_up)

    async def run_failed(self, problem: str | None = None) -> SigningProgress:
        """Try again the documents of the source that have failed, all or those with this problem, and no others.

        What is in their place now is signed, even if it has changed. Raises as `run` does.
        """

        async def look_up(pdfs: Sequence[Pdf]) -> Sequence[Entry | None]:
            """One that isn't reached stays failed."""
            known = await self._journal.known([pdf.name for pdf in pdfs])
            failed = [each for each in known.values() if each.state is State.FAILED and problem in (None, each.problem)]
            renewed = {each.name: await self._journal.put(each.renewed()) for each in failed}
            return [renewed.get(pdf.name) for pdf in pdfs]

        return await self._run(look_up)

    async def _run(self, look_up: Lookup) -> SigningProgress:
        if not callable(self._signatures):
            await self._journal.claim(_digest(self._signatures))
        self._ending.clear()
        self._failure, self._troubled = None, None
        self._done = self._failed = self._in_a_row = 0
        self._began = self._clock.monotonic()
        self._recent.clear()
        async with self._target.workshop(await self._journal.part()) as workshop:
            course = Course(
                signing=self._signing, journal=self._journal, target=self._target, workshop=workshop, now=self._now
            )
            await self._delete_abandoned()
            async with (
                Intake(self._source, look_up, ahead=4 * self._at_a_time) as self._intake,
                asyncio.TaskGroup() as group,
            ):
                for _ in range(self._at_a_time):
                    group.create_task(self._work(course, self._intake))
            await self._delete_abandoned()
        if self._failure is not None:
            raise self._failure
        return self.progress

    async def _work(self, course: Course, intake: Intake) -> None:
        """Bring documents to their ends, one after the other. A failure ends the job, and not what others bring."""
        try:
            while True:
                await self._open.wait()
                found = await intake.next()
                if found is None:
                    return
                entry, pdf = found
                try:
                    await self._bring(course, entry, pdf)
                finally:
                    intake.put_back(entry)
        except OSError as error:  # it names a document, and is no cause
            self._stop(f"the source can't be read ({reason(error)})")
        except Exception as error:  # noqa: BLE001  what the source or a function of the caller's raised
            self._fail(error)

    async def _bring(self, course: Course, entry: Entry, pdf: Pdf) -> None:
        """A document's way to its end, as often as the service is in trouble meanwhile."""
        signatures = self._signatures(pdf) if callable(self._signatures) else self._signatures
        pause, failures, others = _FIRST_PAUSE, 0, self._done
        while True:
            try:
                end = await course.go(entry, pdf, signatures)
            except _HOPELESS as error:
                return self._stop(error.explanation, error)
            except DirectSuiteError as error:
                [entry] = await self._journal.entries([entry.name])
                failures += not isinstance(error, RateLimitedError)
                if failures >= _SUSPECT and self._done > others:
                    return self._note(await course.give_up(entry, error))
                if self._is_over(error):
                    return self._stop("the service is in trouble, and has been for too long", error)
                await self._wait(max(pause, error.retry_after or 0.0))
                if self._ending.is_set():
                    return None  # it is left to the next run
                pause = min(_LONGEST_PAUSE, 2 * pause)
            except OSError as error:
                return self._stop(f"the target can't be written ({reason(error)})")
            else:
                return self._note(end)

    def _is_over(self, error: DirectSuiteError) -> bool:
        """Whether there is no more waiting for the service."""
        now = self._clock.monotonic()
        if self._troubled is None:
            self._troubled = now, type(error).__name__
        return now - self._troubled[0] > self._patience

    async def _wait(self, seconds: float) -> None:
        """Let time pass, until the job is drained."""
        passing, ending = asyncio.create_task(self._clock.sleep(seconds)), asyncio.create_task(self._ending.wait())
        try:
            await asyncio.wait([passing, ending], return_when=asyncio.FIRST_COMPLETED)
        finally:
            passing.cancel()
            ending.cancel()

    def _note(self, end: Entry) -> None:
        self._recent.append(self._forget_old())
        if end.state is State.DONE:
            self._troubled = None
            self._done += 1
            self._in_a_row = 0
            return
        self._failed += 1
        self._in_a_row += 1
        if self._in_a_row >= _IN_A_ROW:
            self._stop(f"{_IN_A_ROW} documents failed one after the other, at last with {end.problem}")

    def _stop(self, why: str, cause: Exception | None = None) -> None:
        stopped = JobStoppedError(f"{why}: see to it, and run the job again")
        stopped.__cause__ = cause
        self._fail(stopped)

    def _fail(self, error: Exception) -> None:
        """Begin nothing more; what others have under way comes to its end."""
        self.drain()
        if self._failure is None:
            self._failure = error

    def _rate(self) -> float:
        """Documents a second."""
        now = self._forget_old()
        return len(self._recent) / max(1.0, min(_RECENT, now - self._began))

    def _forget_old(self) -> float:
        """Leave the times of the last 15 minutes; now."""
        now = self._clock.monotonic()
        while self._recent and self._recent[0] < now - _RECENT:
            self._recent.popleft()
        return now

    def _delete_abandoned(self) -> Awaitable[None]:
        return delete_abandoned(self._signing, self._journal, now=self._now(), at_a_time=self._at_a_time)


def _refuse_to_sign_its_own(source: object, target: object) -> None:
    """What is signed must not come back as something to sign."""
    places = [getattr(each, "place", None) for each in (source, target)]
    if None not in places and str(places[1]).startswith(str(places[0])):
        raise ConfigurationError("the target is within the source, and would be signed, too: give it another place")


def _digest(signatures: Sequence[Signature]) -> str:
    return hashlib.sha256(msgspec.msgpack.encode([attrs.astuple(each) for each in signatures])).hexdigest()
