"""Signing of many documents concurrently, each exactly once.

source ─► DocumentQueue skips documents that are done or failed ─► DocumentWorkflow, `concurrency` at a time ─► target
                                                                      └─► ResultStream, if a loop reads the results
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable, Sequence
from logging import DEBUG, INFO
from typing import Literal, cast

import attrs

from directsuite.core.checks import AT_LEAST_ONE, DURATION, is_async
from directsuite.core.clock import Clock, is_being_cancelled, make_unix_time, sleep_or_event
from directsuite.core.events import group_calls
from directsuite.core.files import explain_os_error, run_in_thread
from directsuite.core.iteration import Listing
from directsuite.core.privacy import scrub_class
from directsuite.errors import AuthenticationError, ConfigurationError, DirectSuiteError, TransportError
from directsuite.jobs.signing.documents import Pdf, SourceError, Target, has_changed
from directsuite.jobs.signing.journal import Lease, SigningJournal, SigningJournalError, compute_signatures_digest
from directsuite.jobs.signing.results import ResultStream, SigningResult, make_result
from directsuite.jobs.signing.steps import DocumentWorkflow, log_document, log_stopped
from directsuite.jobs.signing.workflow import (
    DOCUMENT_PROBLEMS,
    DocumentState,
    OutageTracker,
    RetryState,
    RetryVerdict,
    SigningEntry,
    parse_reason,
)
from directsuite.signing.models import Signature
from directsuite.signing.service import Signing

_LOGGER = logging.getLogger("directsuite")

Signatures = Sequence[Signature] | Callable[[Pdf], Sequence[Signature]]
"""Signatures for every document, or a function that returns those of one document."""

_Lookup = Callable[[Sequence[Pdf]], Awaitable[Sequence[SigningEntry | None]]]
"""Returns the entry of each document, None to skip it."""

_USER = re.compile("(?<=://)[^/@]*+@")  # of a URL
_MAX_FAILURES_IN_A_ROW = 20  # after which the job stops
_RATE_WINDOW_SECONDS = 900.0
_HINT_RUN_AGAIN = "fix the cause, then run the job again"
_HINT_RENEW_CREDENTIAL = "pass a valid token to the suite, then run the job again"
_HINT_RETRY_FAILED = (
    "fix the cause, then retry the failed documents with run_failed or the journal's retry. "
    "The method run skips failed documents and continues with the rest. "
    "The service's own words, if any, are in .service_message of the journal's failures"
)

StopReason = Literal["target not writable", "source not readable", "too many failures in a row", "task cancelled"]
"""Why a job stopped, if no error of the service or the journal stopped it."""


class JobStoppedError(DirectSuiteError):
    """The job cannot continue. The message says why, and how to resume it; finished documents are recorded.

    If an error of the service or the journal stopped it, that is the cause of this error (`__cause__`), which has its
    `call` and `group`.
    """

    def __init__(self, why: str, what_to_do: str = _HINT_RUN_AGAIN, *, reason: StopReason | None = None) -> None:
        super().__init__(why)
        self.advice = what_to_do
        self.why = why
        """Why the job stopped, without the advice: for example the last of many failures."""
        self.reason: StopReason | None = reason
        """A short form of `why` for logs. None if the error has a cause."""


@attrs.frozen(kw_only=True)
class SigningProgress:
    """The numbers of documents in one run, and its rate. `SigningJournal.tally` counts those of all runs."""

    done: int
    """Documents signed."""
    failed: int
    passed_over: int
    """Documents skipped: signed or failed in an earlier run, not selected, or with a repeated name."""
    changed: int
    """Skipped documents that have changed since they were signed."""
    under_way: int
    """Documents in progress."""
    rate: float
    """Documents per second, over the last 15 minutes."""
    trouble: str | None
    """The type of the error that is being retried, or None."""
    total: int | None = None
    """All documents of the source, including skipped ones. None while the run is still reading the source."""
    drained: bool = False
    """True if `drain`, or an error, ended the run early, and left documents to the next run."""


@scrub_class
@attrs.define(eq=False, repr=False, slots=False)
class SigningJob:
    """Signs the documents of a source and writes them to a target, each exactly once.

        async with ds.DirectSuite(settings, token=token) as suite, SigningJournal("signing.db") as journal:
            job = SigningJob(suite.signing, Folder("in"), TargetFolder("out"), [signature], journal=journal)
            progress = await job.run()

    A new run resumes an interrupted one, even after a crash.

    signatures: one or more.
    journal: an open journal in a file, which only this job uses.
    concurrency: number of documents in progress at a time.
    max_outage: seconds for which failures of the service are retried before `run` stops. They are compared after each
        attempt, so `run` may stop later by a pause of at most a minute, and by the suite's timeout of a call.
    check_fields: fail a document if a signature without a widget has no empty field of its name, and would be
        invisible. Costs one more request per document.
    progress: plain function that receives the `SigningProgress` when a run starts, after each document that was signed
        or failed, when `trouble` changes, and when the run ends without an error. If it raises, the job stops, and
        `run` raises its exception.
    clock, now: monotonic clock and Unix time, for tests. None: the suite's clock.

    Raises ConfigurationError if an argument is invalid.
    """

    _signing: Signing = attrs.field(alias="signing")
    _source: AsyncIterable[Pdf] = attrs.field(alias="source")
    _target: Target = attrs.field(alias="target")
    _signatures: Signatures = attrs.field(alias="signatures")
    _journal: SigningJournal | Lease = attrs.field(alias="journal", kw_only=True)
    _concurrency: int = attrs.field(default=10, alias="concurrency", kw_only=True, validator=AT_LEAST_ONE)
    _max_outage: float = attrs.field(default=900.0, alias="max_outage", kw_only=True, validator=DURATION)
    _check_fields: bool = attrs.field(default=False, alias="check_fields", kw_only=True)
    _on_progress: Callable[[SigningProgress], object] | None = attrs.field(default=None, alias="progress", kw_only=True)
    _given_clock: Clock | None = attrs.field(default=None, alias="clock", kw_only=True)
    _given_now: Callable[[], float] | None = attrs.field(default=None, alias="now", kw_only=True)

    def __attrs_post_init__(self) -> None:
        _validate_argument_types(self._source, self._signatures, self._on_progress)
        _validate_target_outside_source(self._source, self._target)
        self._clock = self._given_clock or self._signing.environment.clock
        self._now = self._given_now or make_unix_time(self._clock)
        self._open, self._ending = asyncio.Event(), asyncio.Event()
        self._open.set()
        self._results: ResultStream | None = None
        self._is_running = self._is_source_read = False
        # The number of documents signed in other jobs of this process. If it is not 0, the URL is right.
        self.signed_before = 0
        self._reset()

    def _reset(self) -> None:
        self._done = self._changed = self._failures_in_a_row = 0
        self.failed_names = set[str]()
        """The names of the documents that failed in this run."""
        self._began = self._clock.monotonic()
        self._recent_ends = deque[float]()
        self._outage = OutageTracker(clock=self._clock, max_outage=self._max_outage, signed_count=self.signed_before)
        self._reported_trouble: str | None = None
        self._failure: Exception | None = None
        self._queue: DocumentQueue | None = None

    @property
    def _lease(self) -> Lease:
        return self._journal.lease if isinstance(self._journal, SigningJournal) else self._journal

    def pause(self) -> None:
        """Start no more documents. Those in progress are finished."""
        self._open.clear()

    def resume(self) -> None:
        """Continue to start documents after `pause`."""
        self._open.set()

    def drain(self) -> None:
        """Make `run`, or the next one, return when the documents in progress are finished.

        Documents that wait for a retry are left to the next run. To end immediately, cancel the task.
        """
        self._ending.set()
        self._open.set()
        if self._queue is not None:
            self._queue.stop()

    @property
    def progress(self) -> SigningProgress:
        """The numbers of documents in this run so far."""
        queue, failed = self._queue, len(self.failed_names)
        passed_over = 0 if queue is None else queue.passed_over
        self._forget_old_ends()
        seconds = min(_RATE_WINDOW_SECONDS, self._clock.monotonic() - self._began)
        return SigningProgress(
            done=self._done,
            failed=failed,
            passed_over=passed_over,
            changed=self._changed,
            under_way=0 if queue is None else len(queue.in_progress),
            rate=len(self._recent_ends) / max(1.0, seconds),
            trouble=self._outage.kind,
            total=None if queue is None else queue.total,
            drained=queue is not None and queue.is_stopped and queue.total != self._done + failed + passed_over,
        )

    async def run(self) -> SigningProgress:
        """Process every document of the source until it is signed and at the target, or failed.

        Documents that were signed or failed in an earlier run are skipped. To retry failed ones, use `run_failed` or
        `SigningJournal.retry`. A file that has changed since it was signed is only counted and logged. If `run` is
        cancelled, the next run continues the documents in progress.

        Raises JobStoppedError, SigningJournalError, exceptions of the source, and ConfigurationError if another run
        uses this journal.
        """

        def list_changed(signed: Sequence[tuple[Pdf, SigningEntry]]) -> list[SigningEntry]:
            return [entry for pdf, entry in signed if has_changed(pdf, entry.source_stamp, entry.source_sha)]

        async def look_up(pdfs: Sequence[Pdf]) -> Sequence[SigningEntry | None]:
            entries = await self._lease.entries([pdf.name for pdf in pdfs])
            signed = [(pdf, each) for pdf, each in zip(pdfs, entries, strict=True) if each.state is DocumentState.DONE]
            for entry in await run_in_thread(list_changed, signed) if signed else ():
                self._changed += 1
                _LOGGER.warning(
                    "signing: document %d of the journal has changed since it was signed and is not signed again",
                    entry.number,
                )
            return [None if each.state.is_final else each for each in entries]

        return await self._run_alone(look_up)

    async def run_failed(self, problem: str | None = None) -> SigningProgress:
        """Retry the failed documents of the source, and no others.

        The current content is signed, even if it has changed. A document fails again if the target already has a file
        of its name. The next `run_failed` or `run` resumes interrupted retries.

        problem: retry only documents with this problem. None: retry all.

        Raises the exceptions of `run`.
        """

        async def look_up(pdfs: Sequence[Pdf]) -> Sequence[SigningEntry | None]:
            known = await self._lease.find_entries([pdf.name for pdf in pdfs])
            failed = {each.name for each in known.values() if each.has_failed and wanted in (None, each.reason)}
            remaining = failed - begun
            begun.update(remaining)
            return [known[pdf.name] if pdf.name in remaining else None for pdf in pdfs]

        begun, wanted = set[str](), parse_reason(problem)
        return await self._run_alone(look_up)

    def results(self) -> Listing[SigningResult]:
        """Yield a result for each document that is signed or fails, until the run ends.

            async for result in job.results():
                print(result.name, result.problem or result.target)

        If no run is in progress, this calls `run`, and raises its exceptions after the last result. A loop that ends
        early cancels that run; with `async with job.results() as results:` around the loop, the run has also ended
        after the block, so another one can begin. If another task has called `run` or `run_failed`, the loop receives
        the results from its first step on, and the other task receives the exceptions. As with `run`, documents that
        were signed or failed in an earlier run are skipped.

        A document's worker waits until the loop has received its result. So a slow loop delays the job, and at most
        `concurrency` results wait.

        Raises ConfigurationError while another loop reads the results.
        """
        return Listing(self._iter_results())

    async def _iter_results(self) -> AsyncGenerator[SigningResult]:
        if self._results is not None:
            raise ConfigurationError(
                "another loop is reading the results of this job: wait until it ends, or leave its `async with` block"
            )
        results = self._results = ResultStream()
        run: asyncio.Task[SigningProgress] | None = None
        try:
            for _ in range(2):  # a task that was just created for `run` starts it first, also within `wait_for`
                await asyncio.sleep(0)
            if not self._is_running:
                run = asyncio.create_task(self.run())
                run.add_done_callback(lambda _: results.end())
            while (result := await results.next()) is not None:
                yield result
            if run is not None:
                await run
        finally:
            self._results = None
            results.end()
            if run is not None:
                run.cancel()
                await asyncio.gather(run, return_exceptions=True)

    async def _run_alone(self, look_up: _Lookup) -> SigningProgress:
        lease = self._lease
        if lease.is_in_use:
            raise ConfigurationError("another run is using this journal: wait until it ends, or use a separate journal")
        if self._is_source_read and isinstance(self._source, AsyncIterator):
            raise ConfigurationError(
                "the source can be read only once, and an earlier run has read it: make a new SigningJob with a new "
                "async generator, or pass a source that can be read again, such as a Folder"
            )
        lease.is_in_use = self._is_running = True
        try:
            return await self._run(lease, look_up)
        except JobStoppedError as error:
            log_stopped(error, error.reason)
            raise
        finally:
            lease.is_in_use = self._is_running = False
            if self._results is not None:
                self._results.end()
            self._ending.clear()  # not at the start: the task may be drained before

    async def _run(self, lease: Lease, look_up: _Lookup) -> SigningProgress:
        if not callable(self._signatures):
            await lease.claim(compute_signatures_digest(self._signatures))
        self._reset()
        async with contextlib.AsyncExitStack() as stack:
            try:
                staging_dir = await stack.enter_async_context(self._target.staging_dir(lease.shard, lease.number))
            except OSError as error:
                raise _make_target_error(error) from None
            workflow = DocumentWorkflow(
                signing=self._signing,
                lease=lease,
                target=self._target,
                staging_dir=staging_dir,
                outage=self._outage,
                now=self._now,
                check_fields=self._check_fields,
            )
            await workflow.cleanup(self._concurrency)
            self._queue = DocumentQueue(self._source, look_up, ahead=4 * self._concurrency, gate=self._open)
            if self._ending.is_set():  # drained before the queue existed
                self._queue.stop()
            self._report_progress()
            self._is_source_read = True
            async with self._queue.run_reader(), asyncio.TaskGroup() as group:
                for _ in range(self._concurrency):
                    group.create_task(self._work(workflow, self._queue))
            try:
                await workflow.cleanup(self._concurrency)
            except SigningJournalError as error:
                self._fail(error)
        if self._failure is not None:
            raise self._failure
        self._report_progress()
        return self.progress

    async def _work(self, workflow: DocumentWorkflow, queue: DocumentQueue) -> None:
        """Process documents of the queue one by one. An error drains the job; `run` raises the first one."""
        try:
            while True:
                try:
                    document = await queue.next()
                except TransportError:  # DeadlineExceededError is also an OSError
                    raise
                except OSError as error:  # not chained, because it names a document
                    why = f"the source can't be read ({explain_os_error(error)})"
                    return self._stop(JobStoppedError(why, reason="source not readable"))
                if document is None:
                    return None
                entry, pdf = document
                end: SigningEntry | None = None
                with group_calls() as group:
                    try:
                        end = await self._sign(workflow, entry, pdf)
                    finally:
                        queue.put_back(entry)
                        if end is None:
                            log_document(INFO, "DocumentEnded", entry.number, "is left to the next run")
                if end is not None:
                    try:
                        self._report_progress()
                    finally:
                        if self._results is not None:
                            await self._results.put(make_result(end, self._target, group.number))
        except asyncio.CancelledError:
            if is_being_cancelled():
                raise
            self._stop(JobStoppedError("a document waited for a task that was cancelled", reason="task cancelled"))
        except Exception as error:  # noqa: BLE001  raised by the source or a function of the caller
            self._fail(error)

    async def _sign(self, workflow: DocumentWorkflow, entry: SigningEntry, pdf: Pdf) -> SigningEntry | None:
        """Return the document's last entry, or None if it is left to the next run."""
        signatures = self._signatures(pdf) if callable(self._signatures) else self._signatures
        retry = RetryState(self._outage)
        while True:
            retry.begin()
            try:
                return self._record_end(entry, await workflow.run(entry, pdf, signatures), retry)
            except (DirectSuiteError, SourceError) as error:
                # When the job is drained, others were in progress.
                has_others = self._ending.is_set() or (self._queue is not None and len(self._queue.in_progress) > 1)
                verdict = retry.judge(error, has_others_in_progress=has_others)
                if isinstance(verdict, str):
                    what_to_do = _HINT_RENEW_CREDENTIAL if isinstance(error, AuthenticationError) else _HINT_RUN_AGAIN
                    self._stop(JobStoppedError(verdict, what_to_do), error)
                    return None
                [entry] = await self._lease.entries([entry.name])
                if verdict is RetryVerdict.FAIL:
                    return self._record_end(entry, await workflow.fail(entry, error), retry)
                pause = retry.compute_pause(error)
                log_document(INFO, "DocumentRetried", entry.number, "is tried again", error=error, wait=pause)
            except OSError as error:
                self._stop(_make_target_error(error))
                return None
            if self._outage.kind != self._reported_trouble:  # its end is reported with the document's end
                self._report_progress()
            await sleep_or_event(self._clock.sleep(pause), self._ending)
            if self._ending.is_set():
                return None

    def _record_end(self, begin: SigningEntry, end: SigningEntry, retry: RetryState) -> SigningEntry:
        self._recent_ends.append(self._clock.monotonic())
        self._forget_old_ends()
        retry.end(is_done=end.state is DocumentState.DONE)
        if end.state is DocumentState.DONE:
            log_document(DEBUG, "DocumentEnded", end.number, "is DONE", state=end.state.name)
            self._done += 1
            self._failures_in_a_row = 0
            return end
        self.failed_names.add(end.name)
        # A retry that fails for the same reason must not prevent the retries of others.
        self._failures_in_a_row += end.reason not in DOCUMENT_PROBLEMS | {begin.reason}
        if self._failures_in_a_row >= _MAX_FAILURES_IN_A_ROW:
            why = f"{_MAX_FAILURES_IN_A_ROW} documents failed one after the other; the last: {end.problem}"
            self._stop(JobStoppedError(why, _HINT_RETRY_FAILED, reason="too many failures in a row"))
        return end

    def _forget_old_ends(self) -> None:
        oldest = self._clock.monotonic() - _RATE_WINDOW_SECONDS
        while self._recent_ends and self._recent_ends[0] < oldest:
            self._recent_ends.popleft()

    def _report_progress(self) -> None:
        self._reported_trouble = self._outage.kind
        if self._on_progress is not None:
            self._on_progress(self.progress)

    def _stop(self, stopped: JobStoppedError, cause: Exception | None = None) -> None:
        stopped.__cause__ = cause
        if isinstance(cause, DirectSuiteError):
            stopped.set_call(cause.call, cause.group, cause.attempts, cause.elapsed)
        self._fail(stopped)

    def _fail(self, error: Exception) -> None:
        self.drain()
        if self._failure is None:
            self._failure = error


