"""Time as the core sees it, so that a test can hold it still; and waits that a clock of tests leaps over."""

from __future__ import annotations

import asyncio
import time
import weakref
from collections.abc import Awaitable, Callable
from typing import Protocol

STRIDE = 60.0
"""Seconds of a wait in one go, where it may be hours until what is waited for: a clock of tests leaps over so many."""


class Clock(Protocol):
    """Seconds that only go forward, and a way to let them pass."""

    def monotonic(self) -> float:
        """Seconds since some fixed moment."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return when so many seconds have passed."""
        ...


class SystemClock:
    """The machine's own time."""

    monotonic = staticmethod(time.monotonic)

    async def sleep(self, seconds: float) -> None:
        """Return when so many seconds have passed."""
        await asyncio.sleep(seconds)


def unix_time(clock: Clock) -> Callable[[], float]:
    """The Unix time that goes with a clock: the machine's, or what that was once and what the clock has counted since.

    All who ask for that of the same clock get the same.
    """
    if isinstance(clock, SystemClock):
        return time.time  # which knows of the time for which the machine slept, and is set right when it was wrong
    if id(clock) not in _BEGINNINGS:
        weakref.finalize(clock, _BEGINNINGS.pop, id(clock), None)
        _BEGINNINGS[id(clock)] = time.time() - clock.monotonic()
    beginning = _BEGINNINGS[id(clock)]
    return lambda: beginning + clock.monotonic()


_BEGINNINGS: dict[int, float] = {}
"""The Unix time at which a clock stood at 0, by its identity: a clock of somebody's tests may have no hash."""


AT_ONCE = 0.005
"""Seconds: what is due within them is due. No wait is shorter, however finely a clock counts."""


async def wait_until(due: float, monotonic: Callable[[], float], sleep: Callable[[float], Awaitable[None]]) -> None:
    """Return when the clock shows this. sleep: lets so many seconds pass, and raises what ends the wait."""
    while (left := due - monotonic()) > AT_ONCE:
        await sleep(min(left, STRIDE))


async def sleep_or_event(sleeping: Awaitable[None], event: asyncio.Event) -> None:
    """Return when a sleep has ended or an event is set, whichever is first. Raises what the sleep raised."""
    asleep, waiting = asyncio.ensure_future(sleeping), asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait([asleep, waiting], return_when=asyncio.FIRST_COMPLETED)
    finally:
        asleep.cancel()
        waiting.cancel()
        await asyncio.gather(asleep, waiting, return_exceptions=True)
    if not asleep.cancelled():
        asleep.result()
