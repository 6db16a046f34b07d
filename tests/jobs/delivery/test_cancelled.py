"""Cancellation of `add` and of the loop just after a commit of the journal: nothing is lost or reported twice."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from directsuite.jobs.delivery import DeliveryChange, DeliveryJournal
from tests.jobs.delivery.trackers import (
    DELIVERED_RECIPIENT,
    UNCONFIRMED_RECIPIENT,
    TrackerFactory,
    collect_changes,
    list_statuses,
)
from tests.waiting import wait_until


async def test_committed_add_is_followed_though_cancelled(
    trackers: TrackerFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with trackers.make_journal() as journal:
        tracker = trackers.make_tracker(journal)
        assert await collect_changes(tracker) == []
        smtp_id = await trackers.clinic.send(DELIVERED_RECIPIENT)
        cancel_after(journal, "add", monkeypatch)
        await cancelled(tracker.add(smtp_id))
        await tracker.add(smtp_id)
        assert list_statuses(await collect_changes(tracker), DELIVERED_RECIPIENT) == ["Delivered"]


async def test_committed_add_wakes_waiting_loop_though_cancelled(
    trackers: TrackerFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with trackers.make_journal() as journal:
        tracker = trackers.make_tracker(journal)
        trackers.clinic.time.hold()
        loop = asyncio.create_task(anext(tracker.changes(endless=True)))
        await wait_until(lambda: len(trackers.clinic.time.sleeps) == 1)
        smtp_id = await trackers.clinic.send(DELIVERED_RECIPIENT)
        cancel_after(journal, "add", monkeypatch)
        await cancelled(tracker.add(smtp_id))
        async with asyncio.timeout(5):
            assert (await loop).smtp_id == smtp_id


@pytest.mark.parametrize(
    ("recipient", "statuses"),
    [(DELIVERED_RECIPIENT, ["Delivered"]), (UNCONFIRMED_RECIPIENT, ["Waiting", "NO MDN Received"])],
)
async def test_change_committed_while_loop_is_cancelled_is_yielded_once(
    recipient: str, statuses: list[str], trackers: TrackerFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with trackers.make_journal() as journal:
        tracker = trackers.make_tracker(journal)
        await tracker.add(await trackers.clinic.send(recipient))
        cancel_after(journal, "record", monkeypatch)
        await cancelled(collect_changes(tracker))
        assert list_statuses(await collect_changes(tracker), recipient) == statuses
        assert await collect_changes(tracker) == []


async def test_committed_add_during_read_keeps_loop_running(
    trackers: TrackerFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with trackers.make_journal() as journal:
        tracker, pending, reads = trackers.make_tracker(journal), journal.list_pending, list[None]()
        smtp_id = await trackers.clinic.send(DELIVERED_RECIPIENT)

        async def read(mailbox: str, most: int) -> list[DeliveryChange]:
            changes = await pending(mailbox, most)
            reads.append(None)
            if len(reads) == 1:
                with monkeypatch.context() as cut:
                    cancel_after(journal, "add", cut)
                    await cancelled(tracker.add(smtp_id))
            return changes

        with monkeypatch.context() as slow:
            slow.setattr(journal, "list_pending", read)
            assert list_statuses(await collect_changes(tracker), DELIVERED_RECIPIENT) == ["Delivered"]


def cancel_after(journal: DeliveryJournal, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cancel the task that next calls this method, just after the commit."""
    work = getattr(journal, method)

    async def cut(*values: Any, **named: Any) -> None:
        await work(*values, **named)
        monkeypatch.undo()
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    monkeypatch.setattr(journal, method, cut)


async def cancelled(work: Coroutine[Any, Any, object]) -> None:
    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(work)
