"""Synchronising many mailboxes.

due ──► a round of one mailbox ──► due again: immediately, soon, after its interval, or later after a failure

Synchronizer    the mailboxes of one process; `fleet` has those of several
Schedule        the mailboxes of one process, by due time
PollSchedule    the pause between two polls of a mailbox, so that all polls fit into the requests per second
MailboxWorker   runs rounds, and computes when the next one is due
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
import logging
import random
import time
import traceback
from collections.abc import Awaitable, Callable, Collection, Generator, Iterable, Mapping, Sequence
from types import MappingProxyType

import attrs

from directsuite.core.checks import AT_LEAST_ONE, INTERVAL, POSITIVE
from directsuite.core.clock import Clock, SystemClock, is_being_cancelled, sleep_or_event
from directsuite.core.privacy import scrub_class
from directsuite.core.retry import Backoff
from directsuite.errors import ClosedError, ConfigurationError, DirectSuiteError, ServiceError
from directsuite.messaging.arguments import validate_texts
from directsuite.suite import DirectSuite
from directsuite.sync.commits import Commits, Deliver, SinkHealth, UndecidedRejectionError
from directsuite.sync.model import Kind, RoundReport, SinkError, StaleLeaseError, StoreError
from directsuite.sync.remote import Remote, is_listed
from directsuite.sync.round import ContradictionError, MailboxRounds
from directsuite.sync.sinks.iterator import ChangeStream
from directsuite.sync.status import (
    NO_SUCH_FOLDER,
    MailboxProgress,
    RoundFinished,
    SyncProgress,
    SyncStatus,
    describe_problem,
)
from directsuite.sync.store import Store
from directsuite.wire.models import Secret

_LOGGER = logging.getLogger("directsuite")

Passwords = Callable[[str], Awaitable[str | Secret]]
"""An async function that returns a mailbox's password. It is called when needed; passwords are not stored."""

_DEFAULT_SINK_NAME = "deliver"
_JITTER = 0.1
# After that, the server's responses seem to contradict each other.
_MAX_ROUNDS_WITHOUT_PROGRESS = 4
_BACKOFF = Backoff(30.0, 3600.0)
_SINK_BACKOFF = Backoff(30.0, 300.0)  # shorter, because operators repair a sink soon
_STORE_RETRY_DELAY = 10.0  # seconds; short, because a retry costs no request

_MAX_ROUNDS_PER_MAILBOX = 1000  # in `once`, so that it ends even if the server changes all the time
_REQUEST_POLL_INTERVAL = 2.0

_MIN_INTERVAL = 30.0  # seconds between two polls of a mailbox
_MIN_ACTIVE_INTERVAL = 10.0
_POLL_SHARE = 0.9  # of all requests; the rest is for fetching messages
_ACTIVE_POLL_SHARE = 0.25  # of all requests, for active mailboxes
_ACTIVE_SECONDS = 3600.0

_DUE_NOW = float("-inf")


