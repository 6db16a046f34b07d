"""Mailboxes that change all the time, and workers that are killed.

change, kill, change, kill, … ─► two workers that end normally ─► the messages of the server, to compare with the sink
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
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import attrs

import directsuite as ds
from directsuite.sandbox.messaging import mailboxes
from directsuite.sandbox.server import Sandbox
from tests.sync.killing.worker import PASSWORD

ADDRESSES = ("alice@direct.example.test", "bob@direct.example.test")
FOLDERS = ("INBOX", "INBOX.Archive")
SEED = 7
Listing = dict[tuple[str, str], set[tuple[int, str]]]
"""The uids and subjects of each mailbox and folder."""
_LOG = logging.getLogger(__name__)
_ROOT = Path(__file__).resolve().parents[3]


@attrs.define
class Traffic:
    sandbox: Sandbox
    suite: ds.DirectSuite
    rng: random.Random
    addresses: Sequence[str] = ADDRESSES
    delivered: int = 0
    renumbered: int = 0

    async def run(self) -> None:
        while True:
            await self.make_change()
            await asyncio.sleep(self.rng.uniform(0, 0.02))  # real processes use real time

    async def make_change(self) -> None:
        address = self.rng.choice(self.addresses)
        folder = self.rng.choice(FOLDERS)
        box = self.suite.mailbox(address, PASSWORD)
        uids = await box.get_uids(folder)
        match self.rng.choices(["deliver", "delete", "move", "renumber"], [80, 10, 9, 1])[0]:
            case "delete" if uids:
                await box.delete_messages_by_uids(folder, self.rng.sample(uids, 1), forever=True)
            case "move" if uids:
                other = FOLDERS[1 - FOLDERS.index(folder)]
                await box.move_messages_by_uids(folder, other, self.rng.sample(uids, min(3, len(uids))))
            case "renumber" if uids:
                self.renumbered += 1
                first = self.rng.randint(1, 3 * max(uids))
                await self.sandbox._database.write(_renumber, address, folder, first)
            case _:
                for _ in range(self.rng.randint(1, 5)):
                    self.delivered += 1
                    await self.sandbox.deliver(address, _make_raw_message(self.delivered, address), folder)

    async def add_accounts(self) -> None:
        for address in self.addresses:
            await self.sandbox.add_account(address, PASSWORD)
            await self.suite.mailbox(address, PASSWORD).create_folder(FOLDERS[1])

    async def list_server(self) -> Listing:
        listed = Listing()
        for address in self.addresses:
            box = self.suite.mailbox(address, PASSWORD)
            for folder in await box.get_folders() + ["INBOX"]:
                found = {(each.uid or 0, each.subject or "") for each in await box.get_message_metadata(folder)}
                if found:
                    listed[address, folder] = found
        return listed


def _renumber(connection: sqlite3.Connection, address: str, name: str, first: int) -> None:
    """Assign consecutive uids from `first` to a folder's messages, as a restored server does."""
    folder = mailboxes.get_folder(connection, mailboxes.get_account_id(connection, address), name).id
    uids = mailboxes.list_uids(connection, folder)
    # First, because uids must be unique at every step.
    connection.execute("UPDATE message SET uid = -uid WHERE folder = ?", (folder,))
    connection.executemany(
        "UPDATE message SET uid = ? WHERE folder = ? AND uid = ?",
        [(new, folder, -old) for new, old in enumerate(uids, first)],
    )
    connection.execute("UPDATE folder SET next_uid = ? WHERE id = ?", (first + len(uids), folder))


def _make_raw_message(number: int, address: str) -> bytes:
    head = (
        "From: carol@clinic.example.test",
        f"To: {address}",
        f"Subject: letter {number}",
        f"Message-ID: <{number}@c>",
    )
    return "\r\n".join((*head, "", f"This is letter {number}.", "x" * (number % 7 * 1000), "")).encode()


async def _start_worker(url: str, store: str, how: str) -> asyncio.subprocess.Process:
    command = (sys.executable, "-m", "tests.sync.killing.worker", url, store, how, *ADDRESSES)
    return await asyncio.create_subprocess_exec(*command, cwd=_ROOT, stdout=PIPE, stderr=PIPE)


async def _kill_workers_for(seconds: float, url: str, store: str, dice: random.Random) -> int:
    loop = asyncio.get_running_loop()
    end, kills = loop.time() + seconds, 0
    while loop.time() < end:
        worker = await _start_worker(url, store, "run")
        await asyncio.sleep(dice.uniform(0.6, 1.6))
        assert worker.returncode is None, (await worker.communicate())[1].decode()
        worker.kill()
        await worker.communicate()
        kills += 1
    return kills


async def run_with_kills(seconds: float, store: str) -> Listing:
    dice = random.Random(SEED)
    async with Sandbox() as sandbox:
        settings = ds.Settings(message_url=sandbox.message_url, requests_per_second=1000)
        async with ds.DirectSuite(settings) as suite:
            traffic = Traffic(sandbox, suite, dice)
            await traffic.add_accounts()
            going_on = asyncio.create_task(traffic.run())
            kills = await _kill_workers_for(seconds, sandbox.message_url, store, dice)
            going_on.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await going_on
            for _ in range(2):
                worker = await _start_worker(sandbox.message_url, store, "once")
                output = await worker.communicate()
                assert worker.returncode == 0, output
            listed = await traffic.list_server()
    _LOG.info("%d workers killed, %d letters, %d folders renumbered", kills, traffic.delivered, traffic.renumbered)
    return listed


def group_rows(rows: Iterable[tuple[Any, ...]]) -> Listing:
    kept = Listing()
    for mailbox, folder, uid, subject in rows:
        kept.setdefault((mailbox, folder), set()).add((uid, subject))
    return kept


def assert_equal(listed: Listing, rows: Sequence[tuple[Any, ...]], new: Iterable[str]) -> None:
    assert group_rows(rows) == listed
    assert len(rows) == sum(map(len, listed.values()))
    assert not {subject: times for subject, times in Counter(new).items() if times > 1}
    _LOG.info("%d messages in the sink, as on the server", len(rows))
