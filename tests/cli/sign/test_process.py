"""`directsuite sign` as a process: after an interruption, the same command continues."""

from __future__ import annotations

import signal
import sys
from typing import BinaryIO

import pytest

from tests.cli.conftest import start_process
from tests.cli.sign.conftest import PATIENT, SignRunner
from tests.waiting import poll_until

pytestmark = [pytest.mark.process, pytest.mark.skipif(sys.platform == "win32", reason="signals are a matter of POSIX")]

COUNT = 12
ARGUMENTS = ("in", "--output", "out", "--name", PATIENT, "--concurrency", "2")


def finished(runner: SignRunner) -> list[str]:
    return [name for name in runner.list_files() if not name.startswith(".directsuite")]


async def test_signed_file_is_reported_if_stdout_is_full(cli: SignRunner, full_disk: BinaryIO) -> None:
    cli.write_pdfs("a.pdf")
    async with start_process("sign", "a.pdf", "--output", "b.pdf", "--json", stdout=full_disk) as process:
        _, err = await process.communicate()
    assert (process.returncode, cli.count_signatures("b.pdf")) == (1, 1)
    text = "The PDF was written to the file of --output, but stdout can't be written (No space left on device)."
    assert err.decode() == f"directsuite: {text} Don't repeat the command.\n"


@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)],
    ids=["Ctrl-C", "SIGTERM", "kill -9"],
)
async def test_interrupted_command_continues_when_repeated(
    cli: SignRunner, number: signal.Signals, status: int
) -> None:
    cli.write_pdfs(*(f"in/{each}.pdf" for each in range(COUNT)))
    cli.sandbox.inject_fault("SignAndPull", "latency", seconds=0.1, times=None)
    async with start_process("sign", *ARGUMENTS) as process:
        await poll_until(lambda: (cli.folder / "out").exists() and len(finished(cli)) >= 2)
        process.send_signal(number)
        out, err = await process.communicate()
    assert process.returncode == status
    assert b"Traceback" not in err
    if number is not signal.SIGKILL:
        assert out == b""
        told, stopped = err.decode().splitlines()
        assert told.endswith(("PDF signed.", "PDFs signed."))
        assert "run the same command again: it skips signed PDFs" in stopped
        assert not (cli.folder / "out/.directsuite").exists()
    before = {name: (cli.folder / "out" / name).read_bytes() for name in finished(cli)}
    assert 2 <= len(before) < COUNT
    cli.sandbox.clear_faults()
    again = await cli.run(*ARGUMENTS, "--json")
    assert again.status == 0
    assert again.document["signed"] + again.document["signed_before"] == COUNT
    assert finished(cli) == sorted(f"{each}.pdf" for each in range(COUNT))
    assert {cli.count_signatures(f"out/{name}") for name in finished(cli)} == {1}
    done = {name for name in before if (cli.folder / "out" / name).read_bytes() == before[name]}
    assert len(before) - len(done) <= 2  # at most the documents in progress
