"""A folder read in order, by many requests at once: for the clients that have no such thing themselves."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any


async def read_in_order(
    uids: Sequence[int], per: int, fetch: Callable[[list[int]], Coroutine[Any, Any, Sequence[object]]], window: int
) -> int:
    """Fetch by so many uids at a time, with a window of requests under way; how many messages came."""
    batches = (list(uids[start : start + per]) for start in range(0, len(uids), per))
    waiting: deque[asyncio.Task[Sequence[object]]] = deque()
    count = 0
    try:
        for batch in batches:
            waiting.append(asyncio.create_task(fetch(batch)))
            if len(waiting) == window:
                count += len(await waiting.popleft())
        while waiting:
            count += len(await waiting.popleft())
    finally:
        for task in waiting:
            task.cancel()
    return count
