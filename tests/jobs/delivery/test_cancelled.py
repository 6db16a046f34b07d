"""Cancellation of `add` and of the loop just after a commit of the journal: nothing is lost or reported twice."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from directsuite.jobs.delivery import DeliveryChange, DeliveryJournal, DeliveryTracker
from tests.jobs.delivery.trackers import (
    DELIVERED_RECIPIENT,
    UNCONFIRMED_RECIPIENT,
    TrackerFactory,
    collect_changes,
    list_statuses,
)


async def test_committed_add_is_followed_though_cancelled(
    tracker: DeliveryTracker, trackers: TrackerFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await collect_changes(tracker) == []
    smtp_id = await trackers.clinic.send(DELIVERED_RECIPIENT)
    cancel_after("add", monkeypatch)
    await cancelled(tracker.add(smtp_id))
    await tracker.add(smtp_id)
    assert list_statuses(await collect_changes(tracker), DELIVERED_RECIPIENT) == ["Delivered"]


async def test_committed_add_wakes_waiting_loop_though_cancelled(
    tracker: DeliveryTracker, trackers: TrackerFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with trackers.wait_in_loop(tracker) as loop:
        smtp_id = await trackers.clinic.send(DELIVERED_RECIPIENT)
        cancel_after("add", monkeypatch)
        await cancelled(tracker.add(smtp_id))
        async with asyncio.timeout(5):
            assert (await loop).smtp_id == smtp_id


@pytest.mark.parametrize(
    ("recipient", "statuses"),
    [(DELIVERED_RECIPIENT, ["Delivered"]), (UNCONFIRMED_RECIPIENT, ["Waiting", "NO MDN Received"])],
)
async def test_change_committed_while_loop_is_cancelled_is_yielded_once(
    recipient: str,
    statuses: list[str],
    tracker: DeliveryTracker,
    trackers: TrackerFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await tracker.add(await trackers.clinic.send(recipient))
    cancel_after("record", monkeypatch)
    await cancelled(collect_changes(tracker))
    assert list_statuses(await collect_changes(tracker), recipient) == statuses
    assert await collect_changes(tracker) == []


async def test_committed_add_during_read_keeps_loop_running(
    tracker: DeliveryTracker, trackers: TrackerFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    pending, reads = DeliveryJournal.list_pending, list[None]()
    smtp_id = await trackers.clinic.send(DELIVERED_RECIPIENT)

    async def read(journal: DeliveryJournal, mailbox: str, most: int) -> list[DeliveryChange]:
        changes = await pending(journal, mailbox, most)
        reads.append(None)
        if len(reads) == 1:
            with monkeypatch.context() as cut:
                cancel_after("add", cut)
                await cancelled(tracker.add(smtp_id))
        return changes

    monkeypatch.setattr(DeliveryJournal, "list_pending", read)
    assert list_statuses(await collect_changes(tracker), DELIVERED_RECIPIENT) == ["Delivered"]


def cancel_after(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cancel the task that next calls this method of the journal, just after the commit."""
    work = getattr(DeliveryJournal, method)

    async def cut(*values: Any, **named: Any) -> None:
        await work(*values, **named)
        monkeypatch.undo()
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    monkeypatch.setattr(DeliveryJournal, method, cut)


async def cancelled(work: Coroutine[Any, Any, object]) -> None:
    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(work)
