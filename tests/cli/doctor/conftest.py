"""`directsuite doctor` on a machine without settings."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from ssl import SSLContext
from typing import Any

import attrs
import pytest
from aiohttp import web

from directsuite.cli import main
from directsuite.sandbox.server import Sandbox
from tests.integration.scenario import open_populated_sandbox

CA_VARS = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


@attrs.frozen
class DoctorReport:
    """The output of the command. checks: result and details by subject and check."""

    status: int
    out: str
    err: str
    document: Mapping[str, Any]
    checks: Mapping[tuple[str, str], tuple[str, str]]

    def get_results(self, subject: str) -> dict[str, str]:
        return {check: result for (of, check), (result, _) in self.checks.items() if of == subject}


@attrs.frozen
class DoctorRunner:
    """Runs the command."""

    folder: Path
    set_env: Callable[[str, str], None]
    _run: Callable[[tuple[str, ...]], Awaitable[tuple[int, str, str]]]

    async def run_json(self, *arguments: str) -> DoctorReport:
        status, out, err = await self._run((*arguments, "--json"))
        document = json.loads(out)
        checks = {(each["subject"], each["check"]): (each["result"], each["sentence"]) for each in document["checks"]}
        return DoctorReport(status, out, err, document, checks)

    async def run_table(self, *arguments: str) -> tuple[int, str, str]:
        """Return the exit status, stdout and stderr of a run without --json."""
        return await self._run(arguments)


@pytest.fixture
def doctor_runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> DoctorRunner:
    monkeypatch.chdir(tmp_path)
    for name in tuple(os.environ):
        if name.startswith("DIRECTSUITE_") or name.lower().endswith("_proxy") or name in CA_VARS:
            monkeypatch.delenv(name)

    async def run(arguments: tuple[str, ...]) -> tuple[int, str, str]:
        """Run the command in a thread, because it has its own event loop."""
        capsys.readouterr()
        status = await asyncio.to_thread(main, ["doctor", *arguments])
        told = capsys.readouterr()
        return status, told.out, told.err

    return DoctorRunner(tmp_path, monkeypatch.setenv, run)


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with open_populated_sandbox() as sandbox:
        yield sandbox


@asynccontextmanager
async def serve_response(
    answer: Callable[[], web.Response] | None = None,
    *,
    at: Callable[[str], web.Response] = lambda _: web.Response(),
    tls: SSLContext | None = None,
) -> AsyncGenerator[str]:
    """Serve this response to every request, or the response for its path. Yield the URL, with the path /service."""

    async def handler(request: web.Request) -> web.Response:
        return at(request.path) if answer is None else answer()

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
        scheme = "http" if tls is None else "https"
        yield f"{scheme}://127.0.0.1:{runner.addresses[0][1]}/service"
    finally:
        await runner.cleanup()
