"""A clock for tests, which skips waits."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import Protocol

from directsuite.core.clock import MAX_SLEEP, make_unix_time
from directsuite.core.privacy import scrub_class

MAX_LEAP_SECONDS = MAX_SLEEP
"""The longest wait that is skipped."""


class SupportsAdvance(Protocol):
    """A clock that can be moved forward, such as the sandbox's."""

    def advance(self, by: timedelta) -> object:
        """Move time forward."""
        ...


@scrub_class
class LeapingClock:
    """The machine's time plus an offset, which grows by each skipped wait and by `advance`.

        suite = DirectSuite(settings, clock=LeapingClock(sandbox.clock))

    Waits of at most a minute, such as pauses before retries, end immediately and move time to their end. Longer waits,
    and those of `keep_alive`, end when the test has advanced time far enough. Trackers, signing jobs and watched faxes
    use their suite's clock. Skipped waits before retries count towards a call's `timeout`; other deadlines use the real
    time. Not thread-safe.

    followers: clocks that are advanced with this one.
    """

    def __init__(self, *followers: SupportsAdvance) -> None:
        self._followers = followers
        self._offset = 0.0
        self._moved_event = asyncio.Event()
        make_unix_time(self)  # records the start, so that this clock and the followers agree

    def monotonic(self) -> float:
        """Return the seconds since some fixed time."""
        return time.monotonic() + self._offset

    def advance(self, by: timedelta) -> None:
        """Move this clock and its followers forward. Raises ValueError if the time is negative."""
        if not isinstance(by, timedelta):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"Pass a timedelta, such as timedelta(minutes=10), instead of {type(by).__name__}.")
        if by < timedelta(0):
            raise ValueError("The clock cannot go back. Advance it by 0 or more.")
        for follower in self._followers:
            follower.advance(by)
        self._offset += by.total_seconds()
        moved, self._moved_event = self._moved_event, asyncio.Event()
        moved.set()

    async def sleep(self, seconds: float) -> None:
        """Skip a wait of at most a minute. Only `advance` shortens a longer one."""
        end = self.monotonic() + seconds
        await asyncio.sleep(0)  # concurrent waits compute their ends before time moves
        if seconds <= MAX_LEAP_SECONDS:
            self.advance(timedelta(seconds=max(0.0, end - self.monotonic())))
        else:
            await self.sleep_in_background(end - self.monotonic())

    async def sleep_in_background(self, seconds: float) -> None:
        """Wait. Only `advance`, and the waits that are skipped, shorten this."""
        end = self.monotonic() + seconds
        while (left := end - self.monotonic()) > 0:
            moved = self._moved_event
            try:
                async with asyncio.timeout(left):
                    await moved.wait()
            except TimeoutError:
                return
