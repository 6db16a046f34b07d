"""Whose a cancellation is: the task's own, which may get lost in a library, or that of something it waits for."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Generator


@contextlib.contextmanager
def cancellable() -> Generator[None]:
    """Raise CancelledError at the end of the block where the task was cancelled within, and the block didn't tell.

    psycopg waits with asyncio.wait_for, which in Python 3.11 gives its result instead where that comes in the same
    moment; and what psycopg does about a cancellation may fail in another way. Who is cancelled once would go on.
    """
    task = asyncio.current_task()
    before = 0 if task is None else task.cancelling()
    try:
        yield
    except Exception:
        if task is not None and task.cancelling() > before:
            raise asyncio.CancelledError from None
        raise
    if task is not None and task.cancelling() > before:
        raise asyncio.CancelledError


def is_being_cancelled() -> bool:
    """Whether a CancelledError is the current task's own: what it waits for may have been cancelled by others."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0
