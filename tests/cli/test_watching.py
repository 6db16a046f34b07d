"""Messages that are watched at a terminal, at the length that it takes: how long, what is kept, and what ends it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest
from rich.console import Console

import directsuite as ds
from directsuite.cli.status import Watch, records_of
from directsuite.messaging.tracking import Delivery
from tests.integration.world import ALICE, BOB, PASSWORD
from tests.jobs.delivery.scene import Clinic, clinic

NEVER, SLOW = "nomdn@pharmacy.example.test", "slow+30m@hospital.example.test"
REFUSALS: list[Callable[[], ds.ServiceError]] = [
    lambda: ds.NotFoundError("not found", status=404),
    lambda: ds.BadRequestError("bad", status=400),
    lambda: ds.ServiceError("it is refused", status=200, code=4),
]


@pytest.fixture
async def stage() -> AsyncIterator[Clinic]:
    async with clinic() as opened:
        yield opened


async def watched(stage: Clinic, box: ds.Mailbox, smtp_ids: Sequence[str]) -> Watch:
    """These messages, watched to the end, on the suite's time."""
    known = (await stage.box.get_message_statuses(smtp_ids)).records
    watch = Watch(box=box, records={each: records_of(each, known) for each in smtp_ids}, clock=stage.time)
    await watch.run()
    return watch


def courses(watch: Watch) -> list[list[str]]:
    """The statuses of each message."""
    return [[str(record.status) for record in records] for records in watch.records.values()]


class Refusing(ds.Mailbox):
    """Raises what it is given when it is asked for one message, as often as it is told to."""

    def __init__(self, stage: Clinic, smtp_id: str, error: Callable[[], ds.DirectSuiteError], times: float) -> None:
        super().__init__(stage.box._transport, ALICE, PASSWORD)
        self.smtp_id, self.error, self.times = smtp_id, error, times

    async def get_message_status(
        self, smtp_id: str, *, timeout: float | None = None
    ) -> ds.DirectMessageStatusReportResponse:
        """Unless it is the one."""
        if smtp_id == self.smtp_id and self.times > 0:
            self.times -= 1
            raise self.error()
        return await super().get_message_status(smtp_id, timeout=timeout)


@pytest.mark.parametrize("refusal", REFUSALS, ids=["404", "400", "code 4"])
async def test_one_that_is_refused_for_a_quarter_of_an_hour_is_unknown_and_the_others_are_told(
    stage: Clinic, refusal: Callable[[], ds.ServiceError]
) -> None:
    smtp_id = await stage.send(BOB, SLOW)
    watch = await watched(stage, Refusing(stage, "<nobody@x.test>", refusal, 1e9), ["<nobody@x.test>", smtp_id])
    assert courses(watch) == [[], ["Remotely Failed", "Delivered"]]
    assert (watch.given_up, watch.failure) == ({"<nobody@x.test>"}, None)


async def test_one_that_is_refused_at_first_is_followed_to_its_end(stage: Clinic) -> None:
    smtp_id = await stage.send(SLOW)
    box = Refusing(stage, smtp_id, REFUSALS[0], 5)
    watch = Watch(box=box, records={smtp_id: []}, clock=stage.time)
    await watch.run()
    assert (courses(watch), watch.given_up, watch.failure) == ([["Delivered"]], set(), None)


async def test_one_that_is_unknown_is_waited_for_a_quarter_of_an_hour(stage: Clinic) -> None:
    watch = await watched(stage, stage.box, ["<nobody@x.test>"])
    assert courses(watch) == [[]]
    assert sum(stage.time.slept) == pytest.approx(900, abs=1)


async def test_a_recipient_who_shows_late_makes_it_two_hours_in_all_and_no_more(stage: Clinic) -> None:
    class Late(ds.Mailbox):
        """Shows one more recipient in the last look, who comes to no end."""

        async def track(self, smtp_id: str, **patience: Any) -> Delivery:
            """The first is over after 100 minutes."""
            if patience["recipients"] > 1:
                return await super().track(smtp_id, **patience)
            await stage.time.sleep(6_000)
            return Delivery(smtp_id=smtp_id, records=[ds.DirectMessageLog(message_id=smtp_id, to=BOB)])

        async def get_message_status(self, smtp_id: str, **timeout: Any) -> ds.DirectMessageStatusReportResponse:
            """Both, for ever."""
            both = [waiting(smtp_id, BOB), waiting(smtp_id, NEVER)]
            return ds.DirectMessageStatusReportResponse(success=True, message_logs=both)

        async def get_message_statuses(self, smtp_ids: Any, **timeout: Any) -> ds.DirectMessageStatusReportResponse:
            """Of one message."""
            return await self.get_message_status(*smtp_ids)

    watch = Watch(box=Late(stage.box._transport, ALICE, PASSWORD), records={"<1@x.test>": [waiting("<1@x.test>", BOB)]})
    watch.clock = stage.time
    began = stage.time.monotonic()
    await watch.run()
    assert stage.time.monotonic() - began == pytest.approx(7_200, abs=1)
    assert courses(watch) == [["Waiting", "Waiting"]]
    assert watch.given_up == {"<1@x.test>"}


