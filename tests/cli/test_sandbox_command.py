"""`directsuite sandbox`: what it hands on, and a process of its own from start to stop."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import socket
import sys
from asyncio.subprocess import PIPE
from collections.abc import Callable
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from directsuite.cli import main
from directsuite.sandbox import __main__ as module
from directsuite.sandbox import serving
from directsuite.sandbox.quirks import Profiles
from directsuite.sandbox.serving import DEFAULT_FOLDER, DEFAULT_PORT, ServingOptions

Program = Callable[..., int]


def by_command(*arguments: str) -> int:
    """`directsuite sandbox`."""
    return main(["sandbox", *arguments])


def by_module(*arguments: str) -> int:
    """`python -m directsuite.sandbox`."""
    return module.main(arguments)


@pytest.mark.parametrize(
    ("options", "handed_on"),
    [
        ([], (DEFAULT_FOLDER, "127.0.0.1", DEFAULT_PORT, "strict")),
        (["--memory"], (None, "127.0.0.1", DEFAULT_PORT, "strict")),
        (["--data", "kept"], (Path("kept"), "127.0.0.1", DEFAULT_PORT, "strict")),
        (["--host", "::1", "--port", "0"], (DEFAULT_FOLDER, "::1", 0, "strict")),
        (["--memory", "--profile", "java"], (None, "127.0.0.1", DEFAULT_PORT, ("java",))),
    ],
    ids=["nothing", "memory", "data", "host and port", "profile"],
)
def test_options_are_handed_on(
    options: list[str], handed_on: tuple[Path | None, str, int, Profiles], monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[tuple[Path | None, str, int, Profiles]] = []

    async def serves(chosen: ServingOptions) -> None:
        given.append((chosen.folder, chosen.host, chosen.port, chosen.profile))

    monkeypatch.setattr(serving, "serve", serves)
    assert main(["sandbox", *options]) == 0
    assert given == [handed_on]


@pytest.mark.parametrize("host", ["192.0.2.1", "0.0.0.0"])  # noqa: S104  to be refused
def test_host_off_loopback_is_refused(host: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sandbox", "--memory", "--host", host, "--port", "0"]) == 2
    assert capsys.readouterr().err.startswith("directsuite: --host must be a loopback address")


both = pytest.mark.parametrize(
    ("program", "prefix"), [(by_command, "directsuite: "), (by_module, "")], ids=["cli", "-m"]
)
"""One line that says what to do, with status 1."""


@both
def test_a_port_in_use_is_told_with_the_way_to_a_free_one(
    program: Program, prefix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        assert program("--memory", "--port", str(port)) == 1
    assert capsys.readouterr().err == (
        f"{prefix}The sandbox cannot start: port {port} is in use: end the program that uses it, or use --port 0 "
        "for a free port.\n"
    )


@pytest.mark.exhaustive
@both
@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (errno.EACCES, "this user may not use port 80: use another --port, or --port 0 for a free port"),
        (
            errno.EADDRNOTAVAIL,
            f"it cannot listen on ::1, port 80 ({os.strerror(errno.EADDRNOTAVAIL)}): use another --host or --port",
        ),
    ],
    ids=["a privileged port", "no IPv6"],
)
def test_unlistenable_address_is_reported(
    program: Program,
    prefix: str,
    failure: int,
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def fails(_: web.TCPSite) -> None:
        """As asyncio does."""
        raise OSError(failure, "error while attempting to bind on address")

    monkeypatch.setattr(web.TCPSite, "start", fails)
    assert program("--memory", "--host", "::1", "--port", "80") == 1
    assert capsys.readouterr().err == f"{prefix}The sandbox cannot start: {told}.\n"


@pytest.mark.exhaustive
@both
@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "the report {} cannot be read (No such file or directory): choose another file for --imitate"),
        ("{}", "--imitate {}: it is no report of `directsuite doctor"),
    ],
)
def test_what_is_no_report_is_told(
    content: str | None, told: str, program: Program, prefix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "report.json"
    if content is not None:
        report.write_text(content)
    assert program("--port", "0", "--memory", "--imitate", str(report)) == 1
    assert capsys.readouterr().err.startswith(f"{prefix}The sandbox cannot start: {told.format(report)}")


@pytest.mark.exhaustive
@both
@pytest.mark.parametrize("name", ["file", "file/state"])
def test_a_folder_that_can_be_none_is_told(
    name: str, program: Program, prefix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / name
    (tmp_path / "file").write_text("no folder")
    assert program("--port", "0", "--data", str(folder)) == 1
    assert capsys.readouterr().err == (
        f"{prefix}The sandbox cannot start: the state cannot be stored in {folder}, which is a file or inside of one: "
        "choose a folder.\n"
    )


@pytest.mark.parametrize("port", ["65536", "-1", "x"])
def test_a_port_that_there_is_not_is_wrong_usage(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert by_command("--port", port) == 2
    with pytest.raises(SystemExit) as ended:
        by_module(f"--port={port}")
    assert ended.value.code == 2
    assert "give a number from 0 to 65535" in capsys.readouterr().err


@pytest.mark.parametrize("size", ["", "1.5G", "0"])
def test_what_is_no_size_is_wrong_usage(size: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert by_command("--max-body", size) == 2
    assert "give a size such as 500M" in " ".join(capsys.readouterr().err.split())
    with pytest.raises(SystemExit) as ended:
        by_module(f"--max-body={size}")
    assert ended.value.code == 2
    assert "give a size such as 500M" in capsys.readouterr().err


@pytest.mark.process
async def test_process_serves_until_sigterm_and_ends_cleanly() -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "error", "-m", "directsuite", "sandbox", "--memory", "--port", "0", "--json"),
        stdout=PIPE,
        stderr=PIPE,
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(20):
            while not (line := await process.stdout.readline()).startswith(b"{"):
                assert line, "it ended before it was ready"
            ready = json.loads(line)
            async with aiohttp.ClientSession() as http, http.get(f"{ready['urls']['control']}/health") as answer:
                assert (await answer.json())["status"] == "ok"
            process.send_signal(signal.SIGTERM)
            _, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert (process.returncode, errors) == (0, b"")
