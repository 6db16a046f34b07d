"""Many documents, signed side by side, and each of them once.

source ─► DocumentQueue: done or failed before? passed over ─► DocumentWorkflow, so many at a time ─► target
                                                                   └─ the service is in trouble: it waits
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Sequence
from pathlib import Path

import attrs

from directsuite.core.checks import AT_LEAST_ONE, DURATION
from directsuite.core.clock import Clock, make_unix_time, sleep_or_event
from directsuite.core.failures import explain_os_error, is_being_cancelled
from directsuite.core.privacy import scrub_class
from directsuite.errors import AuthenticationError, ConfigurationError, DirectSuiteError
from directsuite.jobs.signing.documents import Pdf, SourceError, has_changed
from directsuite.jobs.signing.journal import LeasedBatch, compute_signatures_digest, lock_journal
from directsuite.jobs.signing.steps import DocumentWorkflow
from directsuite.jobs.signing.targets import Target
from directsuite.jobs.signing.workflow import (
    DOCUMENT_PROBLEMS,
    DocumentState,
    OutageTracker,
    RetryState,
    RetryVerdict,
    SigningEntry,
)
from directsuite.signing.models import Signature
from directsuite.signing.service import Signing

_LOGGER = logging.getLogger("directsuite")

Signatures = Sequence[Signature] | Callable[[Pdf], Sequence[Signature]]
"""What each document is signed with, or a function that says so for each."""

_Lookup = Callable[[Sequence[Pdf]], Awaitable[Sequence[SigningEntry | None]]]
"""Gives the entries of documents; None for one that isn't wanted."""

_MAX_FAILURES_IN_A_ROW = 20  # documents that fail one after the other, until the job is stopped
_RATE_WINDOW_SECONDS = 900.0  # seconds from which the rate is reckoned

_HINT_RUN_AGAIN = "see to it, and run the job again"
_HINT_RENEW_CREDENTIAL = "give the suite a valid token, and run the job again"
_HINT_RETRY_FAILED = (
    "see what is wrong with them, then have them tried again with run_failed, or by the journal's renew: "
    "run passes them over, and goes on with the rest"
)


class JobStoppedError(DirectSuiteError):
    """The job can't go on. What is done is done, and the rest is where it was: the text says how to go on."""

    def __init__(self, why: str, what_to_do: str = _HINT_RUN_AGAIN) -> None:
        super().__init__(f"{why}: {what_to_do}")
        self.why = why
        """What has stopped it, without what to do about it."""


@attrs.frozen(kw_only=True)
class SigningProgress:
    """How a run stands. `Journal.tally` counts over all runs."""

    done: int
    """Documents that this run has signed."""
    failed: int
    """Documents that failed in this run."""
    passed_over: int
    """Documents that had been signed or failed before, or aren't wanted, and those whose name came before."""
    changed: int
    """Documents passed over that this run found to have another content than was signed under their names."""
    under_way: int
    """Documents that are in work now."""
    rate: float
    """Documents a second, of the last 15 minutes."""
    trouble: str | None
    """The type of the error that is waited out, if any."""


