"""The sandbox in a separate process, and its control API."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncGenerator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import aiohttp
import attrs

import directsuite as ds

CONTROL_CONNECTIONS = 2
"""Connections to the control API. They are counted with the sockets of the client."""

_TOKEN_SECONDS = 40
_START_TIMEOUT = 120.0


@attrs.frozen
class SandboxProcess:
    """A running sandbox, with its URLs by service."""

    urls: Mapping[str, str]
    pid: int
    _http: aiohttp.ClientSession

    async def call_control(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request to the control API. A body of bytes is a raw message, any other body is sent as JSON."""
        content: dict[str, Any] = {"data": body} if isinstance(body, bytes) else {"json": {} if body is None else body}
        async with self._http.request(method, f"{self.urls['control']}/{path}", **content) as response:
            response.raise_for_status()
            return await response.json()

    async def issue_token(self) -> ds.AccessToken:
        """Return a new access token, as the token source of a suite."""
        response = await self.call_control("POST", "tokens", {"seconds": _TOKEN_SECONDS})
        return ds.AccessToken(response["created"], _TOKEN_SECONDS)

    async def reset(self) -> None:
        """Delete the state, so that the sandbox does not grow during the run, and set its clock to the present."""
        await self.call_control("POST", "reset")
        await self.call_control("POST", "clock/set", {"at": datetime.now(UTC).isoformat()})


@contextlib.asynccontextmanager
async def run_sandbox(data: Path | None = None, log: IO[bytes] | int = DEVNULL) -> AsyncGenerator[SandboxProcess]:
    """Run a sandbox with sample content.

    data: the folder of its state; None keeps the state in memory. log: receives its standard error.
    """
    storage = ("--memory",) if data is None else ("--data", str(data))
    command = (sys.executable, "-m", "directsuite.sandbox", *storage, "--port", "0", "--json")
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=log)
    assert process.stdout is not None
    try:
        async with asyncio.timeout(_START_TIMEOUT):
            line = await process.stdout.readline()
        if not line:
            raise RuntimeError("The sandbox ended before it was ready.")
        connector = aiohttp.TCPConnector(limit=CONTROL_CONNECTIONS, force_close=True)
        timeout = aiohttp.ClientTimeout(total=_START_TIMEOUT)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as http:
            yield SandboxProcess(json.loads(line)["urls"], process.pid, http)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()
