"""Broken streams, widths of text, and extras that are not installed."""

from __future__ import annotations

import errno
import io
import os
import sys
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from rich.console import Console

from directsuite.cli import main
from directsuite.cli import sandbox as sandbox_command
from directsuite.cli.output import show_progress
from directsuite.cli.process import ignore_stdout_errors, make_lossy_stream, prepare_streams
from tests.cli.conftest import CliRunner, start_process
from tests.cli.test_output import let_timer_fire
from tests.integration.scenario import BOB


class Broken(io.RawIOBase):
    """A stream that accepts nothing. error: None if writing would block."""

    def __init__(self, error: OSError | None) -> None:
        super().__init__()
        self.error = error

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return 2

    def write(self, content: Any, /) -> None:
        if self.error is not None:
            raise self.error


async def status_without_stderr(full_disk: BinaryIO, *arguments: str, flags: tuple[str, ...] = ()) -> int | None:
    async with start_process(*arguments, stderr=full_disk, flags=flags) as process:
        await process.communicate()
    return process.returncode


@pytest.mark.process
@pytest.mark.parametrize("flags", [(), ("-u",)], ids=["buffered", "unbuffered"])
async def test_what_was_sent_is_not_said_to_have_failed(
    cli: CliRunner, full_disk: BinaryIO, flags: tuple[str, ...]
) -> None:
    assert await status_without_stderr(full_disk, "send", "--to", BOB, "--body", "Dear Bob", flags=flags) == 0
    assert len(await cli.sandbox.ledger("Send")) == 1


@pytest.mark.process
@pytest.mark.parametrize(
    ("arguments", "status"),
    [(("inbox", "read", "99"), 4), (("send", "--body", "x"), 2), (("nonsense",), 2), (("sandbox", "--host", "::"), 2)],
)
async def test_what_failed_keeps_its_status(
    cli: CliRunner, full_disk: BinaryIO, arguments: tuple[str, ...], status: int
) -> None:
    assert await status_without_stderr(full_disk, *arguments) == status


@pytest.mark.parametrize("error", [OSError(5, "gone"), BrokenPipeError(), None])
async def test_bar_on_a_closed_terminal_is_not_an_error(error: OSError | None) -> None:
    with make_lossy_stream(io.TextIOWrapper(io.BufferedWriter(Broken(error)), "utf-8")) as stream:
        assert (stream.isatty(), stream.fileno()) == (True, 2)
        console = Console(file=stream, force_terminal=True)
        async with show_progress("sending", console=console, delay=0.0) as bar:
            await let_timer_fire()
            bar.advance()
        stream.write("sent\n")
        stream.flush()


class Slow(Broken):
    """A stream that accepts three bytes at a time, interrupted by Ctrl-C."""

    def __init__(self) -> None:
        super().__init__(None)
        self.taken = b""
        self.is_left = False

    def write(self, content: Any, /) -> Any:
        self.taken += bytes(content[:3])
        if self.is_left:
            raise KeyboardInterrupt
        return min(3, len(content))