@scrub_class
class SigningJob:
    """Signs the documents of a source into a target, each exactly once, whatever happens meanwhile.

        async with ds.DirectSuite(settings, token=token) as suite, Journal("signing.db") as journal:
            job = SigningJob(suite.signing, Folder("in"), TargetFolder("out"), [signature], journal=journal)
            progress = await job.run()

    A run that was broken off, by a crash too, goes on with the next one. signatures: one or several, at least. journal:
    an opened one, of this job alone. concurrency: documents under way side by side. patience: seconds for which the
    service may be in trouble until `run` gives up. check_fields: ask the service for the fields of each document, and
    fail one that has no empty field of a signature's name, where that has no widget: it would be signed invisibly, and
    its field stay empty. It takes one more request for each document. clock, now: for tests, in place of the suite's
    clock and the Unix time that goes with it. Raises ConfigurationError.
    """

    def __init__(
        self,
        signing: Signing,
        source: AsyncIterable[Pdf],
        target: Target,
        signatures: Signatures,
        *,
        journal: LeasedBatch,
        concurrency: int = 10,
        max_outage: float = 900.0,
        check_fields: bool = False,
        clock: Clock | None = None,
        now: Callable[[], float] | None = None,
    ) -> None:
        _validate_argument_types(source, signatures)
        if not callable(signatures) and not signatures:
            raise ConfigurationError("there is nothing to sign with: give at least one signature")
        AT_LEAST_ONE.require("concurrency", concurrency)
        DURATION.require("max_outage", max_outage)
        _validate_target_outside_source(source, target)
        self._signing = signing
        self._source = source
        self._target = target
        self._signatures = signatures
        self._journal = journal
        self._concurrency = concurrency
        self._check_fields = check_fields
        self._clock = clock or signing.runtime.clock
        self._now = now or make_unix_time(self._clock)
        self._open = asyncio.Event()
        self._open.set()
        self._ending = asyncio.Event()
        self._queue: DocumentQueue | None = None
        self._done = self._failed = self._changed = 0
        self._failures_in_a_row = 0  # of those that failed
        self.signed_before = 0
        """Documents that this process signed in other jobs: a service that signed them is not a wrong URL."""
        self._rate = DocumentRate(self._clock)
        self._outage = OutageTracker(clock=self._clock, max_outage=max_outage)
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
        if self._queue is not None:
            self._queue.stop()

    @property
    def progress(self) -> SigningProgress:
        """How this run stands."""
        return SigningProgress(
            done=self._done,
            failed=self._failed,
            passed_over=0 if self._queue is None else self._queue.passed_over,
            changed=self._changed,
            under_way=0 if self._queue is None else self._queue.in_progress,
            rate=self._rate.per_second(),
            trouble=self._outage.kind,
        )

    async def run(self) -> SigningProgress:
        """Bring every document of the source to its end: signed and at the target, or failed.

        Documents that were signed are passed over, and so are those that failed in an earlier run, until `run_failed`,
        or `Journal.renew`. A file that has changed since it was signed is not signed again under its name: it is
        counted and logged, by its number in the journal. Cancelled, `run` leaves what is under way to the next run.
        Raises JobStoppedError, JournalError, what the source raises, and ConfigurationError, at once where another run
        goes on with this journal.
        """

        async def look_up(pdfs: Sequence[Pdf]) -> Sequence[SigningEntry | None]:
            """All that have not come to their end."""
            entries = await self._journal.entries([pdf.name for pdf in pdfs])
            signed = [(pdf, each) for pdf, each in zip(pdfs, entries, strict=True) if each.state is DocumentState.DONE]
            for entry in await asyncio.to_thread(_find_changed, signed) if signed else ():
                self._changed += 1
                _LOGGER.warning(
                    "signing: number %d of the journal was signed, and is another document now", entry.number
                )
            return [None if each.state.is_final else each for each in entries]

        return await self._run_alone(look_up)

    async def run_failed(self, problem: str | None = None) -> SigningProgress:
        """Try again the documents of the source that have failed, all or those with this problem, and no others.

        What is in their place now is signed, even if it has changed. One whose name the target has by now fails again,
        and nothing is signed, until that file is moved away. One that isn't reached stays failed, and one whose next
        try was broken off is tried by the next `run_failed`, or `run`. Raises as `run` does.
        """

        async def look_up(pdfs: Sequence[Pdf]) -> Sequence[SigningEntry | None]:
            """Only those, and each once: one that fails again does so under its name, too."""
            known = await self._journal.find_entries([pdf.name for pdf in pdfs])
            failed = {each.name for each in known.values() if each.has_failed and problem in (None, each.problem)}
            remaining = failed - begun
            begun.update(remaining)
            return [known[pdf.name] if pdf.name in remaining else None for pdf in pdfs]

        begun = set[str]()
        return await self._run_alone(look_up)

    async def _run_alone(self, look_up: _Lookup) -> SigningProgress:
        with lock_journal(self._journal):
            try:
                return await self._run(look_up)
            finally:
                self._ending.clear()  # not when it begins: who has made a task of it may have drained it by then

    async def _run(self, look_up: _Lookup) -> SigningProgress:
        if not callable(self._signatures):
            await self._journal.claim(compute_signatures_digest(self._signatures))
        self._failure = None
        self._outage = OutageTracker(
            clock=self._clock, max_outage=self._outage.max_outage, signed_count=self.signed_before
        )
        self._done = self._failed = self._changed = self._failures_in_a_row = 0
        self._rate = DocumentRate(self._clock)
        async with contextlib.AsyncExitStack() as stack:
            workflow = DocumentWorkflow(
                signing=self._signing,
                journal=self._journal,
                target=self._target,
                staging_dir=await self._enter_staging_dir(stack),
                outage=self._outage,
                now=self._now,
                check_fields=self._check_fields,
            )
            await workflow.cleanup(self._concurrency)
            self._queue = DocumentQueue(self._source, look_up, ahead=4 * self._concurrency, gate=self._open)
            async with self._queue.run_reader(), asyncio.TaskGroup() as group:
                if self._ending.is_set():  # there was no queue to stop
                    self._queue.stop()
                for _ in range(self._concurrency):
                    group.create_task(self._work(workflow, self._queue))
            await workflow.cleanup(self._concurrency)
        if self._failure is not None:
            raise self._failure
        return self.progress

    async def _enter_staging_dir(self, stack: contextlib.AsyncExitStack) -> Path:
        shard = await self._journal.get_shard()
        try:
            return await stack.enter_async_context(self._target.staging_dir(shard, self._journal.lease_number))
        except OSError as error:
            why = f"the target can't be written ({explain_os_error(error)})"
        raise JobStoppedError(why)

    async def _work(self, workflow: DocumentWorkflow, queue: DocumentQueue) -> None:
        """Bring documents to their ends, one after the other. A failure ends the job, and not what others bring."""
        try:
            while True:
                try:
                    document = await queue.next()
                except OSError as error:  # it names a document, and is no cause
                    return self._stop(JobStoppedError(f"the source can't be read ({explain_os_error(error)})"))
                if document is None:
                    return None
                entry, pdf = document
                try:
                    await self._sign(workflow, entry, pdf)
                finally:
                    queue.put_back(entry)
        except asyncio.CancelledError:
            if is_being_cancelled():
                raise
            self._stop(JobStoppedError("something was cancelled that a document waited for"))
        except Exception as error:  # noqa: BLE001  what the source or a function of the caller's raised
            self._fail(error)

    async def _sign(self, workflow: DocumentWorkflow, entry: SigningEntry, pdf: Pdf) -> None:
        """Bring a document to its end, in as many tries as it takes while the service or the source is in trouble."""
        signatures = self._signatures(pdf) if callable(self._signatures) else self._signatures
        retry = RetryState(self._outage)
        while True:
            retry.begin()
            try:
                return self._record_end(entry, await workflow.run(entry, pdf, signatures), retry)
            except (DirectSuiteError, SourceError) as error:
                verdict = retry.judge(error, has_others_in_progress=self._has_others_in_progress)
                if verdict is RetryVerdict.STOP:
                    what_to_do = _HINT_RENEW_CREDENTIAL if isinstance(error, AuthenticationError) else _HINT_RUN_AGAIN
                    return self._stop(JobStoppedError(retry.explain_stop(error), what_to_do), error)
                [entry] = await self._journal.entries([entry.name])
                if verdict is RetryVerdict.FAIL:
                    return self._record_end(entry, await workflow.fail(entry, error), retry)
                pause = retry.compute_pause(error)
            except OSError as error:
                return self._stop(JobStoppedError(f"the target can't be written ({explain_os_error(error)})"))
            await sleep_or_event(self._clock.sleep(pause), self._ending)
            if self._ending.is_set():
                return None  # it is left to the next run

    @property
    def _has_others_in_progress(self) -> bool:
        """Or had: those that ended since the job is to end tell nothing any more."""
        return self._ending.is_set() or (self._queue is not None and self._queue.in_progress > 1)

    def _record_end(self, begin: SigningEntry, end: SigningEntry, retry: RetryState) -> None:
        self._rate.record_end()
        retry.end(is_done=end.state is DocumentState.DONE)
        if end.state is DocumentState.DONE:
            self._done += 1
            self._failures_in_a_row = 0
            return
        self._failed += 1
        # What failed before for the same reason tells nothing new, and keeps nothing else from being tried again.
        self._failures_in_a_row += end.problem not in DOCUMENT_PROBLEMS | {begin.problem}
        if self._failures_in_a_row >= _MAX_FAILURES_IN_A_ROW:
            why = f"{_MAX_FAILURES_IN_A_ROW} documents failed one after the other; the last: {end.problem}"
            self._stop(JobStoppedError(why, _HINT_RETRY_FAILED))

    def _stop(self, stopped: JobStoppedError, cause: Exception | None = None) -> None:
        stopped.__cause__ = cause
        self._fail(stopped)

    def _fail(self, error: Exception) -> None:
        """Begin nothing more; what others have under way comes to its end."""
        self.drain()
        if self._failure is None:
            self._failure = error