@scrub_class
class Synchronizer:
    """Synchronises mailboxes: every change on the server becomes a change for the sink, and no change is lost.

        async with ds.DirectSuite(settings) as suite, SqliteStore("sync.db") as store:
            sync = Synchronizer(suite, store, ["alice@direct.example.org"], password_of, deliver=MaildirSink("mail"))
            await sync.run()

    mailboxes: their addresses.
    password: an async function that returns the password of a mailbox.
    deliver: the sink, which receives each change at least once; None if the store has a sink, which receives it exactly
    once.
    folders: names of the folders; None for all of each mailbox.
    interval: seconds between two polls of a mailbox without changes; None: at least 30, more if the polls would use
    over 90 % of `requests_per_second`.
    concurrency: the maximum number of concurrent rounds.
    requests_per_second: the value of this setting of the suite.
    clock, now: for tests.
    """

    def __init__(
        self,
        suite: DirectSuite,
        store: Store,
        mailboxes: Iterable[str],
        password: Passwords,
        *,
        deliver: Deliver | None = None,
        folders: Sequence[str] | None = ("INBOX",),
        interval: float | None = None,
        concurrency: int = 8,
        requests_per_second: float = 100.0,
        clock: Clock | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        AT_LEAST_ONE.require("concurrency", concurrency)
        folders = None if folders is None else validate_texts(folders, "folders")
        self._clock = clock or SystemClock()
        self._names = list(dict.fromkeys(validate_texts(mailboxes, "mailboxes")))
        polls = PollSchedule(interval, folders, requests_per_second, self._clock)
        polls.mailboxes = len(self._names)
        self._worker = MailboxWorker(suite, store, password, deliver, folders, polls, self._clock, now)
        self._store = store
        self._concurrency = concurrency
        self._changed = asyncio.Event()
        self._is_stopping = False
        self._is_running = False

    @property
    def status(self) -> Mapping[str, MailboxProgress]:
        """The progress of each mailbox, by address."""
        known = self._worker.status
        return {name: known.get(name) or MailboxProgress(name=name) for name in self._names}

    async def bind(self) -> None:
        """Bind the store to the sink, as `once` and `run` do first. Raises their ConfigurationError, and StoreError."""
        await self._worker.bind()

    async def once(self) -> SyncProgress:
        """Bring each mailbox up to date once, and return the status.

        A mailbox that fails, or is not complete after `stop`, raises no error, because others may have succeeded: call
        `raise_for_failures()` of the result, or read the `status` and `problem` of each mailbox. Raises
        ConfigurationError if no sink or two were given, the store is bound to another, or this is already running.
        """
        free, complete = asyncio.Semaphore(self._concurrency), set[str]()

        async def bring_up_to_date(name: str) -> None:
            for _ in range(_MAX_ROUNDS_PER_MAILBOX):
                async with free:
                    if self._is_stopping:
                        return
                    result = await self._worker.run_round(name)
                if result.done:
                    complete.add(name)
                    return

        with self._run_alone():
            await self.bind()
            async with asyncio.TaskGroup() as group:
                for name in self._names:
                    group.create_task(bring_up_to_date(name))
        progress = SyncProgress({name: attrs.evolve(each) for name, each in self.status.items()})
        for name in progress.keys() - complete:  # `stop` was called, or there were very many messages
            if progress[name].status is SyncStatus.UP_TO_DATE:
                progress[name].status = SyncStatus.CATCHING_UP
        return progress

    async def run(self) -> None:
        """Synchronise all mailboxes until `stop` is called or the task is cancelled.

        A later run repeats rounds that a cancellation interrupts. Raises ConfigurationError as `once`.
        """
        with self._run_alone():
            await self.bind()
            schedule = Schedule(self._names, concurrency=self._concurrency, now=self._clock.monotonic())
            async with asyncio.TaskGroup() as group:
                hearing = group.create_task(self._poll_requests(schedule))
                while not self._is_stopping:
                    for name in schedule.start(self._clock.monotonic()):
                        group.create_task(self._run_round(schedule, name))
                    await self._wait_until_due(schedule)
                hearing.cancel()

    def stop(self) -> None:
        """Make `run` or `once` return after the rounds in progress. To stop immediately, cancel the task."""
        self._is_stopping = True
        self._changed.set()

    def changes(self) -> ChangeStream:
        """Synchronise all mailboxes until `stop`, and yield each change; requesting the next one confirms it.

            async with sync.changes() as changes:
                async for change in changes:
                    await keep(change)

        If the body leaves the loop, the next run yields that change again, with its complete batch. Call
        `changes.refuse()` for a change that cannot be stored, and continue. If a step is interrupted, for example by
        `asyncio.timeout`, the next continues at the same change.

        The first step raises ConfigurationError if `deliver` was given, the store has a sink, or another loop has not
        ended.
        """
        return ChangeStream(self._run_into)

    @contextlib.contextmanager
    def _run_alone(self) -> Generator[None]:
        # Two rounds of a mailbox at the same time would deliver its changes twice.
        if self._is_running:
            raise ConfigurationError(
                "This Synchronizer is already running. Wait until run(), once() or the loop over changes() has ended."
            )
        self._is_running = True
        try:
            yield
        finally:
            self._worker.requested_mailboxes = None
            self._is_running = self._is_stopping = False

    async def _run_into(self, deliver: Deliver) -> None:
        if self._worker.deliver is not None:
            raise ConfigurationError(
                "The changes already go to deliver=, or to another loop over changes(). Create the Synchronizer "
                "without deliver=, and leave the `async with` block of the other loop first."
            )
        self._worker.set_sink(deliver)
        try:
            await self.run()
        finally:
            self._worker.set_sink(None)

    async def _wait_until_due(self, schedule: Schedule) -> None:
        due = schedule.find_next_due()
        self._changed.clear()
        if due is None:
            await self._changed.wait()
        else:
            await sleep_or_event(self._clock.sleep(max(0.0, due - self._clock.monotonic())), self._changed)

    async def _run_round(self, schedule: Schedule, name: str) -> None:
        result = await self._worker.run_round(name)
        schedule.finish(name, self._clock.monotonic() + result.next_in)
        self._changed.set()

    async def _poll_requests(self, schedule: Schedule) -> None:
        while True:
            await self._clock.sleep(_REQUEST_POLL_INTERVAL)
            with contextlib.suppress(StoreError, ClosedError):  # the rounds report such errors
                self._worker.requested_mailboxes = set(await self._store.pending_requests())
                for name in self._worker.requested_mailboxes:
                    schedule.reschedule_now(name)
                    self._changed.set()


class Schedule:
    """The mailboxes of one process, ordered by due time."""

    def __init__(self, names: Iterable[str], *, concurrency: int, now: float) -> None:
        self._newest = dict.fromkeys(names, 0)
        """The number of each mailbox's newest heap entry: older entries are ignored. 0 while the mailbox is busy."""
        self._due_again = set[str]()
        self._entries = itertools.count(1)
        self._free = concurrency
        # Due time in monotonic seconds, number of the entry, mailbox.
        self._heap = list[tuple[float, int, str]]()
        for name in self._newest:
            self._push(name, now)

    def start(self, now: float) -> list[str]:
        """Return the mailboxes to run now, longest due first, at most the free `concurrency`. `finish` frees it."""
        started = list[str]()
        while (due := self.find_next_due()) is not None and due <= now:
            name = heapq.heappop(self._heap)[2]
            self._newest[name] = 0
            self._free -= 1
            started.append(name)
        return started

    def finish(self, name: str, due: float) -> None:
        """Record the end of a round. due: monotonic seconds of the next one, ignored after `reschedule_now`."""
        self._free += 1
        self._push(name, _DUE_NOW if name in self._due_again else due)
        self._due_again.discard(name)

    def reschedule_now(self, name: str) -> None:
        """Make a mailbox due before all others; if it is busy, after its round. An unknown mailbox is ignored."""
        if self._newest.get(name):
            self._push(name, _DUE_NOW)
        elif name in self._newest:
            self._due_again.add(name)

    def find_next_due(self) -> float | None:
        """Return when the next mailbox can start, in monotonic seconds; None if a round must end first."""
        while self._heap and self._newest[self._heap[0][2]] != self._heap[0][1]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._free and self._heap else None

    def _push(self, name: str, due: float) -> None:
        self._newest[name] = next(self._entries)
        heapq.heappush(self._heap, (due, self._newest[name], name))


class PollSchedule:
    """Computes the pause between two polls. A mailbox is active for an hour after a change.

    interval: seconds for an inactive mailbox; None: as often as the requests allow.
    folders: the folders of each mailbox; None: all, counted during the rounds.
    requests_per_second: shared by all processes.
    """

    def __init__(
        self, interval: float | None, folders: Sequence[str] | None, requests_per_second: float, clock: Clock
    ) -> None:
        INTERVAL.allow_none().require("interval", interval)
        POSITIVE.require("requests_per_second", requests_per_second)
        self.mailboxes: int | None = None
        """The number of mailboxes in all processes; None: those of this one."""
        self._interval = interval
        self._is_learning = folders is None
        self._min_requests = 1 if folders is None else len(folders)
        self._requests_per_second = requests_per_second
        self._clock = clock
        self._requests: dict[str, int] = {}
        self._all_requests = 0
        self._active_until: dict[str, float] = {}
        """The times until which mailboxes are active, in their order."""

    def learn(self, name: str, report: RoundReport) -> None:
        """Record the mailbox's requests per poll. If the report has changes, the mailbox is active."""
        requests = self._requests.get(name, self._min_requests)
        if self._is_learning:  # one for the list of folders, and one for each folder
            requests = max(requests, 1 + report.idle_folders + len(report.failed_folders))
        self._all_requests += requests - self._requests.get(name, 0)
        self._requests[name] = requests
        if report.changes.total() > 0:
            self._active_until.pop(name, None)
            self._active_until[name] = self._clock.monotonic() + _ACTIVE_SECONDS

    def forget(self, name: str) -> None:
        """Stop counting a mailbox's requests."""
        self._all_requests -= self._requests.pop(name, 0)
        self._active_until.pop(name, None)

    def compute_poll_delay(self, name: str, *, waiting: bool) -> float:
        """Return the seconds until the mailbox's next poll.

        waiting: True if the last round left something undecided, which shortens the pause.
        """
        while self._active_until and next(iter(self._active_until.values())) <= self._clock.monotonic():
            del self._active_until[next(iter(self._active_until))]
        active = len(self._active_until) / max(1, len(self._requests))
        active_delay = max(_MIN_ACTIVE_INTERVAL, self._compute_poll_seconds(active) / _ACTIVE_POLL_SHARE)
        delay = self._interval or max(_MIN_INTERVAL, self._compute_poll_seconds(1.0) / _POLL_SHARE)
        if active_delay >= delay:
            return delay
        if waiting:  # at least _MIN_INTERVAL, because a missing message may come back
            return min(delay, max(active_delay, _MIN_INTERVAL))
        if name in self._active_until:
            return active_delay
        if self._interval is not None:
            return self._interval
        share = _POLL_SHARE - self._compute_poll_seconds(active) / active_delay
        return max(_MIN_INTERVAL, self._compute_poll_seconds(1.0 - active) / share)

    def _compute_poll_seconds(self, share: float) -> float:
        """Return the seconds in which the rate permits one poll of this share of all mailboxes."""
        here = max(1, len(self._requests))
        mailboxes = here if self.mailboxes is None else self.mailboxes
        requests = (self._all_requests or self._min_requests) / here * mailboxes * share
        return requests / self._requests_per_second


@attrs.frozen(kw_only=True)
class RoundResult:
    """The result of a round. next_in: seconds until the next one. report: None if the entire mailbox failed."""

    report: RoundReport | None
    next_in: float
    no_progress: bool = False
    """True if several rounds in a row had more to do, but did nothing."""

    @property
    def done(self) -> bool:
        """True if another round now would find nothing to do, or fail again."""
        report = self.report
        if report is None or self.no_progress:
            return True
        is_failing = not all(isinstance(error, ContradictionError) for error in report.failed_folders.values())
        if is_failing and not report.changes.total():
            return not report.has_waiting
        return not (report.has_more or report.has_waiting)


@attrs.define(eq=False, repr=False)
class _MailboxMemory:
    status: MailboxProgress
    rounds: MailboxRounds | None = None
    rounds_without_progress: int = 0


@attrs.define(eq=False, repr=False, slots=False)
class MailboxWorker:
    """Runs rounds, and computes when the next one is due."""

    _suite: DirectSuite
    _store: Store
    _password: Passwords
    deliver: Deliver | None
    _folders: Sequence[str] | None = attrs.field(alias="folders")
    _poll_schedule: PollSchedule = attrs.field(alias="poll_schedule")
    _clock: Clock = attrs.field(alias="clock")
    _now: Callable[[], float] = attrs.field(alias="now")
    requested_mailboxes: Collection[str] | None = attrs.field(default=None, init=False)
    """Mailboxes with operator requests, if the caller looks for them; None: each round looks for its own."""
    _mailboxes: dict[str, _MailboxMemory] = attrs.field(factory=dict[str, "_MailboxMemory"], init=False)
    _health: SinkHealth = attrs.field(factory=SinkHealth, init=False)

    @property
    def status(self) -> Mapping[str, MailboxProgress]:
        """The progress of each mailbox that had a round in this process, by address."""
        return MappingProxyType({name: mailbox.status for name, mailbox in self._mailboxes.items()})

    async def bind(self) -> None:
        """Bind the store to the sink, before the first round.

        Raises StoreError; ConfigurationError if no sink or two were given, or the store is bound to another.
        """
        name = self._store.sink_name
        if self.deliver is not None:
            if name is not None:
                raise ConfigurationError(
                    f"The store already has a sink ({name}). Remove that sink, or use neither deliver= nor changes()."
                )
            name = getattr(self.deliver, "sink_name", _DEFAULT_SINK_NAME)
        if name is None:
            raise ConfigurationError(
                "No sink receives the changes. Pass deliver=, use a store with a sink, or iterate over changes()."
            )
        await self._store.bind(name)

    def set_sink(self, deliver: Deliver | None) -> None:
        """Set the sink, and discard the rounds of all mailboxes, which would deliver to the previous one."""
        self.deliver = deliver
        for mailbox in self._mailboxes.values():
            mailbox.rounds = None

    def reset(self, name: str, failures: int = 0) -> None:
        """Discard what is known about a mailbox that another process may have synchronised.

        failures: its failed rounds in a row.
        """
        self._mailboxes[name] = _MailboxMemory(MailboxProgress(name=name, failures=failures))

    def forget(self, name: str) -> None:
        """Discard a mailbox that another process synchronises now, with its status."""
        self._mailboxes.pop(name, None)
        self._poll_schedule.forget(name)

    async def run_round(self, name: str) -> RoundResult:
        """Run one round. A failure is recorded in the mailbox's status, and not raised. A cancellation is raised."""
        mailbox = self._mailboxes.setdefault(name, _MailboxMemory(MailboxProgress(name=name)))
        status, began = mailbox.status, self._clock.monotonic()
        status.rounds += 1
        try:
            report = await self._run_round(mailbox)
            self._poll_schedule.learn(name, report)
            await self._record(mailbox, report)
        except (Exception, asyncio.CancelledError) as error:  # an unexpected error must not stop the other mailboxes
            # The password or the sink may have changed, the lease may be lost, or a commit may be in progress.
            mailbox.rounds = None
            if isinstance(error, asyncio.CancelledError) and is_being_cancelled():
                raise
            problem = describe_problem(error) if isinstance(error, DirectSuiteError) else _report_fault(error)
            self._fail(status, problem, {})
            self._emit(status, RoundReport(), began, failure=type(error).__name__)
            return RoundResult(report=None, next_in=_back_off(status, error))
        self._emit(status, report, began)
        next_in = self._compute_next_delay(mailbox, report)
        no_progress = mailbox.rounds_without_progress >= _MAX_ROUNDS_WITHOUT_PROGRESS
        return RoundResult(report=report, next_in=next_in, no_progress=no_progress)

    def _emit(self, status: MailboxProgress, report: RoundReport, began: float, *, failure: str | None = None) -> None:
        event = RoundFinished(
            mailbox=status.number,
            problem=status.problem,
            failure=failure,
            **{kind.value: report.changes[kind] for kind in Kind},
            quarantined=report.quarantined,
            idle_folders=report.idle_folders,
            failed_folders=len(report.failed_folders),
            more=report.has_more,
            elapsed=self._clock.monotonic() - began,
        )
        self._suite.environment.events.emit(event)

    async def _run_round(self, mailbox: _MailboxMemory) -> RoundReport:
        name = mailbox.status.name
        may_be_requested = self.requested_mailboxes is None or name in self.requested_mailboxes
        if may_be_requested and await self._store.apply_requests(name):
            mailbox.rounds = None  # its rows are older than the requests
        if mailbox.rounds is None:
            # An event needs the number of the mailbox. If it is known, a process without a password claims nothing.
            remote = None if mailbox.status.number is None else await self._open(name)
            lease = await self._store.claim(name)
            mailbox.status.number = lease.mailbox
            commits = Commits(
                self._store, lease, self.deliver, self._clock, lambda: round(self._now() * 1000), self._health
            )
            mailbox.rounds = MailboxRounds(remote or await self._open(name), commits, self._folders)
        return await mailbox.rounds.run_round()

    async def _open(self, name: str) -> Remote:
        try:
            password = await self._password(name)
        except DirectSuiteError:
            raise
        except (Exception, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) and is_being_cancelled():
                raise
            text = f"The password function raised {type(error).__name__}. Correct the function."
            raise ConfigurationError(text) from error
        return Remote(self._suite.mailbox(name, password))

    async def _record(self, mailbox: _MailboxMemory, report: RoundReport) -> None:
        status = mailbox.status
        status.changes.update(report.changes)
        status.quarantined += report.quarantined
        if report.failed_folders:
            folders = await self._describe_folder_problems(mailbox, report)
            if report.idle_folders or report.changes.total():
                status.failures = 0  # no back-off, because other folders succeed
            self._fail(status, next(iter(folders.values())), folders)
            return
        status.failures, status.problem, status.failing_since, status.folders = 0, None, None, {}
        status.status = SyncStatus.CATCHING_UP if report.has_more else SyncStatus.UP_TO_DATE
        if not report.has_more:
            status.up_to_date_at = self._now()

    def _fail(self, status: MailboxProgress, problem: str, folders: dict[str, str]) -> None:
        status.failures += 1
        status.status, status.problem, status.folders = SyncStatus.FAILING, problem, folders
        if status.failing_since is None:
            status.failing_since = self._now()

    async def _describe_folder_problems(self, mailbox: _MailboxMemory, report: RoundReport) -> dict[str, str]:
        # The service has no error code for a missing folder.
        there: Collection[str] = report.failed_folders
        by_service = any(isinstance(error, ServiceError) for error in report.failed_folders.values())
        if mailbox.rounds is not None and by_service:
            with contextlib.suppress(DirectSuiteError):
                there = await mailbox.rounds.remote.list_folders()
        return {
            name: describe_problem(error) if is_listed(name, there) else NO_SUCH_FOLDER
            for name, error in report.failed_folders.items()
        }

    def _compute_next_delay(self, mailbox: _MailboxMemory, report: RoundReport) -> float:
        changed = report.changes.total() > 0
        no_progress = report.has_more and not (changed or report.quarantined)
        mailbox.rounds_without_progress = mailbox.rounds_without_progress + 1 if no_progress else 0
        is_sure = not all(isinstance(error, UndecidedRejectionError) for error in report.failed_folders.values())
        if is_sure and not (report.idle_folders or changed):
            return _back_off(mailbox.status)
        goes_on = report.has_more and (changed or not report.failed_folders)
        if goes_on and mailbox.rounds_without_progress < _MAX_ROUNDS_WITHOUT_PROGRESS:
            return 0.0
        waiting = report.has_waiting or goes_on or (bool(report.failed_folders) and not is_sure)
        return _add_jitter(self._poll_schedule.compute_poll_delay(mailbox.status.name, waiting=waiting))


def _add_jitter(seconds: float) -> float:
    return seconds * random.uniform(1 - _JITTER, 1 + _JITTER)


def _report_fault(error: BaseException) -> str:
    fault = f"directsuite itself failed ({type(error).__name__}). Report this as a bug."
    _LOGGER.error("sync: %s\n%s", fault, "".join(traceback.format_tb(error.__traceback__)))
    return fault


def _back_off(status: MailboxProgress, error: BaseException | None = None) -> float:
    if isinstance(error, StoreError) and not isinstance(error, StaleLeaseError):
        return _add_jitter(_STORE_RETRY_DELAY)
    backoff = _SINK_BACKOFF if isinstance(error, SinkError) else _BACKOFF
    return _add_jitter(backoff.compute_wait(status.failures))
