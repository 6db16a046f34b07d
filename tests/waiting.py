"""Waiting for something to happen in tests, without asking again and again: that would keep threads from their work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

_WAITING = set[asyncio.Event]()


def notify_waiters() -> None:
    """Wake the waiters: each checks its condition when the current task waits."""
    for event in _WAITING:
        event.set()


async def wait_until(condition: Callable[[], bool]) -> None:
    event = asyncio.Event()
    _WAITING.add(event)
    try:
        async with asyncio.timeout(60):
            while not condition():
                event.clear()
                await event.wait()
    finally:
        _WAITING.discard(event)
