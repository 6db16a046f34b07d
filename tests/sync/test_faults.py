"""Unexpected errors of a round affect one mailbox, which is tried again."""

from __future__ import annotations

import asyncio
import logging

import pytest

from directsuite.messaging.service import Mailbox
from directsuite.sync import SqliteStore, SyncStatus
from tests.integration.scenario import ALICE, BOB, PASSWORD, Scenario
from tests.sync.mail_service import RecordingSink
from tests.sync.test_synchronizer import make_sync

NO_TEXT = "jos\udce9@direct.example.test"
"""An address in Latin-1, as a shell passes it. SQLite cannot store it, and Python's UnicodeEncodeError is raised."""

FAULT = "directsuite itself failed (UnicodeEncodeError). Report this as a bug."


async def test_an_unexpected_error_affects_one_mailbox(
    scenario: Scenario, caplog: pytest.LogCaptureFixture, store: SqliteStore
) -> None:
    told = RecordingSink()
    await scenario.deliver("hers")
    sync = make_sync(scenario, store, told, mailboxes=[NO_TEXT, ALICE])
    status = await sync.once()
    assert (status[NO_TEXT].status, status[NO_TEXT].problem) == (SyncStatus.FAILING, FAULT)
    assert status[ALICE].status is SyncStatus.UP_TO_DATE
    assert told.subjects == [("new", "hers")]
    (record,) = (record for record in caplog.records if record.levelno == logging.ERROR)
    assert FAULT in record.getMessage()
    assert "sqlite.py" in record.getMessage()
    assert "jos" not in caplog.text


async def cancelled(*_: object) -> str:
    waiting = asyncio.ensure_future(asyncio.Event().wait())
    waiting.cancel()
    await waiting
    return ""


async def test_cancelled_password_source_fails_its_mailbox_alone(scenario: Scenario, store: SqliteStore) -> None:
    async def password(address: str) -> str:
        return await cancelled() if address == BOB else PASSWORD

    await scenario.deliver("hers")
    told = RecordingSink()
    sync = make_sync(scenario, store, told, mailboxes=[BOB, ALICE], password=password, concurrency=1)
    status = await sync.once()
    assert status[BOB].status is SyncStatus.FAILING
    assert told.subjects == [("new", "hers")]


async def test_a_synchronisation_that_is_cancelled_ends(scenario: Scenario, store: SqliteStore) -> None:
    async def password(_: str) -> str:
        begun.set()
        await asyncio.Event().wait()
        return ""

    begun = asyncio.Event()
    sync = make_sync(scenario, store, RecordingSink(), password=password)
    running = asyncio.create_task(sync.run())
    await asyncio.wait_for(begun.wait(), 20)
    running.cancel()
    await asyncio.wait([running], timeout=20)
    assert running.cancelled()


async def test_listed_value_that_is_no_uid_is_reported_and_the_rest_arrives(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch, store: SqliteStore
) -> None:
    get_uids = Mailbox.get_uids

    async def with_another(self: Mailbox, folder: str = "INBOX") -> list[int]:
        return [*await get_uids(self, folder), 2**63]

    await scenario.deliver("hers")
    monkeypatch.setattr(Mailbox, "get_uids", with_another)
    told = RecordingSink()
    sync = make_sync(scenario, store, told)
    status = await sync.once()
    assert told.subjects == [("new", "hers")]
    assert "GetUIDs lists 1 values that are not uids" in status[ALICE].folders["INBOX"]
