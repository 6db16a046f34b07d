"""Many mailboxes, synchronised by many processes: each runs a worker, and whichever is free runs a mailbox's round.

    due ──► woken ──► a round by the worker that had the last one, if it lives and isn't late; else by any
     ▲                 └─ next_due_at, and what went wrong ──► our own table
     └────────────────────────────────────────────────────────┘

A worker that dies or hangs within a round loses the mailbox after `patience`, and its lease with the next claim.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import attrs

from directsuite.core.checks import AT_LEAST_ONE, DURATION, INTERVAL
from directsuite.core.clock import Clock, SystemClock
from directsuite.core.privacy import scrub_class
from directsuite.durable.database import Transaction
from directsuite.durable.fleet import FleetEngine
from directsuite.durable.postgres import Connections, PostgresDatabase
from directsuite.suite import DirectSuite
from directsuite.sync import sql
from directsuite.sync.commits import Deliver
from directsuite.sync.model import StoreError
from directsuite.sync.postgres import PostgresStore
from directsuite.sync.schedule import MailboxWorker, Passwords, PollSchedule
from directsuite.sync.status import MailboxProgress

__all__ = ["Fleet", "FleetStatus"]

_LOGGER = logging.getLogger("directsuite")

_WAKE_NOW_SECONDS = 1.0  # seconds: what is due sooner isn't left to the next look at what is due
_MAX_DUE_MAILBOXES = 500  # mailboxes that workers are woken for at a time
_MAX_PAUSE = 86_400.0  # seconds between two rounds of a mailbox, unless the interval is longer


@attrs.frozen(kw_only=True)
class FleetStatus:
    """How a fleet stands."""

    mailboxes: int
    waiting: int
    """Mailboxes that had no round yet."""
    failing: dict[str, int]
    """How many mailboxes fail, by what is wrong, in words."""
    late: float
    """Seconds since the mailbox that waits longest was due."""
    workers: int
    """Workers that were heard of lately."""


@scrub_class
class Fleet:
    """A worker of a fleet, and a way to give the fleet its mailboxes.

        async with ds.DirectSuite(settings) as suite, PostgresStore(conninfo, sink=PostgresSink()) as store:
            fleet = Fleet(suite, store, password_of)
            await fleet.add(["alice@direct.example.org"])
            await fleet.run()

    store: opened; all processes give the same database. password, deliver, folders, interval: as the Synchronizer has
    them, and the same in all processes. concurrency: mailboxes side by side in this process. requests_per_second: of
    the whole fleet, which keeps to it where its suites share their limits (`directsuite.sync.shared_limits`). tick:
    seconds between two looks at what is due. patience: seconds after which a worker that isn't heard of counts as dead.
    grace: seconds that rounds under way get when this worker ends. clock, now: for tests. Raises ConfigurationError
    where the extra `fleet` isn't installed.
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
        self._clock = clock or SystemClock()
        self._id = secrets.token_hex(8)
        self._table = FleetTable(store.connections, self._id, worker_timeout, max(_MAX_PAUSE, 2 * (interval or 0.0)))
        self._engine = FleetEngine(
            store.connections,
            "sync",
            self._id,
            list_due=self._table.list_due,
            run_key=self._run_round,
            heartbeat=self._heartbeat,
            concurrency=concurrency,
            grace=grace,
            worker_timeout=worker_timeout,
            tick=tick,
            clock=self._clock,
        )
        self._poll_schedule = PollSchedule(
            interval=interval, folders=folders, requests_per_second=requests_per_second, clock=self._clock
        )
        self._worker = MailboxWorker(
            suite,
            store,
            password,
            deliver=deliver,
            folders=folders,
            poll_schedule=self._poll_schedule,
            clock=self._clock,
            now=now,
        )
        self._connections = store.connections
        self._last_rounds: dict[int, LeasedRound] = {}
        """The last round that this worker had of each mailbox."""
        self._in_progress = set[int]()

    async def add(self, names: Iterable[str]) -> int:
        """Have mailboxes synchronised, by their addresses; how many are new to the fleet. Raises StoreError."""
        await self._table.prepare()
        return await self._table.add(names)

    async def remove(self, names: Iterable[str]) -> int:
        """Synchronise mailboxes no more; how many there were. What is known of them stays. Raises StoreError."""
        await self._table.prepare()
        return await self._table.remove(names)

    async def status(self) -> FleetStatus:
        """How the whole fleet stands. Raises StoreError."""
        await self._table.prepare()
        return await self._table.read_status()

    @property
    def progress(self) -> Mapping[str, MailboxProgress]:
        """How the mailboxes stand whose last round was this worker's, by their addresses."""
        return self._worker.status

    def stop(self) -> None:
        """Let `run` return when the rounds under way have ended, or their grace has."""
        self._engine.stop()

    async def bind(self) -> None:
        """Bind the store to the sink, as `run` does before anything else. Raises ConfigurationError, StoreError."""
        await self._worker.bind()

    async def run(self) -> None:
        """Work until stopped or cancelled: either way rounds under way get their grace. Runs once.

        Raises StoreError where PostgreSQL is away at the beginning; afterwards it is waited for. Raises
        ConfigurationError where nothing takes the changes.
        """
        await self.bind()
        await self._table.prepare()
        await self._table.heartbeat()
        try:
            await self._engine.run()
        finally:
            with contextlib.suppress(StoreError):
                await self._table.leave()

    async def _heartbeat(self) -> None:
        await self._table.heartbeat()
        await self._table.reassign()
        self._poll_schedule.mailboxes = (await self._table.read_status()).mailboxes
        for mailbox in self._last_rounds.keys() - await self._table.list_own() - self._in_progress:
            self._worker.forget(self._last_rounds.pop(mailbox).name)

    async def _run_round(self, mailbox: int) -> None:
        """A round, if one is due. Where PostgreSQL is away, it is due as before, and as soon as that answers again."""
        try:
            leased = await self._table.claim(mailbox)
            if leased is not None:
                self._in_progress.add(mailbox)
                await self._run_leased_round(leased)
        except StoreError as error:
            self._engine.wake_later(mailbox, self._id)
            _LOGGER.warning("fleet: %s", error)
        finally:
            self._in_progress.discard(mailbox)

    async def _run_leased_round(self, leased: LeasedRound) -> None:
        last = self._last_rounds.get(leased.mailbox)
        if last is None or last.round_number != leased.round_number - 1:
            self._worker.reset(
                leased.name, leased.failures
            )  # another worker had it since: what is remembered is out of date
        self._last_rounds[leased.mailbox] = leased
        breaks = self._connections.breaks
        result = await self._worker.run_round(leased.name)
        if result.report is None and self._connections.breaks != breaks:
            self._worker.reset(leased.name, leased.failures)  # it was no fault of the mailbox's
            self._engine.wake_later(leased.mailbox, self._id)
            return
        status = self._worker.status[leased.name]
        is_last = await self._table.finish(leased, result.next_in, status.problem, status.failures)
        if is_last and result.next_in < _WAKE_NOW_SECONDS:
            await self._engine.wake(leased.mailbox, self._id)


