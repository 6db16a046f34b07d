"""An event loop whose time jumps: nothing waits, sockets stay real.

When no socket is ready and a timer lies ahead, the loop's clock moves there at once. A minute's deadline passes in no
time, and exactly.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from typing import TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_LOOPBACK_DELAY = 0.001  # real seconds in which bytes on loopback arrive before time is let go


class _JumpingSelector(selectors.DefaultSelector):
    """Waits for sockets no longer than bytes on loopback take, and lets virtual time pass instead."""

    def __init__(self, elapse: Callable[[float], None]) -> None:
        super().__init__()
        self._elapse = elapse
        self.threads = 0
        """How many jobs in threads are under way: real time passes for them."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        if timeout is None or self.threads:
            return super().select(None)
        ready = super().select(_LOOPBACK_DELAY)
        if not ready:
            self._elapse(timeout)
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """A selector event loop that begins at second 1000 and whose timers are due as soon as nothing else is to do."""

    def __init__(self) -> None:
        self._now = 1000.0
        self._jumping = _JumpingSelector(self._elapse)
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._now

    def run_in_executor(self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        self._jumping.threads += 1
        future = super().run_in_executor(executor, func, *args)
        future.add_done_callback(self._thread_done)
        return future

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Wait without the limit of Python 3.12 and later, whose seconds would pass at once."""
        del timeout
        await super().shutdown_default_executor()

    def _thread_done(self, _: asyncio.Future[T]) -> None:
        self._jumping.threads -= 1

    def _elapse(self, seconds: float) -> None:
        self._now += seconds


class LoopClock:
    """The suite's clock on the loop's virtual time; `sleeps` are the waits that the core asked for."""

    def __init__(self) -> None:
        self.sleeps: list[float] = []

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        await asyncio.sleep(seconds)


class ManualClock:
    """A clock that moves only when a test, or someone's sleep, moves it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.sleeps: list[float] = []

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.now += seconds


async def yield_to_loop(count: int = 20) -> None:
    """Give way to other tasks and to sockets, so many times; no time passes."""
    for _ in range(count):
        await asyncio.sleep(0)


async def yield_until(condition: Callable[[], bool]) -> None:
    """Give way until something has happened; AssertionError where it never does.

    What happens in another thread may take its time on a machine that is busy.
    """
    late = time.monotonic() + 30.0
    while time.monotonic() < late:
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never happened")


async def measure_elapsed(awaitable: Awaitable[object]) -> float:
    """Virtual seconds that something took."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    await awaitable
    return loop.time() - began
