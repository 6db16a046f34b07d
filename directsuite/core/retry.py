"""Retries of a failed attempt: `RetryPolicy`, which applies strategies of tenacity within the call's deadline.

By default, a call makes at most four attempts. After status 429 the wait starts at about 1 s and doubles each time, up
to 60 s. After 503 it is random, 30 to 60 s, and ends 5 s or more before the deadline, if 35 s are left. After other
failures it is random, with a limit that doubles up to 10 s. If the response has a `Retry-After`, the wait is the time
that it requests, at most an hour. If no token was received from its source, the wait is the rest of the back-off of
token requests.

`Backoff` computes other waits, such as those between token requests and rounds of polling.
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

from directsuite.core.checks import AT_LEAST_ONE, Check, can_be_called_with
from directsuite.core.privacy import scrub_class
from directsuite.errors import ConfigurationError, DirectSuiteError, RateLimitedError, ServerError
from directsuite.wire.models import ValueSemantics
from directsuite.wire.values import read_http_date

if TYPE_CHECKING:  # tenacity is imported when the first call has failed
    from tenacity import AsyncRetrying, RetryCallState
    from tenacity.wait import wait_base
else:
    # Enough at run time: tenacity calls a wait, or adds it to another, but does not check its class.
    wait_base = object


_MIN_UNAVAILABLE_WAIT, _MAX_UNAVAILABLE_WAIT = 30.0, 60.0
"""The wait after a 503 without Retry-After, in seconds, as providers of such services ask for."""
_MIN_ATTEMPT_SECONDS = 5.0
"""The seconds before the deadline that the wait after a 503 leaves for the next attempt."""
MAX_RETRY_AFTER = 3600.0
"""Maximum wait for a Retry-After, in seconds. A longer one may be a mistake, and is reduced to this."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# More doublings could overflow.
_MAX_DOUBLINGS = 64


@attrs.frozen(repr=False, eq=False)
class Backoff:
    """Exponential back-off with a limit.

    first: seconds to wait after the first failure. The wait doubles with each further failure.
    max_wait: the maximum wait, in seconds.
    """

    first: float
    max_wait: float

    def compute_wait(self, failures: int, retry_after: float | None = None) -> float:
        """Return the seconds to wait before the next attempt.

        failures: the number of consecutive failures, 1 or more.
        retry_after: the minimum wait that the service requested, in seconds. More than an hour counts as an hour.
        """
        wait = min(self.max_wait, self.first * 2.0 ** min(failures - 1, _MAX_DOUBLINGS))
        return max(wait, min(MAX_RETRY_AFTER, retry_after or 0.0))


_TIME_LEFT = "directsuite_time_left"
"""The attribute of a RetryCallState with the seconds until the deadline of the call."""


@scrub_class
@attrs.define(unsafe_hash=True)
class DefaultWait(wait_base):
    """The default wait strategy, which depends on the error. It can be combined with the waits of tenacity."""

    def __call__(self, retry_state: RetryCallState) -> float:
        """Return the seconds to wait before the next attempt."""
        error = _get_error(retry_state)
        rate_limited, otherwise = _make_strategies()
        if isinstance(error, RateLimitedError):
            return rate_limited(retry_state)
        if _is_unavailable(error):
            from tenacity import wait_random

            max_wait = min(_MAX_UNAVAILABLE_WAIT, getattr(retry_state, _TIME_LEFT, math.inf) - _MIN_ATTEMPT_SECONDS)
            if max_wait >= _MIN_UNAVAILABLE_WAIT:
                return wait_random(_MIN_UNAVAILABLE_WAIT, max_wait)(retry_state)
        return otherwise(retry_state)


Wait: TypeAlias = Callable[["RetryCallState"], float] | Callable[["RetryCallState"], Awaitable[float]]
"""A wait strategy of tenacity, or a function, which may be async, that takes a RetryCallState and returns seconds."""

Stop: TypeAlias = Callable[["RetryCallState"], bool] | Callable[["RetryCallState"], Awaitable[bool]]
"""A stop strategy of tenacity, or a function, which may be async, that takes a RetryCallState and returns a bool."""


@functools.cache
def _make_strategies() -> tuple[Callable[[RetryCallState], float], ...]:
    from tenacity import wait_exponential_jitter, wait_random_exponential

    return (
        wait_exponential_jitter(exp_base=2.0, max=60.0, jitter=0.5),  # from 1 s
        wait_random_exponential(multiplier=0.5, max=10.0),
    )


def _make_strategy_predicate(kind: str) -> Callable[[object], bool]:
    """Return a predicate for strategies of this kind (`wait` or `stop`).

    It accepts functions of one argument, but not classes, or other callable objects of tenacity, such as retryers.
    """

    def is_strategy(value: object) -> bool:
        if inspect.isclass(value) or not (callable(value) and can_be_called_with(value, 1)):
            return False
        classes: tuple[type, ...] = value.__class__.__mro__
        bases = {base.__name__ for base in classes if base.__module__.partition(".")[0] == "tenacity"}
        return not bases or f"{kind}_base" in bases

    return is_strategy


