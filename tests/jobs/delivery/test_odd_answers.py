"""Unusual responses: records of other messages, several per recipient, other letter case and blanks."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import directsuite as ds
from directsuite.jobs.delivery import DeliveryChange, DeliveryTracker
from tests.jobs.delivery.fragile_mailbox import RepeatingMailbox, make_log, make_repeating_mailbox
from tests.jobs.delivery.trackers import (
    DELIVERED_RECIPIENT,
    SLOW_RECIPIENT,
    UNCONFIRMED_RECIPIENT,
    TrackerFactory,
    collect_changes,
)

SMTP_ID = "<One@direct.example.test>"
NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
LATER = NOON + timedelta(minutes=1)


def log(to: str | None, status: str, smtp_id: str | None = SMTP_ID, ts: datetime | None = None) -> ds.DirectMessageLog:
    return make_log(to, status, smtp_id, ts)


def odd(scene: TrackerFactory, *records: ds.DirectMessageLog) -> RepeatingMailbox:
    return make_repeating_mailbox(scene.clinic, records)


async def outcomes(
    scene: TrackerFactory, *records: ds.DirectMessageLog, recipients: Any = 1
) -> tuple[ds.Delivery, Sequence[DeliveryChange]]:
    """Return the results for a message that is followed alone, and by a tracker."""
    box = odd(scene, *records)
    delivery = await box.track(SMTP_ID, recipients=recipients, give_up_after=60)
    async with scene.open_tracker(box, give_up_after=60) as tracker:
        await tracker.add(SMTP_ID, recipients=recipients)
        return delivery, await collect_changes(tracker)


@pytest.mark.exhaustive(limit=2)
@pytest.mark.parametrize(
    "recipients",
    [
        [DELIVERED_RECIPIENT, DELIVERED_RECIPIENT.upper()],
        [ds.Recipient(DELIVERED_RECIPIENT), ds.Recipient(DELIVERED_RECIPIENT.title(), ds.RecipientType.CC)],
        {DELIVERED_RECIPIENT},
    ],
)
@pytest.mark.parametrize("records", [1, 2])
async def test_duplicate_recipient_counts_once(recipients: object, records: int, trackers: TrackerFactory) -> None:
    logs = [log(DELIVERED_RECIPIENT, "Delivered")] * records
    delivery, changes = await outcomes(trackers, *logs, recipients=recipients)
    assert delivery.delivered
    assert [(change.delivered, change.ends_message) for change in changes] == [(True, True)]


async def test_invalid_recipients_are_rejected(tracker: DeliveryTracker) -> None:
    invalid: list[Any] = [[], "bob@x.test", [5], None, 0, ["bob"], {"bob@x.test": 1, "carol": 2}]
    for follow in (tracker.mailbox.track, tracker.add):
        named = list[str | None]()
        for recipients in invalid:
            with pytest.raises(ds.InvalidArgumentError) as refused:
                await follow(SMTP_ID, recipients=recipients)
            named.append(refused.value.parameter)
        assert named == [*["recipients"] * 5, "recipients[0]", "recipients[1]"]


async def test_final_status_of_another_message_is_ignored(trackers: TrackerFactory) -> None:
    delivery, changes = await outcomes(trackers, log(DELIVERED_RECIPIENT, "Delivered", "<2@direct.example.test>"))
    assert (delivery.given_up, list(delivery.records)) == (True, [])
    assert [(change.recipient, change.given_up) for change in changes] == [(None, True)]


async def test_records_are_matched_ignoring_case(trackers: TrackerFactory) -> None:
    smtp_ids = SMTP_ID, "<Two@direct.example.test>"
    box = odd(trackers, *(log(DELIVERED_RECIPIENT, "Delivered", smtp_id.upper()) for smtp_id in smtp_ids))
    async with trackers.open_tracker(box, give_up_after=60) as tracker:
        for smtp_id in (*smtp_ids, SMTP_ID.lower()):
            await tracker.add(smtp_id)
        assert [(change.smtp_id, change.delivered) for change in await collect_changes(tracker)] == [
            (smtp_id, True) for smtp_id in smtp_ids
        ]


@pytest.mark.parametrize("smtp_id", [None, "", "one@direct.example.test", " <ONE@direct.example.test> "])
@pytest.mark.parametrize("status", ["delivered", " Delivered ", "DELIVERED"])
@pytest.mark.exhaustive(limit=3)
async def test_delivered_ignores_case_and_blanks_and_needs_no_id(
    smtp_id: str | None, status: str, trackers: TrackerFactory
) -> None:
    delivery, changes = await outcomes(trackers, log(f" {DELIVERED_RECIPIENT}", status, smtp_id))
    assert delivery.delivered
    assert [(change.delivered, change.is_end, change.status) for change in changes] == [(True, True, status)]


@pytest.mark.parametrize("reverse", [False, True])
async def test_latest_record_of_a_recipient_counts(reverse: bool, trackers: TrackerFactory) -> None:
    records = [log(SLOW_RECIPIENT, "Waiting", ts=NOON), log(SLOW_RECIPIENT.upper(), "Delivered", ts=LATER)]
    delivery, changes = await outcomes(trackers, *(records[::-1] if reverse else records))
    assert delivery.delivered
    assert delivery.records[0].ts == LATER
    assert [change.delivered for change in changes] == [True]


@pytest.mark.parametrize("times", [(NOON, NOON), (None, LATER), (LATER, None)])
async def test_open_record_wins_if_times_do_not_order_records(
    times: tuple[datetime | None, datetime | None], trackers: TrackerFactory
) -> None:
    records = zip(("Delivered", "Waiting"), times, strict=True)
    delivery, _ = await outcomes(trackers, *(log(SLOW_RECIPIENT, status, ts=ts) for status, ts in records))
    assert delivery.given_up


async def test_failed_status_in_another_case_is_final(trackers: TrackerFactory) -> None:
    delivery, changes = await outcomes(trackers, log(UNCONFIRMED_RECIPIENT, "no mdn received"))
    assert (delivery.delivered, delivery.given_up) == (False, False)
    assert [(change.delivered, change.is_end, change.given_up) for change in changes] == [(False, True, False)]


async def test_give_up_after_is_that_of_the_adding_tracker(trackers: TrackerFactory) -> None:
    box = odd(trackers, log(UNCONFIRMED_RECIPIENT, "Waiting"))
    async with trackers.make_journal() as journal:
        await trackers.make_tracker(journal, box, give_up_after=14_400).add(SMTP_ID)
        changes = await collect_changes(trackers.make_tracker(journal, box))
    assert [change.given_up for change in changes] == [False, True]
    assert sum(trackers.clinic.time.sleeps) == pytest.approx(14_400, abs=1)
