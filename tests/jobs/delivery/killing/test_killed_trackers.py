"""A tracker is killed repeatedly: each message is sent once; a result is repeated only after a kill."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import random
import signal
import sys
from asyncio.subprocess import PIPE
from collections import Counter
from pathlib import Path

import pytest

import directsuite as ds
from directsuite.sandbox.server import Sandbox
from tests.integration.scenario import ALICE, PASSWORD
from tests.jobs.delivery.killing import worker

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("without_coverage")]

SEED = 7
_ROOT = Path(__file__).resolve().parents[4]


async def _run_once(sandbox: Sandbox, folder: Path, messages: int, *, lines: int = 0, events: int = 0) -> bool:
    """Start a worker that is killed after it has printed `lines` lines, or in the event of that number.

    Return True if it ended before.
    """
    arguments = (sandbox.message_url, ALICE, str(folder), str(messages), str(events))
    command = (sys.executable, "-m", worker.__name__, *arguments)
    environment = os.environ | {worker.PASSWORD: PASSWORD}
    process = await asyncio.create_subprocess_exec(*command, cwd=_ROOT, env=environment, stdout=PIPE, stderr=PIPE)
    assert process.stdout is not None
    while lines and await process.stdout.readline():
        lines -= 1
    if not lines and not events:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
    _, errors = await process.communicate()
    assert process.returncode in (0, -signal.SIGKILL), errors.decode()
    return process.returncode == 0


@pytest.mark.parametrize(("messages", "most"), [(30, 20), pytest.param(1_000, 200, marks=pytest.mark.slow)])
async def test_each_message_is_sent_once_and_its_end_reported(messages: int, most: int, tmp_path: Path) -> None:
    dice, kills = random.Random(SEED), 0
    async with Sandbox() as sandbox:
        await sandbox.add_account(ALICE, PASSWORD)
        for moment in itertools.cycle(("lines", "events")):
            if await _run_once(sandbox, tmp_path, messages, **{moment: dice.randint(1, 2 * messages + most)}):
                break
            kills += 1
        async with ds.DirectSuite(ds.Settings(message_url=sandbox.message_url)) as suite:
            sent = [each.msg_id async for each in suite.mailbox(ALICE, PASSWORD).iter_metadata("INBOX.Sent")]
    told = [line.split(" ", 2) for line in (tmp_path / "told").read_text().splitlines()]
    assert kills >= 3
    assert len(sent) == messages
    assert Counter({(smtp_id, status) for _, smtp_id, status in told}) == Counter(
        (smtp_id, status) for smtp_id in sent for status in ("Delivered", "Remotely Failed")
    )
    assert len({key for key, *_ in told}) == 2 * messages
    assert len(told) <= 2 * messages + kills
