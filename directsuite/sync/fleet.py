"""A fleet: workers in several processes that share the synchronisation of many mailboxes.

    due ──► woken ──► claimed in a batch ──► rounds ──► recorded in a batch: the problem, and when it is due again
     ▲                 └─ by the worker of the last round if it is alive and not busy, else by any worker  │
     └─────────────────────────────────────────────────────────────────────────────────────────────────────┘

A claim is valid for `worker_timeout`, and each heartbeat extends it. So a worker that dies or hangs loses its
mailboxes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import attrs

from directsuite.core.checks import AT_LEAST_ONE, DURATION, INTERVAL
from directsuite.core.clock import Clock, SystemClock
from directsuite.core.privacy import scrub_class
from directsuite.durable.database import Tables, Transaction, load_statements
from directsuite.durable.fleet import FleetEngine
from directsuite.durable.postgres import PostgresDatabase
from directsuite.messaging.arguments import validate_texts
from directsuite.suite import DirectSuite
from directsuite.sync.commits import Deliver
from directsuite.sync.model import StoreError
from directsuite.sync.postgres import PostgresStore
from directsuite.sync.status import MailboxProgress, SyncStatus
from directsuite.sync.synchronizer import MailboxWorker, Passwords, PollSchedule

__all__ = ["Fleet", "FleetStatus"]

_LOGGER = logging.getLogger("directsuite")

_SQL = load_statements("directsuite.sync", "fleet")
_TABLES = Tables("fleet", _SQL["fleet_tables"])

_BATCH = 50  # the maximum number of mailboxes claimed in one statement
_MAX_DUE_MAILBOXES = 500  # mailboxes woken per tick
_MAX_PAUSE = 86_400.0  # seconds between two rounds of a mailbox, unless the interval is longer


@attrs.frozen(kw_only=True)
class FleetStatus:
    """The status of a fleet."""

    mailboxes: int
    waiting: int
    """Mailboxes that never had a round."""
    failing: dict[str, int]
    """The number of failing mailboxes by problem."""
    late: float
    """Seconds since the most overdue mailbox was due."""
    workers: int
    """Workers with a recent heartbeat."""


@scrub_class
class Fleet:
    """A worker of a fleet, and the methods that add mailboxes to the fleet and remove them.

        async with ds.DirectSuite(settings) as suite, PostgresStore(conninfo, sink=PostgresSink()) as store:
            fleet = Fleet(suite, store, password_of)
            await fleet.add(["alice@direct.example.org"])
            await fleet.run()

    store: an open store. All processes must use the same database.
    password, deliver, folders, interval: as for `Synchronizer`, and the same in all processes.
    concurrency: the maximum number of concurrent rounds in this process.
    requests_per_second: of the complete fleet. Enforced only by `directsuite.sync.shared_limits`.
    tick: seconds between two searches for due mailboxes.
    worker_timeout: seconds without a heartbeat after which a worker counts as dead.
    grace: seconds for rounds in progress to finish when this worker ends.
    clock, now: for tests.

    Raises ConfigurationError if an argument is invalid or the extra `fleet` is not installed.
    """

    def __init__(
        self,
        suite: DirectSuite,
        store: PostgresStore,
        password: Passwords,
        *,
        deliver: Deliver | None = None,
        folders: Sequence[str] | None = ("INBOX",),
        interval: float | None = None,
        concurrency: int = 8,
        requests_per_second: float = 100.0,
        tick: float = 2.0,
        worker_timeout: float = 30.0,
        grace: float = 30.0,
        clock: Clock | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        AT_LEAST_ONE.require("concurrency", concurrency)
        INTERVAL.allow_none().require("interval", interval)
        INTERVAL.require("tick", tick)
        INTERVAL.require("worker_timeout", worker_timeout)
        DURATION.require("grace", grace)
        folders = None if folders is None else validate_texts(folders, "folders")
        self._clock = clock or SystemClock()
        self._id = secrets.token_hex(8)
        max_pause = max(_MAX_PAUSE, 2 * (interval or 0.0), 2 * worker_timeout)
        self._table = FleetTable(store.database, self._id, worker_timeout, max_pause)
        self._engine = FleetEngine(
            store.database,
            "sync",
            self._id,
            list_due=self._list_due,
            run_keys=self._run_mailboxes,
            heartbeat=self._heartbeat,
            on_stop=self._stop_starting,
            batch=_BATCH,
            grace=grace,
            worker_timeout=worker_timeout,
            tick=tick,
            clock=self._clock,
        )
        self._polls = PollSchedule(interval, folders, requests_per_second, self._clock)
        self._worker = MailboxWorker(suite, store, password, deliver, folders, self._polls, self._clock, now)
        self._database = store.database
        self._free = asyncio.Semaphore(concurrency)
        self._last_rounds: dict[int, LeasedRound] = {}
        self._claimed: dict[int, LeasedRound] = {}
        """The rounds claimed here whose end is not recorded."""
        self._ended: list[LeasedRound] = []
        self._worker.requested_mailboxes = self._requested_mailboxes = set[str]()
        self._is_stopping = False

    async def add(self, names: Iterable[str]) -> int:
        """Add mailboxes by address. Return the number of new ones. Raises StoreError."""
        addresses = validate_texts(names, "names")
        await self._table.prepare()
        return await self._table.add(addresses)

    async def remove(self, names: Iterable[str]) -> int:
        """Remove mailboxes from the fleet, but not from the store. Return how many were removed. Raises StoreError."""
        addresses = validate_texts(names, "names")
        await self._table.prepare()
        return await self._table.remove(addresses)

    async def status(self) -> FleetStatus:
        """Return the fleet's status. Raises StoreError."""
        await self._table.prepare()
        return await self._table.read_status()

    @property
    def progress(self) -> Mapping[str, MailboxProgress]:
        """The progress of the mailboxes whose last round ran here, by address."""
        return self._worker.status

    def stop(self) -> None:
        """Make `run` return when the rounds in progress have ended, or after the grace period."""
        self._engine.stop()

    async def bind(self) -> None:
        """Bind the store to the sink, as `run` does first. Raises its errors."""
        await self._worker.bind()

    async def run(self) -> None:
        """Work until stopped or cancelled; rounds in progress then have the grace period. Can be called once.

        Raises StoreError if PostgreSQL is not available at the start; later failures are retried. Raises
        ConfigurationError if no sink or two were given, or the store is bound to another.
        """
        await self.bind()
        await self._table.prepare()
        await self._table.heartbeat()
        try:
            await self._engine.run()
        finally:
            with contextlib.suppress(StoreError):
                await self._record_ended()
                await self._table.leave()

    def _stop_starting(self) -> None:
        self._is_stopping = True

    async def _list_due(self) -> Iterable[tuple[int, str | None]]:
        await self._record_ended()
        return await self._table.list_due()

    async def _heartbeat(self) -> None:
        self._polls.mailboxes, own = await self._table.heartbeat(self._claimed.values())
        for mailbox in self._last_rounds.keys() - own - self._claimed.keys():
            self._worker.forget(self._last_rounds.pop(mailbox).name)

    async def _run_mailboxes(self, mailboxes: Sequence[int]) -> None:
        """Claim those of the mailboxes that are still due. Return when all their rounds have begun."""
        try:
            batch = await self._table.claim([each for each in mailboxes if each not in self._claimed])
        except StoreError as error:
            self._engine.wake_later(mailboxes, self._id)
            _LOGGER.warning("fleet: %s", error)
            return
        if batch:
            self._claimed.update((leased.mailbox, leased) for leased in batch)
            all_begun = asyncio.Event()
            self._engine.start(self._run_batch(batch, all_begun))
            await all_begun.wait()

    async def _run_batch(self, batch: Sequence[LeasedRound], all_begun: asyncio.Event) -> None:
        async def run(leased: LeasedRound) -> None:
            async with self._free:
                if leased is batch[-1]:
                    all_begun.set()
                ended = await self._run_round(leased)
            self._ended.append(ended)
            if ended.next_in <= 0:  # do not wait for the other rounds of the batch
                await self._record_or_retry()

        try:
            await asyncio.gather(*map(run, batch))
            await self._record_or_retry()
        finally:
            all_begun.set()

    async def _run_round(self, leased: LeasedRound) -> LeasedRound:
        if self._is_stopping:
            return leased
        last = self._last_rounds.get(leased.mailbox)
        if last is None or last.round_number != leased.round_number - 1:
            # Another worker had the last round.
            self._worker.reset(leased.name, leased.failures)
        self._last_rounds[leased.mailbox] = leased
        self._requested_mailboxes.discard(leased.name)
        if leased.is_requested:
            self._requested_mailboxes.add(leased.name)
        breaks = self._database.breaks
        result = await self._worker.run_round(leased.name)
        if result.report is None and self._database.breaks != breaks:
            # PostgreSQL failed, not the mailbox.
            self._worker.reset(leased.name, leased.failures)
            return leased
        status = self._worker.status[leased.name]
        return attrs.evolve(
            leased,
            next_in=result.next_in,
            problem=status.problem,
            failures=status.failures,
            is_up_to_date=status.status is SyncStatus.UP_TO_DATE,
        )

    async def _record_or_retry(self) -> None:
        try:
            await self._record_ended()
        except StoreError as error:  # the next tick tries again
            _LOGGER.warning("fleet: %s", error)

    async def _record_ended(self) -> None:
        """Record the ended rounds, and wake this worker for those to continue immediately. Raises StoreError."""
        ended, self._ended = self._ended, []
        if not ended:
            return
        wakes = not self._is_stopping
        try:
            recorded = await self._table.finish(ended, wakes=wakes)
        except BaseException:
            self._ended += ended
            raise
        for each in ended:
            claimed = self._claimed.get(each.mailbox)
            if claimed is not None and claimed.round_number == each.round_number:
                del self._claimed[each.mailbox]
        if wakes:
            to_continue = {each.mailbox for each in ended if each.next_in <= 0} & recorded
            await self._engine.wake(dict.fromkeys(to_continue, self._id))


