"""A sandbox with documents, mailboxes and a patient to provision, and a client whose waits take no time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import attrs

import directsuite as ds
from directsuite.sandbox import Sandbox
from directsuite.sandbox.server import DEMO_LOGIN
from tests.core.scripted_suite import expect_error
from tests.core.virtual_time import ManualClock
from tests.integration.documents import make_consent_form
from tests.integration.scenario import LoopTime

T = TypeVar("T")

DOMAIN = "direct.example.test"
ALICE = f"alice@{DOMAIN}"


class ScriptedWaitClock(ManualClock):
    """A clock that only advances in waits. actions_during_waits: called in the next waits, one in each."""

    def __init__(self) -> None:
        super().__init__()
        self.actions_during_waits: list[Callable[[], Awaitable[object]]] = []

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds)
        if self.actions_during_waits:
            await self.actions_during_waits.pop(0)()
        await asyncio.sleep(0)


@attrs.frozen
class VerificationScenario:
    """The sandbox, and a suite that uses it."""

    sandbox: Sandbox
    suite: ds.DirectSuite
    clock: ScriptedWaitClock
    loop_time: LoopTime

    @property
    def signing(self) -> ds.Signing:
        return self.suite.signing

    @property
    def box(self) -> ds.Mailbox:
        return self.suite.mailbox(ALICE, "secret")

    async def save(self) -> ds.StoredDocument:
        return await self.signing.save(make_consent_form())

    async def count_effects(self, operation: str) -> int:
        return len(await self.sandbox.ledger(operation))

    async def lose(self, operation: str, fault: str, call: Awaitable[object]) -> ds.OutcomeUnknownError:
        """Return the error of a call whose request or response gets lost, and whose outcome stays unknown."""
        self.sandbox.inject_fault(operation, fault)
        return await expect_error(ds.OutcomeUnknownError, call)

    def count_requests(self, operation: str) -> int:
        """Return the number of a rule that counts the requests of an operation."""
        return self.sandbox.inject_fault(operation, "latency", seconds=0.0, times=None)

    def get_applied_count(self, number: int) -> int:
        [applied] = [int(rule["applied"]) for rule in self.sandbox.faults() if rule["id"] == number]
        return applied


@asynccontextmanager
async def open_scenario() -> AsyncGenerator[VerificationScenario]:
    async with Sandbox() as sandbox:
        await sandbox.add_account(ALICE, "secret")
        await sandbox.add_reseller(*DEMO_LOGIN, [DOMAIN])
        await sandbox.add_individual("Ada", "Example", "1234", "1980-02-29", id=7)
        clock, loop_time = ScriptedWaitClock(), LoopTime()
        settings = ds.Settings.from_env(sandbox.environment)
        token, login = sandbox.environment["DIRECTSUITE_TOKEN"], ds.Login(*DEMO_LOGIN)
        async with ds.DirectSuite(settings, token, login, clock=clock) as suite:
            yield VerificationScenario(sandbox, suite, clock, loop_time)


async def await_outcome(call: Awaitable[T]) -> T | ds.OutcomeUnknownError:
    try:
        return await call
    except ds.OutcomeUnknownError as error:
        return error


def list_file_names(folder: Path) -> list[str]:
    return [entry.name for entry in folder.iterdir()]
