"""Watching messages on a terminal: how long, what is kept, and what ends it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest

import directsuite as ds
from directsuite.cli.status import DeliveryWatch, select_records
from directsuite.messaging.tracking import Delivery
from tests.integration.scenario import ALICE, BOB, PASSWORD
from tests.jobs.delivery.clinic import Clinic, open_clinic

NEVER, SLOW = "nomdn@pharmacy.example.test", "slow+30m@hospital.example.test"
REFUSALS: list[Callable[[], ds.ServiceError]] = [
    lambda: ds.NotFoundError("not found", status=404),
    lambda: ds.BadRequestError("bad", status=400),
    lambda: ds.ServiceError("it is refused", status=200, code=4),
]


@pytest.fixture
async def opened_clinic() -> AsyncIterator[Clinic]:
    async with open_clinic() as opened:
        yield opened


async def watched(stage: Clinic, box: ds.Mailbox, smtp_ids: Sequence[str]) -> DeliveryWatch:
    known = (await stage.box.get_message_statuses(smtp_ids)).records
    watch = DeliveryWatch(box=box, records={each: select_records(each, known) for each in smtp_ids}, clock=stage.time)
    await watch.run()
    return watch


def courses(watch: DeliveryWatch) -> list[list[str]]:
    return [[str(record.status) for record in records] for records in watch.records.values()]


class Refusing(ds.Mailbox):
    """Raises the error for a single message a number of times."""

    def __init__(self, stage: Clinic, smtp_id: str, error: Callable[[], ds.DirectSuiteError], times: float) -> None:
        super().__init__(stage.box._transport, ALICE, PASSWORD)
        self.smtp_id, self.error, self.times = smtp_id, error, times

    async def get_message_status(
        self, smtp_id: str, *, timeout: float | None = None
    ) -> ds.DirectMessageStatusReportResponse:
        if smtp_id == self.smtp_id and self.times > 0:
            self.times -= 1
            raise self.error()
        return await super().get_message_status(smtp_id, timeout=timeout)


@pytest.mark.parametrize("refusal", REFUSALS, ids=["404", "400", "code 4"])
async def test_message_rejected_for_15_minutes_is_given_up_alone(
    opened_clinic: Clinic, refusal: Callable[[], ds.ServiceError]
) -> None:
    smtp_id = await opened_clinic.send(BOB, SLOW)
    watch = await watched(
        opened_clinic, Refusing(opened_clinic, "<nobody@x.test>", refusal, 1e9), ["<nobody@x.test>", smtp_id]
    )
    assert courses(watch) == [[], ["Remotely Failed", "Delivered"]]
    assert (watch.given_up, watch.failure) == ({"<nobody@x.test>"}, None)


async def test_message_rejected_at_first_is_followed_to_its_end(opened_clinic: Clinic) -> None:
    smtp_id = await opened_clinic.send(SLOW)
    box = Refusing(opened_clinic, smtp_id, REFUSALS[0], 5)
    watch = DeliveryWatch(box=box, records={smtp_id: []}, clock=opened_clinic.time)
    await watch.run()
    assert (courses(watch), watch.given_up, watch.failure) == ([["Delivered"]], set(), None)


async def test_recipient_who_shows_late_makes_it_two_hours_in_all_and_no_more(opened_clinic: Clinic) -> None:
    class Late(ds.Mailbox):
        """Returns an additional recipient without a final status in the last poll."""

        async def track(self, smtp_id: str, **patience: Any) -> Delivery:
            if patience["recipients"] > 1:
                return await super().track(smtp_id, **patience)
            await opened_clinic.time.sleep(6_000)
            return Delivery(smtp_id=smtp_id, records=[ds.DirectMessageLog(message_id=smtp_id, to=BOB)])

        async def get_message_status(self, smtp_id: str, **timeout: Any) -> ds.DirectMessageStatusReportResponse:
            both = [waiting(smtp_id, BOB), waiting(smtp_id, NEVER)]
            return ds.DirectMessageStatusReportResponse(success=True, message_logs=both)

        async def get_message_statuses(self, smtp_ids: Any, **timeout: Any) -> ds.DirectMessageStatusReportResponse:
            return await self.get_message_status(*smtp_ids)

    watch = DeliveryWatch(
        box=Late(opened_clinic.box._transport, ALICE, PASSWORD), records={"<1@x.test>": [waiting("<1@x.test>", BOB)]}
    )
    watch.clock = opened_clinic.time
    began = opened_clinic.time.monotonic()
    await watch.run()
    assert opened_clinic.time.monotonic() - began == pytest.approx(7_200, abs=1)
    assert courses(watch) == [["Waiting", "Waiting"]]
    assert watch.given_up == {"<1@x.test>"}


async def test_given_up_message_is_not_followed_after_later_poll(opened_clinic: Clinic) -> None:
    class Sparse(ds.Mailbox):
        """Returns one of two recipients if a single message is requested."""

        looks = 0

        async def get_message_status(self, smtp_id: str, **timeout: Any) -> ds.DirectMessageStatusReportResponse:
            self.looks += 1
            assert self.looks < 100
            return ds.DirectMessageStatusReportResponse(success=True, message_logs=[waiting(smtp_id, BOB)])

        async def get_message_statuses(self, smtp_ids: Any, **timeout: Any) -> ds.DirectMessageStatusReportResponse:
            both = [waiting(each, address) for each in smtp_ids for address in (BOB, NEVER)]
            return ds.DirectMessageStatusReportResponse(success=True, message_logs=both)

    box = Sparse(opened_clinic.box._transport, ALICE, PASSWORD)
    watch = DeliveryWatch(box=box, records={"<1@x.test>": [waiting("<1@x.test>", BOB)]}, clock=opened_clinic.time)
    await watch.run()
    assert courses(watch) == [["Waiting", "Waiting"]]
    assert watch.given_up == {"<1@x.test>"}
    assert sum(opened_clinic.time.sleeps) == pytest.approx(7_200, abs=1)


async def test_failing_polls_keep_known_statuses_and_other_messages(opened_clinic: Clinic) -> None:
    waits, bounced = await opened_clinic.send(NEVER), await opened_clinic.send("bounce@elsewhere.test")
    box = Refusing(opened_clinic, waits, lambda: ds.ConnectionLostError("it is lost"), 1e9)
    watch = await watched(opened_clinic, box, [waits, bounced])
    assert courses(watch) == [["Waiting"], ["Remotely Failed"]]
    assert watch.given_up == {waits}
    assert isinstance(watch.failure, ds.ConnectionLostError)


async def test_rejected_password_keeps_known_statuses(opened_clinic: Clinic) -> None:
    waits, slow = await opened_clinic.send(NEVER), await opened_clinic.send(SLOW)
    denied = Refusing(opened_clinic, slow, lambda: ds.AuthenticationError("refused", status=401), 1e9)
    watch = await watched(opened_clinic, denied, [waits, slow])
    assert courses(watch) == [["Waiting"], ["Waiting"]]
    assert isinstance(watch.failure, ds.AuthenticationError)
    assert sum(opened_clinic.time.sleeps) <= 5
    assert opened_clinic.request_counts["GetMessageStatusMany"] == 1  # repeated attempts might lock the mailbox


def waiting(smtp_id: str, recipient: str) -> ds.DirectMessageLog:
    return ds.DirectMessageLog(message_id=smtp_id, to=recipient, status=ds.MessageStatus.WAITING)
