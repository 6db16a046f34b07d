"""Adding and looping, cancelled just after the journal has committed: nothing is lost, or told twice."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from directsuite.jobs.delivery import DeliveryChange, Journal
from tests.jobs.delivery.trackers import NEVER, PROMPT, Scene, course, told
from tests.waiting import until


async def test_one_whose_adding_was_cancelled_after_its_commit_is_followed(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scene.journal() as journal:
        tracker = scene.tracker(journal)
        assert await told(tracker) == []
        smtp_id = await scene.clinic.send(PROMPT)
        cancel_after(journal, "add", monkeypatch)
        await cancelled(tracker.add(smtp_id))
        await tracker.add(smtp_id)
        assert course(await told(tracker), PROMPT) == ["Delivered"]


async def test_one_whose_adding_was_cancelled_after_its_commit_wakes_a_loop_that_waits(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scene.journal() as journal:
        tracker = scene.tracker(journal)
        scene.clinic.time.hold()
        loop = asyncio.create_task(anext(tracker.changes(endless=True)))
        await until(lambda: len(scene.clinic.time.slept) == 1)
        smtp_id = await scene.clinic.send(PROMPT)
        cancel_after(journal, "add", monkeypatch)
        await cancelled(tracker.add(smtp_id))
        async with asyncio.timeout(5):
            assert (await loop).smtp_id == smtp_id


async def test_a_change_that_was_noted_as_its_loop_was_cancelled_is_told_once(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scene.journal() as journal:
        tracker = scene.tracker(journal)
        await tracker.add(await scene.clinic.send(PROMPT))
        cancel_after(journal, "record", monkeypatch)
        await cancelled(told(tracker))
        assert course(await told(tracker), PROMPT) == ["Delivered"]
        assert await told(tracker) == []


async def test_a_status_that_was_noted_as_its_loop_was_cancelled_is_told_once(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scene.journal() as journal:
        tracker = scene.tracker(journal)
        await tracker.add(await scene.clinic.send(NEVER))
        cancel_after(journal, "record", monkeypatch)
        await cancelled(told(tracker))
        assert course(await told(tracker), NEVER) == ["Waiting", "NO MDN Received"]


async def test_one_whose_adding_was_cancelled_while_changes_were_read_does_not_end_the_loop(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scene.journal() as journal:
        tracker, pending, reads = scene.tracker(journal), journal.records.pending, list[None]()
        smtp_id = await scene.clinic.send(PROMPT)

        async def read(mailbox: str, most: int) -> list[DeliveryChange]:
            """With that, the first time."""
            changes = await pending(mailbox, most)
            reads.append(None)
            if len(reads) == 1:
                with monkeypatch.context() as cut:
                    cancel_after(journal, "add", cut)
                    await cancelled(tracker.add(smtp_id))
            return changes

        with monkeypatch.context() as slow:
            slow.setattr(journal.records, "pending", read)
            assert course(await told(tracker), PROMPT) == ["Delivered"]


def cancel_after(journal: Journal, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the task that next calls this method cancelled just after the commit."""
    work = getattr(journal.records, method)

    async def cut(*values: Any, **named: Any) -> None:
        await work(*values, **named)
        monkeypatch.undo()
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    monkeypatch.setattr(journal.records, method, cut)


async def cancelled(work: Coroutine[Any, Any, object]) -> None:
    """Until it is."""
    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(work)
