"""The ends of attempts: kept to the moment, moved for nothing, and never mistaken for somebody else's cancellation."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from directsuite.core.session import NO_DEADLINE, TimeoutScheduler

from .virtual_time import VirtualTimeLoop, yield_to_loop

TIMES = st.integers(1, 50).map(float)
MOVES = st.lists(st.tuples(TIMES, TIMES), max_size=3, unique_by=lambda move: move[0])


def scheduler_of_this_loop() -> TimeoutScheduler:
    """The ends of this loop's attempts."""
    return TimeoutScheduler(asyncio.get_running_loop())


def now() -> float:
    """The loop's time."""
    return asyncio.get_running_loop().time()


async def ended(timeouts: TimeoutScheduler, after: float, *moves: tuple[float, float]) -> float | None:
    """Seconds after which a block of 100 seconds was ended, or None. moves: after how many to move its end to which."""
    began = now()
    timeout = timeouts.timeout_at(began + after)
    for at, end in moves:
        asyncio.get_running_loop().call_at(began + at, timeout.reschedule, began + end)
    try:
        with timeout:
            await asyncio.sleep(100)
    except TimeoutError:
        assert timeout.expired
        return now() - began
    assert not timeout.expired
    return None


@pytest.mark.parametrize(
    ("after", "moves", "end"),
    [
        (5, [], 5),
        (0, [], 0),
        (-1, [], 0),
        (100.1, [], None),
        (NO_DEADLINE, [], None),
        (5, [(1, 20)], 20),
        (20, [(1, 5)], 5),
        (20, [(1, 5), (2, 30)], 30),
        (5, [(1, NO_DEADLINE)], None),
        (NO_DEADLINE, [(1, 5)], 5),
        (20, [(3, 2)], 3),
        (5, [(6, 20)], 5),
    ],
)
async def test_block_ends_when_it_should(after: float, moves: list[tuple[float, float]], end: float | None) -> None:
    assert await ended(scheduler_of_this_loop(), after, *moves) == (end if end is None else pytest.approx(end))


@given(plans=st.lists(st.tuples(TIMES, MOVES), min_size=1, max_size=8))
def test_each_of_many_ends_at_its_own_time(plans: list[tuple[float, list[tuple[float, float]]]]) -> None:
    def expected(after: float, moves: list[tuple[float, float]]) -> float:
        """When it ends: at the end that stands when it comes."""
        end = after
        for at, to in sorted(moves, key=lambda move: move[0]):
            if at < end:
                end = max(at, to)
        return end

    async def scene() -> list[float | None]:
        timeouts = scheduler_of_this_loop()
        return await asyncio.gather(*(ended(timeouts, after, *moves) for after, moves in plans))

    plans = [(after, [(at + 0.25, to) for at, to in moves]) for after, moves in plans]
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        ends = runner.run(scene())
    assert ends == [pytest.approx(expected(*plan)) for plan in plans]


async def test_blocks_share_one_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, timeouts = asyncio.get_running_loop(), scheduler_of_this_loop()
    times: list[float] = []
    call_at = loop.call_at

    def counted(when: float, *rest: object) -> asyncio.TimerHandle:
        """Set a timer, and count it."""
        times.append(when)
        return call_at(when, *rest)  # type: ignore[arg-type]  # as it was called

    monkeypatch.setattr(loop, "call_at", counted)
    for number in range(1000):
        with timeouts.timeout_at(now() + 20 + number) as _:
            pass
    assert len(times) == 1


async def test_cancellation_by_another_is_not_taken_for_the_end() -> None:
    async def block() -> None:
        with scheduler_of_this_loop().timeout_at(now() + 5):
            await asyncio.sleep(100)

    task = asyncio.create_task(block())
    await yield_to_loop()
    task.cancel("by another")
    with pytest.raises(asyncio.CancelledError, match="by another"):
        await task


async def test_cancellation_at_the_very_end_wins() -> None:
    task = asyncio.create_task(ended(scheduler_of_this_loop(), 5))
    await yield_to_loop()
    asyncio.get_running_loop().call_at(now() + 5, task.cancel)
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_outer_timeout_is_the_outer_one_s() -> None:
    timeouts = scheduler_of_this_loop()
    outer = asyncio.timeout(3)
    with pytest.raises(TimeoutError):
        async with outer:
            await ended(timeouts, 5)
    assert outer.expired()


async def test_nothing_is_cancelled_after_the_block() -> None:
    timeouts = scheduler_of_this_loop()
    with timeouts.timeout_at(now() + 1) as _:
        pass
    await asyncio.sleep(5)
    assert not (asyncio.current_task() or pytest.fail("no task")).cancelling()


async def test_failure_in_the_block_passes() -> None:
    with pytest.raises(LookupError), scheduler_of_this_loop().timeout_at(now() + 1):
        raise LookupError


def test_outside_a_task_there_is_nothing_to_end() -> None:
    loop = VirtualTimeLoop()
    with pytest.raises(RuntimeError, match="task"), TimeoutScheduler(loop).timeout_at(1):
        pass
    loop.close()


async def test_thousands_of_ends_close_together_take_few_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    timeouts, passes = scheduler_of_this_loop(), 0
    run_out = timeouts._expire_due

    def counted() -> None:
        """Let what is past end, and count it."""
        nonlocal passes
        passes += 1
        run_out()

    monkeypatch.setattr(timeouts, "_expire_due", counted)
    blocks = [asyncio.create_task(ended(timeouts, 5 + number / 1e6)) for number in range(1000)]
    await yield_to_loop()
    asyncio.get_running_loop().call_at(now() + 4, _hold, asyncio.get_running_loop())
    await asyncio.gather(*blocks)
    assert passes < 10


def _hold(loop: asyncio.AbstractEventLoop) -> None:
    """Keep the event loop for two seconds."""
    assert isinstance(loop, VirtualTimeLoop)
    loop._now += 2
