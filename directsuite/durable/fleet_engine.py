"""A worker of a fleet: many processes that share out turns, of which any may be killed.

    due ──► woken ──► a turn by the worker that it is meant for, or by whichever is free
     ▲                 └─► tables of the fleet's own, which say when the next is due
     └──────────────────────┘

What the turns are, and who may still write in one, is for whoever has the engine: it may begin one too many.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any

from directsuite.core.clock import Clock
from directsuite.durable.fleet_queue import FleetQueue
from directsuite.durable.postgres import Connections

_LOGGER = logging.getLogger("directsuite")

_SLACK = 5.0  # seconds in which a worker notes its end after the grace of its turns


class FleetEngine:
    """Takes turns that are due, here or in other processes. All but `take` may raise the connections' error.

    kind: of the turns, in all processes the same. worker: this one, and no other. due: keys of turns that are due, and
    that nobody else will be woken for soon, each with a worker to wake, or None for any; asked every `tick` seconds.
    take: takes a turn, never raises, and passes over one that isn't due any more. look_around: called every third of
    `patience`, the seconds after which a worker that isn't heard of counts as dead. ending: called when no more turns
    begin. turns: at a time. grace: seconds that those under way get at the end. Raises ConfigurationError.
    """

    def __init__(
        self,
        connections: Connections,
        kind: str,
        worker: str,
        *,
        due: Callable[[], Awaitable[Iterable[tuple[int, str | None]]]],
        take: Callable[[int], Awaitable[None]],
        look_around: Callable[[], Awaitable[None]],
        ending: Callable[[], None] = lambda: None,
        turns: int,
        grace: float,
        patience: float,
        tick: float,
        clock: Clock,
    ) -> None:
        self._error = connections.error
        self._queue = FleetQueue(connections, kind, worker, take, turns=turns, grace=grace, patience=patience)
        self._due = due
        self._look_around = look_around
        self._ending = ending
        self._patience = patience
        self._tick = tick
        self._clock = clock
        self._grace = grace
        self._waking: dict[int, str | None] = {}
        self._looks = asyncio.Lock()  # held from a look at what is due until all of that are woken
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Let `run` return when the turns under way have ended, or their grace has."""
        self._stopping.set()

    def wake_later(self, key: int, worker: str | None) -> None:
        """Wake for a turn at the next tick, and again until PostgreSQL takes it."""
        self._waking[key] = worker

    async def wake(self, key: int, worker: str | None) -> None:
        """Wake for a turn at once."""
        await self._queue.wake(key, worker)

    async def run(self) -> None:
        """Work until stopped or cancelled: either way turns under way get their grace. Runs once.

        Raises the connections' error where PostgreSQL is away at the beginning; afterwards it is waited for.
        """
        try:
            await self._queue.open()
            tasks = [
                asyncio.create_task(each)
                for each in (
                    self._work(),
                    self._again_and_again(self._wake, self._tick),
                    self._again_and_again(self._look, self._patience / 3),
                    self._stopping.wait(),
                )
            ]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                self._ending()
                await _ended(self._end(*tasks))
            for task in tasks:
                if not task.cancelled():
                    task.result()
        finally:
            await _ended(self._queue.aclose())

    async def _again_and_again(self, work: Callable[[], Awaitable[None]], pause: float) -> None:
        while True:
            try:
                await work()
            except self._error as error:
                _LOGGER.warning("fleet: %s", error)
            await self._clock.sleep(pause)

    async def _work(self) -> None:
        while not self._queue.is_over:
            try:
                await self._queue.work()
            except self._error as error:
                _LOGGER.warning("fleet: %s", error)
            if not self._queue.is_over:
                await self._clock.sleep(1.0)

    async def _end(
        self, working: asyncio.Task[object], waking: asyncio.Task[object], *others: asyncio.Task[object]
    ) -> None:
        self._queue.end()  # a cancellation may get lost within, or come out as an error
        await asyncio.gather(self._end_waking(waking), asyncio.wait([working], timeout=self._grace + _SLACK))
        await self._queue.aclose()  # what still waits for PostgreSQL, which is away, ends then
        await _cancelled(working, *others)  # the worker was heard of while turns had their grace

    async def _wake(self) -> None:
        async with self._looks:
            self._waking.update(await self._due())
            await self._queue.free_ended()
            while self._waking:
                key = next(iter(self._waking))
                worker = self._waking.pop(key)  # it may come anew while it is woken for
                try:
                    await self._queue.wake(key, worker)
                except BaseException:
                    self._waking.setdefault(key, worker)
                    raise

    async def _end_waking(self, waking: asyncio.Task[object]) -> None:
        """Others would be woken for what was found due here only when `patience` is over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._grace), self._looks:
                pass
        await _cancelled(waking)

    async def _look(self) -> None:
        await self._look_around()
        await self._queue.reap()


async def _ended(ending: Coroutine[Any, Any, None]) -> None:
    """Return when it has ended. Who is cancelled meanwhile, again perhaps, leaves nothing behind that goes on."""
    task, cancelled = asyncio.create_task(ending), None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    task.result()
    if cancelled is not None:
        raise cancelled


async def _cancelled(*tasks: asyncio.Task[object]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
