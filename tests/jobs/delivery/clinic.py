"""A mailbox on a sandbox, and a suite that uses the sandbox's clock: time passes when the client sleeps."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import directsuite as ds
from directsuite.sandbox.clock import Clock as SandboxClock
from directsuite.sandbox.server import Sandbox
from tests.integration.scenario import ALICE, NOON, PASSWORD, make_settings
from tests.waiting import notify_waiters


class SandboxTimeClock:
    """The sandbox's clock for a suite. It advances when the client sleeps, unless it is held.

    sleeps: the seconds of each sleep.
    """

    def __init__(self, clock: SandboxClock) -> None:
        self._clock = clock
        self.sleeps: list[float] = []
        self._goes_on = asyncio.Event()
        self._goes_on.set()

    def hold(self) -> None:
        self._goes_on.clear()

    def monotonic(self) -> float:
        return self._clock.now().timestamp()

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        notify_waiters()
        await self._goes_on.wait()
        self._clock.advance(timedelta(seconds=seconds))
        await asyncio.sleep(0)


class Clinic:
    """A sandbox, a suite, and Alice's mailbox. requests: the number of requests by operation."""

    def __init__(self, sandbox: Sandbox, suite: ds.DirectSuite, time: SandboxTimeClock) -> None:
        self.sandbox = sandbox
        self.suite = suite
        self.time = time
        self.request_counts = Counter[str]()
        self.box = suite.mailbox(ALICE, PASSWORD)
        suite.add_listener(self._count)

    def _count(self, event: ds.Event) -> None:
        if isinstance(event, ds.AttemptStarted):
            self.request_counts[event.operation] += 1
            notify_waiters()

    async def send(self, *recipients: str) -> str:
        message = ds.Message(subject="Referral", recipients=[ds.Recipient(address) for address in recipients])
        sent = await self.box.send(message)
        return sent.smtp_id


@asynccontextmanager
async def open_clinic(
    time: Callable[[SandboxClock], SandboxTimeClock] = SandboxTimeClock, **limits: Any
) -> AsyncGenerator[Clinic]:
    """Open Alice's mailbox at noon. By default calls are not retried and there is no rate limit."""
    clock = SandboxClock()
    clock.freeze(NOON)
    async with Sandbox(clock=clock) as sandbox:
        await sandbox.add_account(ALICE, PASSWORD)
        await sandbox.add_tuser("front-desk", PASSWORD, [ALICE])
        passing = time(clock)
        generous = {
            "requests_per_second": 1e6,
            "burst": 1_000_000,
            "retry": ds.RetryPolicy.none(),
            "circuit_failures": 0,
        }
        settings = make_settings(sandbox, **(generous | limits))
        async with ds.DirectSuite(settings, token=sandbox.environment["DIRECTSUITE_TOKEN"], clock=passing) as suite:
            yield Clinic(sandbox, suite, passing)
