"""A send that was answered is kept, whole and once, though the process is killed at its busiest."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections import Counter
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp

from tests.sandbox.messaging.mailbox_server import ALICE, BOB, message

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

SENDS = 1000
IN_FLIGHT = 40
AUTHENTICATION = {"username": ALICE, "password": "pw"}


@asynccontextmanager
async def served(folder: Path) -> AsyncGenerator[tuple[asyncio.subprocess.Process, str]]:
    """The service in a process of its own, and its base URL; killed at the end."""
    script = Path(__file__).with_name("serve_mailboxes.py")
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(script), str(folder), ALICE, BOB, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        port = int(await process.stdout.readline())
        yield process, f"http://127.0.0.1:{port}/message-rest/api/message"
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGKILL)
        await process.wait()


async def test_kill_9_loses_and_doubles_nothing_that_was_answered(tmp_path: Path) -> None:
    answered: dict[str, str] = {}
    remaining = iter(range(SENDS))

    async with asyncio.timeout(60):
        async with served(tmp_path) as (process, url), aiohttp.ClientSession() as http:

            async def send_until_killed() -> None:
                for number in remaining:
                    body = {"authentication": AUTHENTICATION, "message": message(subject=str(number))}
                    try:
                        async with http.put(f"{url}/Send", json=body) as response:
                            answered[str(number)] = (await response.json())["smtpId"]
                    except aiohttp.ClientError:
                        return
                    if len(answered) == SENDS // 2:
                        process.send_signal(signal.SIGKILL)

            await asyncio.gather(*(send_until_killed() for _ in range(IN_FLIGHT)))
        assert SENDS // 2 <= len(answered) < SENDS

        async with served(tmp_path) as (_, url), aiohttp.ClientSession() as http:
            sent = await _messages(http, f"{url}/GetMessages/INBOX.Sent", ALICE)
            received = await _messages(http, f"{url}/GetMessages/INBOX", BOB)
            body = {"auth": AUTHENTICATION, "smtpIds": [found["msgID"] for found in sent]}
            async with http.post(f"{url}/GetMessageStatus/", json=body) as response:
                report = await response.json()

    kept = {found["subject"]: found["msgID"] for found in sent}
    assert answered.items() <= kept.items()
    for folder in (sent, received):
        assert set(Counter(found["subject"] for found in folder).values()) == {1}
        assert [found["uid"] for found in folder] == list(range(1, len(kept) + 1))
        assert {found["subject"]: found["msgID"] for found in folder} == kept
    assert report["hasCvData"] is True


async def _messages(http: aiohttp.ClientSession, url: str, username: str) -> list[dict[str, Any]]:
    async with http.post(url, json={"username": username, "password": "pw"}) as response:
        found: list[dict[str, Any]] = (await response.json())["messages"]
        return found
