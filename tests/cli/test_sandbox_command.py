"""`directsuite sandbox`: what it hands on, and a process of its own from start to stop."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import aiohttp
import pytest

from directsuite.cli import main
from directsuite.sandbox import serving
from directsuite.sandbox.serving import DEFAULT_FOLDER, DEFAULT_PORT


@pytest.mark.parametrize(
    ("options", "handed_on"),
    [
        ([], (DEFAULT_FOLDER, "127.0.0.1", DEFAULT_PORT)),
        (["--memory"], (None, "127.0.0.1", DEFAULT_PORT)),
        (["--data", "kept"], (Path("kept"), "127.0.0.1", DEFAULT_PORT)),
        (["--host", "::1", "--port", "0"], (DEFAULT_FOLDER, "::1", 0)),
    ],
    ids=["nothing", "memory", "data", "host and port"],
)
def test_options_are_handed_on(
    options: list[str], handed_on: tuple[Path | None, str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[tuple[Path | None, str, int]] = []

    async def serves(folder: Path | None, *, host: str, port: int) -> None:
        given.append((folder, host, port))

    monkeypatch.setattr(serving, "serve", serves)
    assert main(["sandbox", *options]) == 0
    assert given == [handed_on]


@pytest.mark.parametrize("host", ["192.0.2.1", "0.0.0.0"])  # noqa: S104  to be refused
def test_host_off_loopback_is_refused(host: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sandbox", "--memory", "--host", host, "--port", "0"]) == 2
    assert capsys.readouterr().err.startswith("directsuite: --host: the sandbox listens on loopback only")


def test_a_port_that_is_taken_is_told_with_the_way_to_a_free_one(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        assert main(["sandbox", "--memory", "--port", str(port)]) == 1
    told = capsys.readouterr().err
    assert told.startswith(f"directsuite: the sandbox cannot start: port {port} is taken")
    assert "--port 0" in told
    assert "Errno" not in told


async def test_process_serves_until_sigterm_and_ends_cleanly() -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "error", "-m", "directsuite.cli", "sandbox", "--memory", "--port", "0"),
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
