"""Sending once: what the client reports agrees with the sandbox's ledger, after lost responses, crashes and resends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs
import pytest

import directsuite as ds
from directsuite.messaging import send_once
from tests.core.scripted_suite import expect_error

from .verification_scenario import ALICE, VerificationScenario

MESSAGE = ds.Message(sender=ALICE, subject="Result", body="See attachment.", recipients=[ds.Recipient(ALICE)])
KEY = "result-17"


async def count_sends(scenario: VerificationScenario) -> int:
    return await scenario.count_effects("SendWithHeader")


@pytest.mark.parametrize("fault", ["reset_after", "truncate", "malformed"])
async def test_lost_response_is_confirmed_by_message_in_sent_folder(scenario: VerificationScenario, fault: str) -> None:
    scenario.sandbox.inject_fault("SendWithHeader", fault)
    answer = await scenario.box.send_once(MESSAGE, key="result-17")
    assert await count_sends(scenario) == 1
    [sent] = await scenario.box.get_message_metadata("INBOX.Sent")
    assert answer.smtp_id == sent.msg_id
    assert [record.to for record in (await scenario.box.get_message_status(answer.smtp_id or "")).records] == [ALICE]


async def test_resending_needs_a_server_that_was_seen_to_show_request_ids(scenario: VerificationScenario) -> None:
    error = await scenario.lose("SendWithHeader", "reset_before", scenario.box.send_once(MESSAGE, resend=True))
    assert await count_sends(scenario) == 0
    assert "INBOX.Sent" in error.how_to_find_out

    await scenario.box.send_once(MESSAGE, key="another")
    scenario.sandbox.inject_fault("SendWithHeader", "reset_before")
    await scenario.box.send_once(MESSAGE, key="this", resend=True)
    assert await count_sends(scenario) == 2


async def test_same_key_after_a_crash_sends_nothing_again(scenario: VerificationScenario) -> None:
    began = datetime.now(UTC)
    first = await scenario.box.send_once(MESSAGE, key="result-17")
    again = await scenario.box.send_once(MESSAGE, key="result-17", since=began)
    other = await scenario.box.send_once(MESSAGE, key="result-18", since=began)
    assert first.smtp_id == again.smtp_id != other.smtp_id
    assert await count_sends(scenario) == 2


async def test_key_is_not_readable_in_the_message(scenario: VerificationScenario) -> None:
    await scenario.box.send_once(MESSAGE, key="patient-zyx")
    [sent] = await scenario.box.get_messages("INBOX.Sent")
    assert all("zyx" not in (header.value or "") for header in sent.headers)


@pytest.mark.parametrize(
    ("message", "since", "parameter"),
    [
        (MESSAGE, datetime(2026, 1, 1), "since"),  # noqa: DTZ001  naive on purpose
        (
            ds.MessageWithHeader(recipients=[ds.Recipient(ALICE)], headers=[ds.MessageHeader("x-request-id", "1")]),
            None,
            "headers",
        ),
    ],
)
async def test_send_once_rejects_what_would_break_its_promise(
    scenario: VerificationScenario, message: ds.Message, since: datetime | None, parameter: str
) -> None:
    error = await expect_error(ds.InvalidArgumentError, scenario.box.send_once(message, key="result-17", since=since))
    assert error.parameter == parameter
    assert await count_sends(scenario) == 0


@pytest.fixture
def began() -> datetime:
    return datetime.now(UTC)


@pytest.fixture
def _hidden_request_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    search = ds.Mailbox.search_messages_metadata_by_received_date

    async def hiding(self: ds.Mailbox, *args: Any, **options: Any) -> list[ds.MessageDetail]:
        found = await search(self, *args, **options)
        return [attrs.evolve(each, headers=[ds.MessageHeader("Subject", each.subject)]) for each in found]

    monkeypatch.setattr(ds.Mailbox, "search_messages_metadata_by_received_date", hiding)


async def _lands(world: VerificationScenario) -> None:
    await world.box.send_with_header(send_once.add_request_id(MESSAGE, send_once.make_request_id(ALICE, KEY)))


@pytest.mark.usefixtures("_hidden_request_ids")
async def test_server_that_shows_no_request_ids_gets_no_second_message(
    scenario: VerificationScenario, began: datetime
) -> None:
    await scenario.lose("SendWithHeader", "reset_after", scenario.box.send_once(MESSAGE, key=KEY))
    error = await expect_error(ds.OutcomeUnknownError, scenario.box.send_once(MESSAGE, key=KEY, since=began))
    assert await count_sends(scenario) == 1
    assert error.looked
    assert "without since" in error.how_to_find_out


async def test_messages_without_request_id_prove_nothing_about_server(
    scenario: VerificationScenario, began: datetime
) -> None:
    await scenario.box.send(MESSAGE)
    await expect_error(ds.OutcomeUnknownError, scenario.box.send_once(MESSAGE, key=KEY, since=began))
    assert await count_sends(scenario) == 0


@pytest.mark.parametrize("waits", [1, 3])
async def test_first_request_that_lands_late_is_the_only_one(
    scenario: VerificationScenario, began: datetime, waits: int
) -> None:
    async def nothing() -> None:
        pass

    scenario.clock.actions_during_waits = [*[nothing] * (waits - 1), lambda: _lands(scenario)]
    answer = await scenario.box.send_once(MESSAGE, key=KEY, since=began)
    assert not scenario.clock.actions_during_waits
    assert await count_sends(scenario) == 1
    [sent] = await scenario.box.get_message_metadata("INBOX.Sent")
    assert answer.smtp_id == sent.msg_id


@pytest.mark.usefixtures("_hidden_request_ids")
async def test_late_request_that_is_not_recognized_leaves_it_open(
    scenario: VerificationScenario, began: datetime
) -> None:
    scenario.clock.actions_during_waits = [lambda: _lands(scenario)]
    await expect_error(ds.OutcomeUnknownError, scenario.box.send_once(MESSAGE, key=KEY, since=began))
    assert await count_sends(scenario) == 1


@pytest.mark.parametrize("others", [[], ["another"]], ids=["empty folder", "another's mark"])
async def test_absent_message_is_sent_after_settle_time(
    scenario: VerificationScenario, began: datetime, others: list[str]
) -> None:
    for key in others:
        await scenario.box.send_once(MESSAGE, key=key)
    answer = await scenario.box.send_once(MESSAGE, key=KEY, since=began, settle=20)
    assert answer.smtp_id
    assert await count_sends(scenario) == len(others) + 1
    assert scenario.clock.now == pytest.approx(20)


@pytest.mark.parametrize("filed", ["INBOX.Referrals", "INBOX.Trash"])
async def test_message_that_somebody_has_moved_is_not_sent_again(
    scenario: VerificationScenario, began: datetime, filed: str
) -> None:
    await scenario.box.create_folder("INBOX.Referrals")
    await scenario.box.send_once(MESSAGE, key="another")  # so that this server is seen to show marks
    await _lands(scenario)
    _, uid = await scenario.box.get_uids("INBOX.Sent")
    await scenario.box.move_messages_by_uids("INBOX.Sent", filed, [uid])
    answer = await scenario.box.send_once(MESSAGE, key=KEY, since=began)
    [moved] = await scenario.box.get_message_metadata(filed)
    assert answer.smtp_id == moved.msg_id
    assert await count_sends(scenario) == 2


async def test_resend_finds_what_somebody_has_moved(scenario: VerificationScenario) -> None:
    await scenario.box.send_once(MESSAGE, key="another")
    scenario.sandbox.inject_fault("SendWithHeader", "reset_after")

    async def moves() -> None:
        _, uid = await scenario.box.get_uids("INBOX.Sent")
        await scenario.box.move_messages_by_uids("INBOX.Sent", "INBOX.Trash", [uid])

    scenario.sandbox.inject_fault("SearchMessagesMetadataByReceivedDate", "status", status=500, times=1)
    scenario.clock.actions_during_waits = [moves]
    answer = await scenario.box.send_once(MESSAGE, key=KEY, resend=True, settle=3.0)
    [moved] = await scenario.box.get_message_metadata("INBOX.Trash")
    assert answer.smtp_id == moved.msg_id
    assert await count_sends(scenario) == 2


async def test_folders_that_cannot_be_searched_leave_it_open(scenario: VerificationScenario, began: datetime) -> None:
    scenario.sandbox.inject_fault("GetFolders", "status", status=400, times=None)
    with pytest.raises(ds.OutcomeUnknownError, match="a folder that cannot be searched") as caught:
        await scenario.box.send_once(MESSAGE, key=KEY, since=began)
    assert isinstance(caught.value.__cause__, ds.BadRequestError)
    assert await count_sends(scenario) == 0


Act = Callable[[VerificationScenario], Awaitable[object]]


async def _time_is_up(scenario: VerificationScenario) -> None:
    scenario.loop_time.advance(100)


async def _reject_searches(scenario: VerificationScenario) -> None:
    scenario.sandbox.inject_fault("SearchMessagesMetadataByReceivedDate", "status", status=403)


INTERRUPTIONS: list[tuple[Act, type[ds.DirectSuiteError]]] = [
    (_time_is_up, ds.OutcomeUnknownError),
    (lambda scenario: scenario.suite.aclose(), ds.ClosedError),
    (_reject_searches, ds.PermissionDeniedError),
]


@pytest.mark.parametrize(("act", "error"), INTERRUPTIONS)
async def test_search_that_does_not_end_is_reported_and_nothing_is_sent(
    scenario: VerificationScenario, began: datetime, act: Act, error: type[ds.DirectSuiteError]
) -> None:
    scenario.clock.actions_during_waits = [lambda: act(scenario)]
    failure = await expect_error(error, scenario.box.send_once(MESSAGE, key=KEY, since=began))
    assert not getattr(failure, "looked", False)
    assert await count_sends(scenario) == 0


@pytest.fixture
async def resending(scenario: VerificationScenario) -> VerificationScenario:
    """Return a scenario with a marked message, in which the next send is lost."""
    await scenario.box.send_once(MESSAGE, key="another")
    scenario.sandbox.inject_fault("SendWithHeader", "reset_before")
    return scenario


REJECTIONS = {
    "no token": (401, None, None),
    "not allowed": (403, None, None),
    "wrong password": (200, 1, None),
    "some other error": (200, 3, None),
    "address": (200, 2, ds.AddressError),
    "request": (400, None, ds.BadRequestError),
}


@pytest.mark.parametrize(("status", "code", "reported"), REJECTIONS.values(), ids=REJECTIONS)
async def test_only_rejection_of_message_resolves_first_send(
    resending: VerificationScenario, status: int, code: int | None, reported: type[ds.ServiceError] | None
) -> None:
    body = None if code is None else {"success": False, "code": code}
    resending.sandbox.inject_fault("SendWithHeader", "status", status=status, body=body)
    with pytest.raises(reported or ds.OutcomeUnknownError) as caught:
        await resending.box.send_once(MESSAGE, key="this", resend=True)
    if reported is None:
        assert isinstance(caught.value.__cause__, ds.ServiceError)
        assert isinstance(caught.value.__cause__.__cause__, ds.ConnectionLostError)


async def test_suite_that_closes_before_the_second_send_leaves_the_first_open(resending: VerificationScenario) -> None:
    closing: list[asyncio.Task[None]] = []

    async def close() -> None:
        closing.append(asyncio.create_task(resending.suite.aclose(grace=60)))

    resending.clock.actions_during_waits = [close]
    await expect_error(ds.OutcomeUnknownError, resending.box.send_once(MESSAGE, key="this", resend=True))
    await closing[0]


async def test_attachment_that_is_gone_by_then_leaves_the_first_send_open(
    resending: VerificationScenario, tmp_path: Path
) -> None:
    file = tmp_path / "result.txt"
    file.write_text("negative", encoding="utf-8")
    message = ds.Message(recipients=MESSAGE.recipients, attachment_list=[ds.Attachment.from_path(file)])

    async def removed() -> None:
        file.unlink()

    resending.clock.actions_during_waits = [removed]
    error = await expect_error(ds.OutcomeUnknownError, resending.box.send_once(message, key="this", resend=True))
    assert isinstance(error.__cause__, ds.InvalidArgumentError | OSError)


async def test_lost_request_is_reported_although_the_second_succeeded(resending: VerificationScenario) -> None:
    left: list[ds.Event] = []
    resending.suite.add_listener(lambda event: left.append(event) if isinstance(event, ds.OutcomeLeftUnknown) else None)
    assert (await resending.box.send_once(MESSAGE, key="this", resend=True)).smtp_id
    assert len(left) == 1


async def test_verified_append_counts_messages_of_the_same_id(scenario: VerificationScenario) -> None:
    raw = ds.RawMessage(data=b"Message-ID: <1@direct.example.test>\r\nSubject: x\r\n\r\nbody\r\n")
    await scenario.box.save_raw_messages("INBOX.Drafts", [raw])
    scenario.sandbox.inject_fault("SaveRawMessages", "reset_before")
    with pytest.raises(ds.OutcomeUnknownError):  # an existing message proves nothing
        await scenario.box.save_raw_messages("INBOX.Drafts", [raw], verify=True)
    scenario.sandbox.inject_fault("SaveRawMessages", "reset_after")
    await scenario.box.save_raw_messages("INBOX.Drafts", [raw], verify=True)
    assert await scenario.box.get_message_count("INBOX.Drafts") == 2


async def test_message_without_an_id_proves_nothing(scenario: VerificationScenario) -> None:
    scenario.sandbox.inject_fault("SaveRawMessages", "reset_after")
    with pytest.raises(ds.OutcomeUnknownError):
        await scenario.box.save_raw_messages("INBOX.Drafts", [ds.RawMessage(data=b"Subject: x\r\n\r\n")], verify=True)
