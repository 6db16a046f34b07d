"""The clocks of the core, and functions that wait.

The core sleeps and measures time with a Clock. A test clock skips ahead instead of sleeping. Only the timeouts of
attempts use the clock of the event loop.
"""

from __future__ import annotations

import asyncio
import time
import weakref
from collections.abc import Awaitable, Callable
from typing import Protocol, cast

MAX_SLEEP = 60.0
"""Longest single sleep in seconds. Longer waits are divided, so that a test clock can skip ahead in steps."""


class Clock(Protocol):
    """A monotonic clock, and a function that sleeps by it."""

    def monotonic(self) -> float:
        """Return the seconds since a fixed but arbitrary time."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Sleep for `seconds`."""
        ...


class SystemClock:
    """The clock of the operating system."""

    monotonic = staticmethod(time.monotonic)

    async def sleep(self, seconds: float) -> None:
        """Sleep for `seconds`."""
        await asyncio.sleep(seconds)


def sleep_in_background(clock: Clock, seconds: float) -> Awaitable[None]:
    """Sleep in a task for which no call waits.

    A test clock whose `sleep` skips time can have a method `sleep_in_background`, which must not skip time. Otherwise a
    task that sleeps again and again would move the clock forward without end.
    """
    sleep = cast("Callable[[float], Awaitable[None]]", getattr(clock, "sleep_in_background", clock.sleep))
    return sleep(seconds)


def make_unix_time(clock: Clock) -> Callable[[], float]:
    """Return a function that returns the Unix time in seconds for a clock.

    For SystemClock this is `time.time`. For any other clock, it is the Unix time at the first call for this clock, plus
    the time that the clock has counted since.
    """
    if isinstance(clock, SystemClock):
        return time.time  # unlike a monotonic clock, it includes suspended time and corrections of the system time
    if id(clock) not in _UNIX_TIMES_AT_ZERO:
        weakref.finalize(clock, _UNIX_TIMES_AT_ZERO.pop, id(clock), None)
        _UNIX_TIMES_AT_ZERO[id(clock)] = time.time() - clock.monotonic()
    beginning = _UNIX_TIMES_AT_ZERO[id(clock)]
    return lambda: beginning + clock.monotonic()


_UNIX_TIMES_AT_ZERO: dict[int, float] = {}
"""The Unix time at which each clock showed 0, by the `id` of the clock, which may not be hashable."""


WAIT_TOLERANCE = 0.005
"""Seconds. A time at most this far ahead counts as reached."""


async def wait_until(due: float, monotonic: Callable[[], float], sleep: Callable[[float], Awaitable[None]]) -> None:
    """Wait until a clock shows at least `due` less WAIT_TOLERANCE.

    monotonic: returns the time of the clock, in seconds.
    sleep: sleeps for a number of seconds. Its exceptions end the wait.
    """
    while (left := due - monotonic()) > WAIT_TOLERANCE:
        await sleep(min(left, MAX_SLEEP))


async def sleep_or_event(sleeping: Awaitable[None], event: asyncio.Event) -> None:
    """Wait until a sleep ends or an event is set, then cancel the sleep. Raise its exception, if any."""
    asleep, waiting = asyncio.ensure_future(sleeping), asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait([asleep, waiting], return_when=asyncio.FIRST_COMPLETED)
    finally:
        asleep.cancel()
        waiting.cancel()
        await asyncio.gather(asleep, waiting, return_exceptions=True)
    if not asleep.cancelled():
        asleep.result()


def is_being_cancelled() -> bool:
    """Return True if the current task is being cancelled, or there is no current task.

    If False, a CancelledError comes from something that the task awaited and that was cancelled separately.
    """
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0
