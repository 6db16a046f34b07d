"""The complete program of the guide `signing-jobs`: its progress, its exit statuses, and Ctrl-C."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from directsuite.sandbox import Sandbox
from tests.guides.documents import execute_programs, find_code_blocks
from tests.integration.documents import make_consent_form

[PROGRAM] = [block for block in find_code_blocks("signing-jobs") if block.startswith("# sign_folder.py\n")]
SOURCE, TARGET = Path("in"), Path("out")
pytestmark = pytest.mark.usefixtures("environment")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    SOURCE.mkdir()
    return tmp_path


def write_pdfs(count: int) -> None:
    for number in range(count):
        (SOURCE / f"{number}.pdf").write_bytes(make_consent_form())


def count_signed() -> int:
    return len(list(TARGET.glob("*.pdf")))


async def run_program(source: Path = SOURCE) -> int:
    status: int = await execute_programs(PROGRAM)["main"](source, TARGET)
    return status


async def test_status_says_whether_all_documents_are_signed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_pdfs(2)
    assert await run_program() == 0
    told = capsys.readouterr()
    assert told.err.startswith("\r0 of 2\x1b[K\r1 of 2\x1b[K\r2 of 2\x1b[K")
    assert (told.err[-1], told.out) == ("\n", "")
    (SOURCE / "bad.pdf").write_text("no PDF")
    for _ in range(2):  # the second run skips the failed document
        assert await run_program() == 1
        told = capsys.readouterr()
        assert told.err.endswith("\r3 of 3\x1b[K\n")
        assert told.out.startswith("bad.pdf: it is not a PDF")


async def test_error_that_stops_the_job_is_one_line(
    folder: Path, sandbox: Sandbox, capsys: pytest.CaptureFixture[str]
) -> None:
    write_pdfs(2)
    sandbox.inject_fault("Save", "status", status=401, body={"error": "invalid_token"}, times=None)
    assert await run_program() == 2
    assert capsys.readouterr().err.splitlines()[-1] == (
        "Stopped: the service rejected the access token (HTTP 401): pass a valid token to the suite, then run the job "
        "again."
    )
    assert await run_program(Path("none")) == 2
    assert "Stopped: path: the folder does not exist" in capsys.readouterr().err


@pytest.mark.process
@pytest.mark.skipif(sys.platform == "win32", reason="signals are a matter of POSIX")
@pytest.mark.parametrize("presses", [1, 2])
async def test_first_ctrl_c_drains_and_second_one_cancels(presses: int, folder: Path, sandbox: Sandbox) -> None:
    write_pdfs(40)
    if presses == 1:
        sandbox.inject_fault("SignAndPull", "latency", seconds=0.5, times=None)
    else:
        sandbox.inject_fault("SignAndPull", "hang", skip=1, times=None)
    (folder / "sign_folder.py").write_text(PROGRAM)
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, "sign_folder.py", SOURCE, TARGET),
        stderr=PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(each for each in sys.path if each)},
    )
    try:
        async with asyncio.timeout(60):
            assert program.stderr is not None
            await program.stderr.readuntil(b"\r1 of 40")  # nine others are in progress
            program.send_signal(signal.SIGINT)
            await program.stderr.readuntil(b"press Ctrl-C again.\n")
            if presses == 2:
                program.send_signal(signal.SIGINT)
            rest = (await program.stderr.read()).decode()
            assert await program.wait() == 2
    finally:
        if program.returncode is None:
            program.kill()
            await program.wait()
    assert rest.endswith("\nStopped. To sign the remaining documents, run the program again.\n")
    signed = count_signed()
    if presses == 1:  # each document that was started is signed
        assert 10 <= signed == len(await sandbox.ledger("Save")) < 40
    else:
        assert signed == 1
    sandbox.clear_faults()
    assert await run_program() == 0
    assert count_signed() == 40
