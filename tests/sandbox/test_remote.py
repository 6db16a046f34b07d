"""A sandbox that accepts connections from other machines, also in the guide's compose file."""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import msgspec.yaml
import pytest

from directsuite.cli import main
from directsuite.cli import sandbox as sandbox_command
from directsuite.sandbox import Control, ControlError
from tests.sandbox.command import read_startup_output, run_command

if TYPE_CHECKING:
    from directsuite.cli.sandbox import SandboxOptions

TOKEN = "a token of the sandbox"
GUIDE = Path(__file__).parents[2] / "directsuite" / "guides" / "sandbox.md"


@pytest.fixture
def compose() -> dict[str, Any]:
    """The guide's compose file."""
    text = GUIDE.read_text("utf-8").partition("```yaml\n")[2].partition("```")[0]
    document: dict[str, Any] = msgspec.yaml.decode(text)
    return document


@pytest.mark.process
async def test_the_token_in_the_environment_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIRECTSUITE_SANDBOX_TOKEN", TOKEN)
    async with run_command("--memory", "--host", "0.0.0.0", "--allow-remote") as process:  # noqa: S104
        environment, urls = await read_startup_output(process)
        assert environment["DIRECTSUITE_FAX_URL"] == urls["fax"]
        assert urls["fax"].startswith("http://127.0.0.1:")
        with pytest.raises(ControlError, match="token"):
            async with Control(urls["control"], "guessed") as control:
                await control.clock.now()


@pytest.mark.process
async def test_a_missing_token_is_created() -> None:
    async with run_command("--memory", "--host", "0.0.0.0", "--allow-remote") as process:  # noqa: S104
        assert process.stdout is not None
        told = json.loads(await asyncio.wait_for(process.stdout.readline(), 20))
        async with Control(told["urls"]["control"], told["token"]) as control:
            await control.clock.now()


def test_the_compose_file_has_valid_options(compose: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[SandboxOptions] = []

    async def serves(options: SandboxOptions) -> None:
        chosen.append(options)

    monkeypatch.setattr(sandbox_command, "serve", serves)
    shell = shlex.split(compose["services"]["sandbox"]["command"])
    assert shell[:2] == ["sh", "-c"]
    words = shlex.split(shell[2].partition("exec directsuite ")[2])
    assert main(words) == 0
    [options] = chosen
    assert (options.host, options.allow_remote, options.data) == ("0.0.0.0", True, Path("/state"))  # noqa: S104
    assert compose["services"]["sandbox"]["ports"] == [f"127.0.0.1:{options.port}:{options.port}"]


@pytest.mark.process
async def test_the_compose_files_health_check_passes(compose: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIRECTSUITE_SANDBOX_TOKEN", TOKEN)
    kind, _, *words = compose["services"]["sandbox"]["healthcheck"]["test"]
    assert kind == "CMD"
    async with (
        run_command("--memory", "--host", "0.0.0.0", "--allow-remote") as process,  # noqa: S104  as the guide shows
        aiohttp.ClientSession() as http,
    ):
        _, urls = await read_startup_output(process)
        here = [word.replace("http://127.0.0.1:8025", urls["control"]) for word in words]
        check = await asyncio.create_subprocess_exec(sys.executable, *here, stderr=PIPE)
        _, errors = await check.communicate()
        assert (errors, check.returncode) == (b"", 0)
        elsewhere = {"Host": "sandbox:8025"}
        message_url = compose["services"]["app"]["environment"]["DIRECTSUITE_MESSAGE_URL"]
        assert message_url == urls["message"].replace(urls["control"], "http://sandbox:8025")
        login = {"username": "alice@direct.example.test", "password": "sandbox"}
        async with http.post(f"{urls['message']}/GetMessageCount/INBOX", json=login, headers=elsewhere) as response:
            assert (await response.json())["success"]
