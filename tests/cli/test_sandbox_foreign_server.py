"""The `sandbox` commands when the server at --at is not a sandbox, or sends hostile text."""

from __future__ import annotations

import asyncio
import os
import shlex
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from aiohttp import web

from directsuite.sandbox import client
from tests.cli.conftest import CliResult, CommandRunner, serve

Run = Callable[..., Awaitable[CliResult]]

ESCAPES = "\x1b]0;owned\x07\x1b[2J\u202egnp\u2066\r\n\x9b31m"
"""A terminal title, a cleared screen, reversed text, a line break and a colour, as escape sequences."""
ACTED_UPON = "\x1b\x07\r\x9b\u202e\u2066"


@pytest.fixture
def requests() -> list[str]:
    return []


@pytest.fixture
async def run(requests: list[str], parts: dict[str, Any]) -> AsyncIterator[Run]:
    """Run `directsuite sandbox` against a server that sends `document` as the response to every request."""
    response: dict[str, Any] = {}

    async def respond(request: web.Request) -> web.Response:
        if request.path == "/elsewhere":
            requests.append(await request.text())
        return web.json_response(response["document"], status=response["status"], headers=response["headers"])

    cli = CommandRunner(**parts, prefix=("sandbox",))

    async def run_command(
        *arguments: str, document: object, status: int = 200, headers: Mapping[str, str] = MappingProxyType({})
    ) -> CliResult:
        response.update(document=document, status=status, headers=headers)
        return await cli.run(*arguments)

    async with serve(respond) as root:
        cli.set_env("DIRECTSUITE_SANDBOX", root)
        yield run_command


@pytest.mark.parametrize(
    "value", ["$(touch owned)", "`touch owned`", "x; touch owned", "x\ntouch owned", "'; touch owned; '", "x y", "~"]
)
@pytest.mark.process
async def test_env_quotes_each_value_for_the_shell(run: Run, value: str, tmp_path: Path) -> None:
    result = await run("env", document={"environment": {"DIRECTSUITE_TOKEN": value}})
    script = f'eval {shlex.quote(result.out)}; printf %s "$DIRECTSUITE_TOKEN"'
    shell = await asyncio.create_subprocess_exec("/bin/sh", "-c", script, stdout=PIPE, cwd=tmp_path)
    assert (await shell.communicate())[0].decode() == value.replace("\n", "\N{REPLACEMENT CHARACTER}")
    assert os.listdir(tmp_path) == []  # noqa: PTH208  pathlib would be a blocking call in a coroutine


@pytest.mark.parametrize(
    "name", ["PATH", "LD_PRELOAD", "DIRECTSUITE_CONFIG", "x;touch owned;X", "DIRECTSUITE_TOKEN\nX"]
)
async def test_env_prints_only_variables_of_a_sandbox(run: Run, name: str) -> None:
    result = await run("env", document={"environment": {name: "x", "DIRECTSUITE_TOKEN": "t"}})
    names = [line.removeprefix("export ").partition("=")[0] for line in result.out.splitlines()]
    assert (result.status, names) == (0, ["DIRECTSUITE_TOKEN", "DIRECTSUITE_SANDBOX"])


RULE = {"id": 1, "operation": ESCAPES, "kind": ESCAPES, "status": 503, "seconds": 0.1, "applied": 0, "remaining": None}
EFFECT = {"at": 0, "operation": ESCAPES, "subject": ESCAPES}
NOW = "2026-05-01T12:00:00+00:00"
COMMANDS: dict[tuple[str, ...], dict[str, Any]] = {
    ("env",): {"environment": {"DIRECTSUITE_TOKEN": ESCAPES}},
    ("account", "carol@direct.example.test"): {"created": ESCAPES},
    ("individual", "Ada", "Example", "1234", "1980-02-29"): {"created": ESCAPES},
    ("fax", "15550100100"): {"created": ESCAPES},
    ("fax", "15550100100", "--handle", "x"): {"status": ESCAPES},
    ("clock",): {"now": ESCAPES},
    ("fault",): {"faults": [RULE]},
    ("fault", "Send", "hang"): {"created": 1, "faults": [RULE]},
    ("fault", "--json"): {"faults": [RULE]},
    ("ledger",): {"effects": [EFFECT]},
    ("ledger", "--json"): {"effects": [EFFECT]},
    ("reset",): {"reset": ESCAPES},
}
"""Each command, and a response with hostile text in each member that the command reads."""

each_command = pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)


@each_command
async def test_text_of_a_server_is_printed_without_control_characters(run: Run, arguments: tuple[str, ...]) -> None:
    result = await run(*arguments, document=COMMANDS[arguments])
    error = await run(*arguments, document={"description": f"no{ESCAPES}"}, status=400)
    assert not {*ACTED_UPON} & {*result.out, *result.err, *error.out, *error.err}
    assert result.err.count("\n") <= 1
    assert (error.status, error.err.count("\n")) == (2, 1)


NO_SANDBOX: list[object] = [
    [],
    None,
    "x",
    1,
    {},
    {"environment": [], "created": [], "now": 5, "faults": [{}], "effects": [{"at": 1}]},
]


@pytest.mark.exhaustive
@pytest.mark.parametrize("document", NO_SANDBOX, ids=str)
@each_command
async def test_response_that_no_sandbox_sends_is_reported(
    run: Run, arguments: tuple[str, ...], document: object
) -> None:
    result = await run(*arguments, document=document)
    is_read = arguments[0] not in ("account", "reset") and "--handle" not in arguments
    if is_read or not isinstance(document, dict):
        assert (result.status, "is not a sandbox" in result.err) == (4, True)


async def test_redirect_is_not_followed(run: Run, requests: list[str]) -> None:
    arguments = "account", "carol@direct.example.test"
    result = await run(*arguments, document={}, status=307, headers={"Location": "/elsewhere"})
    assert (result.status, "is not a sandbox" in result.err, requests) == (4, True, [])


async def test_endless_response_is_not_read(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_MAX_RESPONSE_BYTES", 1_000)
    result = await run("ledger", document={"effects": [], "more": 1_000 * "x"})
    assert (result.status, "is not a sandbox" in result.err) == (4, True)
