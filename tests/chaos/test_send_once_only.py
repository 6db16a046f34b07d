"""A lost response leads to one message, not to two: the client and bare aiohttp against the sandbox."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import pytest

import directsuite as ds
from directsuite.sandbox.server import Sandbox

ALICE, BOB, PASSWORD = "alice@direct.example.test", "bob@direct.example.test", "sandbox"


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox() as running:
        for address in (ALICE, BOB):
            await running.add_account(address, PASSWORD)
        yield running


@pytest.fixture
async def suite(sandbox: Sandbox) -> AsyncIterator[ds.DirectSuite]:
    async with ds.DirectSuite.from_env(sandbox.environment) as running:
        yield running


def message() -> ds.Message:
    return ds.Message(subject="once", body="only", recipients=[ds.Recipient(BOB)])


@pytest.mark.parametrize("reused", [False, True], ids=["fresh", "reused"])
async def test_lost_answer_is_one_message_and_an_unknown_outcome(
    sandbox: Sandbox, suite: ds.DirectSuite, *, reused: bool
) -> None:
    box = suite.mailbox(ALICE, PASSWORD)
    if reused:
        await box.get_message_count()
    sandbox.inject_fault("Send", "reset_after", times=None)
    with pytest.raises(ds.OutcomeUnknownError) as caught:
        await box.send(message())
    assert "INBOX.Sent" in caught.value.how_to_find_out
    assert len(await sandbox.ledger("Send")) == 1
    assert await box.get_message_count("INBOX.Sent") == 1


async def test_bare_aiohttp_beside_it_sends_two(sandbox: Sandbox) -> None:
    request = {
        "authentication": {"username": ALICE, "password": PASSWORD},
        "message": {
            "sender": ALICE,
            "subject": "once",
            "body": "only",
            "htmlBody": False,
            "recipients": [{"email": BOB, "type": "TO"}],
            "attachmentList": [],
        },
    }
    sandbox.inject_fault("Send", "reset_after", times=None)
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientError):
            await session.put(f"{sandbox.message_url}/Send", json=request)
    assert len(await sandbox.ledger("Send")) == 2


@pytest.mark.parametrize("kind", ["reset_after", "truncate", "malformed"])
async def test_spoilt_answer_is_one_message(sandbox: Sandbox, suite: ds.DirectSuite, kind: str) -> None:
    sandbox.inject_fault("Send", kind, times=None)
    with pytest.raises(ds.OutcomeUnknownError):
        await suite.mailbox(ALICE, PASSWORD).send(message())
    assert len(await sandbox.ledger("Send")) == 1


async def test_reset_before_is_no_message_and_still_an_unknown_outcome(sandbox: Sandbox, suite: ds.DirectSuite) -> None:
    sandbox.inject_fault("Send", "reset_before", times=None)
    with pytest.raises(ds.OutcomeUnknownError):
        await suite.mailbox(ALICE, PASSWORD).send(message())
    assert await sandbox.ledger("Send") == []
