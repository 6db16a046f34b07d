"""Unknown outcomes settled by proof: the ledger says what happened, the client what it told its caller."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

import directsuite as ds
from directsuite.sandbox import Sandbox

from .verification_scenario import ScriptedWaitClock

ALICE = "alice@direct.example.test"
BOB = "bob@direct.example.test"


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox() as sandbox:
        await sandbox.add_account(ALICE, "secret")
        await sandbox.add_account(BOB, "secret")
        yield sandbox


@pytest.fixture
async def box(sandbox: Sandbox) -> AsyncIterator[ds.Mailbox]:
    settings = ds.Settings.from_env(sandbox.environment)
    async with ds.DirectSuite(settings, clock=ScriptedWaitClock()) as suite:
        yield suite.mailbox(ALICE, "secret")


def _message() -> ds.Message:
    return ds.Message(subject="Result", body="See attachment.", recipients=[ds.Recipient(BOB)])


async def _sends(sandbox: Sandbox) -> int:
    return len(await sandbox.ledger("SendWithHeader"))


@pytest.mark.parametrize("fault", ["reset_after", "truncate", "malformed"])
async def test_lost_response_is_confirmed_by_message_in_sent_folder(
    sandbox: Sandbox, box: ds.Mailbox, fault: str
) -> None:
    sandbox.inject_fault("SendWithHeader", fault)
    answer = await box.send_once(_message(), key="result-17")
    assert await _sends(sandbox) == 1
    [sent] = await box.get_message_metadata("INBOX.Sent")
    assert answer.smtp_id == sent.msg_id
    assert [record.to for record in (await box.get_message_status(answer.smtp_id or "")).records] == [BOB]


@pytest.mark.parametrize("fault", ["reset_before", "status"])
async def test_message_that_is_not_there_is_not_sent_again(sandbox: Sandbox, box: ds.Mailbox, fault: str) -> None:
    sandbox.inject_fault("SendWithHeader", fault)
    with pytest.raises(ds.OutcomeUnknownError) as caught:
        await box.send_once(_message())
    assert await _sends(sandbox) == 0
    assert "INBOX.Sent" in caught.value.how_to_find_out


async def test_resending_needs_a_server_that_was_seen_to_show_request_ids(sandbox: Sandbox, box: ds.Mailbox) -> None:
    sandbox.inject_fault("SendWithHeader", "reset_before")
    with pytest.raises(ds.OutcomeUnknownError):
        await box.send_once(_message(), resend=True)
    assert await _sends(sandbox) == 0

    await box.send_once(_message(), key="another")
    sandbox.inject_fault("SendWithHeader", "reset_before")
    await box.send_once(_message(), key="this", resend=True)
    assert await _sends(sandbox) == 2


async def test_same_key_after_a_crash_sends_nothing_again(sandbox: Sandbox, box: ds.Mailbox) -> None:
    began = datetime.now(UTC)
    first = await box.send_once(_message(), key="result-17")
    again = await box.send_once(_message(), key="result-17", since=began)
    other = await box.send_once(_message(), key="result-18", since=began)
    assert first.smtp_id == again.smtp_id != other.smtp_id
    assert await _sends(sandbox) == 2


async def test_key_is_not_readable_in_the_message(box: ds.Mailbox) -> None:
    await box.send_once(_message(), key="patient-4711")
    [sent] = await box.get_messages("INBOX.Sent")
    assert all("4711" not in (header.value or "") for header in sent.headers)


@pytest.mark.parametrize(
    ("message", "since", "parameter"),
    [
        (_message(), datetime(2026, 1, 1), "since"),  # noqa: DTZ001  naive on purpose
        (
            ds.MessageWithHeader(recipients=[ds.Recipient(BOB)], headers=[ds.MessageHeader("x-request-id", "1")]),
            None,
            "headers",
        ),
    ],
)
async def test_send_once_rejects_what_would_break_its_promise(
    sandbox: Sandbox, box: ds.Mailbox, message: ds.Message, since: datetime | None, parameter: str
) -> None:
    with pytest.raises(ds.InvalidArgumentError) as caught:
        await box.send_once(message, key="result-17", since=since)
    assert caught.value.parameter == parameter
    assert await _sends(sandbox) == 0


async def test_verified_append_counts_messages_of_the_same_id(sandbox: Sandbox, box: ds.Mailbox) -> None:
    raw = ds.RawMessage(data=b"Message-ID: <1@direct.example.test>\r\nSubject: x\r\n\r\nbody\r\n")
    await box.save_raw_messages("INBOX.Drafts", [raw])
    sandbox.inject_fault("SaveRawMessages", "reset_before")
    with pytest.raises(ds.OutcomeUnknownError):  # an existing message proves nothing
        await box.save_raw_messages("INBOX.Drafts", [raw], verify=True)
    sandbox.inject_fault("SaveRawMessages", "reset_after")
    await box.save_raw_messages("INBOX.Drafts", [raw], verify=True)
    assert await box.get_message_count("INBOX.Drafts") == 2


async def test_message_without_an_id_proves_nothing(sandbox: Sandbox, box: ds.Mailbox) -> None:
    sandbox.inject_fault("SaveRawMessages", "reset_after")
    with pytest.raises(ds.OutcomeUnknownError):
        await box.save_raw_messages("INBOX.Drafts", [ds.RawMessage(data=b"Subject: x\r\n\r\n")], verify=True)
