"""An event loop with virtual time and real sockets: tests never wait.

If no socket is ready, the clock advances to the next timer immediately. A deadline of a minute passes at once, and
exactly.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import selectors
import socket
import sys
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from typing import Any, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_LOOPBACK_DELAY = 0.001  # real seconds in which bytes on loopback must arrive before virtual time advances
_MAX_DELAYS = 50  # on a busy machine, or if a full socket is not read


class _JumpingSelector(selectors.DefaultSelector):
    """Waits for sockets only as long as bytes on loopback need, then lets virtual time pass."""

    def __init__(self, elapse: Callable[[float], None]) -> None:
        super().__init__()
        self._elapse = elapse
        self.threads = 0
        """The number of jobs in threads, during which real time passes."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        if timeout is None or self.threads:
            return super().select(None)
        for file in self.get_map():
            _acknowledge(file)
        for _ in range(_MAX_DELAYS):
            ready = super().select(_LOOPBACK_DELAY)
            if ready:
                return ready
            if not any(map(_has_unreceived_bytes, self.get_map())):
                break
        self._elapse(timeout)
        return []


def _acknowledge(file: Any) -> None:
    """Acknowledge the bytes that a socket has received, because the kernel waits up to 40 ms before it does."""
    with contextlib.suppress(OSError):  # the file may be no TCP socket
        peer = socket.socket(fileno=file)
        try:
            if sys.platform == "linux":
                peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        finally:
            peer.detach()


def _has_unreceived_bytes(file: Any) -> bool:
    """Return True if the other end of a socket has not received all bytes that were sent."""
    count = array.array("i", [0])
    with contextlib.suppress(ImportError, OSError):  # Windows has no fcntl; the file may be no socket
        import fcntl
        import termios

        fcntl.ioctl(file, termios.TIOCOUTQ, count)
    return count[0] > 0


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """A selector event loop that starts at second 1000, and whose timers are due as soon as it is idle."""

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
        """Wait without the timeout of Python 3.12 and later, which would pass at once."""
        del timeout
        await super().shutdown_default_executor()

    def _thread_done(self, _: asyncio.Future[T]) -> None:
        self._jumping.threads -= 1

    def _elapse(self, seconds: float) -> None:
        self._now += seconds


class LoopClock:
    """The suite's clock in virtual time. `sleeps`: the pauses that the core has requested."""

    def __init__(self) -> None:
        self.sleeps: list[float] = []

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        await asyncio.sleep(seconds)


class ManualClock:
    """A clock that advances only in a test or in `sleep`."""

    def __init__(self) -> None:
        self.now = 0.0
        self.sleeps: list[float] = []

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.now += seconds


async def yield_to_loop(count: int = 20) -> None:
    """Let other tasks and sockets continue for some turns of the loop; no time passes."""
    for _ in range(count):
        await asyncio.sleep(0)


async def yield_until(condition: Callable[[], bool]) -> None:
    """Let other tasks and threads continue until a condition holds. Raises AssertionError if it never holds."""
    late = time.monotonic() + 30.0
    while time.monotonic() < late:
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never happened")


async def measure_elapsed(awaitable: Awaitable[object]) -> float:
    loop = asyncio.get_running_loop()
    began = loop.time()
    await awaitable
    return loop.time() - began
