"""Many mailboxes, synchronised with the server by one process.

    due ──► a round of one mailbox ──► due again: at once, soon, at its interval, or later after a failure

A round fetches so much and no more, and a large mailbox holds up nobody, because those with a backlog are at most half
of the mailboxes that have a round at a time. How often the service is asked is bounded by the suite's own limits.
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
from directsuite.sync.model import Store, StoreError, SupportsOperatorRequests
from directsuite.sync.schedule import MailboxWorker, Passwords, PollSchedule, Schedule
from directsuite.sync.sinks.iterator import Changes, ChangeStream
from directsuite.sync.status import MailboxProgress

_MAX_ROUNDS_PER_MAILBOX = 1000  # of one mailbox in `once`, that an endless change on the server can't hold it for ever
_REQUEST_POLL_INTERVAL = 2.0  # seconds between two looks for requests of an operator


@scrub_class
class Synchronizer:
    """Synchronises mailboxes: every change on the server becomes a change for the sink, and none is lost.

        async with ds.DirectSuite(settings) as suite, SqliteStore("sync.db") as store:
            sync = Synchronizer(suite, store, ["alice@direct.example.org"], password_of, deliver=MaildirSink("mail"))
            await sync.run()

    mailboxes: their addresses. password: an async function that gives the password of one. deliver: the sink, an async
    callable that gets each change at least once; None where the store has a sink of its own, which gets each exactly
    once. folders: those to look at; None for all that a mailbox has. interval: seconds between two looks at a mailbox
    in which nothing happens; None for as often as 90 % of `requests_per_second` allow, and at most every 30: where all
    folders are looked at, by as many as were seen so far. concurrency: mailboxes looked at side by side.
    requests_per_second: as in the suite's settings. clock, now: for tests.
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
        self._requests = store if isinstance(store, SupportsOperatorRequests) else None
        self._concurrency = concurrency
        self._changed = asyncio.Event()
        self._is_stopping = False

    @property
    def status(self) -> Mapping[str, MailboxProgress]:
        """How each mailbox stands, by its address."""
        known = self._worker.status
        return {name: known.get(name) or MailboxProgress(name=name) for name in self._names}

    async def bind(self) -> None:
        """Bind the store to the sink, as `once` and `run` do before anything else. Raises what they raise then."""
        await self._worker.bind()

    async def once(self) -> Mapping[str, MailboxProgress]:
        """Bring each mailbox up to date, once; the status tells of those where that failed.

        Raises ConfigurationError where nothing takes the changes, or two sinks would, or another took those so far.
        """
        free = asyncio.Semaphore(self._concurrency)

        async def bring_up_to_date(name: str) -> None:
            """Rounds until nothing is left to do; between two, others have theirs."""
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
        """Synchronise all until stopped, or cancelled: then what is under way is broken off, and begun again later.

        Raises ConfigurationError as `once` does.
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
        """Let `run` or `once` return when the rounds under way have ended. Whoever can't wait cancels it."""
        self._is_stopping = True
        self._changed.set()

    def changes(self) -> ChangeStream:
        """Synchronise all, and give each change as it comes; asking for the next says that one is done.

            async with sync.changes() as changes:
                async for change in changes:
                    await keep(change)

        If the loop is left within its body, the next run yields that change again, with its complete batch. Call
        `changes.refuse()` for a change that cannot be stored: the loop continues with the others. If a step is
        interrupted, as by `asyncio.timeout`, the next step continues at the same place. For a synchronizer and a store
        without another sink: else ConfigurationError.
        """
        if self._worker.deliver is not None:
            raise ConfigurationError("the changes go to deliver=: make a Synchronizer without it")
        changes = Changes()
        return ChangeStream(changes, functools.partial(self._run_into, changes))

    async def _run_into(self, changes: Changes) -> None:
        """Synchronise all, and send the changes to a loop over them, until cancelled."""
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
        """Have the round of a mailbox begin at once for which an operator left a request; the round applies it."""
        while self._requests is not None:
            await self._clock.sleep(_REQUEST_POLL_INTERVAL)
            with contextlib.suppress(StoreError, ClosedError):  # the rounds tell of it
                self._worker.requested_mailboxes = set(await self._requests.pending_requests())
                for name in self._worker.requested_mailboxes:
                    schedule.reschedule_now(name)
                    self._changed.set()
