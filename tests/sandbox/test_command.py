"""`python -m directsuite.sandbox` as its users run it: a process of its own."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import aiohttp
import pytest

from directsuite.sandbox import Control, serving
from directsuite.sandbox.samples import TUSER, add_sample_content
from directsuite.sandbox.server import Sandbox
from directsuite.sandbox.serving import ServingOptions, run

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import AsyncGenerator
    from pathlib import Path

_LOGIN = ("username", "password")


@asynccontextmanager
async def run_command(*arguments: str) -> AsyncGenerator[Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-W",
        "error",
        "-m",
        "directsuite.sandbox",
        "--port",
        "0",
        "--json",
        *arguments,
        stdout=PIPE,
        stderr=PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def read_startup_output(process: Process) -> tuple[dict[str, str], dict[str, str]]:
    """The environment that the sandbox gives, and the URLs of the command's JSON line."""
    assert process.stdout is not None
    line = await asyncio.wait_for(process.stdout.readline(), 20)
    body = json.loads(line)
    assert body["ready"] is True
    async with Control(body["urls"]["control"].removesuffix("/_sandbox")) as control:
        return await control.environment(), body["urls"]


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_command_serves_a_demo_until_a_signal_and_ends_cleanly(number: signal.Signals) -> None:
    async with run_command("--memory") as process, aiohttp.ClientSession() as http:
        environment, urls = await read_startup_output(process)
        assert environment["DIRECTSUITE_FAX_URL"] == urls["fax"]
        headers = {"Authorization": f"Bearer {environment['DIRECTSUITE_TOKEN']}"}
        async with http.get(f"{urls['fax']}/api/fax/getMessageList/15550100100/10", headers=headers) as answer:
            assert len((await answer.json())["MessageDetail"]) == 2
        login = {
            "username": environment["DIRECTSUITE_LOGIN_USERNAME"],
            "password": environment["DIRECTSUITE_LOGIN_PASSWORD"],
        }
        async with http.post(f"{urls['registration']}/login", json=login) as answer:
            assert (await answer.json())["success"]
        credentials = {"username": "alice@direct.example.test", "password": "sandbox"}
        async with http.post(f"{urls['message']}/GetMessageCount/INBOX", json=credentials) as answer:
            assert (await answer.json())["count"] == 7
        process.send_signal(number)
        _, errors = await asyncio.wait_for(process.communicate(), 10)
        assert (process.returncode, errors) == (0, b"")


@pytest.mark.process
async def test_demo_is_seeded_once_into_a_state_that_is_kept(tmp_path: Path) -> None:
    for _ in range(2):
        async with run_command("--data", str(tmp_path)) as process, aiohttp.ClientSession() as http:
            environment, urls = await read_startup_output(process)
            headers = {"Authorization": f"Bearer {environment['DIRECTSUITE_TOKEN']}"}
            async with http.get(f"{urls['fax']}/api/fax/getMessageList/15550100100/10", headers=headers) as answer:
                assert len((await answer.json())["MessageDetail"]) == 2
            process.terminate()
            await process.communicate()
            assert process.returncode == 0


def test_host_off_loopback_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(ServingOptions(host="192.0.2.1", port=0)) == 1
    assert "loopback" in capsys.readouterr().err


@pytest.mark.process
async def test_port_in_use_is_refused(sandbox: Sandbox) -> None:
    async with run_command("--memory", "--port", sandbox.root_url.rpartition(":")[2]) as process:
        _, errors = await asyncio.wait_for(process.communicate(), 20)
        assert (process.returncode, b"in use" in errors, b"Traceback" in errors) == (1, True, False)


@pytest.mark.process
async def test_reset_brings_the_announced_content_back() -> None:
    async with run_command("--memory") as process, aiohttp.ClientSession() as http:
        _, urls = await read_startup_output(process)
        credentials = {"username": "alice@direct.example.test", "password": "sandbox"}
        async with http.post(f"{urls['message']}/DeleteMessagesByUIDs/INBOX", json={"auth": credentials, "uids": [1]}):
            pass
        async with http.post(f"{urls['control']}/reset", json={}) as answer:
            assert answer.status == 200
        async with http.post(f"{urls['message']}/GetMessageCount/INBOX", json=credentials) as answer:
            assert (await answer.json())["count"] == 7
        async with http.post(f"{urls['registration']}/login", json=dict(zip(_LOGIN, TUSER, strict=True))) as answer:
            assert (await answer.json())["success"]


async def test_sample_content_is_added_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise KeyError("in the middle")

    with monkeypatch.context() as broken:
        broken.setattr("directsuite.sandbox.fax.add_fax", fails)
        with pytest.raises(KeyError):
            await Sandbox(tmp_path, seed=add_sample_content).__aenter__()
    async with Sandbox(tmp_path) as empty:
        assert await empty._database.read(_count_mailboxes) == 0
    async with Sandbox(tmp_path, seed=add_sample_content) as whole:
        assert await whole._database.read(_count_mailboxes) == 2


def _count_mailboxes(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT count(*) FROM mailbox_account").fetchone()[0])


@pytest.mark.process
@pytest.mark.parametrize("module", ["directsuite.sandbox", "directsuite"])
async def test_profiles_are_given_one_by_one(module: str) -> None:
    options = ("--memory", "--port", "0", "--json", "--profile", "java", "--profile", "attachment-list")
    program = (module, *(("sandbox",) if module == "directsuite" else ()), *options)
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", *program, stdout=asyncio.subprocess.PIPE)
    _, urls = await read_startup_output(process)
    async with aiohttp.ClientSession() as http, http.get(f"{urls['control']}/profile") as answer:
        assert await answer.json() == {"profile": ["java", "attachment-list"]}
    process.terminate()
    await process.communicate()


@pytest.mark.process
@pytest.mark.parametrize("program", [("directsuite.sandbox",), ("directsuite", "sandbox")])
def test_damaged_state_is_one_line_that_names_the_folder(tmp_path: Path, program: tuple[str, ...]) -> None:
    (tmp_path / "sandbox.sqlite3").write_bytes(b"no database" * 1000)
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-m", *program, "--port", "0", "--data", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (1, "")
    said = ended.stderr.removeprefix("directsuite: ")  # as the command says everything
    assert said.startswith(f"The sandbox cannot start: the state in {tmp_path} cannot be used")
    assert ended.stderr.count("\n") == 1


async def test_a_folder_is_one_sandboxs_at_a_time_and_the_first_loses_nothing(tmp_path: Path) -> None:
    document = tmp_path / "documents" / "not named by a row yet"
    async with Sandbox(tmp_path):
        document.parent.mkdir(exist_ok=True)
        document.write_bytes(b"%PDF-1.7")
        with pytest.raises(serving.CannotStartError, match=r"another sandbox uses the state in .*: end it, or use"):
            await serving.serve(ServingOptions(folder=tmp_path, port=0))
        assert document.exists()
    async with Sandbox(tmp_path):
        assert not document.exists()


async def test_error_while_serving_is_not_called_a_failed_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> str:
        raise BrokenPipeError

    monkeypatch.setattr(serving, "format_summary", broken)
    with pytest.raises(BrokenPipeError):
        await serving.serve(ServingOptions(folder=None, port=0))
