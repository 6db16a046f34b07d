"""A tracker is killed again and again: every end is told, twice only where a kill came between, and rightly."""

from __future__ import annotations

import asyncio
import contextlib
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
from tests.integration.world import ALICE, PASSWORD
from tests.jobs.delivery.killing import worker

pytestmark = pytest.mark.process

SEED = 7
_ROOT = Path(__file__).resolve().parents[4]


async def _run_once(sandbox: Sandbox, folder: Path, ends: int) -> bool:
    """Start a worker and kill it when it was told of so many ends; whether it came to its own before."""
    command = (sys.executable, "-m", worker.__name__, sandbox.message_url, ALICE, str(folder))
    environment = os.environ | {worker.PASSWORD: PASSWORD}
    process = await asyncio.create_subprocess_exec(*command, cwd=_ROOT, env=environment, stdout=PIPE, stderr=PIPE)
    assert process.stdout is not None
    while ends and await process.stdout.readline():
        ends -= 1
    if not ends:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
    _, errors = await process.communicate()
    assert process.returncode in (0, -signal.SIGKILL), errors.decode()
    return process.returncode == 0


@pytest.mark.parametrize(("messages", "most"), [(30, 20), pytest.param(1_000, 200, marks=pytest.mark.slow)])
async def test_every_end_is_told(messages: int, most: int, tmp_path: Path) -> None:
    dice, kills = random.Random(SEED), 0
    async with Sandbox() as sandbox:
        await sandbox.add_account(ALICE, PASSWORD)
        async with ds.DirectSuite(ds.Settings(message_url=sandbox.message_url)) as suite:
            box = suite.mailbox(ALICE, PASSWORD)
            recipients = [ds.Recipient(f"{name}@hospital.example.test") for name in ("slow+1s", "bounce")]
            message = ds.Message(subject="Referral", recipients=recipients)
            sent = [(await box.send(message)).smtp_id for _ in range(messages)]
        (tmp_path / "sent").write_text("\n".join(map(str, sent)))
        while not await _run_once(sandbox, tmp_path, dice.randint(1, most)):
            kills += 1
    told = [line.split(" ", 2) for line in (tmp_path / "told").read_text().splitlines()]
    assert kills >= 3
    assert Counter({(smtp_id, status) for _, smtp_id, status in told}) == Counter(
        (smtp_id, status) for smtp_id in sent for status in ("Delivered", "Remotely Failed")
    )
    assert len({key for key, *_ in told}) == 2 * messages
    assert len(told) <= 2 * messages + kills
