"""The sandbox in a process of its own, and its control API as seen from here."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from asyncio.subprocess import DEVNULL, PIPE
from datetime import UTC, datetime
from typing import IO, TYPE_CHECKING, Any

import aiohttp

import directsuite as ds

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping
    from pathlib import Path

CONTROL_CONNECTIONS = 2
"""Sockets that the control API may take, which are not the client's but are counted with them."""

_TOKEN_SECONDS = 40
_START_TIMEOUT = 120.0  # seconds, on a busy machine too


class SoakServer:
    """A running sandbox. urls: by service. pid: of its process."""

    def __init__(self, urls: Mapping[str, str], pid: int, http: aiohttp.ClientSession) -> None:
        self.urls = urls
        self.pid = pid
        self._http = http

    async def call_control(self, method: str, path: str, body: Any = None) -> Any:
        """One request to the control API: JSON, or a raw message as bytes."""
        content: dict[str, Any] = {"data": body} if isinstance(body, bytes) else {"json": {} if body is None else body}
        async with self._http.request(method, f"{self.urls['control']}/_sandbox/{path}", **content) as answer:
            answer.raise_for_status()
            return await answer.json()

    async def issue_token(self) -> ds.AccessToken:
        """A new access token of the demo account: the source of every suite's tokens."""
        answer = await self.call_control("POST", "tokens", {"seconds": _TOKEN_SECONDS})
        return ds.AccessToken(answer["created"], _TOKEN_SECONDS)

    async def reset(self) -> None:
        """Forget everything that happened, and set the clock right: the server must not grow for ever."""
        await self.call_control("POST", "reset")
        await self.call_control("POST", "clock/set", {"at": datetime.now(UTC).isoformat()})


@contextlib.asynccontextmanager
async def run_server(data: Path | None = None, log: IO[bytes] | int = DEVNULL) -> AsyncGenerator[SoakServer]:
    """A sandbox with sample content, its state in a folder or in memory, ended by SIGTERM. log: its standard error."""
    kept = ("--memory",) if data is None else ("--data", str(data))
    command = (sys.executable, "-m", "directsuite", "sandbox", *kept, "--port", "0", "--json")
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=log)
    try:
        async with asyncio.timeout(_START_TIMEOUT):
            urls = await _read_startup_output(process)
        connector = aiohttp.TCPConnector(limit=CONTROL_CONNECTIONS, force_close=True)
        timeout = aiohttp.ClientTimeout(total=_START_TIMEOUT)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as http:
            yield SoakServer(urls, process.pid, http)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


async def _read_startup_output(process: asyncio.subprocess.Process) -> Mapping[str, str]:
    assert process.stdout is not None
    if not (line := await process.stdout.readline()):
        raise RuntimeError("the sandbox ended before it was ready")
    urls: Mapping[str, str] = json.loads(line)["urls"]
    return urls


async def make_consent_form() -> bytes:
    """A PDF with a text field and an empty signature field, made elsewhere: its library is not to be measured here."""
    program = (
        "import sys; from directsuite.cli.demo import documents; "
        "sys.stdout.buffer.write(documents.build_consent_form(documents.Form.from_number(1)))"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=PIPE)
    form, _ = await process.communicate()
    if process.returncode:
        raise RuntimeError("the consent form could not be made: is directsuite[sandbox] installed?")
    return form
