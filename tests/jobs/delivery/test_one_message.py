"""Follow one message until its statuses are final."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import directsuite as ds
from directsuite.messaging.sending import DEFAULT_GIVE_UP_AFTER, compute_next_poll
from tests.integration.scenario import ALICE, PASSWORD
from tests.jobs.delivery.clinic import Clinic
from tests.jobs.delivery.fragile_mailbox import make_log, make_repeating_mailbox

SLOW, NEVER = "slow+30m@hospital.example.test", "nomdn@pharmacy.example.test"
PROMPT, BOUNCED = "deliver@hospital.example.test", "bounce+10s@hospital.example.test"


def looks(give_up_after: float = DEFAULT_GIVE_UP_AFTER) -> list[float]:
    """Return the ages at which a message without final status is polled."""
    ages = [0.0]
    while ages[-1] < give_up_after:
        ages.append(compute_next_poll(ages[-1], give_up_after).latest)
    return ages[1:]


def test_poll_interval_doubles_up_to_an_hour() -> None:
    assert looks() == [5, 10, 20, 40, 80, 160, 320, 640, 1280, 2560, 3660, 3720, 3840, 4080, 4560, 5520, 7200]
    assert looks(30) == [5, 10, 20, 30]


@given(age=st.floats(0, 20_000), give_up_after=st.floats(0.1, 20_000))
def test_next_poll_is_ahead_and_none_is_after_the_last(age: float, give_up_after: float) -> None:
    window = compute_next_poll(age, give_up_after)
    assert window.earliest <= window.latest <= max(age, give_up_after)
    assert window.latest > age or age >= give_up_after


@given(delivered_after=st.floats(5, 3_600))
def test_status_is_seen_within_twice_its_age(delivered_after: float) -> None:
    assert next(age for age in looks() if age >= delivered_after) <= 2 * delivered_after


async def test_recipients_become_final_one_by_one(clinic: Clinic) -> None:
    delivery = await clinic.box.track(await clinic.send(PROMPT, SLOW, NEVER, BOUNCED), recipients=4)
    assert {record.to: record.status for record in delivery.records} == {
        PROMPT: ds.MessageStatus.DELIVERED,
        SLOW: ds.MessageStatus.DELIVERED,
        NEVER: ds.MessageStatus.NO_MDN_RECEIVED,
        BOUNCED: ds.MessageStatus.REMOTELY_FAILED,
    }
    assert not delivery.delivered
    assert not delivery.given_up
    assert {record.to for record in delivery.undelivered} == {NEVER, BOUNCED}
    assert clinic.request_counts["GetMessageStatus"] == 12
    assert sum(clinic.time.sleeps) == pytest.approx(3_660)


async def test_on_poll_is_called_after_each_poll_but_the_last(clinic: Clinic) -> None:
    looks = list[tuple[list[str], float]]()
    await clinic.box.track(
        await clinic.send(SLOW),
        on_poll=lambda records, wait: looks.append(([str(each.status) for each in records], wait)),
    )
    assert looks[0][0] == ["Waiting"]
    assert sum(wait for _, wait in looks) == pytest.approx(sum(clinic.time.sleeps))


async def test_message_of_tuser_is_followed(clinic: Clinic) -> None:
    tuser = clinic.suite.tuser("front-desk", PASSWORD, ALICE)
    sent = await tuser.send(ds.Message(subject="Referral", recipients=[ds.Recipient(SLOW)]))
    assert (await tuser.track(sent.smtp_id or "")).delivered
    assert clinic.request_counts["GetMessageStatusWithTuser"] > 1
    assert clinic.request_counts["GetMessageStatus"] == 0


async def test_unknown_message_is_given_up_and_not_delivered(clinic: Clinic) -> None:
    delivery = await clinic.box.track("<nothing@direct.example.test>")
    assert (delivery.given_up, delivery.delivered, list(delivery.records)) == (True, False, [])
    assert sum(clinic.time.sleeps) == pytest.approx(DEFAULT_GIVE_UP_AFTER)


async def test_missing_recipients_are_awaited(clinic: Clinic) -> None:
    delivery = await clinic.box.track(await clinic.send(PROMPT), recipients=2, give_up_after=60)
    assert delivery.given_up
    assert not delivery.delivered
    assert len(delivery.records) == 1
    assert sum(clinic.time.sleeps) == pytest.approx(60)


async def test_failed_polls_do_not_end_tracking(clinic: Clinic) -> None:
    smtp_id = await clinic.send("slow+20s@hospital.example.test")
    clinic.sandbox.inject_fault("GetMessageStatus", "status", status=503, times=2)
    clinic.sandbox.inject_fault("GetMessageStatus", "malformed", times=1)
    assert (await clinic.box.track(smtp_id)).delivered


async def test_back_off_is_reset_after_successful_poll(clinic: Clinic) -> None:
    smtp_id = await clinic.send("slow+40s@hospital.example.test")
    clinic.sandbox.inject_fault("GetMessageStatus", "status", status=503, times=2)
    clinic.sandbox.inject_fault("GetMessageStatus", "status", status=503, skip=3, times=1)
    assert (await clinic.box.track(smtp_id)).delivered
    assert clinic.time.sleeps == [5, 10, 15, 5, 35]


async def test_early_rejection_is_retried_as_message_may_be_unknown_yet(clinic: Clinic) -> None:
    smtp_id = await clinic.send(PROMPT)
    refusal = {"success": False, "code": 4, "message": "no such message"}
    clinic.sandbox.inject_fault("GetMessageStatus", "status", status=200, body=refusal, times=3)
    assert (await clinic.box.track(smtp_id)).delivered
    assert clinic.time.sleeps == [5, 10, 20]


async def test_failure_of_last_poll_is_raised(clinic: Clinic) -> None:
    smtp_id = await clinic.send(PROMPT)
    clinic.sandbox.inject_fault("GetMessageStatus", "status", status=503, times=None)
    with pytest.raises(ds.ServerError):
        await clinic.box.track(smtp_id, give_up_after=100)
    assert sum(clinic.time.sleeps) == pytest.approx(100)


async def test_rejected_password_is_not_sent_again(clinic: Clinic) -> None:
    with pytest.raises(ds.AuthenticationError):
        await clinic.suite.mailbox(ALICE, "wrong").track(await clinic.send(PROMPT))
    assert clinic.request_counts["GetMessageStatus"] == 1


async def test_unknown_status_is_not_final(clinic: Clinic) -> None:
    statuses = ("Queued", "delivered, perhaps", "Remotely Failed")
    box = make_repeating_mailbox(clinic, *([make_log(BOUNCED, status)] for status in statuses))
    delivery = await box.track("1@direct.example.test")
    assert [record.status for record in delivery.undelivered] == [ds.MessageStatus.REMOTELY_FAILED]
    assert len(clinic.time.sleeps) == 2


async def test_recipient_is_final_only_if_all_records_are(clinic: Clinic) -> None:
    first, waiting, last = (
        make_log(PROMPT, "Delivered"),
        make_log(PROMPT.upper(), "Waiting"),
        make_log(PROMPT.upper(), "Delivered"),
    )
    box = make_repeating_mailbox(clinic, [first, waiting], [first, waiting], [first, last])
    delivery = await box.track("1@direct.example.test")
    assert delivery.delivered
    assert len(delivery.records) == 1
    assert len(clinic.time.sleeps) == 2


async def test_records_without_recipient_are_distinguished(clinic: Clinic) -> None:
    first = make_log(None, "Delivered")
    box = make_repeating_mailbox(clinic, [first, make_log(None, "Waiting")], [first, make_log(None, "Locally Failed")])
    delivery = await box.track("1@direct.example.test", recipients=2)
    assert len(delivery.undelivered) == 1


async def test_invalid_arguments_are_rejected_before_sending(clinic: Clinic) -> None:
    invalid: list[tuple[str, Any]] = [*(("recipients", each) for each in (0, True))]
    invalid += [("give_up_after", each) for each in (0, float("inf"))]
    for name, value in invalid:
        with pytest.raises(ds.InvalidArgumentError) as refused:
            await clinic.box.track("1@direct.example.test", **{name: value})
        assert refused.value.parameter == name
    assert not clinic.request_counts


async def test_delivered_message_takes_one_poll_and_its_result_shows_no_names(clinic: Clinic) -> None:
    delivery = await clinic.box.track(await clinic.send(PROMPT))
    assert delivery.delivered
    assert [record.to for record in delivery.records] == [PROMPT]
    assert clinic.request_counts["GetMessageStatus"] == 1
    assert clinic.time.sleeps == []
    assert repr(delivery) == "Delivery(recipients=1, undelivered=0, given_up=False)"
