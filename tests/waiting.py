"""Waiting for something to happen in tests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

_WAITING = set[asyncio.Event]()


def notify_waiters() -> None:
    """Wake the waiters: each checks its condition when the current task waits."""
    for event in _WAITING:
        event.set()


async def wait_until(condition: Callable[[], bool]) -> None:
    """Wait until the condition holds after `notify_waiters`. Polling would slow down threads."""
    event = asyncio.Event()
    _WAITING.add(event)
    try:
        async with asyncio.timeout(60):
            while not condition():
                event.clear()
                await event.wait()
    finally:
        _WAITING.discard(event)


async def poll_until(condition: Callable[[], bool | Awaitable[bool]], seconds: float = 30) -> None:
    """Wait until the condition holds, which a server or another process changes."""
    async with asyncio.timeout(seconds):
        while not (await result if isinstance(result := condition(), Awaitable) else result):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
