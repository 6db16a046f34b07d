"""The loop over changes: a delivery returns when all of it was asked past, and not otherwise."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Awaitable, Callable
from contextlib import aclosing

import pytest

import directsuite as ds
from directsuite.sync.model import Change
from directsuite.sync.sinks import Changes, ChangeStream, UnacknowledgedError
from tests.sync.sinks.sample_changes import make_key, make_new

ONE, TWO, THREE = (make_new(make_key(number), number) for number in (1, 2, 3))


async def _settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def _delivery(changes: Changes, *batch: Change) -> asyncio.Task[None]:
    return asyncio.create_task(changes.deliver(batch))


async def test_asking_for_the_next_change_is_what_ends_a_delivery() -> None:
    changes = Changes()
    delivery = _delivery(changes, ONE, TWO)
    loop = aiter(changes)
    assert [await anext(loop), await anext(loop)] == [ONE, TWO]
    await _settled()
    assert not delivery.done()
    asked = asyncio.ensure_future(anext(loop))
    await delivery
    await changes.aclose()
    with pytest.raises(StopAsyncIteration):
        await asked


async def test_mailboxes_take_turns_batch_by_batch() -> None:
    async with Changes() as changes:
        deliveries = [_delivery(changes, ONE, TWO), _delivery(changes, THREE)]
        seen: list[Change] = []
        async for change in changes:
            seen.append(change)
            if change is THREE:
                await _settled()
                assert deliveries[0].done()
                assert not deliveries[1].done()
                changes.acknowledge()
                break
        assert seen == [ONE, TWO, THREE]
        await asyncio.gather(*deliveries)


async def _breaks(changes: Changes) -> None:
    async for _ in changes:
        break


async def _raises(changes: Changes) -> None:
    async for _ in changes:
        raise KeyError


async def _returns(changes: Changes) -> Change | None:
    async for change in changes:
        return change
    return None


async def _is_cancelled(changes: Changes) -> None:
    async for _ in changes:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)


async def _closes_its_loop(changes: Changes) -> None:
    async with aclosing(aiter(changes)) as loop:
        async for _ in loop:
            return


async def _breaks_the_second_time(changes: Changes) -> None:
    times = 0
    async for _ in changes:
        times += 1
        if times == 2:
            break


_LEAVING = [_breaks, _raises, _returns, _is_cancelled, _closes_its_loop, _breaks_the_second_time]


@pytest.mark.parametrize("leave", _LEAVING)
async def test_a_loop_that_is_left_leaves_its_change_undone(leave: Callable[[Changes], Awaitable[object]]) -> None:
    changes = Changes()
    delivery = _delivery(changes, ONE, TWO)
    other = _delivery(changes, THREE)
    await asyncio.gather(asyncio.ensure_future(leave(changes)), return_exceptions=True)
    with pytest.raises(UnacknowledgedError):
        await delivery
    assert not other.done()
    assert await _returns(changes) is THREE
    with pytest.raises(UnacknowledgedError):
        await other


async def test_acknowledged_change_is_done_after_leaving_the_loop() -> None:
    changes = Changes()
    delivery = _delivery(changes, ONE)
    async for _ in changes:
        changes.acknowledge()
        break
    await delivery


async def test_acknowledging_a_part_of_a_batch_is_not_enough() -> None:
    changes = Changes()
    delivery = _delivery(changes, ONE, TWO)
    async for _ in changes:
        changes.acknowledge()
        break
    with pytest.raises(UnacknowledgedError):
        await delivery


async def test_a_cancelled_delivery_takes_its_changes_with_it() -> None:
    changes = Changes()
    first, second = _delivery(changes, ONE, TWO), _delivery(changes, THREE)
    loop = aiter(changes)
    assert await anext(loop) is ONE
    first.cancel()
    await asyncio.wait([first])
    assert await anext(loop) is THREE
    second.cancel()
    await asyncio.wait([second])
    third = _delivery(changes, TWO)
    assert await anext(loop) is TWO
    assert not third.done()
    await changes.aclose()
    with pytest.raises(ds.ClosedError):
        await third


async def test_asking_may_be_given_up_and_done_again() -> None:
    changes = Changes()
    loop = aiter(changes)
    for _ in range(2):
        asked = asyncio.ensure_future(anext(loop))
        await _settled()
        asked.cancel()
        await asyncio.wait([asked])
    delivery = _delivery(changes, ONE)
    assert await anext(loop) is ONE
    await changes.aclose()
    with pytest.raises(ds.ClosedError):
        await delivery


async def test_closing_wakes_both_sides() -> None:
    async with Changes() as changes:
        loop = aiter(changes)
        asked = asyncio.ensure_future(anext(loop))
        await _settled()
    with pytest.raises(StopAsyncIteration):
        await asked
    with pytest.raises(ds.ClosedError):
        await changes.deliver([ONE])
    await loop.aclose()
    assert [change async for change in changes] == []


async def test_closing_while_a_change_is_in_hand_leaves_it_undone() -> None:
    changes = Changes()
    delivery, waiting = _delivery(changes, ONE), _delivery(changes, TWO)
    async for _ in changes:
        await changes.aclose()
    for each in (delivery, waiting):
        with pytest.raises(ds.ClosedError):
            await each


async def test_there_is_one_loop_at_a_time() -> None:
    changes = Changes()
    loop = aiter(changes)
    with pytest.raises(RuntimeError, match="Another loop"):
        aiter(changes)
    asked = asyncio.ensure_future(anext(loop))
    await _settled()
    with pytest.raises(RuntimeError, match="already waits"):
        await anext(loop)
    asked.cancel()
    await asyncio.wait([asked])
    await loop.aclose()
    with pytest.raises(StopAsyncIteration):
        await anext(loop)
    aiter(changes)


async def test_no_changes_are_done_at_once() -> None:
    await Changes().deliver([])


async def test_a_loop_let_go_of_in_another_thread_is_left() -> None:
    changes = Changes()
    delivery = _delivery(changes, ONE)
    kept = [aiter(changes)]
    await anext(kept[0])
    thread = threading.Thread(target=kept.clear)
    thread.start()
    await asyncio.to_thread(thread.join)
    with pytest.raises(UnacknowledgedError):
        await delivery


def test_a_loop_that_outlives_its_event_loop_makes_no_noise() -> None:
    changes, kept = Changes(), list[object]()

    async def main() -> None:
        kept.append(aiter(changes))

    asyncio.run(main())
    thread = threading.Thread(target=kept.clear)
    thread.start()
    thread.join()
    gc.collect()


@pytest.mark.parametrize("turns", range(8))
async def test_interrupted_end_of_a_stream_hides_no_error(turns: int) -> None:
    changes, is_ending = Changes(), asyncio.Event()

    async def run() -> None:
        async with changes:
            await is_ending.wait()
            raise ds.ConfigurationError("no sink")

    stream = ChangeStream(changes, run)
    step = asyncio.create_task(anext(stream))
    await _settled()
    is_ending.set()
    for _ in range(turns):
        await asyncio.sleep(0)
    step.cancel()
    (result,) = await asyncio.gather(step, return_exceptions=True)
    if isinstance(result, asyncio.CancelledError):
        with pytest.raises(ds.ConfigurationError):
            await anext(stream)
    else:
        assert isinstance(result, ds.ConfigurationError)
