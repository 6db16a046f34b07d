"""Whether, when and how often a failed attempt is tried again: tenacity's strategies under the call's deadline.

The defaults are what such providers ask of their clients: on 429 back off from 1 s, doubling; on 503 wait 30 to 60 s;
on other failures at most three more tries. `Retry-After` is honoured before any of it.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, TypeAlias

import attrs

from directsuite.errors import DirectSuiteError, RateLimitedError, ServerError
from directsuite.fieldwise import Fieldwise

if TYPE_CHECKING:  # tenacity is imported when the first call has failed
    from tenacity import AsyncRetrying, RetryCallState
    from tenacity.wait import wait_base
else:
    wait_base = object  # which does: tenacity only calls its waits, and adds them up from either side


class WaitAsAsked(wait_base):
    """The default back-off, by what went wrong. Goes wherever tenacity takes a `wait`, its sums and chains included."""

    def __call__(self, retry_state: RetryCallState) -> float:
        """Seconds to wait before the next attempt."""
        error = retry_state.outcome.exception() if retry_state.outcome is not None else None
        rate_limited, unavailable, otherwise = _strategies()
        if isinstance(error, RateLimitedError):
            return rate_limited(retry_state)
        if isinstance(error, ServerError) and error.status == 503:
            return unavailable(retry_state)
        return otherwise(retry_state)

    def __repr__(self) -> str:
        return "WaitAsAsked()"


Wait: TypeAlias = "Callable[[RetryCallState], float]"
Stop: TypeAlias = "Callable[[RetryCallState], bool]"


@functools.cache
def _strategies() -> tuple[Wait, Wait, Wait]:
    """How to wait after 429, after 503, and after anything else."""
    from tenacity import wait_exponential_jitter, wait_random, wait_random_exponential

    return (
        wait_exponential_jitter(exp_base=2.0, max=60.0, jitter=0.5),  # from 1 s
        wait_random(30.0, 60.0),
        wait_random_exponential(multiplier=0.5, max=10.0),
    )


@attrs.frozen(repr=False, eq=False)
class RetryPolicy(Fieldwise):
    """How a call is tried again. attempts: in all, the first included. wait, stop: tenacity's, or your own.

    Only what may be tried again is: an operation with side effects never is, once its request may have arrived.
    """

    attempts: int = attrs.field(default=4, validator=attrs.validators.ge(1))
    wait: Wait = attrs.field(factory=WaitAsAsked)
    stop: Stop | None = None

    @classmethod
    def none(cls) -> RetryPolicy:
        """One attempt only. Tokens and sessions are still renewed."""
        return cls(attempts=1)

    def retrying(
        self,
        *,
        may_repeat: Callable[[BaseException], bool],
        time_left: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
        scheduled: Callable[[float], None],
    ) -> AsyncRetrying:
        """Tenacity's loop for one call: stops where the next wait would not fit into the time left (seconds).

        scheduled: told of each wait before it begins.
        """
        from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt

        stop = stop_after_attempt(self.attempts)

        def should_stop(retry_state: RetryCallState) -> bool:
            return bool(
                stop(retry_state)
                or (self.stop is not None and self.stop(retry_state))
                or retry_state.upcoming_sleep >= time_left()
            )

        def wait(retry_state: RetryCallState) -> float:
            error = retry_state.outcome.exception() if retry_state.outcome is not None else None
            if isinstance(error, DirectSuiteError) and error.retry_after is not None:
                return error.retry_after
            return self.wait(retry_state)

        return AsyncRetrying(
            retry=retry_if_exception(may_repeat),
            stop=should_stop,
            wait=wait,
            sleep=sleep,
            before_sleep=lambda retry_state: scheduled(retry_state.upcoming_sleep),
            reraise=True,
        )


def retry_after(header: str | None, *, now: Callable[[], float] = time.time) -> float | None:
    """Seconds that a Retry-After header asks for, in either of its forms; None where it says nothing."""
    if header is None:
        return None
    text = header.strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, OverflowError, TypeError, IndexError):  # whatever the standard library's parser stumbles over
        return None
    aware = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    return max(0.0, (aware - datetime.fromtimestamp(now(), UTC)).total_seconds())
