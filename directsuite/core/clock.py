"""Time as the core sees it, so that a test can hold it still."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


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
