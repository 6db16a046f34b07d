"""One worker of a fleet."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

import attrs

from directsuite.cli.sync.worker import Plan, Worker
from directsuite.secret import Secret
from directsuite.suite import DirectSuite
from directsuite.sync.commits import Deliver
from directsuite.sync.fleet import Fleet
from directsuite.sync.postgres import PostgresStore
from directsuite.sync.postgres_sink import PostgresSink
from directsuite.sync.progress import MailboxProgress


@attrs.frozen
class _OfAFleet:
    fleet: Fleet

    @property
    def mailboxes(self) -> Mapping[str, MailboxProgress]:
        return self.fleet.progress

    async def work(self) -> None:
        await self.fleet.run()

    def stop(self) -> None:
        self.fleet.stop()


@asynccontextmanager
async def fleet_worker_of(
    plan: Plan, conninfo: Secret, suite: DirectSuite, deliver: Deliver | None
) -> AsyncGenerator[Worker]:
    """A worker, with its mailboxes given to the fleet. Raises DirectSuiteError."""
    sink = PostgresSink(keep_gone=plan.keep_gone) if deliver is None else None
    async with PostgresStore(conninfo, sink=sink) as store:
        fleet = Fleet(
            suite,
            store,
            plan.passwords,
            deliver=deliver,
            folders=plan.folders,
            interval=plan.interval,
            requests_per_second=plan.settings.requests_per_second,
            grace=plan.grace,
        )
        await fleet.add(plan.addresses)
        yield _OfAFleet(fleet)
