"""The retry policy alone: how it uses tenacity, and its events."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception_type,
    stop_after_attempt,
    wait_chain,
    wait_fixed,
)

import directsuite as ds
from directsuite.core.retry import DefaultWait


class Course:
    """Runs a call that always fails with a policy. `events`: what happened, in order."""

    def __init__(self, policy: ds.RetryPolicy, *, repeats: bool = True, left: Callable[[], float] = lambda: 60) -> None:
        self.events: list[str] = []
        self.retrying: AsyncRetrying = policy.make_retry_loop(
            may_repeat=lambda _: repeats,
            time_left=left,
            sleep=self._sleep,
            on_scheduled=self._scheduled,
            await_result=self._answer,
        )

    async def _answer(self, awaitable: Awaitable[Any]) -> Any:
        return await awaitable

    async def _sleep(self, seconds: float) -> None:
        self.events.append(f"slept {seconds:g}")

    def _scheduled(self, seconds: float) -> None:
        self.events.append(f"told of {seconds:g}")

    async def run(self) -> list[str]:
        with pytest.raises(ds.ConnectionLostError):
            await self._fail()
        return self.events

    async def _fail(self) -> None:
        async for attempt in self.retrying:
            assert len(self.events) < 50, "it goes on without end"
            with attempt:
                self.events.append("tried")
                raise ds.ConnectionLostError("lost")


async def test_each_wait_is_reported_before_it_begins() -> None:
    course = Course(ds.RetryPolicy(attempts=3, wait=wait_fixed(2)))
    assert await course.run() == ["tried", "told of 2", "slept 2", "tried", "told of 2", "slept 2", "tried"]


async def test_what_must_not_be_repeated_is_tried_once() -> None:
    assert await Course(ds.RetryPolicy(wait=wait_fixed(2)), repeats=False).run() == ["tried"]


@pytest.mark.parametrize(("left", "tries"), [(2.0, 1), (2.1, 4)])
async def test_wait_that_takes_all_the_time_left_is_not_begun(left: float, tries: int) -> None:
    events = await Course(ds.RetryPolicy(wait=wait_fixed(2)), left=lambda: left).run()
    assert events.count("tried") == tries


def test_policy_shows_what_it_does() -> None:
    assert repr(ds.RetryPolicy()) == "RetryPolicy(attempts=4, wait=DefaultWait(), stop=None)"


def _state(error: Exception | None) -> RetryCallState:
    state = RetryCallState(AsyncRetrying(), None, (), {})
    if error is not None:
        state.set_exception((type(error), error, None))
    return state


WAITS: list[tuple[Exception | None, float, float]] = [
    (ds.RateLimitedError("", status=429), 1, 1.5),
    (ds.ServerError("", status=503), 30, 60),
    (ds.ServerError("", status=500), 0, 0.5),
    (ds.ConnectionLostError(""), 0, 0.5),
    (None, 0, 0.5),
]


@pytest.mark.parametrize(("error", "least", "most"), WAITS)
def test_first_wait_is_as_the_service_asks(error: Exception | None, least: float, most: float) -> None:
    assert all(least <= DefaultWait()(_state(error)) <= most for _ in range(50))


@pytest.mark.parametrize(("error", "least", "most"), WAITS)
def test_waits_of_many_callers_are_spread(error: Exception | None, least: float, most: float) -> None:
    assert len({DefaultWait()(_state(error)) for _ in range(50)}) > 25


@pytest.mark.parametrize(("error", "most"), [(WAITS[0][0], 60.0), (WAITS[1][0], 60.0), (WAITS[2][0], 10.0)])
def test_later_waits_have_an_end(error: Exception, most: float) -> None:
    state = _state(error)
    state.attempt_number = 20
    assert all(DefaultWait()(state) <= most for _ in range(50))


def test_default_wait_goes_into_sums_and_chains_of_tenacity() -> None:
    seven = wait_fixed(7)
    waits = [DefaultWait() + seven, seven + DefaultWait(), wait_chain(DefaultWait(), seven)]
    error = ds.RateLimitedError("", status=429)
    assert [int(wait(_state(error))) for wait in waits] == [8, 8, 1]


class OwnWait:
    def __call__(self, state: RetryCallState) -> float:
        return 1.0


ODD_POLICIES: list[dict[str, Any]] = [
    *({"attempts": value} for value in (0, -1, 2.5, float("nan"), True, "3", None, 10**400)),
    *({"wait": value} for value in (OwnWait, 5, None, "5", AsyncRetrying(), stop_after_attempt(2), lambda: 5)),
    *({"stop": value} for value in (OwnWait, 5, True, AsyncRetrying(), wait_fixed(1), lambda: True)),
    {"wait": retry_if_exception_type()},
]


@pytest.mark.parametrize("odd", ODD_POLICIES, ids=lambda odd: next(iter(odd)))
def test_policy_that_could_not_work_is_rejected_when_it_is_made(odd: dict[str, Any]) -> None:
    with pytest.raises(ds.ConfigurationError, match=f"^{next(iter(odd))} must be ") as caught:
        ds.RetryPolicy(**odd)
    assert caught.value.__context__ is None


class Strategy:
    """An object with an async `__call__`, which tenacity accepts as a strategy."""

    async def __call__(self, _: RetryCallState) -> float:
        await asyncio.sleep(0)
        return 2


def wait_later(state: RetryCallState) -> Awaitable[float]:
    return wait_two(state)


async def wait_two(_: RetryCallState) -> float:
    return 2


ASYNC_WAITS: list[Any] = [wait_two, Strategy(), functools.partial(wait_two), wait_later]


@pytest.mark.parametrize("wait", ASYNC_WAITS)
async def test_async_wait_is_awaited(wait: Any) -> None:
    course = Course(ds.RetryPolicy(attempts=2, wait=wait))
    assert await course.run() == ["tried", "told of 2", "slept 2", "tried"]


@pytest.mark.parametrize(("tries", "answer"), [(1, True), (3, False)])
async def test_async_stop_is_awaited(tries: int, answer: bool) -> None:
    async def stop(_: RetryCallState) -> bool:
        return answer

    events = await Course(ds.RetryPolicy(attempts=3, wait=wait_fixed(2), stop=stop)).run()
    assert events.count("tried") == tries


async def test_async_wait_that_never_responses_ends_with_the_time_left() -> None:
    async def wait(_: RetryCallState) -> float:
        await asyncio.Event().wait()
        raise AssertionError

    assert await Course(ds.RetryPolicy(wait=wait), left=lambda: 0.0).run() == ["tried"]


@pytest.mark.parametrize("gives", [None, "2", True, -1.0, float("nan"), [2]], ids=repr)
async def test_wait_without_seconds_raises_with_failure_as_cause(gives: Any) -> None:
    course = Course(ds.RetryPolicy(wait=lambda _: gives))
    with pytest.raises(ds.ConfigurationError, match="wait must return seconds: a number, 0 or more") as caught:
        await course._fail()
    assert isinstance(caught.value.__cause__, ds.ConnectionLostError)


@pytest.mark.parametrize(("retry_after", "wait"), [(7.0, 7.0), (0.0, 0.0), (None, 2.0)])
async def test_time_that_the_service_names_goes_first(retry_after: float | None, wait: float) -> None:
    error = ds.ServiceError("", status=409, retry_after=retry_after)
    ask: Any = Course(ds.RetryPolicy(wait=wait_fixed(2))).retrying.wait
    assert await ask(_state(error)) == wait
    assert await ask(_state(None)) == 2.0


def own_wait(state: RetryCallState) -> float:
    return 1.0


@pytest.mark.parametrize("wait", [wait_fixed(1), wait_fixed(1) + wait_fixed(2), own_wait, OwnWait()])
def test_wait_is_one_of_tenacity_s_or_a_function_of_the_state(wait: Any) -> None:
    assert ds.RetryPolicy(wait=wait).wait is wait


@pytest.mark.parametrize("stop", [None, stop_after_attempt(2), stop_after_attempt(2) | stop_after_attempt(3), own_wait])
def test_stop_is_one_of_tenacity_s_or_a_function_of_the_state(stop: Any) -> None:
    assert ds.RetryPolicy(stop=stop).stop is stop


async def test_wait_may_be_of_no_time() -> None:
    assert "slept 0" in await Course(ds.RetryPolicy(attempts=2, wait=lambda _: 0)).run()
