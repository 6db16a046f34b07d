"""The load: tasks that do one action after the other until the gate closes, and visitors with suites of their own."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import TYPE_CHECKING

import attrs

import directsuite as ds
from benchmarks.soak import mailbox_actions, other_actions
from benchmarks.soak.action_context import ActionContext
from directsuite.sandbox.server import DEMO_LOGIN

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.soak.action_context import SentMessages, SoakAction
    from benchmarks.soak.server import SoakServer
    from benchmarks.soak.tally import Tally

ACTIONS = mailbox_actions.ACTIONS + other_actions.ACTIONS
_WEIGHTS = [weight for weight, _ in ACTIONS]

CANCEL_SHARE = 0.04  # part of the actions whose caller leaves
_CANCEL_AFTER_SECONDS = 0.03  # seconds, on the average
_GRACE_SECONDS = (0.0, 0.1, 5.0)  # seconds that a visitor's suite waits for its calls
_TASKS_PER_VISIT = 3  # tasks that a visitor runs at once


class EpochGate:
    """Open during an epoch. Closing it asks everybody to come to an end, and waits until they have."""

    def __init__(self) -> None:
        self._open = asyncio.Event()
        self._shut = asyncio.Event()
        self._left = asyncio.Event()
        self._left.set()
        self._inside = 0

    def open(self) -> None:
        """Let everybody in."""
        self._shut.clear()
        self._open.set()

    async def close(self) -> None:
        """Let nobody in, and wait for those inside."""
        self._open.clear()
        self._shut.set()
        await self._left.wait()

    async def wait_until_closed(self, *, within: float) -> None:
        """Wait until it closes, or so many seconds are over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._shut.wait()

    async def __aenter__(self) -> None:
        await self._open.wait()
        self._inside += 1
        self._left.clear()

    async def __aexit__(self, *_: object) -> None:
        self._inside -= 1
        if not self._inside:
            self._left.set()


@attrs.frozen(kw_only=True)
class WorkerPool:
    """What all workers share. pause: seconds between two actions, on the average."""

    server: SoakServer
    tally: Tally
    gate: EpochGate
    sent: SentMessages
    settings: ds.Settings
    form: bytes
    form_file: Path
    folder: Path
    pause: float

    def make_suite(self, *, keep_alive: bool = False) -> ds.DirectSuite:
        """A suite that tells the tally what happens in it."""
        self.tally.suites += 1
        settings = attrs.evolve(self.settings, keep_alive=keep_alive)
        return ds.DirectSuite(
            settings, token=self.server.issue_token, login=ds.Login(*DEMO_LOGIN), listeners=[self.tally]
        )

    def make_context(self, suite: ds.DirectSuite, dice: random.Random) -> ActionContext:
        """What an action works with."""
        return ActionContext(
            suite=suite, rng=dice, form=self.form, form_file=self.form_file, folder=self.folder, sent=self.sent
        )

    async def run_on_shared_suite(self, suite: ds.DirectSuite, seed: int) -> None:
        """One action after the other, on a suite that stays."""
        stage = self.make_context(suite, random.Random(seed))
        while True:
            async with self.gate:
                await self._act(stage)
            await asyncio.sleep(stage.rng.uniform(0, 2 * self.pause))

    async def run_on_own_suites(self, seed: int) -> None:
        """Suites opened and closed, one after the other; most are closed while calls are still under way."""
        dice = random.Random(seed)
        while True:
            async with self.gate:
                await self._run_own_suite(dice)
            await asyncio.sleep(dice.uniform(0, 2.0))

    async def _run_own_suite(self, dice: random.Random) -> None:
        suite = self.make_suite(keep_alive=dice.random() < 0.5)
        await suite.__aenter__()
        over = asyncio.Event()
        async with asyncio.TaskGroup() as scrapes:
            scrapes.create_task(self._perform(other_actions.log_in, self.make_context(suite, dice)))
            for _ in range(_TASKS_PER_VISIT):
                scrapes.create_task(self._act_until_over(self.make_context(suite, random.Random(dice.random())), over))
            await self.gate.wait_until_closed(within=dice.uniform(0.5, 5.0))
            over.set()
            await suite.aclose(grace=dice.choice(_GRACE_SECONDS))

    async def _act_until_over(self, stage: ActionContext, over: asyncio.Event) -> None:
        while not over.is_set():
            await self._act(stage)
            await asyncio.sleep(stage.rng.uniform(0, 2 * self.pause))

    async def _act(self, stage: ActionContext) -> None:
        [(_, action)] = stage.rng.choices(ACTIONS, _WEIGHTS)
        await self._perform(action, stage)

    async def _perform(self, action: SoakAction, stage: ActionContext) -> None:
        self.tally.actions[action.__name__] += 1
        task = asyncio.ensure_future(action(stage))
        patience = stage.rng.expovariate(1 / _CANCEL_AFTER_SECONDS) if stage.rng.random() < CANCEL_SHARE else None
        try:
            await asyncio.wait([task], timeout=patience)
        finally:
            task.cancel()  # nothing to one that is done
        await asyncio.wait([task])
        self._count(task)

    def _count(self, task: asyncio.Future[object]) -> None:
        if task.cancelled():
            self.tally.endings["cancelled"] += 1
            return
        error = task.exception()
        self.tally.endings["done" if error is None else type(error).__name__] += 1
        if error is not None and not isinstance(error, ds.DirectSuiteError):
            self.tally.count_untyped(error)
