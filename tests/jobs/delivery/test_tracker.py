"""Following many messages: which changes are reported, which are repeated, and which errors do not end it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta
from itertools import product
from typing import Any
from unittest import mock

import pytest

import directsuite as ds
from directsuite.jobs.delivery import DeliveryJournal, DeliveryJournalError, DeliveryTracker
from directsuite.jobs.delivery.journal import TrackedMessage
from directsuite.messaging.sending import DEFAULT_GIVE_UP_AFTER
from tests.integration.scenario import ALICE, BOB, PASSWORD
from tests.jobs.delivery.fragile_mailbox import make_fragile_mailbox
from tests.jobs.delivery.trackers import (
    DELIVERED_RECIPIENT,
    REJECTED_RECIPIENT,
    SLOW_RECIPIENT,
    UNCONFIRMED_RECIPIENT,
    TrackerFactory,
    collect_changes,
    list_statuses,
    read_first_change,
)
from tests.waiting import wait_until

NO_IDS = [None, "", "<>", " ", "<\ud800@x.test>", "<1\0@x.test>", "<1@x.test>\n", f"<{'1' * 2_000_000}@x.test>"]


async def test_changes_of_each_recipient_are_yielded_and_last_ends_message(
    tracker: DeliveryTracker, trackers: TrackerFactory
) -> None:
    smtp_id = await trackers.clinic.send(DELIVERED_RECIPIENT, SLOW_RECIPIENT, UNCONFIRMED_RECIPIENT, REJECTED_RECIPIENT)
    await tracker.add(smtp_id, recipients=4)
    assert await tracker.followed() == [smtp_id]
    changes = await collect_changes(tracker)
    assert list_statuses(changes, DELIVERED_RECIPIENT) == ["Delivered"]
    assert list_statuses(changes, SLOW_RECIPIENT) == ["Waiting", "Delivered"]
    assert list_statuses(changes, UNCONFIRMED_RECIPIENT) == ["Waiting", "NO MDN Received"]
    assert list_statuses(changes, REJECTED_RECIPIENT) == ["Locally Failed"]
    assert [change.ends_message for change in changes] == [False] * 5 + [True]
    assert {change.recipient for change in changes if change.is_end} == {
        DELIVERED_RECIPIENT,
        SLOW_RECIPIENT,
        UNCONFIRMED_RECIPIENT,
        REJECTED_RECIPIENT,
    }
    assert {change.recipient for change in changes if change.delivered} == {DELIVERED_RECIPIENT, SLOW_RECIPIENT}
    assert len({change.id for change in changes}) == 6
    assert {change.smtp_id for change in changes} == {smtp_id}
    assert not any(change.given_up for change in changes)
    assert trackers.status_requests == 11
    assert await tracker.followed() == []


async def test_loop_without_messages_ends_without_request(tracker: DeliveryTracker, trackers: TrackerFactory) -> None:
    assert await collect_changes(tracker) == []
    assert trackers.status_requests == 0


async def test_acknowledged_change_is_not_yielded_again(tracker: DeliveryTracker, trackers: TrackerFactory) -> None:
    await tracker.add(await trackers.clinic.send(DELIVERED_RECIPIENT))
    async for change in read_first_change(tracker):
        await tracker.acknowledge(change)
    assert await collect_changes(tracker) == []


@pytest.mark.parametrize("by_another", [False, True])
async def test_added_message_wakes_waiting_loop(by_another: bool, trackers: TrackerFactory) -> None:
    async with trackers.make_journal() as journal:
        tracker = trackers.make_tracker(journal)
        async with trackers.wait_in_loop(tracker):
            adding = trackers.make_tracker(journal) if by_another else tracker
            await adding.add(await trackers.clinic.send(DELIVERED_RECIPIENT))
            await wait_until(lambda: trackers.clinic.time.sleeps[1:] == [5])
        assert await trackers.make_tracker(journal, trackers.clinic.suite.mailbox(BOB, PASSWORD)).followed() == []


async def test_message_due_later_wakes_no_loop(tracker: DeliveryTracker, trackers: TrackerFactory) -> None:
    await tracker.add(await trackers.clinic.send(SLOW_RECIPIENT))
    async with trackers.wait_in_loop(tracker):
        trackers.clinic.sandbox.clock.advance(timedelta(seconds=4))
        for _ in range(3):
            await tracker.add(await trackers.clinic.send(DELIVERED_RECIPIENT))
        for _ in range(20):
            await asyncio.to_thread(lambda: None)
        assert trackers.clinic.time.sleeps == [5]


async def test_closing_suite_wakes_waiting_loop(tracker: DeliveryTracker, trackers: TrackerFactory) -> None:
    async with trackers.wait_in_loop(tracker) as loop:
        await trackers.clinic.suite.aclose()
        with pytest.raises(ds.ClosedError):
            await loop


async def test_failed_requests_are_retried_and_nothing_is_given_up(
    tracker: DeliveryTracker, trackers: TrackerFactory
) -> None:
    await tracker.add(await trackers.clinic.send(SLOW_RECIPIENT))
    trackers.clinic.sandbox.inject_fault("GetMessageStatusMany", "status", status=503, times=40)
    changes = await collect_changes(tracker)
    assert list_statuses(changes, SLOW_RECIPIENT) == ["Delivered"]
    assert sum(trackers.clinic.time.sleeps) > DEFAULT_GIVE_UP_AFTER


async def test_retry_after_is_respected(tracker: DeliveryTracker, trackers: TrackerFactory) -> None:
    await tracker.add(await trackers.clinic.send(DELIVERED_RECIPIENT))
    trackers.clinic.sandbox.inject_fault("GetMessageStatusMany", "status", status=429, retry_after=77)
    await collect_changes(tracker)
    assert sum(trackers.clinic.time.sleeps) == pytest.approx(82, abs=0.1)


async def test_retry_after_is_limited_to_an_hour(trackers: TrackerFactory) -> None:
    answers = [ds.RateLimitedError("it is too much", status=429, retry_after=86_400), None]

    def answer(smtp_ids: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
        if error := answers.pop(0):
            raise error
        return {smtp_id: {DELIVERED_RECIPIENT: "Delivered"} for smtp_id in smtp_ids}

    async with trackers.open_tracker(box=make_fragile_mailbox(trackers.clinic, answer)) as tracker:
        await tracker.add("<1@direct.example.test>")
        assert list_statuses(await collect_changes(tracker), DELIVERED_RECIPIENT) == ["Delivered"]
    assert sum(trackers.clinic.time.sleeps) == pytest.approx(3_605, abs=0.1)


async def test_unwritable_journal_ends_loop_and_loses_nothing(
    tracker: DeliveryTracker, trackers: TrackerFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    full_disk = DeliveryJournalError("The disk is full")
    await tracker.add(await trackers.clinic.send(DELIVERED_RECIPIENT))
    with monkeypatch.context() as full:
        full.setattr(DeliveryJournal, "record", mock.AsyncMock(side_effect=full_disk))
        with pytest.raises(DeliveryJournalError):
            await collect_changes(tracker)
    assert trackers.status_requests == 1
    assert list_statuses(await collect_changes(tracker), DELIVERED_RECIPIENT) == ["Delivered"]


async def test_rejected_password_ends_loop_and_loses_nothing(trackers: TrackerFactory) -> None:
    async with trackers.make_journal() as journal:
        tracker = trackers.make_tracker(journal, trackers.clinic.suite.mailbox(ALICE, "wrong"))
        await tracker.add(await trackers.clinic.send(DELIVERED_RECIPIENT))
        with pytest.raises(ds.AuthenticationError):
            await collect_changes(tracker)
        assert trackers.status_requests == 1
        assert len(await collect_changes(trackers.make_tracker(journal))) == 1


async def test_closing_suite_ends_loop(tracker: DeliveryTracker, trackers: TrackerFactory) -> None:
    await tracker.add(await trackers.clinic.send(UNCONFIRMED_RECIPIENT))
    await trackers.clinic.suite.aclose()
    with pytest.raises(ds.ClosedError):
        await collect_changes(tracker)
    assert len(await tracker.followed()) == 1


async def test_unknown_message_is_given_up_and_reported(tracker: DeliveryTracker, trackers: TrackerFactory) -> None:
    await tracker.add("<nothing@direct.example.test>")
    await tracker.add(await trackers.clinic.send(DELIVERED_RECIPIENT), recipients=2)
    changes = await collect_changes(tracker)
    assert [(change.recipient, change.status, change.given_up) for change in changes] == [
        (DELIVERED_RECIPIENT, ds.MessageStatus.DELIVERED, False),
        (None, None, True),
        (None, None, True),
    ]
    assert [change.ends_message for change in changes] == [False, True, True]
    assert sum(trackers.clinic.time.sleeps) == pytest.approx(DEFAULT_GIVE_UP_AFTER, abs=1)


async def test_waiting_message_is_given_up_with_its_last_status(trackers: TrackerFactory) -> None:
    async with trackers.open_tracker(give_up_after=600) as tracker:
        await tracker.add(await trackers.clinic.send(UNCONFIRMED_RECIPIENT))
        first, last = await collect_changes(tracker)
        assert (first.status, first.is_end, first.step) == (ds.MessageStatus.WAITING, False, 1)
        assert (last.status, last.is_end, last.step) == (ds.MessageStatus.WAITING, True, 2)
        assert last.given_up
        assert last.ends_message
        assert last.id != first.id


async def test_invalid_smtp_id_is_rejected(tracker: DeliveryTracker, trackers: TrackerFactory) -> None:
    follow: Any
    for follow, smtp_id in product((tracker.add, trackers.clinic.box.track), NO_IDS):
        with pytest.raises(ds.InvalidArgumentError):
            await follow(smtp_id)
    assert trackers.clinic.time.sleeps == []


async def test_tuser_mailbox_is_rejected(trackers: TrackerFactory) -> None:
    tuser: Any = trackers.clinic.suite.tuser("front-desk", PASSWORD, ALICE)
    async with trackers.make_journal() as journal:
        with pytest.raises(ds.InvalidArgumentError, match=r"tuser\.track") as refused:
            trackers.make_tracker(journal, tuser)
    assert refused.value.parameter == "mailbox"


async def test_adding_followed_message_does_not_reload_journal(
    trackers: TrackerFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with trackers.make_journal() as journal:
        tracker, followed, reads = trackers.make_tracker(journal), journal.load, list[str]()
        smtp_ids = [await trackers.clinic.send(SLOW_RECIPIENT) for _ in range(5)]
        for smtp_id in smtp_ids:
            await tracker.add(smtp_id)

        async def read(mailbox: str, now: float) -> list[TrackedMessage]:
            reads.append(mailbox)
            return await followed(mailbox, now)

        monkeypatch.setattr(journal, "load", read)
        async with trackers.wait_in_loop(tracker):
            for smtp_id in smtp_ids:
                await tracker.add(smtp_id)
                for _ in range(20):
                    await asyncio.to_thread(lambda: None)
            assert len(reads) == 1
            assert trackers.clinic.time.sleeps == [5]
