"""A worker is killed every second or so, while the mailbox changes and its uids begin anew: the sink equals the server.

What is told in the sink's own transaction is told once: every message NEW one time, however often a worker died.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import sqlite3
import sys
from asyncio.subprocess import PIPE
from collections import Counter
from pathlib import Path

import attrs
import pytest

import directsuite as ds
from directsuite.sandbox.server import Sandbox
from tests.sync.killing.worker import DATABASE, PASSWORD

ADDRESSES = ("alice@direct.example.test", "bob@direct.example.test")
FOLDERS = ("INBOX", "INBOX.Archive")
SEED = 7
_LOG = logging.getLogger(__name__)
_ROOT = Path(__file__).resolve().parents[3]


@attrs.define
class Traffic:
    """What happens to the mailboxes meanwhile: mail comes, goes, moves, and folders are numbered anew."""

    sandbox: Sandbox
    suite: ds.DirectSuite
    dice: random.Random
    delivered: int = 0
    renumbered: int = 0

    async def go_on(self) -> None:
        """Until cancelled."""
        while True:
            await self.once()
            await asyncio.sleep(self.dice.uniform(0, 0.02))  # the workers are real processes, and so is their time

    async def once(self) -> None:
        """One change in one mailbox."""
        address = self.dice.choice(ADDRESSES)
        folder = self.dice.choice(FOLDERS)
        box = self.suite.mailbox(address, PASSWORD)
        uids = await box.get_uids(folder)
        match self.dice.choices(["deliver", "delete", "move", "renumber"], [80, 10, 9, 1])[0]:
            case "delete" if uids:
                await box.delete_messages_by_uids(folder, self.dice.sample(uids, 1), forever=True)
            case "move" if uids:
                other = FOLDERS[1 - FOLDERS.index(folder)]
                await box.move_messages_by_uids(folder, other, self.dice.sample(uids, min(3, len(uids))))
            case "renumber" if uids:
                self.renumbered += 1
                await self.sandbox.renumber(address, folder, first=self.dice.randint(1, 3 * max(uids)))
            case _:
                for _ in range(self.dice.randint(1, 5)):
                    self.delivered += 1
                    await self.sandbox.deliver(address, _letter(self.delivered, address), folder)

    async def listing(self) -> dict[tuple[str, str], set[tuple[int, str]]]:
        """What is on the server: of each folder, each uid and subject."""
        listed = dict[tuple[str, str], set[tuple[int, str]]]()
        for address in ADDRESSES:
            box = self.suite.mailbox(address, PASSWORD)
            for folder in await box.get_folders() + ["INBOX"]:
                found = {(each.uid or 0, each.subject or "") for each in await box.get_message_metadata(folder)}
                if found:
                    listed[address, folder] = found
        return listed


def _letter(number: int, address: str) -> bytes:
    head = (
        "From: carol@clinic.example.test",
        f"To: {address}",
        f"Subject: letter {number}",
        f"Message-ID: <{number}@c>",
    )
    return "\r\n".join((*head, "", f"This is letter {number}.", "x" * (number % 7 * 1000), "")).encode()


async def _worker(url: str, folder: Path, how: str) -> asyncio.subprocess.Process:
    command = (sys.executable, "-m", "tests.sync.killing.worker", url, str(folder), how, *ADDRESSES)
    return await asyncio.create_subprocess_exec(*command, cwd=_ROOT, stdout=PIPE, stderr=PIPE)


async def _kill_for(seconds: float, url: str, folder: Path, dice: random.Random) -> int:
    """Start workers and kill each; how many."""
    loop = asyncio.get_running_loop()
    end, kills = loop.time() + seconds, 0
    while loop.time() < end:
        worker = await _worker(url, folder, "run")
        await asyncio.sleep(dice.uniform(0.6, 1.6))
        assert worker.returncode is None, (await worker.communicate())[1].decode()
        worker.kill()
        await worker.communicate()
        kills += 1
    return kills


@pytest.mark.parametrize("seconds", [8, pytest.param(120, marks=pytest.mark.slow)])
async def test_nothing_is_missing_and_nothing_doubled(seconds: int, tmp_path: Path) -> None:
    dice = random.Random(SEED)
    async with Sandbox() as sandbox:
        for address in ADDRESSES:
            await sandbox.add_account(address, PASSWORD)
        async with ds.DirectSuite(ds.Settings(message_url=sandbox.message_url, requests_per_second=1000)) as suite:
            for address in ADDRESSES:
                await suite.mailbox(address, PASSWORD).create_folder(FOLDERS[1])
            traffic = Traffic(sandbox, suite, dice)
            going_on = asyncio.create_task(traffic.go_on())
            kills = await _kill_for(seconds, sandbox.message_url, tmp_path, dice)
            going_on.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await going_on
            for _ in range(2):
                worker = await _worker(sandbox.message_url, tmp_path, "once")
                output = await worker.communicate()
                assert worker.returncode == 0, output
            listed = await traffic.listing()
    with contextlib.closing(sqlite3.connect(tmp_path / DATABASE)) as database:
        rows = database.execute("SELECT mailbox, folder, uid, subject FROM message WHERE present = 1").fetchall()
        new = Counter(subject for (subject,) in database.execute("SELECT subject FROM told WHERE kind = 'new'"))
    kept = dict[tuple[str, str], set[tuple[int, str]]]()
    for mailbox, folder, uid, subject in rows:
        kept.setdefault((mailbox, folder), set()).add((uid, subject))
    _LOG.info("%d workers killed, %d letters, %d folders numbered anew", kills, traffic.delivered, traffic.renumbered)
    assert kept == listed
    assert not {subject: count for subject, count in new.items() if count > 1}
    assert len(rows) == sum(map(len, listed.values()))
