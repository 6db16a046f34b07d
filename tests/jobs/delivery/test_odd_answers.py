"""Answers as no two services write them: other messages' records, several for a recipient, other cases and blanks."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import directsuite as ds
from directsuite.jobs.delivery import DeliveryChange
from tests.integration.world import ALICE, PASSWORD
from tests.jobs.delivery.trackers import NEVER, PROMPT, SLOW, Scene, told

SMTP_ID = "<One@direct.example.test>"
NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
LATER = NOON + timedelta(minutes=1)


def log(to: str | None, status: str, smtp_id: str | None = SMTP_ID, ts: datetime | None = None) -> ds.DirectMessageLog:
    """A record."""
    return ds.DirectMessageLog(message_id=smtp_id, to=to, status=ds.MessageStatus(status), ts=ts)


class Odd(ds.Mailbox):
    """A mailbox that is told these records, whatever it asks for."""

    records: Sequence[ds.DirectMessageLog]

    async def get_message_status(self, smtp_id: str, **timeout: Any) -> ds.DirectMessageStatusReportResponse:
        """All of them."""
        return ds.DirectMessageStatusReportResponse(success=True, message_logs=list(self.records))

    async def get_message_statuses(self, smtp_ids: Any, **timeout: Any) -> ds.DirectMessageStatusReportResponse:
        """All of them."""
        return await self.get_message_status("")


def odd(scene: Scene, *records: ds.DirectMessageLog) -> Odd:
    """Such a mailbox."""
    box = Odd(scene.clinic.box._transport, ALICE, PASSWORD)
    box.records = records
    return box


async def outcomes(scene: Scene, box: Odd, recipients: Any = 1) -> tuple[ds.Delivery, Sequence[DeliveryChange]]:
    """What becomes of the message, looked at alone and by a tracker."""
    delivery = await box.track(SMTP_ID, recipients=recipients, give_up_after=60)
    async with scene.journal() as journal:
        tracker = scene.tracker(journal, box, give_up_after=60)
        await tracker.add(SMTP_ID, recipients=recipients)
        return delivery, await told(tracker)


@pytest.mark.parametrize(
    "recipients",
    [[PROMPT, PROMPT.upper()], [ds.Recipient(PROMPT), ds.Recipient(PROMPT.title(), ds.RecipientType.CC)], {PROMPT}],
)
@pytest.mark.parametrize("records", [1, 2])
async def test_a_recipient_who_is_named_twice_is_one(recipients: object, records: int, scene: Scene) -> None:
    box = odd(scene, *[log(PROMPT, "Delivered")] * records)
    delivery, changes = await outcomes(scene, box, recipients)
    assert delivery.delivered
    assert [(change.delivered, change.ends_message) for change in changes] == [(True, True)]


@pytest.mark.parametrize(
    ("recipients", "named"),
    [
        *((each, "recipients") for each in ([], "bob@x.test", [5], None, 0)),
        (["bob"], "recipients[0]"),
        ({"bob@x.test": 1, "carol": 2}, "recipients[1]"),
    ],
)
async def test_what_are_no_recipients_is_refused(recipients: Any, named: str, scene: Scene) -> None:
    async with scene.journal() as journal:
        for follow in (scene.clinic.box.track, scene.tracker(journal).add):
            with pytest.raises(ds.InvalidArgumentError) as refused:
                await follow(SMTP_ID, recipients=recipients)
            assert refused.value.parameter == named


async def test_another_message_s_end_is_not_believed(scene: Scene) -> None:
    box = odd(scene, log(PROMPT, "Delivered", "<2@direct.example.test>"))
    delivery, changes = await outcomes(scene, box)
    assert (delivery.given_up, list(delivery.records)) == (True, [])
    assert [(change.recipient, change.given_up) for change in changes] == [(None, True)]


async def test_of_several_messages_each_is_known_in_any_case(scene: Scene) -> None:
    smtp_ids = SMTP_ID, "<Two@direct.example.test>"
    box = odd(scene, *(log(PROMPT, "Delivered", smtp_id.upper()) for smtp_id in smtp_ids))
    async with scene.journal() as journal:
        tracker = scene.tracker(journal, box, give_up_after=60)
        for smtp_id in (*smtp_ids, SMTP_ID.lower()):
            await tracker.add(smtp_id)
        assert [(change.smtp_id, change.delivered) for change in await told(tracker)] == [
            (smtp_id, True) for smtp_id in smtp_ids
        ]


@pytest.mark.parametrize("smtp_id", [None, "", "one@direct.example.test", " <ONE@direct.example.test> "])
async def test_an_end_is_believed_of_one_that_is_not_named_or_is_in_another_case(
    smtp_id: str | None, scene: Scene
) -> None:
    delivery, changes = await outcomes(scene, odd(scene, log(PROMPT, "Delivered", smtp_id)))
    assert delivery.delivered
    assert [change.delivered for change in changes] == [True]


@pytest.mark.parametrize("reverse", [False, True])
async def test_of_several_records_the_latest_counts(reverse: bool, scene: Scene) -> None:
    records = [log(SLOW, "Waiting", ts=NOON), log(SLOW.upper(), "Delivered", ts=LATER)]
    delivery, changes = await outcomes(scene, odd(scene, *(records[::-1] if reverse else records)))
    assert delivery.delivered
    assert delivery.records[0].ts == LATER
    assert [change.delivered for change in changes] == [True]


@pytest.mark.parametrize("times", [(NOON, NOON), (None, LATER), (LATER, None)])
async def test_of_several_records_that_time_does_not_tell_apart_an_open_one_counts(
    times: tuple[datetime | None, datetime | None], scene: Scene
) -> None:
    box = odd(scene, *(log(SLOW, status, ts=ts) for status, ts in zip(("Delivered", "Waiting"), times, strict=True)))
    delivery, _ = await outcomes(scene, box)
    assert delivery.given_up


@pytest.mark.parametrize("status", ["delivered", " Delivered ", "DELIVERED"])
async def test_delivered_is_that_in_any_case_and_between_blanks(status: str, scene: Scene) -> None:
    delivery, changes = await outcomes(scene, odd(scene, log(f" {PROMPT}", status)))
    assert delivery.delivered
    assert [(change.delivered, change.is_end, change.status) for change in changes] == [(True, True, status)]


async def test_a_failure_in_another_case_is_an_end_and_no_delivery(scene: Scene) -> None:
    delivery, changes = await outcomes(scene, odd(scene, log(NEVER, "no mdn received")))
    assert (delivery.delivered, delivery.given_up) == (False, False)
    assert [(change.delivered, change.is_end, change.given_up) for change in changes] == [(False, True, False)]


async def test_patience_is_that_of_the_tracker_that_added(scene: Scene) -> None:
    box = odd(scene, log(NEVER, "Waiting"))
    async with scene.journal() as journal:
        await scene.tracker(journal, box, give_up_after=86_400).add(SMTP_ID)
        assert [change.given_up for change in await told(scene.tracker(journal, box))] == [False, True]
    assert sum(scene.clinic.time.slept) == pytest.approx(86_400, abs=1)
