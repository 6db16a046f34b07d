"""Stored times after the clock was wrong or jumps. Fleets have theirs in fleet/test_clock_jumps.py."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from directsuite.sync import Kind, MailboxProgress, QuarantinedMessage
from directsuite.sync.decide import is_due
from directsuite.sync.status import WorkerStatus
from tests.sync.mail_service import Document, MailService, SyncClient

HOUR = 3600.0
DAY = 24 * HOUR
YEARS = 2 * 365 * DAY
JUMPS = [-YEARS, -HOUR, HOUR, YEARS]


def without_message(uid: int) -> Callable[[str, Document], Document]:
    def change(_: str, document: Document) -> Document:
        return document | {"messages": [each for each in document["messages"] if each["uid"] != uid]}

    return change


async def quarantine(service: MailService, client: SyncClient) -> QuarantinedMessage:
    service.add("INBOX", *range(1, 6))
    service.response_changes["GetMessagesByUIDs"] = without_message(3)
    await client.synchronise()
    service.response_changes.clear()
    (quarantined,) = await client.store.quarantined()
    return quarantined


@pytest.mark.parametrize(
    ("due_ms", "is_now"),
    [(-1, True), (0, True), (1, False), (900_000, False), (960_000, False), (960_001, True), (10**12, True)],
)
def test_a_time_is_due_if_past_or_too_far_in_the_future(due_ms: int, is_now: bool) -> None:
    assert is_due(1_000 + due_ms, 1_000, 900_000) is is_now


@pytest.mark.parametrize("jump", JUMPS)
async def test_quarantined_message_is_retried_once_a_wrong_clock_is_set_right(
    jump: float, service: MailService, client: SyncClient
) -> None:
    client.now += jump
    await quarantine(service, client)
    client.now -= jump
    await client.synchronise()
    assert ("INBOX", 3) in client.sink.messages


@pytest.mark.parametrize("jump", JUMPS)
async def test_quarantined_message_is_retried_after_the_clock_jumps(
    jump: float, service: MailService, client: SyncClient
) -> None:
    await quarantine(service, client)
    client.now += jump
    await client.synchronise()
    assert ("INBOX", 3) in client.sink.messages


async def test_quarantined_message_waits_for_its_time_if_the_clock_is_right(
    service: MailService, client: SyncClient
) -> None:
    await quarantine(service, client)
    client.now += 14 * 60
    await client.synchronise()
    assert ("INBOX", 3) not in client.sink.messages
    client.now += 60
    await client.synchronise()
    assert ("INBOX", 3) in client.sink.messages


async def is_audited(service: MailService, client: SyncClient) -> bool:
    service.requested_operations.clear()
    await client.synchronise()
    return "GetMessageMetaData" in service.requested_operations


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
async def test_audit_after_a_wrong_clock_is_set_right(
    jump: float, hours_until_audit: int, service: MailService, client: SyncClient
) -> None:
    service.add("INBOX", 1, 2, 3)
    client.now += jump
    await client.synchronise()
    client.now -= jump
    if hours_until_audit:
        client.now += hours_until_audit * HOUR - 1
        assert not await is_audited(service, client)
        client.now += 1
    assert await is_audited(service, client)
    assert not await is_audited(service, client)


@pytest.mark.parametrize(("jump", "is_now"), [(-YEARS, True), (-HOUR, True), (HOUR, False), (YEARS, True)])
async def test_audit_after_the_clock_jumps(jump: float, is_now: bool, service: MailService, client: SyncClient) -> None:
    service.add("INBOX", 1, 2, 3)
    await client.synchronise()
    client.now += jump
    assert await is_audited(service, client) is is_now
    client.now += HOUR
    assert not await is_audited(service, client)


@pytest.mark.parametrize("jump", JUMPS)
async def test_rejected_deletion_is_redelivered_after_clock_correction(
    jump: float, service: MailService, client: SyncClient
) -> None:
    service.add("INBOX", *range(1, 6))
    await client.synchronise()
    accept = client.sink.accept
    client.sink.accept = lambda change: change.kind is not Kind.GONE or change.key.uid != 2
    client.now += jump
    del service.folders["INBOX"][2]
    service.add("INBOX", 6)
    await client.synchronise()
    del service.folders["INBOX"][3]
    await client.synchronise()
    assert ("INBOX", 2) in client.sink.messages
    client.sink.accept = accept
    client.now -= jump
    await client.synchronise()
    assert ("INBOX", 2) not in client.sink.messages


@pytest.mark.parametrize("jump", JUMPS)
def test_report_of_a_worker_is_old_if_its_clock_was_wrong(jump: float) -> None:
    written_at = 1_800_000_000.0 + jump
    status = WorkerStatus(pid=1, started=written_at, written_at=written_at, mailboxes={})
    assert status.age(1_800_000_000.0) >= HOUR
    assert MailboxProgress(name="x", up_to_date_at=written_at).lag(1_800_000_000.0) == abs(jump)
