"""`directsuite sandbox`: its options, failures at the start, and the process from start to stop."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
import sys
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from directsuite.cli import main
from directsuite.cli import sandbox as sandbox_command
from directsuite.cli.sandbox import CannotStartError, SandboxOptions, serve
from directsuite.sandbox.samples import TUSER, add_sample_content
from directsuite.sandbox.server import Sandbox
from tests.sandbox.command import read_startup_output, run_command


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], (Path("directsuite-sandbox"), "127.0.0.1", 8025, (), None)),
        (["--memory", "--profile", "java"], (None, "127.0.0.1", 8025, ("java",), None)),
        (["--data", "state", "--host", "::1", "--port", "0"], (Path("state"), "::1", 0, (), None)),
        *(
            (["--max-body", text], (Path("directsuite-sandbox"), "127.0.0.1", 8025, (), size))
            for text, size in {"1": 1, "500M": 500 * 2**20, "2g": 2 * 2**30, "8k": 8192}.items()
        ),
    ],
)
def test_options_of_the_command_reach_the_server(
    arguments: list[str], expected: tuple[object, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    received: list[tuple[object, ...]] = []

    async def record(options: SandboxOptions) -> None:
        received.append(
            (None if options.memory else options.data, options.host, options.port, options.profile, options.max_body)
        )

    monkeypatch.setattr(sandbox_command, "serve", record)
    assert main(["sandbox", *arguments]) == 0
    assert received == [expected]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--host", "192.0.2.1"], "--host must be a loopback address"),
        (["--host", "0.0.0.0"], "--host must be a loopback address"),  # noqa: S104  rejected
        (["--port", "65536"], "--port: give "),
        (["--port", "-1"], "--port: give "),
        (["--port", "x"], "--port: give "),
        *((["--max-body", size], "give a size such as 500M") for size in ("", "0", "-1", "1.5G", "G", "1T", "٣M")),
    ],
)
def test_invalid_option_is_a_usage_error(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sandbox", "--memory", *arguments]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def fail_to_start(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["sandbox", "--port", "0", *arguments]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    return line.removeprefix("directsuite: The sandbox cannot start: ")


def test_port_in_use_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        assert main(["sandbox", "--memory", "--port", str(port)]) == 1
    assert capsys.readouterr().err == (
        f"directsuite: The sandbox cannot start: port {port} is in use: end the program that uses it, or use --port 0 "
        "for a free port.\n"
    )


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        *(
            (number, f"it cannot listen on ::1, port 0 ({os.strerror(number)}): use another --host or --port.")
            for number in (errno.EACCES, errno.EADDRNOTAVAIL)
        ),
        (
            errno.ENOSPC,
            f"the state in memory cannot be used ({os.strerror(errno.ENOSPC)}): choose another folder with --data.",
        ),
        (None, "the host of --host (::1) is not known: give an address or a name of this machine."),
    ],
)
def test_unavailable_address_is_reported(
    failure: int | None, reason: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def fail(_: web.TCPSite) -> None:
        if failure is None:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        raise OSError(failure, "error while attempting to bind on address")

    monkeypatch.setattr(web.TCPSite, "start", fail)
    assert fail_to_start(capsys, "--memory", "--host", "::1") == reason


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (
            ("--memory", "--imitate", "none.json"),
            "the report of --imitate (none.json) cannot be read (No such file or directory): choose another file.",
        ),
        (("--allow-remote", "--memory"), "DIRECTSUITE_SANDBOX_TOKEN must have 16 characters or more."),
        (("--memory", "--imitate", "file"), "file is not a report of `directsuite doctor --deep`: "),
        *(
            (("--data", folder), f"the state in the folder of --data ({folder}) cannot be used ({problem}): choose ")
            for folder, problem in (
                ("file", "File exists"),
                ("file/state", "Not a directory"),
                ("damaged", "file is not a database"),
            )
        ),
    ],
)
def test_unusable_file_or_folder_is_reported(
    arguments: tuple[str, ...],
    reason: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DIRECTSUITE_SANDBOX_TOKEN", "short")
    (tmp_path / "file").write_text("{}")
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "sandbox.sqlite3").write_bytes(b"no database" * 1000)
    assert fail_to_start(capsys, *arguments).startswith(reason)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such modes")
@pytest.mark.parametrize("mode", [0o604, 0o644, 0o606])
def test_pin_file_that_others_may_read_is_rejected(
    mode: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pkcs11")
    pin = tmp_path / "pin"
    pin.write_text("1234")
    pin.chmod(mode)
    token = ("--memory", "--pkcs11-module", str(tmp_path / "x.so"), "--pkcs11-token", "t")
    reason = fail_to_start(capsys, *token, "--pkcs11-pin-file", str(pin))
    assert reason == f"the file of --pkcs11-pin-file ({pin}) is accessible to other users: run `chmod o= {pin}`."


async def test_state_folder_is_used_by_one_sandbox_at_a_time(tmp_path: Path) -> None:
    document = tmp_path / "documents" / "without a row in the database"
    async with Sandbox(tmp_path):
        document.parent.mkdir(exist_ok=True)
        document.write_bytes(b"%PDF-1.7")
        with pytest.raises(CannotStartError, match=r"another sandbox uses the state in .*: end it, or use"):
            await serve(SandboxOptions(data=tmp_path, port=0))
        assert document.exists()
    async with Sandbox(tmp_path):
        assert not document.exists()


async def test_sample_content_is_added_completely_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise KeyError("in the middle")

    async def count_mailboxes(sandbox: Sandbox) -> int:
        return await sandbox.read(lambda each: int(each.execute("SELECT count(*) FROM mailbox_account").fetchone()[0]))

    with monkeypatch.context() as broken:
        broken.setattr("directsuite.sandbox.fax.add_fax", fail)
        with pytest.raises(KeyError):
            await Sandbox(tmp_path, seed=add_sample_content).__aenter__()
    async with Sandbox(tmp_path) as empty:
        assert await count_mailboxes(empty) == 0
    async with Sandbox(tmp_path, seed=add_sample_content) as seeded:
        assert await count_mailboxes(seeded) == 2


@pytest.mark.process
async def test_stored_state_has_the_sample_content_once(tmp_path: Path) -> None:
    for _ in range(2):
        async with run_command("--data", str(tmp_path)) as process, aiohttp.ClientSession() as http:
            environment, urls = await read_startup_output(process)
            headers = {"Authorization": f"Bearer {environment['DIRECTSUITE_TOKEN']}"}
            async with http.get(f"{urls['fax']}/api/fax/getMessageList/15550100100/10", headers=headers) as response:
                assert len((await response.json())["MessageDetail"]) == 2
            process.terminate()
            await process.communicate()
            assert process.returncode == 0


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_command_serves_sample_content_until_a_signal(number: signal.Signals) -> None:
    credentials = {"username": "alice@direct.example.test", "password": "sandbox"}
    async with (
        run_command("--memory", "--profile", "java", "--profile", "attachment-list") as process,
        aiohttp.ClientSession() as http,
    ):
        environment, urls = await read_startup_output(process)
        assert environment["DIRECTSUITE_FAX_URL"] == urls["fax"]
        async with http.get(f"{urls['control']}/_sandbox/profile") as response:
            assert await response.json() == {"profile": ["java", "attachment-list"]}
        async with http.post(
            f"{urls['message']}/DeleteMessagesByUIDs/INBOX/0", json={"auth": credentials, "uids": [1]}
        ) as response:
            assert (await response.json())["success"]
        async with http.post(f"{urls['control']}/_sandbox/reset", json={}) as response:
            assert response.status == 200
        async with http.post(f"{urls['message']}/GetMessageCount/INBOX", json=credentials) as response:
            assert (await response.json())["count"] == 7
        login = (environment["DIRECTSUITE_LOGIN_USERNAME"], environment["DIRECTSUITE_LOGIN_PASSWORD"])
        for username, password in (login, TUSER):
            body = {"username": username, "password": password}
            async with http.post(f"{urls['registration']}/login", json=body) as response:
                assert (await response.json())["success"]
        process.send_signal(number)
        _, errors = await asyncio.wait_for(process.communicate(), 10)
        assert (process.returncode, errors) == (0, b"")