def _find_changed(signed: Sequence[tuple[Pdf, SigningEntry]]) -> list[SigningEntry]:
    """Those of documents that were signed whose files have another content now."""
    return [entry for pdf, entry in signed if has_changed(pdf, entry.source_stamp, entry.source_sha)]


class DocumentQueue:
    """Hands out the documents of a source, each to one worker and once, if it has not come to its end.

    ahead: how many are read before anybody asks for them. gate: none is handed out while it isn't set.
    """

    def __init__(self, source: AsyncIterable[Pdf], look_up: _Lookup, *, ahead: int, gate: asyncio.Event) -> None:
        self.passed_over = 0
        """Those that had come to their end before, or aren't wanted, and those whose name came before."""
        self._source = source
        self._look_up = look_up
        self._gate = gate
        self._read = asyncio.Queue[Pdf | _SourceEnd](ahead)
        self._found = deque[tuple[SigningEntry, Pdf]]()
        self._lock = asyncio.Lock()
        self._handed_out = set[int]()
        self._ended = set[int]()  # since the last lookup began: entries found by it may be older
        self._is_over = False

    @contextlib.asynccontextmanager
    async def run_reader(self) -> AsyncGenerator[None]:
        """Read the source meanwhile."""
        reader = asyncio.create_task(self._read_source())
        try:
            yield
        finally:
            reader.cancel()
            await asyncio.wait([reader])

    @property
    def in_progress(self) -> int:
        """Documents that are handed out."""
        return len(self._handed_out)

    async def next(self) -> tuple[SigningEntry, Pdf] | None:
        """Another document, which is the caller's until it is put back; None where none comes any more.

        Raises what the source raised, and JournalError; None comes after that.
        """
        async with self._lock:
            while not self._is_over:
                if not self._found:
                    await self._look_up_some()
                    continue
                if not self._gate.is_set():
                    await self._gate.wait()
                    continue
                entry, pdf = self._found.popleft()
                if entry.number not in self._handed_out and entry.number not in self._ended:
                    self._handed_out.add(entry.number)
                    return entry, pdf
                self.passed_over += 1
                _LOGGER.warning(
                    "signing: the source gave number %d of the journal again: a name is one PDF's", entry.number
                )
            return None

    def put_back(self, entry: SigningEntry) -> None:
        """A document has come to its end, or its worker goes."""
        self._handed_out.discard(entry.number)
        self._ended.add(entry.number)

    def stop(self) -> None:
        """Hand out no more, whatever comes: those who wait get None."""
        self._is_over = True
        with contextlib.suppress(asyncio.QueueFull):  # then nobody waits for something to be read
            self._read.put_nowait(_SourceEnd())

    async def _look_up_some(self) -> None:
        """Look up what was read. At the source's end there is no more to hand out."""
        some = [await self._read.get()]
        while not self._read.empty():
            some.append(self._read.get_nowait())
        pdfs = [each for each in some if isinstance(each, Pdf)]
        errors = [each.error for each in some if isinstance(each, _SourceEnd) and each.error is not None]
        if self._is_over or not pdfs:
            self._is_over = True
            if errors:
                raise errors[0]
            return
        if len(pdfs) < len(some):
            self._read.put_nowait(some[-1])  # the end comes again, after those before it
        self._ended.clear()
        for entry, pdf in zip(await self._look_up(pdfs), pdfs, strict=True):
            if entry is None:
                self.passed_over += 1
            else:
                self._found.append((entry, pdf))

    async def _read_source(self) -> None:
        source, end = aiter(self._source), _SourceEnd()
        try:
            try:
                async for pdf in source:
                    await self._read.put(pdf)
            finally:
                if isinstance(source, AsyncGenerator):
                    await source.aclose()
        except BaseException as error:
            if is_being_cancelled():
                raise
            end = _SourceEnd(SourceError("it was cancelled") if isinstance(error, asyncio.CancelledError) else error)
        await self._read.put(end)


