"""The `sandbox` commands when the server at --at is not a sandbox, or sends hostile text."""

from __future__ import annotations

import asyncio
import shlex
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

from directsuite.cli import main
from directsuite.sandbox import serving
from directsuite.sandbox.server import Sandbox
from tests.cli.conftest import Ended

Run = Callable[..., Awaitable[Ended]]

ESCAPES = "\x1b]0;owned\x07\x1b[2J\u202egnp\u2066\r\n\x9b31m"
"""A terminal title, a cleared screen, reversed text, a line break and a colour, as escape sequences."""
ACTED_UPON = "\x1b\x07\r\x9b\u202e\u2066"


@pytest.fixture
async def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Run]:
    """Run `directsuite sandbox` against a server that sends `document` as the response to every request."""
    response: dict[str, Any] = {}

    async def respond(request: web.Request) -> web.Response:
        return web.json_response(response["document"], status=response["status"])

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", respond)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    monkeypatch.setenv("DIRECTSUITE_SANDBOX", f"http://127.0.0.1:{runner.addresses[0][1]}")

    async def run_command(*arguments: str, document: object, status: int = 200) -> Ended:
        response.update(document=document, status=status)
        exit_status = await asyncio.to_thread(main, ["sandbox", *arguments])
        captured = capsys.readouterr()
        return Ended(exit_status, captured.out, captured.err)

    yield run_command
    await runner.cleanup()


@pytest.mark.parametrize(
    "value", ["$(touch owned)", "`touch owned`", "x; touch owned", "x\ntouch owned", "'; touch owned; '", "x y", "~"]
)
@pytest.mark.process
async def test_env_quotes_each_value_for_the_shell(run: Run, value: str, tmp_path: Any) -> None:
    ended = await run("env", document={"environment": {"DIRECTSUITE_TOKEN": value}})
    if "\n" in value:
        assert ended.status == 2
        return
    script = f'eval {shlex.quote(ended.out)}; printf %s "$DIRECTSUITE_TOKEN"'
    shell = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert shell.stdout == value
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["PATH", "LD_PRELOAD", "DIRECTSUITE_CONFIG", "x;touch owned;X", "DIRECTSUITE_TOKEN\nX"])
async def test_env_prints_only_variables_of_a_sandbox(run: Run, name: str) -> None:
    ended = await run("env", document={"environment": {name: "x", "DIRECTSUITE_TOKEN": "t"}})
    names = [line.removeprefix("export ").partition("=")[0] for line in ended.out.splitlines()]
    assert (ended.status, names) == (0, ["DIRECTSUITE_TOKEN", "DIRECTSUITE_SANDBOX"])


def test_a_summary_quotes_each_value_for_the_shell() -> None:
    assert serving.exports({"DIRECTSUITE_MAILBOX": "a$b@x.test"}) == ["export DIRECTSUITE_MAILBOX='a$b@x.test'"]


async def test_every_variable_of_a_sandbox_is_exported() -> None:
    async with Sandbox() as sandbox:
        lines = serving.exports(sandbox.environment)
    assert len(lines) == len(sandbox.environment)
