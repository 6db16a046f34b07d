"""`directsuite status`: the status of each recipient, and an exit status for scripts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import Any

import attrs
import pytest

import directsuite as ds
from directsuite.cli.status import MAX_UNKNOWN_SECONDS, DeliveryWatch
from directsuite.core.clock import SystemClock
from directsuite.messaging.tracking import DEFAULT_GIVE_UP_AFTER
from directsuite.testing import LeapingClock
from tests.cli.conftest import CliRunner
from tests.guides.documents import read_document
from tests.integration.scenario import ALICE, BOB, PASSWORD
from tests.jobs.delivery.clinic import Clinic, open_clinic


async def sent(runner: CliRunner, *recipients: str) -> str:
    to = [option for address in recipients for option in ("--to", address)]
    result = await runner.run("send", *to, "--body", "x")
    return result.out.strip()


async def test_each_recipient_is_a_row(cli: CliRunner) -> None:
    smtp_id = await sent(cli, BOB, "nomdn@elsewhere.test")
    result = await cli.run("status", smtp_id)
    assert (result.status, result.err) == (0, "")
    _, bob, waiting = result.out.splitlines()
    assert bob.split()[:2] == [BOB, "Delivered"]
    assert waiting.split()[:2] == ["nomdn@elsewhere.test", "Waiting"]
    assert smtp_id in bob


async def test_recipient_who_will_not_have_it_is_status_1(cli: CliRunner) -> None:
    smtp_id = await sent(cli, BOB, "bounce@elsewhere.test")
    result = await cli.run("status", smtp_id, "--json")
    assert result.status == 1
    assert "1 of 2 deliveries failed" in result.err
    assert "elsewhere" not in result.err
    assert [(each["to"], each["status"]) for each in result.document] == [
        (BOB, "Delivered"),
        ("bounce@elsewhere.test", "Remotely Failed"),
    ]


@pytest.mark.parametrize("more", [(), ("--watch",)], ids=["once", "watched"])
async def test_message_is_found_by_the_key_with_which_it_was_sent(cli: CliRunner, more: tuple[str, ...]) -> None:
    await cli.deliver("Lab", f"From: {BOB}\r\nTo: {ALICE}\r\nSubject: Lab\r\n\r\nSee.".encode())
    sent_by = {"referral-17": ("send", "--to", BOB, "--body", "x"), "thanks-1": ("inbox", "reply", "1", "--body", "x")}
    for key, command in sent_by.items():
        smtp_id = (await cli.run(*command, "--key", key)).out.strip()
        result = await cli.run("status", "--key", key, "--json", *more)
        assert (result.status, [(each["to"], each["message_id"]) for each in result.document]) == (0, [(BOB, smtp_id)])
    await cli.fail(4, "--key (other): this machine has no record of a message", "status", "--key", "other", "-v")
    err = await cli.fail(4, "--key: this machine has no record", "status", "--key", "Ada")
    assert "Ada" not in err
    cli.set_env("DIRECTSUITE_MAILBOX", BOB)
    await cli.fail(4, "Check --key and --mailbox, or give the message's SMTP id.", "status", "--key", "referral-17")


async def test_message_of_a_key_may_not_have_been_sent(cli: CliRunner) -> None:
    cli.set_env("DIRECTSUITE_SETTLE", "0")
    cli.sandbox.inject_fault("SendWithHeader", "reset_before")
    command = ("send", "--to", BOB, "--body", "x", "--key", "referral-17")
    assert (await cli.run(*command)).status == 7
    await cli.fail(7, "may or may not have sent the message. Run that command", "status", "--key", "referral-17")
    assert (await cli.run(*command)).status == 0
    assert (await cli.run("status", "--key", "referral-17")).status == 0


@pytest.mark.parametrize("more", [(), ("--watch",)], ids=["once", "watched"])
async def test_unconfirmed_recipient_is_not_reported_as_failed(cli: CliRunner, more: tuple[str, ...]) -> None:
    smtp_id = await sent(cli, BOB, "bounce@elsewhere.test", "nomdn@elsewhere.test")
    cli.sandbox.clock.advance(timedelta(hours=2))
    result = await cli.run("status", smtp_id, *more)
    assert result.status == 1
    assert result.err.splitlines() == [
        "directsuite: 1 of 3 deliveries failed. Check the addresses, or use another way to send.",
        "directsuite: 1 of 3 deliveries were not confirmed. The message may have arrived: ask the recipient before you "
        "send it again.",
    ]


async def test_id_of_a_message_stands_once(cli: CliRunner) -> None:
    smtp_ids = [await sent(cli, BOB, "bounce@elsewhere.test"), await sent(cli, BOB)]
    rows = (await cli.run("status", *smtp_ids)).out.splitlines()[1:]
    assert [[smtp_id in row for smtp_id in smtp_ids] for row in rows] == [[True, False], [False, False], [False, True]]


async def test_unknown_message_is_status_4_and_the_others_are_reported(cli: CliRunner) -> None:
    smtp_id = await sent(cli, BOB)
    result = await cli.run("status", smtp_id, "<nobody@elsewhere.test>")
    assert result.status == 4
    assert BOB in result.out
    assert "doesn't know 1 of these messages" in result.err
    alone = await cli.run("status", "nope", "--json")
    assert (alone.status, alone.document) == (4, [])
    for each in (result, alone):
        assert "`directsuite inbox read UID --folder INBOX.Sent` shows a message's id" in each.err


async def test_watching_ends_where_all_recipients_have_it_or_will_not(cli: CliRunner) -> None:
    smtp_ids = [await sent(cli, BOB, "bounce@elsewhere.test"), await sent(cli, BOB)]
    result = await cli.run("status", *smtp_ids, "--watch", "--json")
    assert result.status == 1
    assert [each["status"] for each in result.document] == ["Delivered", "Remotely Failed", "Delivered"]


async def test_every_problem_of_watched_messages_is_reported(cli: CliRunner) -> None:
    leap(cli)
    cli.monkeypatch.setattr("directsuite.cli.status.DEFAULT_GIVE_UP_AFTER", 100.0)
    smtp_ids = [await sent(cli, f"{name}@elsewhere.test") for name in ("bounce", "nomdn")]
    result = await cli.run("status", *smtp_ids, "<nobody@elsewhere.test>", "--watch")
    assert result.status == 1
    assert "1 of 2 deliveries failed" in result.err
    assert "1 of the messages had no final status in time" in result.err
    assert "doesn't know 1 of these messages in this mailbox. Check the ids of those that are not shown" in result.err


@pytest.mark.parametrize("more", [(), ("--watch",)], ids=["once", "watched"])
async def test_one_id_in_two_forms_is_one_message(cli: CliRunner, more: tuple[str, ...]) -> None:
    smtp_id = await sent(cli, BOB)
    result = await cli.run("status", smtp_id, smtp_id.strip("<>"), smtp_id, "--json", *more)
    assert (result.status, [each["to"] for each in result.document]) == (0, [BOB])


@pytest.mark.parametrize("smtp_id", ["", " ", "<>", "<\udcff@elsewhere.test>"], ids=ascii)
async def test_invalid_smtp_id_is_rejected_in_terms_of_the_command(cli: CliRunner, smtp_id: str) -> None:
    result = await cli.run("status", smtp_id)
    assert result.status == 2
    assert "An SMTP id" in result.err
    assert "smtp_ids" not in result.err.replace("smtpIds", "smtp_ids")


@pytest.mark.parametrize("status", [400, 404])
async def test_message_rejected_until_known_is_waited_for(cli: CliRunner, status: int) -> None:
    smtp_id = await sent(cli, BOB)
    cli.sandbox.inject_fault("GetMessageStatusMany", "status", status=status, times=1)
    result = await cli.run("status", smtp_id, "--watch")
    assert (result.status, "Delivered" in result.out) == (0, True)
    assert f"(HTTP {status})" in result.err
    assert "up to 15 minutes" in result.err


async def test_failed_polls_do_not_make_message_unknown(cli: CliRunner) -> None:
    cli.sandbox.inject_fault("GetMessageStatusMany", "status", status=401, times=9, skip=1)
    result = await cli.run("status", "<nobody@elsewhere.test>", "--watch")
    assert result.status == 3
    assert "The status of 1 of these messages is unknown" in result.err
    assert "The service knows none" not in result.err


async def test_rejected_batch_is_requested_one_by_one(cli: CliRunner) -> None:
    smtp_id = await sent(cli, BOB)
    cli.sandbox.inject_fault("GetMessageStatusMany", "status", status=404, times=9)
    cli.sandbox.inject_fault("GetMessageStatus", "status", status=404, times=1)
    result = await cli.run("status", "<nobody@elsewhere.test>", smtp_id)
    assert (result.status, BOB in result.out) == (4, True)
    assert "doesn't know 1 of these messages in this mailbox. Check the ids of those that are not shown" in result.err
    cli.sandbox.inject_fault("GetMessageStatus", "status", status=404, times=9)
    await cli.fail(4, "GetMessageStatusMany", "status", "<nobody@elsewhere.test>", smtp_id)


@pytest.mark.parametrize("more", [(), ("--watch",)], ids=["once", "watched"])
async def test_other_messages_are_reported_if_one_fails(cli: CliRunner, more: tuple[str, ...]) -> None:
    smtp_id, denied = await sent(cli, BOB), await sent(cli, BOB)
    look, look_at_one = ds.Mailbox.get_message_statuses, ds.Mailbox.get_message_status
    refusal = ds.PermissionDeniedError("it may not", operation="GetMessageStatus", status=403)

    async def looked(box: ds.Mailbox, listed: list[str], **named: Any) -> ds.DirectMessageStatusReportResponse:
        if denied in listed:
            raise refusal
        return await look(box, listed, **named)

    async def looked_at_one(box: ds.Mailbox, one: str, **named: Any) -> ds.DirectMessageStatusReportResponse:
        if one == denied:
            raise refusal
        return await look_at_one(box, one, **named)

    cli.monkeypatch.setattr(ds.Mailbox, "get_message_statuses", looked)
    cli.monkeypatch.setattr(ds.Mailbox, "get_message_status", looked_at_one)
    result = await cli.run("status", smtp_id, denied, "--json", *more)
    assert (result.status, [each["to"] for each in result.document]) == (3, [BOB])
    assert "The mailbox has no permission to see 1 of these messages" in result.err
    assert "doesn't know" not in result.err
    alone = await cli.run("status", denied, denied, *more)
    assert (alone.status, alone.out) == (3, "")


async def test_message_that_is_denied_only_at_first_is_reported_as_delivered(cli: CliRunner) -> None:
    smtp_ids = [await sent(cli, BOB, "slow+2m@elsewhere.test"), await sent(cli, BOB)]
    look, refusal = ds.Mailbox.get_message_statuses, ds.PermissionDeniedError("it may not", status=403)
    look_at_one, refused = ds.Mailbox.get_message_status, [smtp_ids[1]]

    async def looked(box: ds.Mailbox, listed: list[str], **named: Any) -> ds.DirectMessageStatusReportResponse:
        if refused:
            raise refusal
        return await look(box, listed, **named)

    async def looked_at_one(box: ds.Mailbox, one: str, **named: Any) -> ds.DirectMessageStatusReportResponse:
        if one in refused:
            refused.remove(one)
            raise refusal
        return await look_at_one(box, one, **named)

    cli.monkeypatch.setattr(ds.Mailbox, "get_message_statuses", looked)
    cli.monkeypatch.setattr(ds.Mailbox, "get_message_status", looked_at_one)
    leap(cli)
    result = await cli.run("status", *smtp_ids, "--watch", "--json")
    assert (result.status, [each["status"] for each in result.document]) == (0, ["Delivered"] * 3)
    assert "no permission" not in result.err


@pytest.mark.parametrize("more", [(), ("--watch",)], ids=["once", "watched"])
async def test_record_without_an_id_is_shown(cli: CliRunner, more: tuple[str, ...]) -> None:
    leap(cli)
    smtp_ids = [await sent(cli, BOB), await sent(cli, "bounce@elsewhere.test"), await sent(cli, BOB)]
    look = ds.Mailbox.get_message_statuses

    async def looked(box: ds.Mailbox, listed: list[str], **named: Any) -> ds.DirectMessageStatusReportResponse:
        first, *others = (await look(box, listed, **named)).records
        logs = [first, *(attrs.evolve(each, message_id=None) for each in others)]
        return ds.DirectMessageStatusReportResponse(success=True, message_logs=logs)

    cli.monkeypatch.setattr(ds.Mailbox, "get_message_statuses", looked)
    result = await cli.run("status", *smtp_ids, "--json", *more)
    assert [(each["to"], each["message_id"]) for each in result.document] == [
        (BOB, smtp_ids[0]),
        ("bounce@elsewhere.test", None),
        (BOB, None),
    ]
    assert result.status == 1
    assert "doesn't know 2 of these messages" in result.err
    assert "1 of 3 deliveries failed" in result.err


async def test_failed_last_poll_keeps_watched_statuses(cli: CliRunner) -> None:
    smtp_ids = [await sent(cli, BOB, "bounce@elsewhere.test"), await sent(cli, BOB)]
    look, looks = ds.Mailbox.get_message_statuses, list[None]()

    async def looked(box: ds.Mailbox, listed: list[str]) -> ds.DirectMessageStatusReportResponse:
        looks.append(None)
        if len(looks) > 1:
            raise ds.ServerError("it fails", operation="GetMessageStatusMany", status=503)
        return await look(box, listed)

    cli.monkeypatch.setattr(ds.Mailbox, "get_message_statuses", looked)
    result = await cli.run("status", *smtp_ids, "--watch", "--json")
    assert result.status == 6
    assert [each["status"] for each in result.document] == ["Delivered", "Remotely Failed", "Delivered"]
    assert "1 of 3 deliveries failed" in result.err
    assert "A poll failed, so the output may be out of date" in result.err


def leap(runner: CliRunner) -> None:
    """Let time pass when a command sleeps."""
    clock = LeapingClock(runner.sandbox.clock)
    for method in ("monotonic", "sleep"):
        runner.monkeypatch.setattr(SystemClock, method, staticmethod(getattr(clock, method)))


async def test_message_that_arrives_meanwhile_is_waited_for(cli: CliRunner) -> None:
    smtp_id = await sent(cli, "slow+2m@elsewhere.test")
    assert "Waiting" in (await cli.run("status", smtp_id)).out
    leap(cli)
    result = await cli.run("status", smtp_id, "--watch")
    assert (result.status, "Delivered" in result.out) == (0, True)


@pytest.mark.parametrize("more", [(), ("--json",)], ids=["text", "json"])
async def test_watching_reports_the_start_and_each_change_on_stderr(cli: CliRunner, more: tuple[str, ...]) -> None:
    smtp_id = await sent(cli, BOB, "slow+2m@elsewhere.test")
    leap(cli)
    result = await cli.run("status", smtp_id, "--watch", "-v", *more)
    titles, bob, slow, waiting, change = result.err.splitlines()
    assert titles.split()[:3] == ["to", "status", "details"]
    assert (bob.split()[:2], slow.split()[:2]) == ([BOB, "Delivered"], ["slow+2m@elsewhere.test", "Waiting"])
    assert waiting == "directsuite: Waiting for the final status of 1 recipient."
    assert change == ("directsuite: The status of a recipient (slow+2m@elsewhere.test) is Delivered (before: Waiting).")
    assert result.out == (await cli.run("status", smtp_id, *more)).out


async def test_log_of_watching_names_no_mailbox(cli: CliRunner) -> None:
    smtp_id = await sent(cli, BOB, "slow+2m@elsewhere.test")
    leap(cli)
    assert (await cli.run("status", smtp_id, "--watch")).err.splitlines() == [
        "directsuite: Waiting for the final status of 1 recipient.",
        "directsuite: The status of a recipient is Delivered (before: Waiting).",
    ]


async def test_message_that_the_service_does_not_know_yet_is_waited_for(cli: CliRunner) -> None:
    smtp_id = await sent(cli, BOB)
    hide(cli.monkeypatch, 0, "get_message_statuses")
    result = await cli.run("status", smtp_id, "--watch")
    assert (result.status, "Delivered" in result.out) == (0, True)
    assert "doesn't know 1 of these messages in this mailbox, which is normal shortly after sending" in result.err


async def test_late_recipient_is_followed_after_others_end(cli: CliRunner) -> None:
    smtp_id = await sent(cli, BOB, "bounce@elsewhere.test")
    hide(cli.monkeypatch, 1, "get_message_statuses", "get_message_status")
    result = await cli.run("status", smtp_id, "--watch")
    assert result.status == 1
    assert "Remotely Failed" in result.out


def hide(monkeypatch: pytest.MonkeyPatch, shown: int, *looks: str) -> None:
    """Let the first poll of each method return only the first `count` records."""
    hidden = list(looks)

    def cut(name: str) -> None:
        look = getattr(ds.Mailbox, name)

        async def looked(*values: Any, **named: Any) -> ds.DirectMessageStatusReportResponse:
            report: ds.DirectMessageStatusReportResponse = await look(*values, **named)
            if name not in hidden:
                return report
            hidden.remove(name)
            return attrs.evolve(report, message_logs=report.records[:shown], csv_data=None)

        monkeypatch.setattr(ds.Mailbox, name, looked)

    for name in looks:
        cut(name)


async def test_help_and_guide_say_how_long_a_message_is_watched(cli: CliRunner) -> None:
    assert (DEFAULT_GIVE_UP_AFTER, MAX_UNKNOWN_SECONDS) == (7_200, 900)
    for text in ((await cli.run("status", "--help")).out, read_document("terminal")):
        words = " ".join(text.replace("│", " ").split())
        assert "at most two hours, or" in words
        assert "15 minutes for a message that the service doesn't know" in words


NEVER, SLOW = "nomdn@pharmacy.example.test", "slow+30m@hospital.example.test"
REJECTIONS = [
    ds.NotFoundError("not found", status=404),
    ds.BadRequestError("bad", status=400),
    ds.ServiceError("it is refused", status=200, code=4),
]


@pytest.fixture
async def opened_clinic() -> AsyncIterator[Clinic]:
    async with open_clinic() as opened:
        yield opened


class Rejecting(ds.Mailbox):
    """Raises an error for each request of several statuses, or of that of one message."""

    smtp_id = ""
    error: ds.DirectSuiteError
    times = 1e9

    async def get_message_statuses(self, smtp_ids: Any, **timeout: Any) -> ds.DirectMessageStatusReportResponse:
        if self.smtp_id in ("", *smtp_ids) and self.times > 0:
            self.times -= 1
            raise self.error
        return await super().get_message_statuses(smtp_ids, **timeout)

    async def get_message_status(self, smtp_id: str, **timeout: Any) -> ds.DirectMessageStatusReportResponse:
        if smtp_id == self.smtp_id:
            raise self.error
        return await super().get_message_status(smtp_id, **timeout)


async def watched(clinic: Clinic, smtp_ids: Sequence[str], **behaviour: Any) -> DeliveryWatch:
    """Watch messages with a mailbox that fails after the first poll, as described by the attributes of `Rejecting`."""
    watch = DeliveryWatch(box=clinic.box, smtp_ids=smtp_ids, clock=clinic.time)
    await watch.poll()
    watch.box = Rejecting(clinic.box._transport, ALICE, PASSWORD)
    watch.box.times = 0
    for name, value in behaviour.items():
        setattr(watch.box, name, value)
    await watch.run()
    return watch


def courses(watch: DeliveryWatch) -> list[list[str]]:
    return [[str(record.status) for record in records] for records in watch.records.values()]


@pytest.mark.parametrize("rejection", REJECTIONS, ids=["404", "400", "code 4"])
async def test_message_rejected_for_15_minutes_is_given_up_alone(
    opened_clinic: Clinic, rejection: ds.ServiceError
) -> None:
    smtp_id = await opened_clinic.send(BOB, SLOW)
    ids = ["<nobody@x.test>", smtp_id]
    watch = await watched(opened_clinic, ids, smtp_id="<nobody@x.test>", error=rejection, times=1e9)
    assert courses(watch) == [[], ["Remotely Failed", "Delivered"]]
    assert (watch.unknown_count, watch.unfinished_count, watch.failure) == (1, 0, None)


async def test_message_rejected_at_first_is_followed_to_its_end(opened_clinic: Clinic) -> None:
    smtp_id = await opened_clinic.send(SLOW)
    watch = await watched(opened_clinic, [smtp_id], error=REJECTIONS[0], times=5)
    assert (courses(watch), watch.failure) == ([["Delivered"]], None)


async def test_message_without_a_final_status_is_given_up_after_two_hours(opened_clinic: Clinic) -> None:
    class Waiting(ds.Mailbox):
        async def get_message_statuses(self, smtp_ids: Any, **timeout: Any) -> ds.DirectMessageStatusReportResponse:
            both = [
                ds.DirectMessageLog(message_id=smtp_ids[0], to=address, status=ds.MessageStatus.WAITING)
                for address in (BOB, NEVER)
            ]
            return ds.DirectMessageStatusReportResponse(success=True, message_logs=both)

    watch = DeliveryWatch(
        box=Waiting(opened_clinic.box._transport, ALICE, PASSWORD), smtp_ids=["<1@x.test>"], clock=opened_clinic.time
    )
    await watch.run()
    assert (courses(watch), watch.unfinished_count) == ([["Waiting", "Waiting"]], 1)
    assert sum(opened_clinic.time.sleeps) == pytest.approx(7_200, abs=1)


async def test_failing_polls_keep_known_statuses(opened_clinic: Clinic) -> None:
    lost, slow = ds.ConnectionLostError("it is lost"), await opened_clinic.send(SLOW)
    watch = await watched(opened_clinic, [slow], error=lost, times=3)
    assert (courses(watch), watch.failure) == ([["Delivered"]], None)
    smtp_ids = [await opened_clinic.send(NEVER), await opened_clinic.send("bounce@elsewhere.test")]
    watch = await watched(opened_clinic, smtp_ids, error=lost, times=1e9)
    assert courses(watch) == [["Waiting"], ["Remotely Failed"]]
    assert isinstance(watch.failure, ds.ConnectionLostError)


async def test_rejected_password_ends_the_polls(opened_clinic: Clinic) -> None:
    smtp_id = await opened_clinic.send(SLOW)
    denied = ds.AuthenticationError("refused", status=401)
    watch = await watched(opened_clinic, [smtp_id], error=denied, times=1e9)
    assert (courses(watch), watch.failure) == ([["Waiting"]], denied)
    assert opened_clinic.time.sleeps == []  # repeated attempts might lock the mailbox
