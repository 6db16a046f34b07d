"""Many documents, signed side by side, and each of them once.

source ─► Intake: done or failed before? passed over ─► Course, so many at a time ─► target
                                                            └─ the service is in trouble: each waits, longer and longer
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterable, Awaitable, Callable, Sequence
from pathlib import Path

import attrs

from directsuite.core.checks import AT_LEAST_ONE, DURATION
from directsuite.core.clock import Clock, unix_time
from directsuite.core.failures import is_being_cancelled, reason_of
from directsuite.errors import ConfigurationError, DirectSuiteError
from directsuite.jobs.signing.course import OF_THE_PLACE, Course
from directsuite.jobs.signing.documents import Pdf, SourceError
from directsuite.jobs.signing.entry import Entry, State
from directsuite.jobs.signing.intake import Intake, Lookup
from directsuite.jobs.signing.keeping import Keeping, alone, digest_of
from directsuite.jobs.signing.leftovers import delete_abandoned
from directsuite.jobs.signing.rate import Rate
from directsuite.jobs.signing.targets import Target
from directsuite.jobs.signing.trouble import Tries, Trouble, Verdict
from directsuite.signing.models import Signature
from directsuite.signing.service import Signing

Signatures = Sequence[Signature] | Callable[[Pdf], Sequence[Signature]]
"""What each document is signed with, or a function that says so for each."""

_IN_A_ROW = 20  # documents that fail one after the other, until the job is stopped

_RUN_AGAIN = "see to it, and run the job again"
_RENEW = (
    "see what is wrong with them, then have them tried again with run_failed, or by the journal's renew: "
    "run passes them over, and goes on with the rest"
)


class JobStoppedError(DirectSuiteError):
    """The job can't go on. What is done is done, and the rest is where it was: the text says how to go on.

    why: what has stopped it, without that.
    """

    def __init__(self, why: str, what_to_do: str = _RUN_AGAIN) -> None:
        super().__init__(f"{why}: {what_to_do}")
        self.why = why


@attrs.frozen(kw_only=True)
class SigningProgress:
    """How a run stands. rate: documents a second, of the last 15 minutes. trouble: what is waited for, an error's type.

    passed_over: those that had come to their end before, or aren't wanted, and those whose name came before.
    `Journal.tally` counts over all runs.
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
    service may be in trouble until `run` gives up. clock, now: for tests, in place of the suite's clock and the Unix
    time that goes with it. Raises ConfigurationError.
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
        now: Callable[[], float] | None = None,
    ) -> None:
        _refuse_other_kinds(source, signatures)
        if not callable(signatures) and not signatures:
            raise ConfigurationError("there is nothing to sign with: give at least one signature")
        AT_LEAST_ONE.require("at_a_time", at_a_time)
        DURATION.require("patience", patience)
        _refuse_to_sign_its_own(source, target)
        self._signing = signing
        self._source = source
        self._target = target
        self._signatures = signatures
        self._journal = journal
        self._at_a_time = at_a_time
        self._clock = clock or signing.runtime.clock
        self._now = now or unix_time(self._clock)
        self._open = asyncio.Event()
        self._open.set()
        self._ending = asyncio.Event()
        self._intake: Intake | None = None
        self._done = self._failed = 0
        self._in_a_row = 0  # of those that failed
        self._signed_before = 0  # by this process, in other runs
        self._rate = Rate(self._clock)
        self._trouble = Trouble(clock=self._clock, patience=patience)
        self._failure: Exception | None = None

    def pause(self) -> None:
        """Begin no further document; those under way are brought to their end."""
        self._open.clear()

    def resume(self) -> None:
        """Go on after a pause."""
        self._open.set()

    def drain(self) -> None:
        """Let `run`, or the next one, return when the documents under way have ended, or can't without waiting.

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
            rate=self._rate.per_second(),
            trouble=self._trouble.kind,
        )

    async def run(self) -> SigningProgress:
        """Bring every document of the source to its end: signed and at the target, or failed.

        Documents that failed in an earlier run are passed over, until `run_failed`, or `Journal.renew`. Cancelled, it
        leaves what is under way to the next run. Raises JobStoppedError, JournalError, what the source raises, and
        ConfigurationError, at once where another run goes on with this journal.
        """

        async def look_up(pdfs: Sequence[Pdf]) -> Sequence[Entry | None]:
            """All that have not come to their end."""
            entries = await self._journal.entries([pdf.name for pdf in pdfs])
            return [None if each.state.is_final else each for each in entries]

        return await self._run_alone(look_up)

    async def run_failed(self, problem: str | None = None) -> SigningProgress:
        """Try again the documents of the source that have failed, all or those with this problem, and no others.

        What is in their place now is signed, even if it has changed. One whose name the target has by now fails again,
        and nothing is signed, until that file is moved away. One that isn't reached stays failed, and one whose next
        try was broken off is tried by the next `run_failed`, or `run`. Raises as `run` does.
        """

        async def look_up(pdfs: Sequence[Pdf]) -> Sequence[Entry | None]:
            """Only those, and each once: one that fails again does so under its name, too."""
            known = await self._journal.known([pdf.name for pdf in pdfs])
            failed = {each.name for each in known.values() if each.has_failed and problem in (None, each.problem)}
            wanted = failed - begun
            begun.update(wanted)
            return [known[pdf.name] if pdf.name in wanted else None for pdf in pdfs]

        begun = set[str]()
        return await self._run_alone(look_up)

    async def _run_alone(self, look_up: Lookup) -> SigningProgress:
        with alone(self._journal):
            try:
                return await self._run(look_up)
            finally:
                self._ending.clear()  # not when it begins: who has made a task of it may have drained it by then

    async def _run(self, look_up: Lookup) -> SigningProgress:
        if not callable(self._signatures):
            await self._journal.claim(digest_of(self._signatures))
        self._failure, self._trouble = None, Trouble(clock=self._clock, patience=self._trouble.patience)
        self._done = self._failed = self._in_a_row = 0
        self._rate = Rate(self._clock)
        async with contextlib.AsyncExitStack() as stack:
            workshop = await self._workshop(stack)
            course = Course(
                signing=self._signing,
                journal=self._journal,
                target=self._target,
                workshop=workshop,
                now=self._now,
                signed=self._signed_before,
            )
            await self._delete_abandoned()
            async with (
                Intake(self._source, look_up, ahead=4 * self._at_a_time, gate=self._open) as self._intake,
                asyncio.TaskGroup() as group,
            ):
                if self._ending.is_set():  # there was no intake to stop
                    self._intake.stop()
                for _ in range(self._at_a_time):
                    group.create_task(self._work(course, self._intake))
            await self._delete_abandoned()
        if self._failure is not None:
            raise self._failure
        return self.progress

    async def _workshop(self, stack: contextlib.AsyncExitStack) -> Path:
        part = await self._journal.part()
        try:
            return await stack.enter_async_context(self._target.workshop(part, self._journal.turn))
        except OSError as error:
            why = f"the target can't be written ({reason_of(error)})"
        raise JobStoppedError(why)

    async def _work(self, course: Course, intake: Intake) -> None:
        """Bring documents to their ends, one after the other. A failure ends the job, and not what others bring."""
        try:
            while True:
                try:
                    found = await intake.next()
                except OSError as error:  # it names a document, and is no cause
                    return self._stop(JobStoppedError(f"the source can't be read ({reason_of(error)})"))
                if found is None:
                    return None
                entry, pdf = found
                try:
                    await self._bring(course, entry, pdf)
                finally:
                    intake.put_back(entry)
        except asyncio.CancelledError:
            if is_being_cancelled():
                raise
            self._stop(JobStoppedError("something was cancelled that a document waited for"))
        except Exception as error:  # noqa: BLE001  what the source or a function of the caller's raised
            self._fail(error)

    async def _bring(self, course: Course, entry: Entry, pdf: Pdf) -> None:
        """A document's way to its end, as often as the service is in trouble meanwhile."""
        signatures = self._signatures(pdf) if callable(self._signatures) else self._signatures
        tries = self._trouble.begin()
        while True:
            tries.begin(course.signed)
            try:
                end = await course.go(entry, pdf, signatures)
            except DirectSuiteError as error:
                verdict = tries.judge(error, course.signed, others=self._has_others_under_way)
                if verdict is Verdict.STOP:
                    return self._stop(JobStoppedError(tries.why_stopped(error)), error)
                [entry] = await self._journal.entries([entry.name])
                if verdict is Verdict.FAIL:
                    return self._note(await course.fail(entry, error), tries)
                pause = tries.pause(error.retry_after)
            except SourceError as error:
                [entry] = await self._journal.entries([entry.name])
                if tries.is_unreadable(error, course.read):
                    return self._note(await course.fail(entry, error), tries)
                pause = tries.pause()
            except OSError as error:
                return self._stop(JobStoppedError(f"the target can't be written ({reason_of(error)})"))
            else:
                return self._note(end, tries)
            await self._wait(pause)
            if self._ending.is_set():
                return None  # it is left to the next run

    @property
    def _has_others_under_way(self) -> bool:
        """Or had: those that ended since the job is to end tell nothing any more."""
        return self._ending.is_set() or (self._intake is not None and self._intake.under_way > 1)

    async def _wait(self, seconds: float) -> None:
        """Let time pass, until the job is drained."""
        passing, ending = asyncio.create_task(self._clock.sleep(seconds)), asyncio.create_task(self._ending.wait())
        try:
            await asyncio.wait([passing, ending], return_when=asyncio.FIRST_COMPLETED)
        finally:
            passing.cancel()
            ending.cancel()

    def _note(self, end: Entry, tries: Tries) -> None:
        self._rate.note()
        tries.end(is_done=end.state is State.DONE)
        if end.state is State.DONE:
            self._done += 1
            self._in_a_row = 0
            return
        self._failed += 1
        self._in_a_row += end.problem not in OF_THE_PLACE
        if self._in_a_row >= _IN_A_ROW:
            why = f"{_IN_A_ROW} documents failed one after the other, at last with {end.problem}"
            self._stop(JobStoppedError(why, _RENEW))

    def _stop(self, stopped: JobStoppedError, cause: Exception | None = None) -> None:
        stopped.__cause__ = cause
        self._fail(stopped)

    def _fail(self, error: Exception) -> None:
        """Begin nothing more; what others have under way comes to its end."""
        self.drain()
        if self._failure is None:
            self._failure = error

    def _delete_abandoned(self) -> Awaitable[None]:
        return delete_abandoned(self._signing, self._journal, now=self._now(), at_a_time=self._at_a_time)


def _refuse_other_kinds(source: object, signatures: object) -> None:
    """Else they would be found when the job runs, perhaps hours later."""
    if not isinstance(source, AsyncIterable):
        raise ConfigurationError("source has to be an async iterable of Pdf: a Folder, or an async generator")
    if not (callable(signatures) or isinstance(signatures, Sequence)):
        raise ConfigurationError("signatures has to be a list of them, or a function that gives one for a document")


def _refuse_to_sign_its_own(source: object, target: object) -> None:
    """What is signed must not come back as something to sign."""
    places = [getattr(each, "place", None) for each in (source, target)]
    if None not in places and str(places[1]).startswith(str(places[0])):
        raise ConfigurationError("the target is within the source, and would be signed, too: give it another place")
