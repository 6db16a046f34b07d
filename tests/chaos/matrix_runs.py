"""One cell of the matrix: a call with a fault, whose result is compared with the real effects.

returned              exactly one effect, which the response describes
OutcomeUnknownError   one effect or none
any other error       none
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import attrs

import directsuite as ds
from directsuite.core.events import AttemptFailed, AttemptStarted, AttemptSucceeded, Event
from directsuite.sandbox import Sandbox
from directsuite.sandbox.server import DEMO_LOGIN

from .matrix_faults import TIMEOUT, Fault
from .matrix_rows import MatrixContext, MatrixRow, populate
from .matrix_time import LeapingClock, leap

RETURNED, UNKNOWN = "returned", "OutcomeUnknownError"
_LEAP_SECONDS = 5.0  # seconds by which time advances while a response is awaited
_MAX_POLLS, _MAX_EFFECT_POLLS = 20_000, 2_000  # until a request has come; until a delayed one has been acted upon
_SANDBOX_SECONDS = 0.03  # real seconds in which a delayed request is acted upon, once its delay is over


@attrs.frozen
class Cell:
    """The result of a cell. reported: RETURNED, or the error's class."""

    row: MatrixRow
    fault: Fault
    times: int | None
    scope: str
    reported: str
    effects: int
    is_consistent_response: bool = True

    @property
    def is_report_correct(self) -> bool:
        if self.reported == RETURNED:
            return self.effects == 1 and self.is_consistent_response
        return self.effects <= 1 if self.reported == UNKNOWN else self.effects == 0

    def __str__(self) -> str:
        often = "once" if self.times == 1 else "always"
        answer = "" if self.is_consistent_response else ", with another's answer"
        return f"{self.row}: {self.fault}, {often}, on {self.scope}: {self.reported}{answer}, {self.effects} effects"


@attrs.define
class AttemptListener:
    """A listener that records if an attempt of the operation is in progress."""

    operation: str
    in_progress: bool = False

    def __call__(self, event: Event) -> None:
        if isinstance(event, AttemptStarted | AttemptSucceeded | AttemptFailed) and event.operation == self.operation:
            self.in_progress = isinstance(event, AttemptStarted)


class MatrixRunner:
    """Runs cells sequentially on one sandbox, with a new suite for each."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._number = 0

    async def call(self, row: MatrixRow, fault: Fault, times: int | None = 1, *, everywhere: bool = False) -> Cell:
        attempting = AttemptListener(row.operation)
        async with self._open_context(attempting, fault) as context:
            thing = await row.prepare(context)
            return await self._run(
                row, fault, times, "*" if everywhere else row.operation, row.call(context, thing), attempting
            )

    @contextlib.asynccontextmanager
    async def _open_context(self, attempting: AttemptListener, fault: Fault) -> AsyncGenerator[MatrixContext]:
        self._number += 1
        sandbox = self._sandbox

        async def tokens() -> str:
            return await sandbox.issue_token()

        settings = attrs.evolve(ds.Settings.from_env(sandbox.environment), timeout=TIMEOUT)
        suite = ds.DirectSuite(
            settings,
            tokens,
            ds.Login(*DEMO_LOGIN),
            listeners=[attempting],
            clock=LeapingClock(_SANDBOX_SECONDS if fault.takes_effect_late else 0.0),
        )
        async with suite:
            yield MatrixContext(sandbox, suite, self._number)

    async def _run(
        self,
        row: MatrixRow,
        fault: Fault,
        times: int | None,
        scope: str,
        call: Awaitable[Any],
        attempting: AttemptListener,
    ) -> Cell:
        before = len(await self._sandbox.ledger(row.operation))
        rule = self._sandbox.inject_fault(scope, fault.kind, times=times, **fault.members)
        landed = self._count_new_effects(row, before)
        calling = asyncio.ensure_future(call)
        if fault.delay:
            await self._advance_time(calling, fault, rule, attempting, landed)
        answer: Any = None
        try:
            answer = await calling
            told = RETURNED
        except ds.DirectSuiteError as error:
            told = type(error).__name__
        if fault.takes_effect_late:
            leap(fault.delay)

            async def all_landed() -> bool:
                return await landed() >= self._get_applied_count(rule)

            await _poll_until(all_landed, _MAX_EFFECT_POLLS)  # fails if one of them is rejected
        self._sandbox.clear_faults()
        effects = (await self._sandbox.ledger(row.operation))[before:]
        agrees = told != RETURNED or any(row.is_consistent(answer, effect) for effect in effects)
        return Cell(row, fault, times, "every operation" if scope == "*" else "its own", told, len(effects), agrees)

    def _count_new_effects(self, row: MatrixRow, before: int) -> Callable[[], Awaitable[int]]:
        async def landed() -> int:
            return len(await self._sandbox.ledger(row.operation)) - before

        return landed

    def _get_applied_count(self, number: int) -> int:
        [applied] = [int(rule["applied"]) for rule in self._sandbox.faults() if rule["id"] == number]
        return applied

    async def _advance_time(
        self,
        calling: asyncio.Future[Any],
        fault: Fault,
        rule: int,
        attempting: AttemptListener,
        landed: Callable[[], Awaitable[int]],
    ) -> None:
        """Advance the time only while an attempt of the operation waits."""

        async def silent() -> bool:
            if calling.done():
                return True
            return bool(self._get_applied_count(rule) and (not fault.takes_effect_before_hang or await landed()))

        await _poll_until(silent)
        passed = 0.0
        while not calling.done() and attempting.in_progress and passed < min(fault.delay, 2 * TIMEOUT):
            leap(_LEAP_SECONDS)
            passed += _LEAP_SECONDS
            await asyncio.sleep(0.001)


async def _poll_until(condition: Callable[[], Awaitable[bool]], max_polls: int = _MAX_POLLS) -> None:
    for _ in range(max_polls):
        if await condition():
            return
        await asyncio.sleep(0.001)


@contextlib.asynccontextmanager
async def open_matrix() -> AsyncGenerator[MatrixRunner]:
    async with Sandbox() as sandbox:
        await populate(sandbox)
        yield MatrixRunner(sandbox)
