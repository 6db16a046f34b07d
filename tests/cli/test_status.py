"""`directsuite status`: the status of each recipient, and an exit status for scripts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import attrs
import pytest

import directsuite as ds
from directsuite.cli.status import MAX_UNKNOWN_SECONDS
from directsuite.core.clock import SystemClock
from directsuite.messaging.sending import DEFAULT_GIVE_UP_AFTER
from directsuite.testing import LeapingClock
from tests.cli.conftest import CliRunner, CommandRunner
from tests.guides.documents import read_document
from tests.integration.scenario import ALICE, BOB

once_and_watched = pytest.mark.parametrize(
    "more", [(), pytest.param(("--watch",), marks=pytest.mark.wide)], ids=["once", "watched"]
)


async def sent(runner: CliRunner, *recipients: str) -> str:
    to = [option for address in recipients for option in ("--to", address)]
    return (await runner.run("send", *to, "--body", "x")).out.strip()


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


@once_and_watched
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


@once_and_watched
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


@once_and_watched
async def test_one_id_in_two_forms_is_one_message(cli: CliRunner, more: tuple[str, ...]) -> None:
    smtp_id = await sent(cli, BOB)
    result = await cli.run("status", smtp_id, smtp_id.strip("<>"), smtp_id, "--json", *more)
    assert (result.status, [each["to"] for each in result.document]) == (0, [BOB])


@pytest.mark.parametrize("smtp_id", ["", " ", "<>", "<\udcff@elsewhere.test>"], ids=ascii)
async def test_invalid_smtp_id_is_rejected_in_terms_of_the_command(offline: CommandRunner, smtp_id: str) -> None:
    err = await offline.fail(2, "An SMTP id", "status", smtp_id)
    assert "smtp_ids" not in err.replace("smtpIds", "smtp_ids")


@pytest.mark.parametrize("status", [400, pytest.param(404, marks=pytest.mark.wide)])
async def test_message_rejected_until_known_is_waited_for(cli: CliRunner, status: int) -> None:
    leap(cli)
    smtp_id = await sent(cli, BOB)
    cli.sandbox.inject_fault("GetMessageStatus", "status", status=status, times=1)
    result = await cli.run("status", smtp_id, "--watch")
    assert (result.status, "Delivered" in result.out) == (0, True)
    assert f"(HTTP {status})" in result.err
    assert "up to 15 minutes" in result.err


async def test_failed_polls_keep_watched_statuses(cli: CliRunner) -> None:
    smtp_ids = [await sent(cli, BOB, "bounce@elsewhere.test"), await sent(cli, "slow+2m@elsewhere.test")]
    cli.sandbox.inject_fault("GetMessageStatus", "status", status=401, times=None, skip=3)
    result = await cli.run("status", *smtp_ids, "<nobody@elsewhere.test>", "--watch", "--json")
    assert result.status == 3
    assert [each["status"] for each in result.document] == ["Delivered", "Remotely Failed", "Waiting"]
    assert "1 of 3 deliveries failed" in result.err
    assert "The statuses of 3 of these messages are missing or out of date" in result.err
    assert "doesn't know" not in result.err.partition("Waiting for up to")[2]


async def test_rejected_message_is_unknown_unless_all_are_rejected(cli: CliRunner) -> None:
    smtp_id = await sent(cli, BOB)
    cli.sandbox.inject_fault("GetMessageStatus", "status", status=404, times=1)
    result = await cli.run("status", "<nobody@elsewhere.test>", smtp_id)
    assert (result.status, BOB in result.out) == (4, True)
    assert "doesn't know 1 of these messages in this mailbox. Check the ids of those that are not shown" in result.err
    cli.sandbox.inject_fault("GetMessageStatus", "status", status=404, times=9)
    await cli.fail(4, "GetMessageStatus", "status", "<nobody@elsewhere.test>", smtp_id)


Records = Sequence[ds.DirectMessageLog]
DENIED = ds.PermissionDeniedError("it may not", operation="GetMessageStatus", status=403)


def change_responses(
    runner: CliRunner, change: Callable[[list[str], Records], Records | ds.DirectSuiteError]
) -> list[str]:
    """Let the mailbox change the records of each response. Return the SMTP ids of the requests so far.

    change: gets these ids, the last being that of the current request. Returns the records, or the error to raise.
    """
    request, polls = ds.Mailbox.get_message_status, list[str]()

    async def get_message_status(box: ds.Mailbox, smtp_id: str, **named: Any) -> ds.DirectMessageStatusReportResponse:
        polls.append(smtp_id)
        result = change(polls, (await request(box, smtp_id, **named)).records)
        if isinstance(result, ds.DirectSuiteError):
            raise result
        return ds.DirectMessageStatusReportResponse(success=True, message_logs=list(result))

    runner.monkeypatch.setattr(ds.Mailbox, "get_message_status", get_message_status)
    return polls


@once_and_watched
async def test_other_messages_are_reported_if_one_is_denied(cli: CliRunner, more: tuple[str, ...]) -> None:
    smtp_id, denied = await sent(cli, BOB), await sent(cli, BOB)
    change_responses(cli, lambda polls, records: DENIED if polls[-1] == denied else records)
    result = await cli.run("status", smtp_id, denied, "--json", *more)
    assert (result.status, [each["to"] for each in result.document]) == (3, [BOB])
    assert "The statuses of 1 of these messages are missing or out of date" in result.err
    assert "doesn't know" not in result.err
    alone = await cli.run("status", denied, denied, *more)
    assert (alone.status, alone.out) == (3, "")


async def test_record_without_an_id_is_shown(cli: CliRunner) -> None:
    smtp_ids = [await sent(cli, BOB), await sent(cli, "bounce@elsewhere.test")]
    change_responses(cli, lambda _, records: [attrs.evolve(each, message_id=None) for each in records])
    result = await cli.run("status", *smtp_ids, "--json")
    assert [each["to"] for each in result.document] == [BOB, "bounce@elsewhere.test"]
    assert [each["message_id"] for each in result.document] == [None, None]
    assert result.err.count("\n") == 1


async def test_record_without_an_address_is_followed_beside_several_of_one_address(cli: CliRunner) -> None:
    leap(cli)
    smtp_id = await sent(cli, BOB, "slow+2m@elsewhere.test")
    change_responses(cli, lambda _, records: [records[0], records[0], attrs.evolve(records[1], to=None)])
    result = await cli.run("status", smtp_id, "--watch", "--json")
    assert (result.status, [each["status"] for each in result.document]) == (0, ["Delivered", "Delivered"])


async def test_record_of_another_message_is_not_shown(cli: CliRunner) -> None:
    smtp_id = await sent(cli, BOB)
    change_responses(cli, lambda _, records: [attrs.evolve(each, message_id="<other@x.test>") for each in records])
    await cli.fail(4, "The service knows none of these messages", "status", smtp_id)


@pytest.mark.parametrize("is_denied_first", [True, pytest.param(False, marks=pytest.mark.wide)])
@once_and_watched
async def test_denied_message_is_not_unknown(cli: CliRunner, more: tuple[str, ...], is_denied_first: bool) -> None:
    leap(cli)
    ids = [await sent(cli, BOB), "<nobody@elsewhere.test>"]
    change_responses(cli, lambda _, records: DENIED if records else ds.NotFoundError("rejected", status=404))
    result = await cli.run("status", *(ids if is_denied_first else reversed(ids)), *more)
    assert (result.status, result.out) == (3, "")
    assert "doesn't know 1 of these messages in this mailbox. Check the ids of those that are not shown" in result.err
    assert "The statuses of 1 of these messages are missing or out of date" in result.err


@pytest.mark.parametrize(
    ("more", "seconds"),
    [((), 0), pytest.param(("<nobody@elsewhere.test>",), 900, marks=pytest.mark.wide)],
    ids=["", "unknown"],
)
async def test_denied_message_is_not_waited_for(cli: CliRunner, more: tuple[str, ...], seconds: int) -> None:
    leap(cli)
    ids = [await sent(cli, BOB), await sent(cli, "nomdn@elsewhere.test")]
    change_responses(cli, lambda polls, records: DENIED if polls[-1] == ids[1] and polls.count(ids[1]) > 1 else records)
    began = cli.sandbox.clock.now()
    result = await cli.run("status", *ids, *more, "--watch")
    assert (result.status, "Waiting" in result.out) == (3, True)
    assert (cli.sandbox.clock.now() - began).total_seconds() == pytest.approx(seconds, abs=5)


@pytest.mark.parametrize(
    ("rejection", "status"), [(ds.NotFoundError, 3), pytest.param(ds.BadRequestError, 5, marks=pytest.mark.wide)]
)
async def test_each_error_of_the_last_poll_is_reported(
    cli: CliRunner, rejection: type[ds.ServiceError], status: int
) -> None:
    leap(cli)
    ids = [await sent(cli, BOB), await sent(cli, BOB)]

    def reject(polls: list[str], records: Records) -> Records | ds.DirectSuiteError:
        if polls[-1] == ids[1] and len(polls) > 1:
            return DENIED
        is_rejected = polls.count(polls[-1]) > 1
        return rejection("rejected", operation="GetMessageStatus", status=400) if is_rejected else records

    change_responses(cli, reject)
    result = await cli.run("status", *ids, "--watch")
    assert result.status == status
    for explanation in ("it may not", "rejected"):
        start = "The statuses of 1 of these messages are missing or out of date: GetMessageStatus: "
        assert f"{start}{explanation}" in result.err


async def test_message_that_is_denied_only_at_first_is_reported_as_delivered(cli: CliRunner) -> None:
    leap(cli)
    ids = [await sent(cli, BOB, "slow+2m@elsewhere.test"), await sent(cli, BOB)]
    # by the request for both messages, and by the one for this message
    change_responses(
        cli, lambda polls, records: DENIED if polls[-1] == ids[1] and polls.count(ids[1]) <= 2 else records
    )
    result = await cli.run("status", *ids, "--watch", "--json")
    assert (result.status, [each["status"] for each in result.document]) == (0, ["Delivered"] * 3)
    assert "missing" not in result.err


async def test_message_that_the_service_does_not_know_yet_is_waited_for(cli: CliRunner) -> None:
    leap(cli)
    smtp_id = await sent(cli, BOB)
    change_responses(cli, lambda polls, records: records if polls[1:] else ())
    result = await cli.run("status", smtp_id, "--watch")
    assert (result.status, "Delivered" in result.out) == (0, True)
    assert "doesn't know 1 of these messages in this mailbox, which is normal shortly after sending" in result.err


@pytest.mark.parametrize(
    "rejection",
    [{}, {"status": 404}, pytest.param({"status": 400}, marks=pytest.mark.wide)],
    ids=["no record", "404", "400"],
)
async def test_unknown_message_is_given_up_after_15_minutes(cli: CliRunner, rejection: dict[str, int]) -> None:
    leap(cli)
    if rejection:
        cli.sandbox.inject_fault("GetMessageStatus", "status", **rejection, times=None)
    began = cli.sandbox.clock.now()
    result = await cli.run("status", "<nobody@elsewhere.test>", "--watch")
    assert (result.status, result.out) == (4, "")
    assert (cli.sandbox.clock.now() - began).total_seconds() == pytest.approx(900, abs=5)


@pytest.mark.parametrize(
    "failure",
    [
        None,
        *(
            pytest.param(each, marks=pytest.mark.wide)
            for each in (ds.NotFoundError("x", status=404), ds.ConnectionLostError("x"))
        ),
    ],
    ids=repr,
)
async def test_message_rejected_at_first_is_followed_to_its_end(
    cli: CliRunner, failure: ds.DirectSuiteError | None
) -> None:
    leap(cli)
    smtp_id = await sent(cli, "slow+30m@elsewhere.test")

    def fail(polls: list[str], records: Records) -> Records | ds.DirectSuiteError:
        if not polls[5:] and failure is not None and (polls[1:] or isinstance(failure, ds.NotFoundError)):
            return failure
        return records if polls[5:] else ()

    change_responses(cli, fail)
    result = await cli.run("status", smtp_id, "--watch")
    assert (result.status, "Delivered" in result.out) == (0, True)


async def test_late_recipient_is_followed_after_others_end(cli: CliRunner) -> None:
    leap(cli)
    smtp_id = await sent(cli, BOB, "bounce@elsewhere.test")
    polls = change_responses(cli, lambda polls, records: records if polls[1:] else records[:1])
    result = await cli.run("status", smtp_id, "--watch")
    assert (result.status, "Remotely Failed" in result.out) == (1, True)
    assert len(polls) == 3  # the last because of the new recipient


@pytest.mark.parametrize("is_first", [False, pytest.param(True, marks=pytest.mark.wide)])
async def test_record_without_an_address_is_replaced(cli: CliRunner, *, is_first: bool) -> None:
    smtp_id = await sent(cli, BOB)

    def add_record(polls: list[str], records: Records) -> Records:
        nameless = attrs.evolve(records[0], to="", status=ds.MessageStatus("Delivered" if polls[3:] else "Waiting"))
        return [nameless, *records] if is_first == bool(len(polls) % 2) else [*records, nameless]

    polls = change_responses(cli, add_record)
    leap(cli)
    result = await cli.run("status", smtp_id, "--watch", "--json")
    assert (result.status, result.out.count('"Delivered"')) == (0, 2)
    assert len(polls) < 9


@pytest.mark.parametrize(
    ("recipient", "status"),
    [(BOB, 4), pytest.param("bounce@elsewhere.test", 1, marks=pytest.mark.wide)],
    ids=["Delivered", "Remotely Failed"],
)
async def test_rejection_ends_the_watch_of_final_statuses(cli: CliRunner, recipient: str, status: int) -> None:
    smtp_id = await sent(cli, recipient)
    cli.sandbox.inject_fault("GetMessageStatus", "status", status=404, times=None, skip=1)
    result = await cli.run("status", smtp_id, "--watch")
    assert (result.status, recipient in result.out) == (status, True)
    assert "The statuses of 1 of these messages are missing or out of date" in result.err


@pytest.mark.parametrize(
    ("retry_after", "times", "status", "seconds"),
    [(120, 1, 0, 120), pytest.param(120, None, 6, 4 * 120, marks=pytest.mark.wide), (3600, None, 6, 7200)],
    ids=["once", "until given up", "at most two hours"],
)
async def test_failed_poll_of_final_statuses_is_repeated(
    cli: CliRunner, retry_after: float, times: int | None, status: int, seconds: int
) -> None:
    leap(cli)
    smtp_id = await sent(cli, BOB)
    error = ds.RateLimitedError("too many", operation="GetMessageStatus", status=429, retry_after=retry_after)
    change_responses(
        cli, lambda polls, records: error if polls[1:] and (times is None or not polls[1 + times :]) else records
    )
    began = cli.sandbox.clock.now()
    result = await cli.run("status", smtp_id, "--watch")
    assert (result.status, "Delivered" in result.out) == (status, True)
    assert (cli.sandbox.clock.now() - began).total_seconds() == pytest.approx(seconds, abs=5)


async def test_watching_ends_if_the_number_of_recipients_alternates(cli: CliRunner) -> None:
    smtp_id = await sent(cli, BOB, "bounce@elsewhere.test")
    error = ds.AuthenticationError("too many polls", operation="GetMessageStatus", status=401)
    polls = change_responses(cli, lambda polls, records: error if polls[20:] else records[: 1 + len(polls) % 2])
    result = await cli.run("status", smtp_id, "--watch")
    assert (result.status, len(polls)) == (1, 2)
    assert "1 of 2 deliveries failed" in result.err


@pytest.mark.parametrize("left", [1, pytest.param(0, marks=pytest.mark.wide)])
async def test_recipient_missing_in_a_later_response_is_still_waited_for(cli: CliRunner, left: int) -> None:
    leap(cli)
    smtp_id = await sent(cli, BOB, "nomdn@elsewhere.test")
    change_responses(cli, lambda polls, records: records[:left] if polls[2:] else records)
    result = await cli.run("status", smtp_id, "--watch", "--json")
    assert (result.status, [each["status"] for each in result.document]) == (1, ["Delivered", "Waiting"])
    assert "1 of the messages had no final status in time" in result.err


def leap(runner: CliRunner) -> None:
    """Let time pass when a command sleeps."""
    clock = LeapingClock(runner.sandbox.clock)
    for method in ("monotonic", "sleep"):
        runner.monkeypatch.setattr(SystemClock, method, staticmethod(getattr(clock, method)))


@pytest.mark.parametrize("more", [(), pytest.param(("--json",), marks=pytest.mark.wide)], ids=["text", "json"])
async def test_watching_reports_the_start_and_each_change_on_stderr(cli: CliRunner, more: tuple[str, ...]) -> None:
    smtp_id = await sent(cli, BOB, "slow+2m@elsewhere.test")
    leap(cli)
    result = await cli.run("status", smtp_id, "--watch", "-v", *more)
    assert result.status == 0
    titles, bob, slow, waiting, change = result.err.splitlines()
    assert titles.split()[:3] == ["to", "status", "details"]
    assert (bob.split()[:2], slow.split()[:2]) == ([BOB, "Delivered"], ["slow+2m@elsewhere.test", "Waiting"])
    assert waiting == "directsuite: Waiting for the final status of 1 recipient."
    assert change == "directsuite: The status of a recipient (slow+2m@elsewhere.test) is Delivered (before: Waiting)."
    assert result.out == (await cli.run("status", smtp_id, *more)).out


async def test_log_of_watching_names_no_mailbox(cli: CliRunner) -> None:
    smtp_id = await sent(cli, BOB, "slow+2m@elsewhere.test")
    leap(cli)
    assert (await cli.run("status", smtp_id, "--watch")).err.splitlines() == [
        "directsuite: Waiting for the final status of 1 recipient.",
        "directsuite: The status of a recipient is Delivered (before: Waiting).",
    ]


async def test_help_and_guide_say_how_long_a_message_is_watched(cli: CliRunner) -> None:
    assert (DEFAULT_GIVE_UP_AFTER, MAX_UNKNOWN_SECONDS) == (7_200, 900)
    for text in ((await cli.run("status", "--help")).out, read_document("terminal")):
        words = " ".join(text.replace("│", " ").split())
        assert "at most two hours, or" in words
        assert "15 minutes for a message that the service doesn't know" in words
