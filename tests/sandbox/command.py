"""`directsuite sandbox` in a separate process."""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from directsuite.sandbox import Control

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


@asynccontextmanager
async def run_command(*arguments: str) -> AsyncGenerator[Process]:
    """Run the command on a free port. The process is killed at the end."""
    program = ("-W", "error", "-m", "directsuite", "sandbox", "--port", "0", "--json")
    process = await asyncio.create_subprocess_exec(sys.executable, *program, *arguments, stdout=PIPE, stderr=PIPE)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def read_startup_output(process: Process) -> tuple[dict[str, str], dict[str, str]]:
    """Return the environment of the sandbox, and the URLs in the command's JSON line."""
    assert process.stdout is not None
    body = json.loads(await asyncio.wait_for(process.stdout.readline(), 20))
    assert body["ready"] is True
    async with Control(body["urls"]["control"], body.get("token")) as control:
        return await control.environment(), body["urls"]
