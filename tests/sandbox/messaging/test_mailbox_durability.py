"""A send that was answered is kept, whole and once, though the process is killed at its busiest."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from directsuite.sandbox.samples import MAILBOX_LOGIN, MAILBOXES
from tests.sandbox.command import read_startup_output, run_command

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.process

SENDS = 1000
IN_FLIGHT = 40
ALICE, BOB = MAILBOXES
AUTHENTICATION = {"username": ALICE, "password": MAILBOX_LOGIN}


async def test_kill_9_loses_and_doubles_nothing_that_was_answered(tmp_path: Path) -> None:
    answered: dict[str, str] = {}
    remaining = iter(range(SENDS))

    async with asyncio.timeout(60):
        async with run_command("--data", str(tmp_path)) as process, aiohttp.ClientSession() as http:
            _, urls = await read_startup_output(process)
            url = urls["message"]

            async def send_until_killed() -> None:
                for number in remaining:
                    body = {"authentication": AUTHENTICATION, "message": make_message(str(number))}
                    try:
                        async with http.put(f"{url}/Send", json=body) as response:
                            answered[str(number)] = (await response.json())["smtpId"]
                    except aiohttp.ClientError:
                        return
                    if len(answered) == SENDS // 2:
                        process.send_signal(signal.SIGKILL)

            await asyncio.gather(*(send_until_killed() for _ in range(IN_FLIGHT)))
        assert SENDS // 2 <= len(answered) < SENDS

        async with run_command("--data", str(tmp_path)) as process, aiohttp.ClientSession() as http:
            _, urls = await read_startup_output(process)
            url = urls["message"]
            sent = await _get_messages(http, f"{url}/GetMessages/INBOX.Sent", ALICE)
            received = await _get_messages(http, f"{url}/GetMessages/INBOX", BOB)
            body = {"auth": AUTHENTICATION, "smtpIds": [found["msgID"] for found in sent]}
            async with http.post(f"{url}/GetMessageStatus/", json=body) as response:
                report = await response.json()
            async with http.get(f"{urls['control']}/_sandbox/ledger", params={"operation": "Send"}) as response:
                effects = (await response.json())["effects"]

    kept = {found["subject"]: found["msgID"] for found in sent}
    assert answered.items() <= kept.items()
    for folder in (sent, received):
        assert set(Counter(found["subject"] for found in folder).values()) == {1}
        assert [found["uid"] for found in folder] == list(range(1, len(kept) + 1))
        assert {found["subject"]: found["msgID"] for found in folder} == kept
    assert sorted(effect["subject"] for effect in effects) == sorted(kept.values())
    assert report["hasCvData"] is True


def make_message(subject: str) -> dict[str, Any]:
    """A message from alice to bob."""
    recipients = [{"email": BOB, "type": "TO"}]
    return {"sender": ALICE, "subject": subject, "body": "Please.", "htmlBody": False, "recipients": recipients}


async def _get_messages(http: aiohttp.ClientSession, url: str, username: str) -> list[dict[str, Any]]:
    async with http.post(url, json={"username": username, "password": MAILBOX_LOGIN}) as response:
        found: list[dict[str, Any]] = (await response.json())["messages"]
        return found
