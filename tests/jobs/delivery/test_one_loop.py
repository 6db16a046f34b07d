"""One loop reads a mailbox's changes: another is refused, and told why, until the first has ended or was left."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from directsuite.jobs.delivery import AnotherLoopError
from tests.jobs.delivery.trackers import PROMPT, REFUSED, Scene, told
from tests.waiting import until


async def test_another_is_refused_while_one_makes_a_request(scene: Scene) -> None:
    async with scene.journal() as journal:
        tracker = scene.tracker(journal)
        await tracker.add(await scene.clinic.send(PROMPT))
        scene.clinic.sandbox.inject_fault("GetMessageStatusMany", "hang", times=1)
        loop = asyncio.create_task(anext(tracker.changes()))
        await until(lambda: scene.asked == 1)
        with pytest.raises(AnotherLoopError, match="aclose"):
            await anext(tracker.changes())
        loop.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await loop
        assert len(await told(tracker)) == 1


async def test_another_tracker_s_is_refused_while_one_waits(scene: Scene) -> None:
    async with scene.journal() as journal:
        scene.clinic.time.hold()
        loop = asyncio.create_task(anext(scene.tracker(journal).changes(endless=True)))
        await until(lambda: len(scene.clinic.time.slept) == 1)
        with pytest.raises(AnotherLoopError):
            await anext(scene.tracker(journal).changes())
        loop.cancel()
        await asyncio.wait([loop])


async def test_another_is_refused_while_one_is_in_its_body_which_goes_on(scene: Scene) -> None:
    async with scene.journal() as journal:
        tracker, recipients = scene.tracker(journal), list[str | None]()
        await tracker.add(await scene.clinic.send(PROMPT, REFUSED), recipients=2)
        async for change in tracker.changes():
            recipients.append(change.recipient)
            with pytest.raises(AnotherLoopError):
                await told(tracker)
        assert {*recipients} == {PROMPT, REFUSED}


async def test_one_that_is_left_by_break_is_in_nobody_s_way(scene: Scene) -> None:
    async with scene.journal() as journal:
        tracker = scene.tracker(journal)
        await tracker.add(await scene.clinic.send(PROMPT, REFUSED), recipients=2)
        keys = list[str]()
        for _ in range(2):
            async for change in tracker.changes():
                keys.append(change.id)
                break
        assert len({*keys}) == 1
        assert len(await told(tracker)) == 2


async def test_one_that_is_kept_is_in_the_way_until_it_is_closed(scene: Scene) -> None:
    async with scene.journal() as journal:
        tracker = scene.tracker(journal)
        await tracker.add(await scene.clinic.send(PROMPT))
        kept = tracker.changes()
        first = await anext(kept)
        with pytest.raises(AnotherLoopError):
            await told(tracker)
        await kept.aclose()
        assert [change.id for change in await told(tracker)] == [first.id]


async def test_of_two_that_begin_together_one_goes_on(scene: Scene) -> None:
    async with scene.journal() as journal:
        await scene.tracker(journal).add(await scene.clinic.send(PROMPT, REFUSED), recipients=2)
        loops = (told(scene.tracker(journal)) for _ in range(2))
        changes, refused = await asyncio.gather(*loops, return_exceptions=True)
        assert isinstance(changes, list)
        assert len(changes) == 2
        assert isinstance(refused, AnotherLoopError)
