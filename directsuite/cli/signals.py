"""Signals while a command runs, in the event loop's own turn."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Generator, Iterable


@contextlib.contextmanager
def told_to(came: Callable[[int], None], signals: Iterable[int]) -> Generator[None]:
    """Have each of these signals told by its number, and do nothing else.

    Windows has no such signals, nor do threads other than the main one: there each does what it does by itself.
    """
    loop = asyncio.get_running_loop()
    with contextlib.ExitStack() as stack:
        for number in signals:
            with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
                loop.add_signal_handler(number, came, number)
                stack.callback(loop.remove_signal_handler, number)
        yield
