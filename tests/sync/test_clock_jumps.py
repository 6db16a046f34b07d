"""Stored times after the clock was wrong or jumps. Fleets have theirs in fleet/test_clock_jumps.py."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from directsuite.sync import MailboxProgress, QuarantinedMessage
from directsuite.sync.decide import is_due
from directsuite.sync.status import WorkerStatus
from tests.sync.mail_service import Document, MailScenario

HOUR = 3600.0
DAY = 24 * HOUR
YEARS = 2 * 365 * DAY
JUMPS = [-YEARS, -HOUR, HOUR, YEARS]


def without_message(uid: int) -> Callable[[str, Document], Document]:
    def change(_: str, document: Document) -> Document:
        return document | {"messages": [each for each in document["messages"] if each["uid"] != uid]}

    return change


async def quarantine(mail: MailScenario) -> QuarantinedMessage:
    mail.response_changes["GetMessagesByUIDs"] = without_message(3)
    await mail.begin(1, 2, 3, 4, 5)
    mail.response_changes.clear()
    (quarantined,) = await mail.store.quarantined()
    return quarantined


@pytest.mark.parametrize(
    ("due_ms", "is_now"),
    [(-1, True), (0, True), (1, False), (900_000, False), (960_000, False), (960_001, True), (10**12, True)],
)
def test_a_time_is_due_if_past_or_too_far_in_the_future(due_ms: int, is_now: bool) -> None:
    assert is_due(1_000 + due_ms, 1_000, 900_000) is is_now


@pytest.mark.exhaustive(limit=1)
@pytest.mark.parametrize("jump", JUMPS)
@pytest.mark.parametrize("was_wrong", [True, False], ids=["a wrong clock is set right", "the clock jumps"])
async def test_quarantined_message_is_retried_after_a_jump(was_wrong: bool, jump: float, mail: MailScenario) -> None:
    now = mail.now
    mail.now = now + jump if was_wrong else now
    await quarantine(mail)
    mail.now = now if was_wrong else now + jump
    await mail.synchronise()
    assert ("INBOX", 3) in mail.sink.messages


async def test_quarantined_message_waits_for_its_time_if_the_clock_is_right(mail: MailScenario) -> None:
    await quarantine(mail)
    mail.now += 14 * 60
    await mail.synchronise()
    assert ("INBOX", 3) not in mail.sink.messages
    mail.now += 60
    await mail.synchronise()
    assert ("INBOX", 3) in mail.sink.messages


async def is_audited(mail: MailScenario) -> bool:
    mail.requested_operations.clear()
    await mail.synchronise()
    return "GetMessageMetaData" in mail.requested_operations


@pytest.mark.exhaustive(limit=2)
@pytest.mark.parametrize(
    ("jump", "hours_until_audit"),
    [
        pytest.param(-YEARS, 0, id="2 years behind"),
        pytest.param(-HOUR, 23, id="1 hour behind"),
        pytest.param(0, 24, id="right"),
        pytest.param(HOUR, 0, id="1 hour ahead"),
        pytest.param(YEARS, 0, id="2 years ahead"),
    ],
)
async def test_audit_after_a_wrong_clock_is_set_right(jump: float, hours_until_audit: int, mail: MailScenario) -> None:
    mail.now += jump
    await mail.begin(1, 2, 3)
    mail.now -= jump
    if hours_until_audit:
        mail.now += hours_until_audit * HOUR - 1
        assert not await is_audited(mail)
        mail.now += 1
    assert await is_audited(mail)
    assert not await is_audited(mail)


@pytest.mark.parametrize("jump", JUMPS)
def test_report_of_a_worker_is_old_if_its_clock_was_wrong(jump: float) -> None:
    written_at = 1_800_000_000.0 + jump
    status = WorkerStatus(pid=1, started=written_at, written_at=written_at, mailboxes={})
    assert status.age(1_800_000_000.0) >= HOUR
    assert MailboxProgress(name="x", up_to_date_at=written_at).lag(1_800_000_000.0) == abs(jump)
