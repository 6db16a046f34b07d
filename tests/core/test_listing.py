"""Fetching ahead of the reader: in order, bounded, failures at their place, nothing left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from directsuite.core.listing import Listing, fetched_ahead

from .virtual_time import VirtualTimeLoop, turns


class Desk:
    """Answers each number with itself after its delay, and keeps count of who is waiting."""

    def __init__(self, delays: list[float], failing: frozenset[int] = frozenset()) -> None:
        self.delays = delays
        self.failing = failing
        self.waiting = 0
        self.busiest = 0
        self.asked: list[int] = []
        self.cancelled = 0

    async def fetch(self, number: int) -> int:
        self.asked.append(number)
        self.waiting += 1
        self.busiest = max(self.busiest, self.waiting)
        try:
            await asyncio.sleep(self.delays[number])
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.waiting -= 1
        if number in self.failing:
            raise LookupError(number)
        return number


delays = st.lists(st.integers(0, 5).map(float), max_size=25)
windows = st.integers(1, 8)


@given(delays=delays, window=windows, pauses=st.lists(st.integers(0, 3), max_size=25))
def test_answers_come_in_order_and_never_more_than_the_window_is_under_way(
    delays: list[float], window: int, pauses: list[int]
) -> None:
    desk = Desk(delays)
    seen: list[int] = []

    async def read() -> None:
        pace = iter(pauses)
        async for number in fetched_ahead(range(len(delays)), desk.fetch, window=window):
            seen.append(number)
            assert len(desk.asked) <= len(seen) + window
            await asyncio.sleep(next(pace, 0))
        assert len(asyncio.all_tasks()) == 1

    _run(read())
    assert seen == list(range(len(delays)))
    assert desk.busiest <= window


@given(delays=delays.filter(bool), window=windows, data=st.data())
def test_failure_is_raised_at_its_own_place(delays: list[float], window: int, data: st.DataObject) -> None:
    failing = data.draw(st.sets(st.integers(0, len(delays) - 1), min_size=1))
    desk = Desk(delays, frozenset(failing))
    seen: list[int] = []

    async def drain() -> None:
        async for number in fetched_ahead(range(len(delays)), desk.fetch, window=window):
            seen.append(number)  # noqa: PERF401  an extend would keep nothing of what came before the failure

    async def read() -> None:
        with pytest.raises(LookupError) as caught:
            await drain()
        assert caught.value.args == (min(failing),)
        assert len(asyncio.all_tasks()) == 1

    _run(read())
    assert seen == list(range(min(failing)))
    assert desk.waiting == 0


@given(delays=delays.filter(bool), window=windows, data=st.data())
def test_leaving_early_cancels_what_is_under_way(delays: list[float], window: int, data: st.DataObject) -> None:
    after = data.draw(st.integers(0, len(delays) - 1))
    desk = Desk(delays)

    async def read() -> None:
        listing = Listing(fetched_ahead(range(len(delays)), desk.fetch, window=window))
        async with listing:
            for _ in range(after):
                await anext(listing)
        assert desk.waiting == 0
        assert len(asyncio.all_tasks()) == 1
        with pytest.raises(StopAsyncIteration):
            await anext(listing)

    _run(read())


@given(delays=st.lists(st.integers(1, 5).map(float), min_size=1, max_size=25), window=windows)
def test_cancelled_reader_cancels_what_is_under_way(delays: list[float], window: int) -> None:
    desk = Desk(delays)

    async def read() -> None:
        async for _ in fetched_ahead(range(len(delays)), desk.fetch, window=window):
            pass

    async def main() -> None:
        task = asyncio.create_task(read())
        await turns(5)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()
        await turns(5)
        assert len(asyncio.all_tasks()) == 1

    _run(main())
    assert desk.waiting == 0
    assert desk.cancelled == min(window, len(delays))


async def test_nothing_is_asked_before_the_first_step() -> None:
    desk = Desk([0.0])
    listing = Listing(fetched_ahead([0], desk.fetch, window=2))
    await turns()
    await listing.aclose()
    assert desk.asked == []


async def test_keys_are_taken_only_as_far_as_the_window() -> None:
    taken: list[int] = []

    def keys() -> Iterator[int]:
        for number in range(100):
            taken.append(number)
            yield number

    desk = Desk([0.0] * 100)
    async with Listing(fetched_ahead(keys(), desk.fetch, window=3)) as listing:
        await anext(listing)
        await turns()
        assert len(taken) == 4


async def test_listing_is_the_generator_itself() -> None:
    listing = Listing(fetched_ahead([0, 1], Desk([0.0, 0.0]).fetch, window=1))
    async with listing as inside:
        assert inside is listing
        assert aiter(listing) is listing
        assert await listing.asend(None) == 0
        with pytest.raises(KeyError):
            await listing.athrow(KeyError("thrown in"))


def _run(main: object) -> None:
    assert asyncio.iscoroutine(main)
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(main)
