"""The end of a method that makes several requests, each of which gets what is left of its time."""

from __future__ import annotations

import asyncio

import attrs

from directsuite.errors import DeadlineExceededError, Outcome


@attrs.frozen(eq=False)
class Deadline:
    """A moment in the event loop's time."""

    at: float

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        """The moment so many seconds from now."""
        return cls(asyncio.get_running_loop().time() + seconds)

    @property
    def passed(self) -> bool:
        """Whether no time is left."""
        return self.at <= asyncio.get_running_loop().time()

    def left(self) -> float:
        """Seconds for the next request; DeadlineExceededError where there are none."""
        if self.passed:
            raise DeadlineExceededError("the call's time is up: nothing was sent", outcome=Outcome.NOT_SENT)
        return self.at - asyncio.get_running_loop().time()
