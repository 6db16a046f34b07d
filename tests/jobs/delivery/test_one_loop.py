"""Only one loop at a time reads the changes of a mailbox. Another is rejected until the first has ended."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from directsuite.jobs.delivery import AnotherLoopError, DeliveryTracker
from tests.jobs.delivery.trackers import DELIVERED_RECIPIENT, REJECTED_RECIPIENT, TrackerFactory, collect_changes
from tests.waiting import wait_until


async def test_second_loop_is_rejected_during_a_request(tracker: DeliveryTracker, trackers: TrackerFactory) -> None:
    await tracker.add(await trackers.clinic.send(DELIVERED_RECIPIENT))
    trackers.clinic.sandbox.inject_fault("GetMessageStatusMany", "hang", times=1)
    loop = asyncio.create_task(anext(tracker.changes()))
    await wait_until(lambda: trackers.status_requests == 1)
    with pytest.raises(AnotherLoopError, match="aclose"):
        await anext(tracker.changes())
    loop.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await loop
    assert len(await collect_changes(tracker)) == 1


async def test_loop_of_another_tracker_is_rejected_while_one_waits(trackers: TrackerFactory) -> None:
    async with trackers.make_journal() as journal, trackers.wait_in_loop(trackers.make_tracker(journal)):
        with pytest.raises(AnotherLoopError):
            await anext(trackers.make_tracker(journal).changes())


async def test_second_loop_is_rejected_while_first_is_in_its_body(trackers: TrackerFactory) -> None:
    async with trackers.make_journal() as journal:
        tracker, recipients = trackers.make_tracker(journal), list[str | None]()
        await tracker.add(await trackers.clinic.send(DELIVERED_RECIPIENT, REJECTED_RECIPIENT), recipients=2)
        async for change in tracker.changes():
            recipients.append(change.recipient)
            with pytest.raises(AnotherLoopError):
                await collect_changes(tracker)
        assert {*recipients} == {DELIVERED_RECIPIENT, REJECTED_RECIPIENT}


async def test_loop_left_by_break_blocks_no_other(tracker: DeliveryTracker, trackers: TrackerFactory) -> None:
    await tracker.add(await trackers.clinic.send(DELIVERED_RECIPIENT, REJECTED_RECIPIENT), recipients=2)
    keys = list[str]()
    for _ in range(2):
        async for change in tracker.changes():
            keys.append(change.id)
            break
    assert len({*keys}) == 1
    assert len(await collect_changes(tracker)) == 2


async def test_referenced_loop_blocks_others_until_closed(tracker: DeliveryTracker, trackers: TrackerFactory) -> None:
    await tracker.add(await trackers.clinic.send(DELIVERED_RECIPIENT))
    kept = tracker.changes()
    first = await anext(kept)
    with pytest.raises(AnotherLoopError):
        await collect_changes(tracker)
    await kept.aclose()
    assert [change.id for change in await collect_changes(tracker)] == [first.id]


async def test_only_one_of_two_concurrent_loops_continues(trackers: TrackerFactory) -> None:
    async with trackers.make_journal() as journal:
        await trackers.make_tracker(journal).add(
            await trackers.clinic.send(DELIVERED_RECIPIENT, REJECTED_RECIPIENT), recipients=2
        )
        loops = (collect_changes(trackers.make_tracker(journal)) for _ in range(2))
        changes, refused = await asyncio.gather(*loops, return_exceptions=True)
        assert isinstance(changes, list)
        assert len(changes) == 2
        assert isinstance(refused, AnotherLoopError)
