"""Waits that may be long, in pieces that a clock of tests leaps over."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from directsuite.core.clock import STRIDE

AT_ONCE = 0.005
"""Seconds: what is due within them is due. No wait is shorter, however finely a clock counts."""


async def wait_until(due: float, monotonic: Callable[[], float], sleep: Callable[[float], Awaitable[None]]) -> None:
    """Return when the clock shows this. sleep: lets so many seconds pass, and raises what ends the wait."""
    while (left := due - monotonic()) > AT_ONCE:
        await sleep(min(left, STRIDE))
