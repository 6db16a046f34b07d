"""The worker that a command runs: one process with its SQLite store, or one of a fleet with PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

import attrs

from directsuite.core.events import Listener
from directsuite.secret import Secret
from directsuite.settings import Settings
from directsuite.suite import DirectSuite
from directsuite.sync.progress import MailboxProgress
from directsuite.sync.sinks import MaildirSink, SqliteSink
from directsuite.sync.sqlite import SqliteStore
from directsuite.sync.synchronizer import Synchronizer
from directsuite.sync.turns import Passwords


@attrs.frozen(kw_only=True, repr=False)
class Plan:
    """What a worker is to do. maildir: None for the store's own sink. conninfo: of PostgreSQL, for one of a fleet.

    workers: of its fleet, at most. folders: None for all. interval: seconds, or None for as often as the service's rate
    allows. grace: seconds.
    """

    settings: Settings
    passwords: Passwords
    addresses: Sequence[str]
    folders: Sequence[str] | None
    store: Path
    conninfo: Secret | None
    workers: int
    maildir: Path | None
    keep_gone: bool
    once: bool
    interval: float | None
    grace: float
    status_file: Path | None


class Worker(Protocol):
    """Keeps mailboxes in step until it is done or told to stop."""

    @property
    def mailboxes(self) -> Mapping[str, MailboxProgress]:
        """How those stand that it knows of."""
        ...

    async def work(self) -> None:
        """Return when it is done, or has stopped. Raises StoreError where it can't begin."""
        ...

    def stop(self) -> None:
        """Let what is under way end, and begin nothing."""
        ...


@attrs.frozen
class _OfOneProcess:
    synchronizer: Synchronizer
    once: bool

    @property
    def mailboxes(self) -> Mapping[str, MailboxProgress]:
        return self.synchronizer.status

    async def work(self) -> None:
        await (self.synchronizer.once() if self.once else self.synchronizer.run())

    def stop(self) -> None:
        self.synchronizer.stop()


@asynccontextmanager
async def suite_of(plan: Plan, listeners: Sequence[Listener]) -> AsyncGenerator[DirectSuite]:
    """The suite of a plan's worker; all workers of a fleet keep to the rate together. Raises DirectSuiteError."""
    if plan.conninfo is None:
        async with DirectSuite(plan.settings, listeners=listeners) as suite:
            yield suite
        return
    from directsuite.sync.shared_limits import SharedLimits

    async with (
        SharedLimits(plan.conninfo, processes=plan.workers) as shared,
        DirectSuite(plan.settings, listeners=listeners, shared_limits=shared) as suite,
    ):
        yield suite


@asynccontextmanager
async def worker_of(plan: Plan, suite: DirectSuite) -> AsyncGenerator[Worker]:
    """The worker of a plan, with its store open. Raises DirectSuiteError."""
    deliver = None if plan.maildir is None else MaildirSink(plan.maildir, keep_gone=plan.keep_gone)
    if plan.conninfo is not None:
        from directsuite.cli.sync.fleet_worker import fleet_worker_of

        async with fleet_worker_of(plan, plan.conninfo, suite, deliver) as worker:
            yield worker
        return
    sink = SqliteSink(keep_gone=plan.keep_gone) if deliver is None else None
    async with SqliteStore(plan.store, sink=sink) as store:
        synchronizer = Synchronizer(
            suite,
            store,
            plan.addresses,
            plan.passwords,
            deliver=deliver,
            folders=plan.folders,
            interval=plan.interval,
            requests_per_second=plan.settings.requests_per_second,
        )
        yield _OfOneProcess(synchronizer, plan.once)