@attrs.frozen
class LeasedRound:
    """A claimed round, valid until the next claim."""

    mailbox: int
    name: str = attrs.field(repr=False)
    round_number: int
    failures: int
    """Consecutive failed rounds, with this one after its end."""
    problem: str | None
    """The problem of the previous round, or of this one after its end; None if there is none."""
    is_requested: bool
    """True if the mailbox has requests of an operator."""
    next_in: float = 0.0
    """Seconds from its end until the next one."""
    is_up_to_date: bool = False
    """After its end, True if the sink has all messages."""


@attrs.frozen
class FleetMailbox:
    """A mailbox of a fleet."""

    name: str = attrs.field(repr=False)
    rounds: int
    up_to_date_at: float | None
    """Unix time when it was last up to date, or None."""
    due_at: float
    """Unix time of the next round."""
    failures: int
    """Consecutive failed rounds."""
    problem: str | None
    """The problem of the last round, or None."""


class FleetTable:
    """The tables `schedule` and `worker`. Methods raise StoreError.

    worker_timeout: as for `Fleet`.
    max_pause: seconds. Due times further ahead count as past.
    """

    def __init__(
        self, database: PostgresDatabase, worker: str, worker_timeout: float, max_pause: float = _MAX_PAUSE
    ) -> None:
        self._database = database
        self._worker = worker
        self._worker_timeout = worker_timeout
        self._max_pause = max_pause

    async def prepare(self) -> None:
        """Create missing tables."""
        await self._database.transaction(lambda transaction: transaction.ensure(_TABLES))

    async def add(self, names: Iterable[str]) -> int:
        """Add mailboxes, due immediately. Return the number of new ones."""
        values = {"names": sorted(set(names))}  # sorted, so that two callers with the same names do not deadlock

        async def add(transaction: Transaction) -> int:
            await transaction.execute(_SQL["add_mailboxes"], values)
            return len(await transaction.execute(_SQL["add_to_schedule"], values))

        return await self._database.transaction(add)

    async def remove(self, names: Iterable[str]) -> int:
        """Remove mailboxes. Return how many were removed."""
        return len(await self._database.execute(_SQL["remove_from_schedule"], {"names": list(names)}))

    async def heartbeat(self, claimed: Iterable[LeasedRound] = ()) -> tuple[int, Collection[int]]:
        """Record that this worker is alive, and extend its claims.

        Return the fleet's number of mailboxes, and those whose last round ran here.
        """
        values = {"worker": self._worker, "patience": self._worker_timeout}
        ((count, own),) = await self._database.execute(_SQL["heartbeat"], values | _make_claim_values(claimed))
        return count, set(own or ())

    async def leave(self) -> None:
        """Remove this worker from the table, because it has ended."""
        await self._database.execute(_SQL["leave"], {"worker": self._worker})

    async def list_due(self) -> Sequence[tuple[int, str | None]]:
        """Return due mailboxes, each with its last worker, or None if that worker is dead or busy.

        A returned mailbox is not returned again within `worker_timeout`.
        """
        values = {"patience": self._worker_timeout, "longest": self._max_pause, "most": _MAX_DUE_MAILBOXES}
        found = await self._database.execute(_SQL["take_due_mailboxes"], values)
        return [(mailbox, worker) for mailbox, worker in found]

    async def claim(self, mailboxes: Sequence[int]) -> Sequence[LeasedRound]:
        """Claim and return a round of each mailbox that is due and that no worker has."""
        values = {"mailboxes": list(mailboxes), "worker": self._worker}
        bounds = {"patience": self._worker_timeout, "longest": self._max_pause}
        return [LeasedRound(*found) for found in await self._database.execute(_SQL["claim_rounds"], values | bounds)]

    async def finish(self, ended: Sequence[LeasedRound], *, wakes: bool = False) -> set[int]:
        """Record the ends of rounds. Return their mailboxes, without those that another worker has claimed.

        wakes: True if the caller wakes a worker for rounds that are due immediately.
        """
        values = {
            "pauses": [min(each.next_in, self._max_pause) for each in ended],
            "problems": [each.problem for each in ended],
            "failures": [each.failures for each in ended],
            "completions": [each.is_up_to_date for each in ended],
            "wakes": wakes,
        }
        found = await self._database.execute(_SQL["finish_rounds"], values | _make_claim_values(ended))
        return {mailbox for (mailbox,) in found}

    async def reschedule_now(self, names: Iterable[str]) -> int:
        """Make mailboxes due immediately, or after a round in progress. Return how many of them the fleet has."""
        return len(await self._database.execute(_SQL["reschedule_now"], {"names": list(names)}))

    async def list_mailboxes(self) -> Sequence[FleetMailbox]:
        """Return the scheduled mailboxes, by name."""
        return [FleetMailbox(*values) for values in await self._database.fetch(_SQL["scheduled_mailboxes"])]

    async def read_status(self) -> FleetStatus:
        """Return the fleet's status."""
        values = {"patience": self._worker_timeout}
        ((mailboxes, waiting, late, workers),) = await self._database.fetch(_SQL["fleet_status"], values)
        failing = {str(problem): count for problem, count in await self._database.fetch(_SQL["problems"])}
        return FleetStatus(mailboxes=mailboxes, waiting=waiting, failing=failing, late=late, workers=workers)


def _make_claim_values(claimed: Iterable[LeasedRound]) -> dict[str, object]:
    rows = [(leased.mailbox, leased.round_number) for leased in claimed]
    return {"mailboxes": [mailbox for mailbox, _ in rows], "fences": [fence for _, fence in rows]}
