"""How much of a service one suite may use at once: connections, and requests per second.

Both are ours rather than the connector's, so that a call that still waits here provably has sent nothing.
"""

from __future__ import annotations

import asyncio

from directsuite.core.clock import Clock


class Rate:
    """Requests per second with a burst, after the generic cell rate algorithm (GCRA): first come, first served."""

    def __init__(self, per_second: float, burst: int, clock: Clock) -> None:
        self._interval = 1.0 / per_second
        self._tolerance = self._interval * max(0, burst - 1)
        self._clock = clock
        self._arrival = float("-inf")

    def wait(self) -> float:
        """Seconds until a request that came now might go."""
        return max(0.0, self._arrival - self._tolerance - self._clock.monotonic())

    def take(self) -> float:
        """Take the next place and return the seconds to wait for it."""
        wait = self.wait()
        self._arrival = max(self._arrival, self._clock.monotonic()) + self._interval
        return wait


class Limits:
    """The limits of one service, shared by everything in a suite that calls it."""

    def __init__(self, *, connections: int, requests_per_second: float, burst: int, clock: Clock) -> None:
        self.connections = connections
        self.rate = Rate(requests_per_second, burst, clock)
        self._connections = asyncio.Semaphore(connections)

    async def connect(self) -> None:
        """Wait for one of the service's connections; each is given back by one `release`."""
        await self._connections.acquire()

    def release(self) -> None:
        """Give a connection back."""
        self._connections.release()
