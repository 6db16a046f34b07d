"""Whose a cancellation is: the task's own, or that of something it waits for."""

from __future__ import annotations

import asyncio


def is_being_cancelled() -> bool:
    """Whether a CancelledError is the current task's own: what it waits for may have been cancelled by others."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0