_WAIT = Check(
    "a wait of tenacity, such as tenacity.wait_fixed(5), or a function that takes a RetryCallState and returns seconds",
    _make_strategy_predicate("wait"),
)
_STOP = Check(
    "a stop of tenacity, such as tenacity.stop_after_delay(30), or a function that takes a RetryCallState and returns "
    "True or False",
    _make_strategy_predicate("stop"),
)


@scrub_class
@attrs.frozen(repr=False, eq=False)
class RetryPolicy(ValueSemantics):
    """The retries of a call.

    An operation with side effects is not retried if the service may have processed its request, whatever the policy.
    Raises ConfigurationError if an argument is invalid.
    """

    attempts: int = attrs.field(default=4, validator=AT_LEAST_ONE)
    """The maximum number of attempts, including the first."""
    wait: Wait = attrs.field(factory=DefaultWait, validator=_WAIT)
    """Returns the number of seconds until the next attempt. Not used if the response has a Retry-After, or if the token
    source has failed, which is called again after 1 s, and after further failures 2, 4, … 60 s.
    """
    stop: Stop | None = attrs.field(default=None, validator=_STOP.allow_none())
    """Returns True to stop retrying before `attempts` is reached. None: only `attempts` and the deadline apply."""

    @classmethod
    def none(cls) -> RetryPolicy:
        """Return a policy that makes only one attempt. A rejected token or session is still replaced once per call."""
        return cls(attempts=1)

    def set_retry_after(self, error: DirectSuiteError) -> None:
        """Set `retry_after` of a call's final error if it is a 503 without Retry-After.

        Not if the policy has no retries, because the caller then has its own back-off.
        """
        if self.attempts > 1 and _is_unavailable(error) and error.retry_after is None:
            error.retry_after = _MIN_UNAVAILABLE_WAIT

    def make_retry_loop(
        self,
        *,
        may_repeat: Callable[[BaseException], bool],
        time_left: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
        on_scheduled: Callable[[BaseException | None, float], None],
        mentions_wait: bool,
        await_result: Callable[[Awaitable[Any]], Awaitable[Any]],
    ) -> AsyncRetrying:
        """Return the retry loop of tenacity for one call. It stops if the next wait does not fit into the time left.

        If it stops, it raises the last exception. If `wait` returns no valid number, it raises ConfigurationError.

        may_repeat: returns True if the call may be repeated after this exception.
        time_left: returns the seconds until the deadline.
        sleep: waits for a number of seconds.
        on_scheduled: called with the error and the seconds of each wait before it starts.
        mentions_wait: whether the last error says that the call was not retried because its `retry_after` is too long.
        await_result: awaits the result of an async strategy of the user.
        """
        from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt

        enough = stop_after_attempt(self.attempts)

        async def resolve_result(result: Any, too_late: float) -> Any:
            """Return a strategy's result. Return `too_late` if the deadline passes while awaiting it."""
            if not inspect.isawaitable(result):
                return result
            limit = asyncio.timeout(time_left())
            try:
                async with limit:
                    return await await_result(result)
            except TimeoutError:
                if not limit.expired():
                    raise
                return too_late

        async def stop(retry_state: RetryCallState) -> bool:
            if enough(retry_state):
                return True
            if retry_state.upcoming_sleep >= time_left():
                error = _get_error(retry_state)
                if mentions_wait and isinstance(error, DirectSuiteError) and error.retry_after:
                    subject = f"{error.advice}. The call" if error.advice else "the call"
                    error.advice = (
                        f"{subject} was not retried, because the wait of {math.ceil(error.retry_after)} s is longer "
                        "than the time left. Call again after this wait, or with a longer timeout"
                    )
                return True
            return self.stop is not None and bool(await resolve_result(self.stop(retry_state), True))

        async def wait(retry_state: RetryCallState) -> float:
            error = _get_error(retry_state)
            if isinstance(error, DirectSuiteError) and error.retry_after is not None:
                return error.retry_after
            setattr(retry_state, _TIME_LEFT, time_left())
            seconds = await resolve_result(self.wait(retry_state), math.inf)
            if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds >= 0:
                raise ConfigurationError("the retry policy's wait must return seconds: a number, 0 or more") from error
            return seconds

        # The types of tenacity do not show that it awaits these functions.
        asynchronous: dict[str, Any] = {"stop": stop, "wait": wait}
        return AsyncRetrying(
            retry=retry_if_exception(may_repeat),
            sleep=sleep,
            before_sleep=lambda retry_state: on_scheduled(_get_error(retry_state), retry_state.upcoming_sleep),
            reraise=True,
            **asynchronous,
        )


def _is_unavailable(error: BaseException | None) -> bool:
    return isinstance(error, ServerError) and error.status == 503


def _get_error(retry_state: RetryCallState) -> BaseException | None:
    return None if retry_state.outcome is None else retry_state.outcome.exception()


def parse_retry_after(
    header: str | None, date: str | None = None, *, now: Callable[[], float] = time.time
) -> float | None:
    """Return the seconds that a Retry-After header asks for: 0 for a past date, at most an hour.

    Return None if the header is missing or malformed.

    date: the response's Date header, from which a date in Retry-After is counted. None: use the local clock, which may
        be wrong.
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