async def test_one_that_is_given_up_is_followed_no_more_though_another_look_tells_more_of_it(stage: Clinic) -> None:
    class Sparse(ds.Mailbox):
        """Shows one recipient of two when it is asked for one message."""

        looks = 0

        async def get_message_status(self, smtp_id: str, **timeout: Any) -> ds.DirectMessageStatusReportResponse:
            """Who comes to no end."""
            self.looks += 1
            assert self.looks < 100
            return ds.DirectMessageStatusReportResponse(success=True, message_logs=[waiting(smtp_id, BOB)])

        async def get_message_statuses(self, smtp_ids: Any, **timeout: Any) -> ds.DirectMessageStatusReportResponse:
            """Both."""
            both = [waiting(each, address) for each in smtp_ids for address in (BOB, NEVER)]
            return ds.DirectMessageStatusReportResponse(success=True, message_logs=both)

    box = Sparse(stage.box._transport, ALICE, PASSWORD)
    watch = Watch(box=box, records={"<1@x.test>": [waiting("<1@x.test>", BOB)]}, clock=stage.time)
    await watch.run()
    assert courses(watch) == [["Waiting", "Waiting"]]
    assert watch.given_up == {"<1@x.test>"}
    assert sum(stage.time.slept) == pytest.approx(7_200, abs=1)


async def test_looks_that_fail_to_the_end_lose_neither_what_was_known_nor_the_others(stage: Clinic) -> None:
    waits, bounced = await stage.send(NEVER), await stage.send("bounce@elsewhere.test")
    box = Refusing(stage, waits, lambda: ds.ConnectionLostError("it is lost"), 1e9)
    watch = await watched(stage, box, [waits, bounced])
    assert courses(watch) == [["Waiting"], ["Remotely Failed"]]
    assert watch.given_up == {waits}
    assert isinstance(watch.failure, ds.ConnectionLostError)


async def test_what_a_refused_password_ends_keeps_what_was_known(stage: Clinic) -> None:
    waits, slow = await stage.send(NEVER), await stage.send(SLOW)
    denied = Refusing(stage, slow, lambda: ds.AuthenticationError("refused", status=401), 1e9)
    watch = await watched(stage, denied, [waits, slow])
    assert courses(watch) == [["Waiting"], ["Waiting"]]
    assert isinstance(watch.failure, ds.AuthenticationError)
    assert sum(stage.time.slept) <= 5
    assert stage.requests["GetMessageStatusMany"] == 1  # asked again and again, it might lock the mailbox


async def test_the_states_and_the_next_poll_are_shown_while_it_waits(stage: Clinic) -> None:
    slow, screens = await stage.send(SLOW), list[str]()
    console = Console(width=80)

    class Shown(ds.Mailbox):
        """Notes what is shown before each look."""

        async def get_message_status(self, smtp_id: str, **timeout: Any) -> ds.DirectMessageStatusReportResponse:
            screens.append("\n".join(line.rstrip() for line in watch.table(console).plain.splitlines()))
            return await super().get_message_status(smtp_id, **timeout)

    watch = Watch(box=Shown(stage.box._transport, ALICE, PASSWORD), records={slow: []}, clock=stage.time)
    await watch.run()
    assert "not known yet" in screens[0]
    assert screens[1].splitlines()[0].split() == ["to", "status", "details", "next", "poll", "in"]
    assert screens[1].splitlines()[1].split()[:2] == [SLOW, "Waiting"]
    assert screens[1].splitlines()[1].endswith(" 0 s")
    assert not watch.table(console).plain.splitlines()[1].endswith(" s")


def waiting(smtp_id: str, recipient: str) -> ds.DirectMessageLog:
    """A record of one who waits."""
    return ds.DirectMessageLog(message_id=smtp_id, to=recipient, status=ds.MessageStatus.WAITING)