class DocumentQueue:
    """Hands out the unfinished documents of a source to workers, each once.

    ahead: number of documents read in advance. gate: set while documents may be handed out.
    """

    def __init__(self, source: AsyncIterable[Pdf], look_up: _Lookup, *, ahead: int, gate: asyncio.Event) -> None:
        self.passed_over = 0
        self.total: int | None = None
        """The number of documents of the source, None until it is read."""
        self.is_stopped = False
        self._source = source
        self._look_up = look_up
        self._gate = gate
        self._read = asyncio.Queue[Pdf | BaseException | None](ahead)  # at the end, None or the source's exception
        self._found = deque[tuple[SigningEntry, Pdf]]()
        self._lock = asyncio.Lock()
        self.in_progress = set[int]()
        """The numbers of the documents handed out."""
        self._ended = set[int]()  # since the last lookup started, whose entries may be older
        self._is_over = False

    @contextlib.asynccontextmanager
    async def run_reader(self) -> AsyncGenerator[None]:
        """Read the source in a background task."""
        reader = asyncio.create_task(self._read_source())
        try:
            yield
        finally:
            reader.cancel()
            # Otherwise asyncio would log an exception of the source, which may name a document.
            reader.add_done_callback(lambda task: task.cancelled() or task.exception())
            await asyncio.wait([reader])

    async def next(self) -> tuple[SigningEntry, Pdf] | None:
        """Return the next document, which the caller must put back, or None at the end. Wait while `gate` is not set.

        Raises the source's exception once, and SigningJournalError.
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
                if entry.number not in self.in_progress and entry.number not in self._ended:
                    self.in_progress.add(entry.number)
                    return entry, pdf
                self.passed_over += 1
                _LOGGER.warning(
                    "signing: the source yielded document %d of the journal twice, so the second one was skipped. "
                    "Names must be unique",
                    entry.number,
                )
            return None

    def put_back(self, entry: SigningEntry) -> None:
        """Record that a worker has finished with a document."""
        self.in_progress.discard(entry.number)
        self._ended.add(entry.number)

    def stop(self) -> None:
        """Hand out no more documents. Waiting workers get None."""
        self._is_over = self.is_stopped = True
        with contextlib.suppress(asyncio.QueueFull):  # then no worker is waiting in get()
            self._read.put_nowait(None)

    async def _look_up_some(self) -> None:
        some = [await self._read.get()]
        while not self._read.empty():
            some.append(self._read.get_nowait())
        pdfs = [each for each in some if each is not None and not isinstance(each, BaseException)]
        if self._is_over or not pdfs:
            self._is_over = True
            for each in some:
                if isinstance(each, BaseException):
                    raise each
            return
        if len(pdfs) < len(some):
            self._read.put_nowait(some[-1])  # handle the end after these documents
        self._ended.clear()
        for entry, pdf in zip(await self._look_up(pdfs), pdfs, strict=True):
            if entry is None:
                self.passed_over += 1
            else:
                self._found.append((entry, pdf))

    async def _read_source(self) -> None:
        source, total = aiter(self._source), 0
        end: BaseException | None = None
        try:
            try:
                async for pdf in source:
                    total += 1
                    await self._read.put(pdf)
            finally:
                if isinstance(source, AsyncGenerator):
                    await source.aclose()
        except BaseException as error:
            if is_being_cancelled():
                raise
            end = SourceError("it was cancelled") if isinstance(error, asyncio.CancelledError) else error
        else:
            self.total = total
        await self._read.put(end)


def _make_target_error(error: OSError) -> JobStoppedError:
    why = f"the target can't be written ({explain_os_error(error)})"
    return JobStoppedError(why, reason="target not writable")


def _validate_argument_types(source: object, signatures: object, progress: object) -> None:
    if not isinstance(source, AsyncIterable):
        raise ConfigurationError("source must be an async iterable of Pdf: for example a Folder, or an async generator")
    if progress is not None and (not callable(progress) or is_async(progress)):
        raise ConfigurationError("progress must be a function that is not async")
    if callable(signatures):
        return
    listed = cast("Sequence[object]", signatures)
    if not isinstance(signatures, Sequence) or not all(isinstance(each, Signature) for each in listed):
        raise ConfigurationError("signatures must be a list of Signature, or a function that returns such a list")
    if not signatures:
        raise ConfigurationError("signatures is empty: pass at least one signature")


def _validate_target_outside_source(source: object, target: object) -> None:
    # Each ends with a separator. Several users of a server may see the same folders.
    places = [_USER.sub("", str(getattr(each, "place", None) or "")) for each in (source, target)]
    if all(places) and places[1].startswith(places[0]):
        raise ConfigurationError(
            "the target is within the source, and its files would also be signed: choose another target"
        )
