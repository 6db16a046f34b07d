"""What is read off one turn of work: CPU, wall time, peak memory and the longest pause of the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import resource
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Self

import attrs

TICK = 0.002
"""Seconds between two looks at the event loop."""
_IDLE_SECONDS = 0.2
_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_RESET_PEAK = "5"  # proc(5): sets the peak resident set size to the present one
_KILOBYTE = 1 if sys.platform == "darwin" else 1024  # the unit of ru_maxrss

WorkTurn = Callable[[], Awaitable[int]]
"""One turn of work: gives how many units it did (calls, records, bytes…)."""


@attrs.frozen(kw_only=True)
class Reading:
    """One turn. cpu, wall, pause: seconds; peak: bytes of resident memory above what there was before."""

    amount: int
    cpu: float
    wall: float
    peak: int
    pause: float


async def read_gauges(turn: WorkTurn, *, pauses: bool) -> Reading:
    """Do one turn and read the gauges. pauses: watch the event loop too, which costs a little CPU."""
    gc.collect()
    ticker = Ticker()
    before = _reset_peak()
    async with ticker if pauses else contextlib.nullcontext():
        cpu, wall = time.process_time(), time.perf_counter()
        amount = await turn()
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return Reading(amount=amount, cpu=cpu, wall=wall, peak=max(0, _read_peak() - before), pause=ticker.longest)


async def measure_idle_pause() -> float:
    """The longest pause of an event loop that has nothing to do: below it nothing can be told."""
    async with Ticker() as ticker:
        await asyncio.sleep(_IDLE_SECONDS)
    return ticker.longest


class Ticker:
    """A task that sleeps two milliseconds at a time, and notices how much later it is woken."""

    def __init__(self) -> None:
        self.longest = 0.0
        """Seconds that it was woken too late at the most."""
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._tick())
        await asyncio.sleep(2 * TICK)
        self.longest = 0.0
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.sleep(2 * TICK)  # a pause at the very end is seen by the tick after it
        assert self._task is not None
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def _tick(self) -> None:
        while True:
            slept = time.perf_counter()
            await asyncio.sleep(TICK)
            self.longest = max(self.longest, time.perf_counter() - slept - TICK)


def _reset_peak() -> int:
    """Resident memory now, in bytes, which is the peak again. Where that can't be reset: the peak so far."""
    try:
        _CLEAR.write_text(_RESET_PEAK, encoding="ascii")
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _KILOBYTE
    return _read_peak()


def _read_peak() -> int:
    if not _STATUS.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _KILOBYTE
    lines = _STATUS.read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