@attrs.frozen
class _SourceEnd:
    """Stands after the last document that the source gave. error: what it raised there."""

    error: BaseException | None = None


class DocumentRate:
    """Documents a second, of the last 15 minutes of a run, which begins now."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began = clock.monotonic()
        self._recent = deque[float]()

    def __len__(self) -> int:
        return len(self._recent)

    def record_end(self) -> None:
        """Count a document that has come to its end."""
        self._recent.append(self._forget_old())

    def per_second(self) -> float:
        """The documents that have come to their end lately, a second."""
        now = self._forget_old()
        return len(self) / max(1.0, min(_RATE_WINDOW_SECONDS, now - self._began))

    def _forget_old(self) -> float:
        """Drop times that no longer count. Return the present time."""
        now = self._clock.monotonic()
        while self._recent and self._recent[0] < now - _RATE_WINDOW_SECONDS:
            self._recent.popleft()
        return now


def _validate_argument_types(source: object, signatures: object) -> None:
    """Raise ConfigurationError at once for what would be found when the job runs, perhaps hours later."""
    if not isinstance(source, AsyncIterable):
        raise ConfigurationError("source has to be an async iterable of Pdf: a Folder, or an async generator")
    if not (callable(signatures) or isinstance(signatures, Sequence)):
        raise ConfigurationError("signatures has to be a list of them, or a function that gives one for a document")


def _validate_target_outside_source(source: object, target: object) -> None:
    """Raise ConfigurationError if the target is within the source: what is signed would be found and signed again."""
    paths = [getattr(each, "place", None) for each in (source, target)]  # each ends with a separator
    if None not in paths and str(paths[1]).startswith(str(paths[0])):
        raise ConfigurationError("the target is within the source, and would be signed, too: give it another folder")
