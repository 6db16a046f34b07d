"""Synchronising many mailboxes in one process.

due ──► a round of one mailbox ──► due again: immediately, soon, after its interval, or later after a failure
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from directsuite.core.checks import AT_LEAST_ONE
from directsuite.core.clock import Clock, SystemClock, sleep_or_event
from directsuite.core.privacy import scrub_class
from directsuite.errors import ClosedError, ConfigurationError
from directsuite.suite import DirectSuite
from directsuite.sync.commits import Deliver
from directsuite.sync.model import StoreError
from directsuite.sync.schedule import MailboxWorker, Passwords, PollSchedule, Schedule
from directsuite.sync.sinks.iterator import Changes, ChangeStream
from directsuite.sync.status import MailboxProgress
from directsuite.sync.store import Store

_MAX_ROUNDS_PER_MAILBOX = 1000  # in `once`, so that it ends even if the server changes all the time
_REQUEST_POLL_INTERVAL = 2.0


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
    interval: seconds between two polls of a mailbox without changes; None: as few as 90 % of `requests_per_second`
    allow, at least 30.
    concurrency: the maximum number of concurrent rounds.
    requests_per_second: as in the suite's settings.
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
        self._clock = clock or SystemClock()
        self._names = list(dict.fromkeys(mailboxes))
        poll_schedule = PollSchedule(
            interval=interval, folders=folders, requests_per_second=requests_per_second, clock=self._clock
        )
        poll_schedule.mailboxes = len(self._names)
        self._worker = MailboxWorker(
            suite,
            store,
            password,
            deliver=deliver,
            folders=folders,
            poll_schedule=poll_schedule,
            clock=self._clock,
            now=now,
        )
        self._store = store
        self._concurrency = concurrency
        self._changed = asyncio.Event()
        self._is_stopping = False

    @property
    def status(self) -> Mapping[str, MailboxProgress]:
        """The progress of each mailbox, by address."""
        known = self._worker.status
        return {name: known.get(name) or MailboxProgress(name=name) for name in self._names}

    async def bind(self) -> None:
        """Bind the store to the sink, as `once` and `run` do first. Raises their ConfigurationError, and StoreError."""
        await self._worker.bind()

    async def once(self) -> Mapping[str, MailboxProgress]:
        """Bring each mailbox up to date once, and return the status, which includes failures.

        Raises ConfigurationError if no sink or two were given, or the store is bound to another.
        """
        free = asyncio.Semaphore(self._concurrency)

        async def bring_up_to_date(name: str) -> None:
            """Run rounds until nothing is left to do."""
            for _ in range(_MAX_ROUNDS_PER_MAILBOX):
                async with free:
                    if self._is_stopping:
                        return
                    result = await self._worker.run_round(name)
                if result.done:
                    return

        try:
            await self.bind()
            async with asyncio.TaskGroup() as group:
                for name in self._names:
                    group.create_task(bring_up_to_date(name))
        finally:
            self._is_stopping = False
        return self.status

    async def run(self) -> None:
        """Synchronise all mailboxes until `stop` is called or the task is cancelled.

        A later run repeats rounds that a cancellation interrupts. Raises ConfigurationError as `once`.
        """
        try:
            await self.bind()
            schedule = Schedule(self._names, concurrency=self._concurrency, now=self._clock.monotonic())
            async with asyncio.TaskGroup() as group:
                hearing = group.create_task(self._poll_requests(schedule))
                while not self._is_stopping:
                    for name in schedule.start(self._clock.monotonic()):
                        group.create_task(self._run_round(schedule, name))
                    await self._wait_until_due(schedule)
                hearing.cancel()
        finally:
            self._worker.requested_mailboxes = None
            self._is_stopping = False

    def stop(self) -> None:
        """Make `run` or `once` return after the rounds in progress. To stop immediately, cancel the task."""
        self._is_stopping = True
        self._changed.set()

    def changes(self) -> ChangeStream:
        """Synchronise all mailboxes, and yield each change; requesting the next one confirms it.

            async with sync.changes() as changes:
                async for change in changes:
                    await keep(change)

        If the loop is left within its body, the next run yields that change again, with its complete batch. Call
        `changes.refuse()` for a change that cannot be stored, and continue with the next. If a step is interrupted, for
        example by `asyncio.timeout`, the next one continues at the same change.

        Raises ConfigurationError if `deliver` was given. If the store has a sink, the first step of the loop raises it.
        """
        if self._worker.deliver is not None:
            raise ConfigurationError(
                "The changes already go to deliver=. To use changes(), create the Synchronizer without deliver=."
            )
        changes = Changes()
        return ChangeStream(changes, functools.partial(self._run_into, changes))

    async def _run_into(self, changes: Changes) -> None:
        async with changes:
            self._worker.deliver = changes.deliver
            try:
                await self.run()
            finally:
                self._worker.deliver = None

    async def _wait_until_due(self, schedule: Schedule) -> None:
        due = schedule.find_next_due()
        self._changed.clear()
        if due is None:
            await self._changed.wait()
        else:
            await sleep_or_event(self._clock.sleep(max(0.0, due - self._clock.monotonic())), self._changed)

    async def _run_round(self, schedule: Schedule, name: str) -> None:
        result = await self._worker.run_round(name)
        schedule.finish(name, self._clock.monotonic() + result.next_in, has_backlog=not result.next_in)
        self._changed.set()

    async def _poll_requests(self, schedule: Schedule) -> None:
        while True:
            await self._clock.sleep(_REQUEST_POLL_INTERVAL)
            with contextlib.suppress(StoreError, ClosedError):  # the rounds report such errors
                self._worker.requested_mailboxes = set(await self._store.pending_requests())
                for name in self._worker.requested_mailboxes:
                    schedule.reschedule_now(name)
                    self._changed.set()