class Full(Broken):
    """A disk that is full or not."""

    def __init__(self) -> None:
        super().__init__(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
        self.taken = b""

    def write(self, content: Any, /) -> Any:
        super().write(content)
        self.taken += bytes(content)
        return len(content)


def test_stdout_that_forgives_loses_lines_only_while_the_disk_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    full, lost = Full(), list[OSError]()
    stdout = io.TextIOWrapper(io.BufferedWriter(full), "utf-8")
    monkeypatch.setattr(sys, "stdout", stdout)
    with ignore_stdout_errors(lost.append):
        for _ in range(3):
            print("lost")  # noqa: T201
        full.error = None
        print("kept")  # noqa: T201
    assert sys.stdout is stdout
    assert full.taken == b"kept\n"
    assert [error.errno for error in lost] == [errno.ENOSPC]


def test_reader_that_has_gone_is_missed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    lost = list[OSError]()
    with os.fdopen(writing, "w") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        with ignore_stdout_errors(lost.append):
            for _ in range(3):
                print("lost", flush=True)  # noqa: T201
    assert [type(error) for error in lost] == [BrokenPipeError]


def test_partial_writes_are_completed_without_duplicates() -> None:
    place = Slow()
    with make_lossy_stream(io.TextIOWrapper(io.BufferedWriter(place), "utf-8")) as stream:
        stream.write("stopped\n")
        assert place.taken == b"stopped\n"
        stream.write("Go on?")
        place.is_left = True
        with pytest.raises(KeyboardInterrupt):
            stream.flush()
        place.is_left = False
        stream.write("!\n")
    assert place.taken == b"stopped\nGo !\n"


def test_streams_are_prepared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", sys.__stderr__)
    prepare_streams()
    prepared = sys.stderr
    prepare_streams()
    assert sys.stderr is prepared


@pytest.mark.exhaustive(limit=4)
@pytest.mark.parametrize("columns", ["0", "1", "2", "-1", "", "wide", "19", "99999999999999999999"])
@pytest.mark.parametrize("arguments", [["--help"], ["send", "--help"]], ids=" ".join)
def test_help_is_laid_out_whatever_the_columns_are_said_to_be(
    columns: str, arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert main(arguments) == 0
    told = capsys.readouterr()
    assert "Usage: directsuite" in told.out
    assert told.err == ""


REMEDY = "In a copy of the repository, run pip install '.[cli,sandbox]'."


LIBRARIES = {
    "cli": ("cyclopts", "justhtml", "rich"),
    "sandbox": ("pikepdf", "pyhanko", "pyhanko_certvalidator", "cryptography", "reportlab", "PIL"),
}


@pytest.mark.parametrize(("extra", "library"), [(extra, each) for extra, names in LIBRARIES.items() for each in names])
def test_missing_extra_is_named_with_the_remedy(
    extra: str, library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    assert main(["--help"] if extra == "cli" else ["demo", "--output", str(tmp_path / "out")]) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err == f"directsuite: This needs {library}, which the extra '{extra}' installs. {REMEDY}\n"
    assert list(tmp_path.iterdir()) == []


def test_sandbox_without_its_extra_runs_and_says_what_will_reject(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def serves(_: object) -> None:
        pass

    monkeypatch.setitem(sys.modules, "pikepdf", None)
    monkeypatch.setattr(sandbox_command, "serve", serves)
    assert main(["sandbox", "--memory"]) == 0
    told = capsys.readouterr()
    assert told.out == ""
    assert REMEDY in told.err


@pytest.mark.process
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("send", "--to", BOB, "--body", "Dear Bob"), "The message was sent as <"),
        (("send", "--to", BOB, "--body", "Dear Bob", "--json"), "The message was sent as <"),
        (("inbox", "save", "1", "--eml", "--into", "saved"), "1 file saved into the folder of --into, but stdout"),
        (("inbox", "list"), "The disk is full"),
        (("sandbox", "fax", "15550100100"), "The fax was added with the handle "),
        (("sandbox", "individual", "Ada", "Byron", "4321", "1980-12-10"), "The individual was added with the id "),
        (("sandbox", "clock", "--advance", "10m"), "The time of the sandbox is "),
    ],
)
async def test_effect_is_reported_if_stdout_is_full(
    cli: CliRunner, full_disk: BinaryIO, arguments: tuple[str, ...], sentence: str
) -> None:
    await cli.deliver("Referral")
    cli.monkeypatch.setenv("DIRECTSUITE_SANDBOX", cli.sandbox.root_url)
    async with start_process(*arguments, stdout=full_disk) as process:
        _, err = await process.communicate()
    assert process.returncode == 1
    [line] = err.decode().splitlines()
    assert line.startswith(f"directsuite: {sentence}")
    assert line.endswith("Don't repeat the command.") is (arguments[:2] != ("inbox", "list"))
    assert len(await cli.sandbox.ledger("Send")) == (arguments[0] == "send")


@pytest.mark.process
async def test_error_after_saving_is_reported_although_stdout_is_full(cli: CliRunner, full_disk: BinaryIO) -> None:
    uid = await cli.deliver("Referral")
    async with start_process("inbox", "save", str(uid), "99", "--eml", "--into", "saved", stdout=full_disk) as process:
        _, err = await process.communicate()
    unshown, missing = err.decode().splitlines()
    assert process.returncode == 4
    assert unshown.startswith("directsuite: 1 file saved into the folder of --into, but stdout can't be written")
    assert missing.startswith("directsuite: 1 of 2 messages do not exist (99).")


@pytest.mark.process
async def test_debit_is_reported_if_the_reader_of_stdout_has_ended(cli: CliRunner) -> None:
    file = cli.write_private_file("ada.json", '{"id": 7, "direct_username": "ada", "direct_password": "first"}')
    cli.monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)  # the first table must remain in the buffer
    reader, writer = os.pipe()
    os.close(reader)
    arguments = ("patient", "add", file, "--domain", "direct.example.test", "--yes")
    async with start_process(*arguments, stdout=writer) as process:
        os.close(writer)
        _, err = await process.communicate()
    sentence = "The patient was provisioned and the account debited, but stdout can't be written (Broken pipe)."
    assert (process.returncode, err.decode()) == (1, f"directsuite: {sentence} Don't repeat the command.\n")


@pytest.mark.process
async def test_message_that_was_not_shown_is_not_marked_as_read(cli: CliRunner, full_disk: BinaryIO) -> None:
    uid = await cli.deliver("Referral")
    async with start_process("inbox", "read", str(uid), "--mark-read", stdout=full_disk) as process:
        assert await process.wait() == 1
    unread = (await cli.run("inbox", "list", "--unread", "--json")).document
    assert [each["uid"] for each in unread] == [uid]


@pytest.mark.process
async def test_errors_are_wrapped_at_the_width_of_stderr_if_stdout_is_redirected(cli: CliRunner) -> None:
    import pty  # only POSIX has these
    import termios

    cli.monkeypatch.delenv("COLUMNS", raising=False)
    ours, theirs = pty.openpty()
    try:
        termios.tcsetwinsize(theirs, (24, 40))
        async with start_process("inbox", "list", "--folder", "INBOX.None", stderr=theirs) as process:
            out, _ = await process.communicate()
        lines = os.read(ours, 4096).decode().splitlines()
    finally:
        os.close(ours)
        os.close(theirs)
    assert (process.returncode, out) == (4, b"")
    assert max(map(len, lines)) <= 40
