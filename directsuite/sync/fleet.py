"""Many mailboxes, kept in step by many processes: each runs a worker, and whichever is free takes a mailbox's turn.

    due ──► woken ──► a turn by the worker that had the last one, if it lives and isn't late; else by any
     ▲                 └─ next_due_at, and what went wrong ──► our own table
     └────────────────────────────────────────────────────────┘

A worker that dies or hangs within a turn loses the mailbox after `patience`, and its lease with the next turn's claim.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from directsuite.core.checks import AT_LEAST_ONE, DURATION, INTERVAL
from directsuite.core.clock import Clock, SystemClock
from directsuite.durable.fleet import FleetEngine
from directsuite.suite import DirectSuite
from directsuite.sync.commits import Deliver
from directsuite.sync.fleet_table import BegunTurn, FleetStatus, FleetTable
from directsuite.sync.model import StoreError
from directsuite.sync.postgres import PostgresStore
from directsuite.sync.schedule import Passwords, PollSchedule, Worker
from directsuite.sync.status import MailboxProgress

__all__ = ["Fleet", "FleetStatus"]

_LOGGER = logging.getLogger("directsuite")

_AT_ONCE = 1.0  # seconds of rest for which nobody waits for the next look at what is due


class Fleet:
    """A worker of a fleet, and a way to give the fleet its mailboxes.

        async with ds.DirectSuite(settings) as suite, PostgresStore(conninfo, sink=PostgresSink()) as store:
            fleet = Fleet(suite, store, password_of)
            await fleet.add(["alice@direct.example.org"])
            await fleet.run()

    store: opened; all processes give the same database. password, deliver, folders, interval: as the Synchronizer has
    them, and the same in all processes. turns: side by side in this process. requests_per_second: of the whole fleet,
    which keeps to it where its suites share their limits (`directsuite.sync.shared_limits`). tick: seconds between two
    looks at what is due. patience: seconds after which a worker that isn't heard of counts as dead. grace: seconds that
    turns under way get when this worker ends. clock, now: for tests. Raises ConfigurationError where the extra `fleet`
    isn't installed.
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
        turns: int = 8,
        requests_per_second: float = 100.0,
        tick: float = 2.0,
        patience: float = 30.0,
        grace: float = 30.0,
        clock: Clock | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        AT_LEAST_ONE.require("turns", turns)
        INTERVAL.require("tick", tick)
        INTERVAL.require("patience", patience)
        DURATION.require("grace", grace)
        self._clock = clock or SystemClock()
        self._id = secrets.token_hex(8)
        self._table = FleetTable(store.connections, self._id, patience)
        self._engine = FleetEngine(
            store.connections,
            "sync",
            self._id,
            due=self._table.due,
            take=self._take_turn,
            heartbeat=self._look_after_others,
            concurrency=turns,
            grace=grace,
            patience=patience,
            tick=tick,
            clock=self._clock,
        )
        self._poll_schedule = PollSchedule(
            interval=interval, folders=folders, requests_per_second=requests_per_second, clock=self._clock
        )
        self._worker = Worker(
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
        self._taken: dict[int, BegunTurn] = {}
        self._under_way = set[int]()

    async def add(self, names: Iterable[str]) -> int:
        """Have mailboxes kept in step, by their addresses; how many are new to the fleet. Raises StoreError."""
        await self._table.prepare()
        return await self._table.add(names)

    async def remove(self, names: Iterable[str]) -> int:
        """Keep mailboxes in step no more; how many there were. What is known of them stays. Raises StoreError."""
        await self._table.prepare()
        return await self._table.remove(names)

    async def status(self) -> FleetStatus:
        """How the whole fleet stands. Raises StoreError."""
        await self._table.prepare()
        return await self._table.status()

    @property
    def progress(self) -> Mapping[str, MailboxProgress]:
        """How the mailboxes stand whose last turn was this worker's, by their addresses."""
        return self._worker.status

    def stop(self) -> None:
        """Let `run` return when the turns under way have ended, or their grace has."""
        self._engine.stop()

    async def run(self) -> None:
        """Work until stopped or cancelled: either way turns under way get their grace. Runs once.

        Raises StoreError where PostgreSQL is away at the beginning; afterwards it is waited for. Raises
        ConfigurationError where nothing takes the changes.
        """
        await self._worker.bind()
        await self._table.prepare()
        await self._table.seen()
        try:
            await self._engine.run()
        finally:
            with contextlib.suppress(StoreError):
                await self._table.leave()

    async def _look_after_others(self) -> None:
        await self._table.seen()
        await self._table.give_to_all()
        self._poll_schedule.mailboxes = (await self._table.status()).mailboxes
        for mailbox in self._taken.keys() - await self._table.own() - self._under_way:
            self._worker.forget(self._taken.pop(mailbox).name)

    async def _take_turn(self, mailbox: int) -> None:
        """A turn, if one is due. Where PostgreSQL is away, it is due as before, and as soon as that answers again."""
        try:
            begun = await self._table.begin(mailbox)
            if begun is not None:
                self._under_way.add(mailbox)
                await self._take(begun)
        except StoreError as error:
            self._engine.wake_later(mailbox, self._id)
            _LOGGER.warning("fleet: %s", error)
        finally:
            self._under_way.discard(mailbox)

    async def _take(self, begun: BegunTurn) -> None:
        last = self._taken.get(begun.mailbox)
        if last is None or last.number != begun.number - 1:
            self._reset(begun.name, begun.failures)  # another worker had it since: what is remembered is out of date
        self._taken[begun.mailbox] = begun
        breaks = self._connections.breaks
        result = await self._worker.run_round(begun.name)
        if result.report is None and self._connections.breaks != breaks:
            self._reset(begun.name, begun.failures)  # it was no fault of the mailbox's
            self._engine.wake_later(begun.mailbox, self._id)
            return
        status = self._worker.status[begun.name]
        is_last = await self._table.finish(begun, result.next_in, status.problem, status.failures)
        if is_last and result.next_in < _AT_ONCE:
            await self._engine.wake(begun.mailbox, self._id)

    def _reset(self, name: str, failures: int = 0) -> None:
        """Begin anew with a mailbox, save for how often it has failed."""
        self._worker.reset(name, failures)
