"""One message, followed to its end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

import directsuite as ds
from directsuite.messaging.tracking import BACKOFF, GIVE_UP_AFTER, next_poll
from tests.integration.world import ALICE, PASSWORD
from tests.jobs.delivery.scene import Clinic, clinic

SLOW, NEVER = "slow+30m@hospital.example.test", "nomdn@pharmacy.example.test"
PROMPT, BOUNCED = "deliver@hospital.example.test", "bounce+10s@hospital.example.test"


@pytest.fixture
async def stage() -> AsyncIterator[Clinic]:
    async with clinic() as opened:
        yield opened


def looks(give_up_after: float = GIVE_UP_AFTER) -> list[float]:
    """The ages at which a message is looked at that comes to no end."""
    ages = [0.0]
    while ages[-1] < give_up_after:
        ages.append(next_poll(ages[-1], give_up_after).latest)
    return ages[1:]


def test_looks_double_their_distance_up_to_the_hour_and_again_from_there() -> None:
    assert looks() == [5, 10, 20, 40, 80, 160, 320, 640, 1280, 2560, 3660, 3720, 3840, 4080, 4560, 5520, 7200]
    assert looks(30) == [5, 10, 20, 30]


@given(age=st.floats(0, 20_000), give_up_after=st.floats(0.1, 20_000))
def test_the_next_poll_is_ahead_and_none_is_after_the_last(age: float, give_up_after: float) -> None:
    window = next_poll(age, give_up_after)
    assert window.earliest <= window.latest <= max(age, give_up_after)
    assert window.latest > age or age >= give_up_after


@given(delivered_after=st.floats(5, 3_600))
def test_what_has_happened_is_seen_before_as_long_has_passed_again(delivered_after: float) -> None:
    assert next(age for age in looks() if age >= delivered_after) <= 2 * delivered_after


def test_pauses_grow_and_a_service_s_own_word_counts() -> None:
    assert [BACKOFF.after(failures) for failures in (1, 2, 3, 7, 100)] == [5, 10, 20, 300, 300]
    assert BACKOFF.after(1, 42.0) == 42
    assert BACKOFF.after(1, 86_400.0) == 3_600


async def test_one_that_is_delivered_takes_one_look(stage: Clinic) -> None:
    delivery = await stage.box.track(await stage.send(PROMPT))
    assert delivery.delivered
    assert not delivery.given_up
    assert [record.to for record in delivery.records] == [PROMPT]
    assert stage.requests["GetMessageStatus"] == 1
    assert stage.time.slept == []


async def test_recipients_reach_their_ends_one_by_one(stage: Clinic) -> None:
    delivery = await stage.box.track(await stage.send(PROMPT, SLOW, NEVER, BOUNCED), recipients=4)
    assert {record.to: record.status for record in delivery.records} == {
        PROMPT: ds.MessageStatus.DELIVERED,
        SLOW: ds.MessageStatus.DELIVERED,
        NEVER: ds.MessageStatus.NO_MDN_RECEIVED,
        BOUNCED: ds.MessageStatus.REMOTELY_FAILED,
    }
    assert not delivery.delivered
    assert not delivery.given_up
    assert {record.to for record in delivery.undelivered} == {NEVER, BOUNCED}
    assert stage.requests["GetMessageStatus"] == 12
    assert sum(stage.time.slept) == pytest.approx(3_660)


async def test_each_look_but_the_last_is_told(stage: Clinic) -> None:
    looks = list[tuple[list[str], float]]()
    await stage.box.track(
        await stage.send(SLOW),
        on_poll=lambda records, wait: looks.append(([str(each.status) for each in records], wait)),
    )
    assert looks[0][0] == ["Waiting"]
    assert sum(wait for _, wait in looks) == pytest.approx(sum(stage.time.slept))


async def test_one_of_a_tuser_is_followed_too(stage: Clinic) -> None:
    tuser = stage.suite.tuser("front-desk", PASSWORD, ALICE)
    sent = await tuser.send(ds.Message(subject="Referral", recipients=[ds.Recipient(SLOW)]))
    assert (await tuser.track(sent.smtp_id or "")).delivered
    assert stage.requests["GetMessageStatusWithTuser"] > 1
    assert stage.requests["GetMessageStatus"] == 0


async def test_one_that_the_service_never_knows_is_given_up_and_is_not_delivered(stage: Clinic) -> None:
    delivery = await stage.box.track("<nothing@direct.example.test>")
    assert (delivery.given_up, delivery.delivered, list(delivery.records)) == (True, False, [])
    assert sum(stage.time.slept) == pytest.approx(GIVE_UP_AFTER)


async def test_recipients_that_do_not_show_are_waited_for(stage: Clinic) -> None:
    delivery = await stage.box.track(await stage.send(PROMPT), recipients=2, give_up_after=60)
    assert delivery.given_up
    assert not delivery.delivered
    assert len(delivery.records) == 1
    assert sum(stage.time.slept) == pytest.approx(60)


async def test_looks_that_fail_do_not_end_it(stage: Clinic) -> None:
    smtp_id = await stage.send("slow+20s@hospital.example.test")
    stage.sandbox.inject_fault("GetMessageStatus", "status", status=503, times=2)
    stage.sandbox.inject_fault("GetMessageStatus", "malformed", times=1)
    assert (await stage.box.track(smtp_id)).delivered


async def test_pauses_begin_anew_after_a_look_that_was_answered(stage: Clinic) -> None:
    smtp_id = await stage.send("slow+40s@hospital.example.test")
    stage.sandbox.inject_fault("GetMessageStatus", "status", status=503, times=2)
    stage.sandbox.inject_fault("GetMessageStatus", "status", status=503, skip=3, times=1)
    assert (await stage.box.track(smtp_id)).delivered
    assert stage.time.slept == [5, 10, 15, 5, 35]


async def test_a_refusal_at_first_may_be_a_message_that_is_not_known_yet(stage: Clinic) -> None:
    smtp_id = await stage.send(PROMPT)
    refusal = {"success": False, "code": 4, "message": "no such message"}
    stage.sandbox.inject_fault("GetMessageStatus", "status", status=200, body=refusal, times=3)
    assert (await stage.box.track(smtp_id)).delivered
    assert stage.time.slept == [5, 10, 20]


async def test_one_that_fails_at_the_last_look_raises_its_error(stage: Clinic) -> None:
    smtp_id = await stage.send(PROMPT)
    stage.sandbox.inject_fault("GetMessageStatus", "status", status=503, times=None)
    with pytest.raises(ds.ServerError):
        await stage.box.track(smtp_id, give_up_after=100)
    assert sum(stage.time.slept) == pytest.approx(100)


async def test_a_password_that_is_refused_is_not_sent_again(stage: Clinic) -> None:
    with pytest.raises(ds.AuthenticationError):
        await stage.suite.mailbox(ALICE, "wrong").track(await stage.send(PROMPT))
    assert stage.requests["GetMessageStatus"] == 1


class Answering(ds.Mailbox):
    """A mailbox that is told these statuses of its one message, look by look, the last again and again."""

    answers: Sequence[Sequence[tuple[str | None, str]]]

    async def get_message_status(
        self, smtp_id: str, *, timeout: float | None = None
    ) -> ds.DirectMessageStatusReportResponse:
        """The next of them."""
        answer, self.answers = self.answers[0], self.answers[1:] or self.answers[:1]
        logs = [ds.DirectMessageLog(to=to, status=ds.MessageStatus(status)) for to, status in answer]
        return ds.DirectMessageStatusReportResponse(success=True, message_logs=logs)


def answering(stage: Clinic, *answers: Sequence[tuple[str | None, str]]) -> Answering:
    """Such a mailbox."""
    box = Answering(stage.box._transport, ALICE, PASSWORD)
    box.answers = answers
    return box


async def test_a_status_that_nobody_knows_is_no_end(stage: Clinic) -> None:
    box = answering(stage, [(BOUNCED, "Queued")], [(BOUNCED, "delivered, perhaps")], [(BOUNCED, "Remotely Failed")])
    delivery = await box.track("1@direct.example.test")
    assert [record.status for record in delivery.undelivered] == [ds.MessageStatus.REMOTELY_FAILED]
    assert len(stage.time.slept) == 2


async def test_of_several_records_for_a_recipient_none_may_be_open(stage: Clinic) -> None:
    both = [(PROMPT, "Delivered"), (PROMPT.upper(), "Waiting")]
    box = answering(stage, both, both, [(PROMPT, "Delivered"), (PROMPT.upper(), "Delivered")])
    delivery = await box.track("1@direct.example.test")
    assert delivery.delivered
    assert len(delivery.records) == 1
    assert len(stage.time.slept) == 2


async def test_records_without_a_recipient_are_told_apart_by_their_places(stage: Clinic) -> None:
    box = answering(stage, [(None, "Delivered"), (None, "Waiting")], [(None, "Delivered"), (None, "Locally Failed")])
    delivery = await box.track("1@direct.example.test", recipients=2)
    assert len(delivery.undelivered) == 1


@pytest.mark.parametrize(
    "arguments", [{"recipients": 0}, {"recipients": True}, {"give_up_after": 0}, {"give_up_after": float("inf")}]
)
async def test_what_can_t_be_is_refused_and_nothing_sent(arguments: dict[str, float], stage: Clinic) -> None:
    with pytest.raises(ds.InvalidArgumentError) as refused:
        await stage.box.track("1@direct.example.test", **arguments)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert refused.value.parameter == next(iter(arguments))
    assert not stage.requests


async def test_what_is_shown_names_nobody(stage: Clinic) -> None:
    delivery = await stage.box.track(await stage.send(PROMPT))
    assert repr(delivery) == "Delivery(recipients=1, undelivered=0, given_up=False)"
