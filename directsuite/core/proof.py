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

from directsuite.core.bound import NEVER
from directsuite.core.call import Call
from directsuite.core.clock import Clock
from directsuite.core.retry import Backoff
from directsuite.errors import ClosedError, DirectSuiteError

R = TypeVar("R")

_BACKOFF = Backoff(0.5, 8.0)  # seconds between looks


class Looking:
    """The rhythm of looking for so many seconds: pauses twice as long each time, and a last look at the end."""

    def __init__(self, seconds: float, clock: Clock, sleep: Callable[[float], Awaitable[None]]) -> None:
        self._clock = clock
        self._sleep = sleep
        self._end = clock.monotonic() + seconds
        self._looks = 0

    @property
    def over(self) -> bool:
        """Whether the time to look is over."""
        return self._clock.monotonic() >= self._end

    async def pause(self) -> None:
        """Return when it is time to look again."""
        self._looks += 1
        await self._sleep(min(_BACKOFF.after(self._looks), max(0.0, self._end - self._clock.monotonic())))


async def look_for_proof(
    call: Call[R], clock: Clock, sleep: Callable[[float], Awaitable[None]], *, timeout: float
) -> tuple[R] | None:
    """The response that the lost answer would have given, or None. Within the call's deadline.

    timeout: seconds for the looking of a stream, which has no deadline.
    """
    if call.proof is None:
        return None
    now = asyncio.get_running_loop().time()
    deadline = now + timeout if call.deadline == NEVER else call.deadline
    left = deadline - now
    looking = Looking(min(call.proof.seconds, left), clock, sleep)
    with contextlib.suppress(TimeoutError):  # a look's own too: it knows that looking on shows no more
        async with asyncio.timeout_at(deadline):
            while True:
                over = looking.over
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
                    await looking.pause()
                except ClosedError:
                    return None
    return None
