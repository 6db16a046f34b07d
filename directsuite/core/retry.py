"""Whether, when and how often a failed attempt is tried again: tenacity's strategies under the call's deadline.

The defaults are what such providers ask of their clients: on 429 back off from 1 s, doubling; on 503 wait 30 to 60 s;
on other failures at most three more tries. `Retry-After` is honoured before any of it.

`Backoff` is for what waits outside a call: for a token, for proof, for the next look or round.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import math
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs

from directsuite.core.checks import AT_LEAST_ONE, Check, accepts
from directsuite.core.privacy import scrub_class
from directsuite.errors import ConfigurationError, DirectSuiteError, RateLimitedError, ServerError
from directsuite.wire.dates import read_http_date
from directsuite.wire.models import ValueSemantics

if TYPE_CHECKING:  # tenacity is imported when the first call has failed
    from tenacity import AsyncRetrying, RetryCallState
    from tenacity.wait import wait_base
else:
    wait_base = object  # which does: tenacity only calls its waits, and adds them up from either side


MAX_RETRY_AFTER = 3600.0
"""Seconds. A longer Retry-After may be a mistake: the service is asked again after this time."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DOUBLINGS = 64  # more would be of no use to any `longest`, and overflow in the end


@attrs.frozen
class Backoff:
    """Exponential back-off with a cap: `first` seconds after one failure, and twice as many after each further one."""

    first: float
    longest: float

    def after(self, failures: int, retry_after: float | None = None) -> float:
        """Seconds to wait after so many failures in a row; at least as many as the service asked for, up to an hour."""
        wait = min(self.longest, self.first * 2.0 ** min(failures - 1, _DOUBLINGS))
        return max(wait, min(MAX_RETRY_AFTER, retry_after or 0.0))


@scrub_class
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

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self)

    def __hash__(self) -> int:
        return hash(type(self))

    def __repr__(self) -> str:
        return "WaitAsAsked()"


Wait: TypeAlias = Callable[["RetryCallState"], float] | Callable[["RetryCallState"], Awaitable[float]]
"""One of tenacity's waits, or a function of its RetryCallState that gives seconds, a coroutine function among them."""

Stop: TypeAlias = Callable[["RetryCallState"], bool] | Callable[["RetryCallState"], Awaitable[bool]]
"""One of tenacity's stops, or a function of its RetryCallState that gives a bool, a coroutine function among them."""


@functools.cache
def _strategies() -> tuple[Callable[[RetryCallState], float], ...]:
    """How to wait after 429, after 503, and after anything else."""
    from tenacity import wait_exponential_jitter, wait_random, wait_random_exponential

    return (
        wait_exponential_jitter(exp_base=2.0, max=60.0, jitter=0.5),  # from 1 s
        wait_random(30.0, 60.0),
        wait_random_exponential(multiplier=0.5, max=10.0),
    )


def _strategy(kind: str) -> Callable[[object], bool]:
    """What tells a strategy of this kind from other callables, such as tenacity's retryers and its other strategies."""

    def fits(value: object) -> bool:
        if inspect.isclass(value) or not (callable(value) and accepts(value, 1)):
            return False
        classes: tuple[type, ...] = value.__class__.__mro__
        bases = {base.__name__ for base in classes if base.__module__.partition(".")[0] == "tenacity"}
        return not bases or f"{kind}_base" in bases

    return fits


_WAIT = Check("one of tenacity's waits, or a function of its RetryCallState that gives seconds", _strategy("wait"))
_STOP = Check("one of tenacity's stops, or a function of its RetryCallState that gives a bool", _strategy("stop"))


@scrub_class
@attrs.frozen(repr=False, eq=False)
class RetryPolicy(ValueSemantics):
    """How a call is tried again.

    Only what may be tried again is: an operation with side effects never is, once its request may have arrived. Raises
    ConfigurationError for anything else than these.
    """

    attempts: int = attrs.field(default=4, validator=AT_LEAST_ONE)
    """In all, the first included."""
    wait: Wait = attrs.field(factory=WaitAsAsked, validator=_WAIT)
    """Gives seconds until the next attempt: one of tenacity's, or your own function, perhaps a coroutine function."""
    stop: Stop | None = attrs.field(default=None, validator=_STOP.or_none())

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
        answer: Callable[[Awaitable[Any]], Awaitable[Any]],
    ) -> AsyncRetrying:
        """Tenacity's loop for one call: stops where the next wait would not fit into the time left (seconds).

        scheduled: told of each wait before it begins. answer: awaits what a strategy of the user's gave.
        """
        from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt

        enough = stop_after_attempt(self.attempts)

        async def ask(result: Any, too_late: float) -> Any:
            """What a strategy gave, awaited where it can be; `too_late` where that takes all the time that is left."""
            if not inspect.isawaitable(result):
                return result
            limit = asyncio.timeout(time_left())
            try:
                async with limit:
                    return await answer(result)
            except TimeoutError:
                if not limit.expired():
                    raise
                return too_late

        async def stop(retry_state: RetryCallState) -> bool:
            """Return True where there is no other attempt."""
            if enough(retry_state) or retry_state.upcoming_sleep >= time_left():
                return True
            return self.stop is not None and bool(await ask(self.stop(retry_state), True))

        async def wait(retry_state: RetryCallState) -> float:
            """Seconds until the next attempt."""
            error = retry_state.outcome.exception() if retry_state.outcome is not None else None
            if isinstance(error, DirectSuiteError) and error.retry_after is not None:
                return error.retry_after
            seconds = await ask(self.wait(retry_state), math.inf)
            if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds >= 0:
                raise ConfigurationError("the retry policy's wait has to give seconds: a number, 0 or more") from error
            return seconds

        asynchronous: dict[str, Any] = {"stop": stop, "wait": wait}  # its types don't say that it awaits them
        return AsyncRetrying(
            retry=retry_if_exception(may_repeat),
            sleep=sleep,
            before_sleep=lambda retry_state: scheduled(retry_state.upcoming_sleep),
            reraise=True,
            **asynchronous,
        )


def retry_after(header: str | None, date: str | None = None, *, now: Callable[[], float] = time.time) -> float | None:
    """Return the seconds that a Retry-After header asks for, at most an hour. Return None if it has no known form.

    date: the response's Date header, from which a date in Retry-After is counted. The local clock, which may be wrong,
    is used only if the response has no Date.
    """
    if header is None:
        return None
    text = header.strip()
    if text.isascii() and text.isdigit():
        return min(float(text[:9]), MAX_RETRY_AFTER)
    moment = read_http_date(text)
    if moment is None:
        return None
    sent_at = None if date is None else read_http_date(date)
    seconds = (moment - _EPOCH).total_seconds() - (now() if sent_at is None else (sent_at - _EPOCH).total_seconds())
    return min(max(0.0, seconds), MAX_RETRY_AFTER)
