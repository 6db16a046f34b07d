"""Prefetching: in order, limited, with errors at their position, and without tasks left behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

import directsuite as ds
from directsuite.core.iteration import Listing, Prefetch

from .virtual_time import VirtualTimeLoop, yield_to_loop


class DelayedSource:
    """Returns each number after its delay, and counts waiting tasks. places: limit of prefetched items, or None."""

    def __init__(self, delays: list[float], failing: frozenset[int] = frozenset(), places: int | None = None) -> None:
        self.delays = delays
        self.failing = failing
        self.room = places
        self.waiting = 0
        self.max_waiting = 0
        self.requested: list[int] = []
        self.taken = 0
        self.read = 0
        self.cancelled = 0
        self.failed = False

    def make_prefetch(self, window: int) -> Prefetch[int, int]:
        return Prefetch(self._numbers(), self._fetch, window=window, has_room=self._has_room)

    def _numbers(self) -> Iterator[int]:
        for number in range(len(self.delays)):
            self.taken += 1
            yield number

    def _has_room(self) -> bool:
        return self.room is None or self.taken - self.read < self.room

    async def _fetch(self, number: int) -> int:
        assert not self.failed
        self.requested.append(number)
        self.waiting += 1
        self.max_waiting = max(self.max_waiting, self.waiting)
        try:
            await asyncio.sleep(self.delays[number])
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.waiting -= 1
        if number in self.failing:
            self.failed = True
            raise LookupError(number)
        return number


delays = st.lists(st.integers(0, 5).map(float), max_size=25)
windows = st.integers(1, 8)


@given(
    delays=delays,
    window=windows,
    places=st.none() | st.integers(1, 8),
    pauses=st.lists(st.integers(0, 3), max_size=25),
    data=st.data(),
)
def test_reader_gets_all_in_order_up_to_a_failure_or_where_it_leaves(
    delays: list[float], window: int, places: int | None, pauses: list[int], data: st.DataObject
) -> None:
    failing = data.draw(st.frozensets(st.sampled_from(range(len(delays))), max_size=3)) if delays else frozenset[int]()
    leaves_after = data.draw(st.none() | st.integers(0, len(delays)))
    desk = DelayedSource(delays, failing, places)
    bound = window if places is None else min(window, places)
    seen: list[int] = []
    failures: list[object] = []

    async def drain() -> None:
        pace = iter(pauses)
        async with desk.make_prefetch(window) as answers:
            if leaves_after == 0:
                return
            async for number in answers:
                seen.append(number)
                assert len(desk.requested) <= len(seen) + max(bound, 1)
                await asyncio.sleep(next(pace, 0))
                desk.read += 1
                if len(seen) == leaves_after:
                    return

    async def read() -> None:
        try:
            await drain()
        except LookupError as failure:
            failures.extend(failure.args)
        assert desk.waiting == 0
        assert len(asyncio.all_tasks()) == 1

    _run(read())
    first_failure = min(failing, default=len(delays))
    end = first_failure if leaves_after is None else min(first_failure, leaves_after)
    assert seen == list(range(end))
    assert failures == ([first_failure] if end in failing and end != leaves_after else [])
    assert desk.max_waiting <= bound
    assert desk.requested == sorted(set(desk.requested))


@given(delays=st.lists(st.integers(1, 5).map(float), min_size=1, max_size=25), window=windows)
def test_cancelled_reader_cancels_what_is_in_progress(delays: list[float], window: int) -> None:
    desk = DelayedSource(delays)

    async def read() -> None:
        async with desk.make_prefetch(window) as answers:
            async for _ in answers:
                pass

    async def main() -> None:
        task = asyncio.create_task(read())
        await yield_to_loop(5)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()
        assert len(asyncio.all_tasks()) == 1

    _run(main())
    assert desk.waiting == 0
    assert desk.cancelled == min(window, len(delays))


async def test_response_that_makes_room_lets_the_next_request_go_immediately() -> None:
    desk = DelayedSource([9.0, 1.0, 9.0, 9.0], places=2)
    async with desk.make_prefetch(4) as answers:
        first = asyncio.ensure_future(anext(answers))
        await yield_to_loop()
        assert desk.requested == [0, 1]
        desk.room = 4  # number 1 turns out to be small
        await asyncio.sleep(2)
        assert desk.requested == [0, 1, 2, 3]
        assert await first == 0


async def test_one_request_is_ahead_however_little_room_there_is() -> None:
    desk = DelayedSource([1.0] * 4, places=0)
    async with desk.make_prefetch(4) as answers:
        assert [number async for number in answers] == [0, 1, 2, 3]
    assert desk.max_waiting == 1


async def test_reader_who_finds_everything_there_gives_way_to_others() -> None:
    desk = DelayedSource([0.0] * 100)
    loop = asyncio.get_running_loop()
    others = 0

    def other() -> None:
        nonlocal others
        others += 1
        loop.call_soon(other)

    async with desk.make_prefetch(10) as answers:
        await anext(answers)
        await asyncio.sleep(1)
        other()
        for _ in range(10):
            await anext(answers)
    assert others >= 10


async def test_nothing_is_asked_before_the_first_step() -> None:
    desk = DelayedSource([0.0])
    async with desk.make_prefetch(2):
        await yield_to_loop()
    assert desk.requested == []


async def _listed(desk: DelayedSource) -> AsyncGenerator[int]:
    async with desk.make_prefetch(2) as answers:
        async for number in answers:
            yield number


async def test_listing_is_the_generator_itself() -> None:
    listing = Listing(_listed(DelayedSource([0.0, 0.0])))
    async with listing as inside:
        assert inside is listing
        assert aiter(listing) is listing
        assert await listing.asend(None) == 0
        with pytest.raises(KeyError):
            await listing.athrow(KeyError("thrown in"))


async def test_leaving_a_listing_early_cancels_what_is_in_progress() -> None:
    desk = DelayedSource([0.0, 9.0, 9.0])
    async with Listing(_listed(desk)) as listing:
        await anext(listing)
        await yield_to_loop()
        assert desk.waiting == 2
    assert desk.waiting == 0
    with pytest.raises(StopAsyncIteration):
        await anext(listing)


async def _time_out(listing: Listing[int]) -> None:
    async with asyncio.timeout(1):
        await anext(listing)


async def _time_out_in_asend(listing: Listing[int]) -> None:
    async with asyncio.timeout(1):
        await listing.asend(None)


async def _throw(listing: Listing[int]) -> None:
    await listing.athrow(LookupError("thrown in"))


INTERRUPTIONS: list[tuple[DelayedSource, Callable[[Listing[int]], Awaitable[object]], type[Exception]]] = [
    (DelayedSource([0.0, 9.0, 0.0]), _time_out, TimeoutError),
    (DelayedSource([0.0, 9.0, 0.0]), _time_out_in_asend, TimeoutError),
    (DelayedSource([0.0, 0.0, 0.0], frozenset({1})), _time_out, LookupError),
    (DelayedSource([0.0, 0.0]), _throw, LookupError),
]


@pytest.mark.parametrize(("source", "interrupt", "error"), INTERRUPTIONS)
async def test_step_after_an_interruption_raises(
    source: DelayedSource, interrupt: Callable[[Listing[int]], Awaitable[object]], error: type[Exception]
) -> None:
    listing = Listing(_listed(source))
    assert await anext(listing) == 0
    with pytest.raises(error):
        await interrupt(listing)
    for step in (listing.__anext__, lambda: listing.asend(None)):
        with pytest.raises(ds.TransportError, match="not complete"):
            await step()


async def test_interrupted_listing_that_was_closed_ends() -> None:
    listing = Listing(_listed(DelayedSource([0.0, 9.0])))
    await anext(listing)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await anext(listing)
    await listing.aclose()
    assert [number async for number in listing] == []


async def test_step_cancelled_before_it_began_interrupts_nothing() -> None:
    listing = Listing(_listed(DelayedSource([0.0, 0.0])))
    assert await anext(listing) == 0
    step = asyncio.ensure_future(listing.__anext__())
    step.cancel()
    await asyncio.wait([step])
    assert [number async for number in listing] == [1]


async def test_second_step_at_the_same_time_interrupts_nothing() -> None:
    listing = Listing(_listed(DelayedSource([9.0, 0.0])))
    first = asyncio.ensure_future(listing.__anext__())
    await yield_to_loop()
    with pytest.raises(RuntimeError, match="already running"):
        await anext(listing)
    assert await first == 0
    assert [number async for number in listing] == [1]


def test_loop_that_ends_closes_a_forgotten_listing_in_silence() -> None:
    complaints: list[object] = []
    kept: list[object] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: complaints.append(context["message"]))
        listing = Listing(_listed(DelayedSource([0.0, 9.0, 9.0])))
        kept.append(listing)  # otherwise the garbage collector would close it first
        await anext(listing)
        await yield_to_loop()

    _run(main())
    assert complaints == []


def _run(main: Coroutine[object, object, None]) -> None:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(main)
