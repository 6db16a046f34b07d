"""A sandbox that is killed loses and repeats no operation whose response it has sent."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import random
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator
from pathlib import Path

import aiohttp
import attrs
import pytest

from .load import Caller, Load

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("without_coverage")]

CLIENTS = 3
KILLS = 60
POINTS = [
    ("save", "after write"),
    ("save", "before commit Save"),
    ("sign", "before unlink Sign"),
    ("delete", "after unlink Delete"),
    ("send", "after commit Send"),
    ("remove", "before unlink DeleteMessagesByUIDs"),
]
"""The operations, and the moments at which the sandbox is killed."""
_LOG = logging.getLogger(__name__)


@attrs.frozen
class Running:
    process: asyncio.subprocess.Process
    caller: Caller

    def count(self) -> None:
        self.process.send_signal(signal.SIGUSR1)


@contextlib.asynccontextmanager
async def started(folder: Path, moment: str, count: int = 1, when: str = "later") -> AsyncGenerator[Running | None]:
    """Yield a sandbox that dies at a moment, or None if it died before it was ready. It is killed at the end."""
    options = ("--data", str(folder), "--port", "0", "--json")
    command = (sys.executable, "-m", "tests.sandbox.killing.sandbox", moment, str(count), when, *options)
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE)
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60), aiohttp.ClientSession() as http:
            if not (line := await process.stdout.readline()):
                yield None
                return
            urls = json.loads(line)["urls"]
            async with http.get(f"{urls['control']}/_sandbox/environment") as response:
                token = (await response.json())["environment"]["DIRECTSUITE_TOKEN"]
            yield Running(process, Caller(http, urls, token))
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)  # process.kill() would reap a dead process, as asyncio does
        assert await process.wait() == -signal.SIGKILL


async def test_a_kill_between_a_file_and_its_row_loses_nothing(tmp_path: Path) -> None:
    load = Load(tmp_path, random.Random(7))
    for work, moment in POINTS:
        async with started(tmp_path, moment) as running:
            assert running is not None
            await load.assert_stored(running.caller)
            await load.save(running.caller)
            await load.send(running.caller)
            running.count()
            with pytest.raises(aiohttp.ClientError):
                await getattr(load, work)(running.caller)
    async with started(tmp_path, "before unlink", when="now") as running:
        assert running is None  # it dies when it deletes the files of its predecessor
    async with started(tmp_path, "never") as running:
        assert running is not None
        await load.assert_stored(running.caller)
    assert load.confirmed_count == len(POINTS) - 2  # a save that died before its commit has no effect


@pytest.mark.slow
async def test_a_kill_at_any_moment_loses_nothing(tmp_path: Path) -> None:
    dice = random.Random(7)
    load = Load(tmp_path, dice)
    at_start = 0
    for number in range(KILLS):
        if number % 5 == 0:
            async with started(tmp_path, "", dice.randint(1, 12), "now") as running:
                at_start += running is None
        async with started(tmp_path, "", dice.randint(1, 150)) as running:
            assert running is not None
            await load.assert_stored(running.caller)
            clients = [asyncio.create_task(load.run_until_killed(running.caller)) for _ in range(CLIENTS)]
            if number % 2:
                running.count()
            else:
                await asyncio.sleep(dice.uniform(0, 0.5))  # the sandbox is a separate process, in real time
                os.kill(running.process.pid, signal.SIGKILL)
            await asyncio.gather(*clients)
    async with started(tmp_path, "never") as running:
        assert running is not None
        await load.assert_stored(running.caller)
    _LOG.info(
        "%d kills, %d more at a start; %d documents and messages, %d operations cut off that had happened",
        KILLS,
        at_start,
        load.number,
        load.confirmed_count,
    )
