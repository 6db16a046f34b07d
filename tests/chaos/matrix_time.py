"""An event loop whose time can be advanced, and otherwise passes normally.

The sandbox works in separate threads, so an idle loop does not mean that nothing is in progress. Time therefore only
advances explicitly, for deadlines, pauses of the client and delays of the sandbox alike.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_MAX_LOOP_PASSES = 1000  # in which a job in a thread ends


class LeapingLoop(asyncio.SelectorEventLoop):
    """A selector event loop with a clock that can be advanced.

    threads: the number of jobs in threads. last_io_time: the machine's time at which a socket was last ready, or a
    thread last woke the loop. What waits in a socket while the process is not running is not missed, because the loop
    handles it before timers.
    """

    _ahead = 0.0
    threads = 0
    last_io_time = 0.0

    def _process_events(self, event_list: list[object]) -> None:
        if event_list:
            self.last_io_time = super().time()
        super()._process_events(event_list)  # type: ignore[misc]

    def time(self) -> float:
        return super().time() + self._ahead

    def leap(self, seconds: float) -> None:
        self._ahead += seconds

    def run_in_executor(self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        self.threads += 1
        future = super().run_in_executor(executor, func, *args)
        future.add_done_callback(self._thread_done)
        return future

    def _thread_done(self, _: asyncio.Future[T]) -> None:
        self.threads -= 1


def get_leaping_loop() -> LeapingLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, LeapingLoop)
    return loop


def leap(seconds: float) -> None:
    get_leaping_loop().leap(seconds)


class LeapingClock:
    """A client's clock on the loop's time, for one call at a time.

    Time leaps when the client pauses. due: the real seconds that the sandbox needs for delayed requests after a leap.
    """

    def __init__(self, due: float = 0.0) -> None:
        self._due = due

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        loop = get_leaping_loop()
        loop.leap(seconds)
        for _ in range(_MAX_LOOP_PASSES):
            await asyncio.sleep(self._due)
            if not (self._due and loop.threads):
                return
