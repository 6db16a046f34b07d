"""The sandbox in a separate process, and its control API."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncGenerator, Mapping

import attrs

import directsuite as ds
from directsuite.sandbox.client import Control

_TOKEN_SECONDS = 40
_START_TIMEOUT = 120.0


@attrs.frozen
class SandboxProcess:
    """A running sandbox: the environment variables of its clients, and its control API."""

    environment: Mapping[str, str]
    control: Control

    async def issue_token(self) -> ds.AccessToken:
        """Return a new access token, as the token source of a suite."""
        response = await self.control._request("POST", "tokens", {"seconds": _TOKEN_SECONDS})
        return ds.AccessToken(response["created"], _TOKEN_SECONDS)


@contextlib.asynccontextmanager
async def run_sandbox() -> AsyncGenerator[SandboxProcess]:
    """Run a sandbox with sample content, which it keeps in memory."""
    command = (sys.executable, "-m", "directsuite", "sandbox", "--memory", "--port", "0", "--json")
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=DEVNULL)
    assert process.stdout is not None
    try:
        async with asyncio.timeout(_START_TIMEOUT):
            urls = json.loads(await process.stdout.readline())["urls"]
        async with Control(urls["control"]) as control:
            yield SandboxProcess(await control.environment(), control)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()
