"""`directsuite doctor` as a process: Ctrl-C ends it without a traceback."""

from __future__ import annotations

import asyncio
import signal
import sys

import pytest

from tests.cli.conftest import start_process
from tests.cli.doctor.conftest import DoctorRunner

pytestmark = [pytest.mark.process, pytest.mark.skipif(sys.platform == "win32", reason="signals are a matter of POSIX")]


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["Ctrl-C", "SIGTERM"])
async def test_signal_ends_it_with_a_sentence(
    doctor_runner: DoctorRunner, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, status: int
) -> None:
    came = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if await reader.read(1):  # the request; the check before it only connects
            came.set()
        await reader.read()
        writer.close()

    async with await asyncio.start_server(silent, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        monkeypatch.setenv("DIRECTSUITE_MESSAGE_URL", f"http://127.0.0.1:{port}")
        async with start_process("doctor", "--timeout", "60") as process:
            await came.wait()
            process.send_signal(number)
            out, err = await process.communicate()
    assert (process.returncode, out) == (status, b"")
    assert err.decode() == "directsuite: stopped; nothing was changed: run the same command again\n"
