"""The loop over changes: a delivery returns when the loop has requested the change after its last one."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

import pytest

import directsuite as ds
from directsuite.sync.commits import Deliver
from directsuite.sync.model import Change, SinkError
from directsuite.sync.sinks.iterator import ChangeStream
from tests.sync.sinks.sample_changes import make_key, make_new

ONE, TWO, THREE = (make_new(make_key(number), number) for number in (1, 2, 3))


class Deliveries:
    def __init__(self, *batches: Sequence[Change]) -> None:
        self._batches = batches
        self.results = dict[int, str]()
        self.tasks = list[asyncio.Task[None]]()
        self.stream = ChangeStream(self._run)

    async def _run(self, deliver: Deliver) -> None:
        self.tasks = [asyncio.create_task(self._deliver(deliver, number)) for number in range(len(self._batches))]
        try:
            await asyncio.Event().wait()
        finally:
            for task in self.tasks:
                task.cancel()
            await asyncio.gather(*self.tasks, return_exceptions=True)

    async def _deliver(self, deliver: Deliver, number: int) -> None:
        try:
            await deliver(self._batches[number])
        except SinkError:
            self.results[number] = "refused"
        except asyncio.CancelledError:
            self.results[number] = "cancelled"
            raise
        else:
            self.results[number] = "done"


async def yield_often() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_requesting_the_next_change_ends_a_delivery() -> None:
    deliveries = Deliveries([], [ONE, TWO], [THREE])
    async with deliveries.stream as stream:
        assert [await anext(stream), await anext(stream)] == [ONE, TWO]
        await yield_often()
        assert deliveries.results == {0: "done"}
        assert await anext(stream) is THREE
        await yield_often()
        assert deliveries.results == {0: "done", 1: "done"}
    assert deliveries.results == {0: "done", 1: "done", 2: "cancelled"}


@pytest.mark.parametrize("count", [1, 2])
async def test_left_loop_leaves_its_batch_undone(count: int) -> None:
    deliveries = Deliveries([ONE, TWO], [THREE])
    with contextlib.suppress(KeyError):
        async with deliveries.stream as stream:
            async for _ in stream:
                count -= 1
                if not count:
                    raise KeyError
    assert deliveries.results == {0: "cancelled", 1: "cancelled"}


async def test_refused_batch_is_followed_by_the_next() -> None:
    deliveries = Deliveries([ONE, TWO], [THREE])
    async with deliveries.stream as stream:
        stream.refuse()  # no change was returned yet
        assert await anext(stream) is ONE
        stream.refuse()
        stream.refuse()
        assert await anext(stream) is THREE
        await yield_often()
        assert deliveries.results == {0: "refused"}


async def test_cancelled_delivery_is_skipped() -> None:
    deliveries = Deliveries([ONE, TWO], [THREE])
    async with deliveries.stream as stream:
        assert await anext(stream) is ONE
        deliveries.tasks[0].cancel()
        await asyncio.wait(deliveries.tasks[:1])
        assert await anext(stream) is THREE
        waiting = asyncio.ensure_future(anext(stream))
        await yield_often()
        assert deliveries.results == {0: "cancelled", 1: "done"}
        with pytest.raises(RuntimeError, match="already waits"):
            await anext(stream)
    with pytest.raises(StopAsyncIteration):
        await waiting


@pytest.mark.parametrize("turns", range(8))
async def test_interrupted_end_of_a_stream_hides_no_error(turns: int) -> None:
    is_ending = asyncio.Event()

    async def run(_: Deliver) -> None:
        await is_ending.wait()
        raise ds.ConfigurationError("no sink")

    stream = ChangeStream(run)
    step = asyncio.create_task(anext(stream))
    await yield_often()
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
