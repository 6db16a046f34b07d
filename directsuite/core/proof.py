"""Looking for proof that a call of unknown outcome happened, for as long as its request may still be on its way.

look ── there ─► its response
  │ not there
  ├─ a pause, twice as long each time ─► look again
  └─ the settle time is over ─► None
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TypeVar

from directsuite.core.call import Call
from directsuite.core.clock import Clock
from directsuite.errors import ClosedError, DirectSuiteError

R = TypeVar("R")

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 8.0  # seconds between looks


async def look_for_proof(
    call: Call[R], clock: Clock, sleep: Callable[[float], Awaitable[None]], *, timeout: float
) -> tuple[R] | None:
    """The response that the lost answer would have given, or None. Within the call's deadline.

    timeout: seconds for the looking of a stream, which has no deadline.
    """
    if call.proof is None:
        return None
    now = asyncio.get_running_loop().time()
    deadline = now + timeout if call.deadline is None else call.deadline
    left = deadline - now
    end = clock.monotonic() + min(call.proof.seconds, left)
    pause = _FIRST_PAUSE
    with contextlib.suppress(TimeoutError):  # a look's own too: it knows that looking on shows no more
        async with asyncio.timeout_at(deadline):
            while True:
                over = clock.monotonic() >= end
                try:
                    proven = await call.proof.look()
                except ClosedError:
                    return None
                except DirectSuiteError:  # the next look may see more
                    saw = False
                else:
                    if proven is not None:
                        return (proven,)
                    saw = True
                if over:
                    call.looked = saw and call.proof.seconds <= left
                    return None
                try:
                    await sleep(min(pause, max(0.0, end - clock.monotonic())))
                except ClosedError:
                    return None
                pause = min(2 * pause, _LONGEST_PAUSE)
    return None
