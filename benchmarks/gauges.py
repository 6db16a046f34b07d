"""Measurements of this process: CPU, time, memory, and the longest pause of the event loop. They need Linux."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Self

import attrs

_TICK_SECONDS = 0.002

Turn = Callable[[], Awaitable[int]]
"""One turn of a work. It returns the number of units that it did, such as calls, records or bytes."""


@attrs.frozen(kw_only=True)
class Reading:
    """The measurements of one turn. cpu, wall: seconds. peak: bytes of resident memory above the start.

    p50, p99, pause: seconds of delay of ticks in the event loop: of half of the ticks, of 99 %, and the longest.
    """

    amount: int
    cpu: float
    wall: float
    peak: int = 0
    p50: float = 0.0
    p99: float = 0.0
    pause: float = 0.0


async def read_gauges(turn: Turn, *, pauses: bool) -> Reading:
    """Do one turn and measure it. pauses: also measure pauses of the event loop, which needs some CPU."""
    gc.collect()
    ticker = Ticker()
    before = reset_peak_bytes()
    async with ticker if pauses else contextlib.nullcontext():
        cpu, wall = time.process_time(), time.perf_counter()
        amount = await turn()
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    peak, delays = max(0, read_peak_bytes() - before), sorted(ticker.delays) or [0.0]
    p50, p99 = (delays[len(delays) * percent // 100] for percent in (50, 99))
    return Reading(amount=amount, cpu=cpu, wall=wall, peak=peak, p50=p50, p99=p99, pause=delays[-1])


class Ticker:
    """Ticks every two milliseconds, and records in `delays` how many seconds each tick was late.

    After a pause of the event loop, all ticks that were due during the pause are recorded.
    """

    def __init__(self) -> None:
        self.delays: list[float] = []

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._tick())
        await asyncio.sleep(2 * _TICK_SECONDS)
        self.delays.clear()
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.sleep(2 * _TICK_SECONDS)  # the next tick measures a pause at the end
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def _tick(self) -> None:
        now = due = time.perf_counter()
        while True:
            await asyncio.sleep(due - now)
            now = time.perf_counter()
            while due <= now:
                self.delays.append(now - due)
                due += _TICK_SECONDS


async def measure_cpu(do: Callable[[], Awaitable[object]]) -> float:
    """Return the seconds of CPU that this process used for a piece of work."""
    start = time.process_time()
    await do()
    return time.process_time() - start


def read_resident_bytes() -> int:
    """Return the resident memory of this process."""
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def read_peak_bytes(pid: int | None = None) -> int:
    """Return the highest resident memory of a process since its start or the last reset."""
    lines = Path(f"/proc/{pid or os.getpid()}/status").read_text("ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def reset_peak_bytes(pid: int | None = None) -> int:
    """Set the peak of a process's resident memory to its present value, and return it."""
    Path(f"/proc/{pid or os.getpid()}/clear_refs").write_text("5", "ascii")
    return read_peak_bytes(pid)
