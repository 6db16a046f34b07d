"""A clock for tests: a suite's waits pass at once, and the sandbox's time with them."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import Protocol

from directsuite.core.clock import MAX_SLEEP, make_unix_time
from directsuite.core.privacy import scrub_class

MAX_LEAP_SECONDS = MAX_SLEEP
"""Seconds that a call waits at the most before it tries again: a suite's default `timeout`."""


class SupportsAdvance(Protocol):
    """Another clock that can be moved forward, such as the sandbox's."""

    def advance(self, by: timedelta) -> object:
        """Move time forward."""
        ...


@scrub_class
class LeapingClock:
    """The machine's time, which leaps over waits and wherever a test moves it; `followers` leap with it.

        suite = DirectSuite(settings, clock=LeapingClock(sandbox.clock))

    What waits a minute or less, as a call does before it tries again, goes on at once, for time leaps to the end of the
    wait. What waits longer, as a session kept alive does, goes on when the test has advanced time so far. Trackers,
    signing jobs and watched faxes have their suite's clock: one that follows a message leaps, minute by minute, until
    that is over. Waits before retries count towards a call's `timeout`; otherwise deadlines are the event loop's and
    stay real. For one thread.
    """

    def __init__(self, *followers: SupportsAdvance) -> None:
        self._followers = followers
        self._offset = 0.0
        self._moved_event = asyncio.Event()
        make_unix_time(self)  # as from now, so that it leaps with the followers from the beginning

    def monotonic(self) -> float:
        """Seconds since some fixed moment."""
        return time.monotonic() + self._offset

    def advance(self, by: timedelta) -> None:
        """Move time forward, for the followers too. Raises ValueError for a negative time."""
        if by < timedelta(0):
            raise ValueError("the clock only goes forward: advance by a positive time")
        for follower in self._followers:
            follower.advance(by)
        self._offset += by.total_seconds()
        moved, self._moved_event = self._moved_event, asyncio.Event()
        moved.set()

    async def sleep(self, seconds: float) -> None:
        """Return when so many seconds have passed: at once, up to a minute."""
        end = self.monotonic() + seconds
        await asyncio.sleep(0)  # others who wait as from now leap to their own ends, not one after the other
        if seconds <= MAX_LEAP_SECONDS:
            self.advance(timedelta(seconds=max(0.0, end - self.monotonic())))
            return
        while (left := end - self.monotonic()) > 0:
            moved = self._moved_event
            try:
                async with asyncio.timeout(left):
                    await moved.wait()
            except TimeoutError:
                return