@attrs.frozen
class LeasedRound:
    """A round that is this worker's, until another one claims the next."""

    mailbox: int
    name: str = attrs.field(repr=False)
    round_number: int
    """The number of the round among all rounds of the mailbox."""
    failures: int
    """Rounds that failed in a row."""


@attrs.frozen
class FleetMailbox:
    """A mailbox of a fleet."""

    name: str = attrs.field(repr=False)
    rounds: int
    up_to_date_at: float | None
    """Unix time when it was last up to date."""
    due_at: float
    """Unix time when the next round is due."""
    failures: int
    """Rounds that failed in a row."""
    problem: str | None
    """What is wrong, in words."""


class FleetTable:
    """The rows of a fleet: a round is claimed by one worker, and a later claim makes the end of an earlier round void.

    Methods raise StoreError.
    """

    def __init__(
        self,
        connections: Connections,
        worker: str,
        worker_timeout: float,  # seconds after which a worker that isn't heard of counts as dead
        max_pause: float = _MAX_PAUSE,  # seconds: a later time was stored by a clock that was ahead
    ) -> None:
        self._database = PostgresDatabase(connections)
        self._worker = worker
        self._worker_timeout = worker_timeout
        self._max_pause = max_pause

    async def prepare(self) -> None:
        """Make the tables where there are none, beside those of the store."""
        await self._database.transaction(lambda transaction: transaction.ensure(sql.FLEET_TABLES))

    async def add(self, names: Iterable[str]) -> int:
        """Have mailboxes synchronised, beginning now; how many are new to the fleet."""
        values = {"names": sorted(set(names))}  # two that add the same ones wait for each other in one order

        async def add(transaction: Transaction) -> int:
            """Mailboxes and their rows in the schedule."""
            await transaction.execute(sql.ADD_MAILBOXES, values)
            return len(await transaction.execute(sql.ADD_TO_SCHEDULE, values))

        return await self._database.transaction(add)

    async def remove(self, names: Iterable[str]) -> int:
        """Have no more rounds of mailboxes; how many there were. What the store knows of them stays."""
        return len(await self._database.execute(sql.REMOVE_FROM_SCHEDULE, {"names": list(names)}))

    async def heartbeat(self) -> None:
        """Note that this worker lives."""
        await self._database.execute(sql.HEARTBEAT, {"worker": self._worker})

    async def leave(self) -> None:
        """Note that this worker has ended."""
        await self._database.execute(sql.LEAVE, {"worker": self._worker})

    async def list_due(self) -> Sequence[tuple[int, str | None]]:
        """Mailboxes to wake, by nobody else for a while, each with the worker that had its last round and lives."""
        values = {"patience": self._worker_timeout, "longest": self._max_pause, "most": _MAX_DUE_MAILBOXES}
        found = await self._database.execute(sql.TAKE_DUE_MAILBOXES, values)
        return [(mailbox, worker) for mailbox, worker in found]

    async def claim(self, mailbox: int) -> LeasedRound | None:
        """Claim a round; None where none is due."""
        values = {"mailbox": mailbox, "worker": self._worker, "longest": self._max_pause}
        found = await self._database.execute(sql.CLAIM_ROUND, values)
        return LeasedRound(*found[0]) if found else None

    async def finish(self, leased: LeasedRound, next_in: float, problem: str | None, failures: int = 0) -> bool:
        """End a round: the next is due in so many seconds. Return False if another has been claimed meanwhile.

        failures: in a row.
        """
        values = {"mailbox": leased.mailbox, "fence": leased.round_number}
        outcome = {"next_in": min(next_in, self._max_pause), "problem": problem, "failures": failures}
        return bool(await self._database.execute(sql.FINISH_ROUND, values | outcome))

    async def reassign(self) -> None:
        """Let any worker have the rounds that wait for one that is dead or busy."""
        await self._database.execute(sql.REASSIGN, {"patience": self._worker_timeout})

    async def reschedule_now(self, names: Iterable[str]) -> int:
        """Have the next rounds of mailboxes due at once; how many there are in the fleet."""
        return len(await self._database.execute(sql.RESCHEDULE_NOW, {"names": list(names)}))

    async def list_mailboxes(self) -> Sequence[FleetMailbox]:
        """Every mailbox, by their names."""
        return [FleetMailbox(*values) for values in await self._database.fetch(sql.SCHEDULED_MAILBOXES)]

    async def list_own(self) -> Collection[int]:
        """Mailboxes whose last round was this worker's."""
        return {mailbox for (mailbox,) in await self._database.fetch(sql.WORKER_MAILBOXES, {"worker": self._worker})}

    async def read_status(self) -> FleetStatus:
        """How the fleet stands."""
        values = {"patience": self._worker_timeout}
        ((mailboxes, waiting, late, workers),) = await self._database.fetch(sql.FLEET_STATUS, values)
        failing = {str(problem): count for problem, count in await self._database.fetch(sql.PROBLEMS)}
        return FleetStatus(mailboxes=mailboxes, waiting=waiting, failing=failing, late=late, workers=workers)
