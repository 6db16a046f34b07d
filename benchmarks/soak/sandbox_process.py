"""The sandbox in a separate process, and its control API."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import IO

import attrs

import directsuite as ds
from directsuite.sandbox.client import Control

_TOKEN_SECONDS = 40
_START_TIMEOUT = 120.0


@attrs.frozen
class SandboxProcess:
    """A running sandbox: its URLs by service, and its control API."""

    urls: Mapping[str, str]
    pid: int
    control: Control

    async def issue_token(self) -> ds.AccessToken:
        """Return a new access token, as the token source of a suite."""
        response = await self.control._request("POST", "tokens", {"seconds": _TOKEN_SECONDS})
        return ds.AccessToken(response["created"], _TOKEN_SECONDS)


@contextlib.asynccontextmanager
async def run_sandbox(data: Path | None = None, log: IO[bytes] | int = DEVNULL) -> AsyncGenerator[SandboxProcess]:
    """Run a sandbox with sample content.

    data: the folder of its state; None keeps the state in memory. log: receives its standard error.
    """
    storage = ("--memory",) if data is None else ("--data", str(data))
    command = (sys.executable, "-m", "directsuite", "sandbox", *storage, "--port", "0", "--json")
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=log)
    assert process.stdout is not None
    try:
        async with asyncio.timeout(_START_TIMEOUT):
            line = await process.stdout.readline()
        if not line:
            raise RuntimeError("The sandbox ended before it was ready.")
        urls = json.loads(line)["urls"]
        async with Control(urls["control"]) as control:
            yield SandboxProcess(urls, process.pid, control)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()
