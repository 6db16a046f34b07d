"""The complete demo: its exit status, report and files."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from email import message_from_bytes, policy
from pathlib import Path
from typing import Any

import pytest

from directsuite.cli import main
from directsuite.cli.demo import run_demo
from directsuite.cli.demo_steps import CheckFailedError, DemoContext, Step, verify_signatures
from directsuite.cli.options import DemoOptions

pytestmark = pytest.mark.wide

SMALL = ("--messages", "4", "--documents", "3", "--faxes", "12")
NAMES = ["patient", "message", "mailbox", "signing", "fax"]
DEMO = (sys.executable, "-W", "error", "-m", "directsuite", "demo")


def test_all_of_it_holds_and_the_files_are_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "new" / "folder"
    assert main(["demo", *SMALL, "--output", str(output)]) == 0
    told = capsys.readouterr()
    assert told.err == ""
    assert "All checks passed" in told.out
    assert str(output) in told.out
    assert [name for name in NAMES if f"│ {name}" not in told.out] == []
    assert sorted(file.relative_to(output).as_posix() for file in output.rglob("*") if file.is_file()) == [
        *(f"mailbox/{number:04d}.eml" for number in range(1, 5)),
        "messages/visit-summary.eml",
        "sandbox-ca.pem",
        *(f"signed/consent-{number:03d}.pdf" for number in range(1, 4)),
    ]


def test_files_of_an_earlier_run_make_way_and_others_stay(tmp_path: Path) -> None:
    earlier = ("mailbox/0009.eml", "mailbox/10000.eml", "signed/consent-009.pdf")
    others = ("mailbox/mine.eml", "mailbox/0009.eml.bak", "signed/consent-9.pdf", "signed/notes.txt")
    for name in (*earlier, *others):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "mailbox" / "0008.eml").mkdir()
    assert main(["demo", *SMALL, "--output", str(tmp_path)]) == 0
    assert [name for name in earlier if (tmp_path / name).exists()] == []
    assert [name for name in (*others, "mailbox/0008.eml") if not (tmp_path / name).exists()] == []


@pytest.mark.process
def test_json_report_is_all_that_stands_on_stdout(tmp_path: Path) -> None:
    ended = subprocess.run(
        [*DEMO, *SMALL, "--json", "--output", str(tmp_path)], capture_output=True, text=True, timeout=60, check=False
    )
    report: dict[str, Any] = json.loads(ended.stdout)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert (report["held"], report["failed"], report["output"]) == (True, [], str(tmp_path))
    assert [(step["name"], step["count"], step["held"], step["problem"]) for step in report["steps"]] == [
        (name, count, True, None) for name, count in zip(NAMES, (1, 4, 4, 3, 12), strict=True)
    ]
    files = [tmp_path / file for step in report["steps"] for file in step["files"]]
    assert [file for file in files if not file.is_file()] == []
    authority = (tmp_path / "sandbox-ca.pem").read_bytes()
    signed = [verify_signatures(file.read_bytes(), authority) for file in files if file.suffix == ".pdf"]
    assert [len(verdicts) for verdicts in signed] == [1, 2, 1]
    assert all(is_valid for verdicts in signed for is_valid in verdicts.values())
    message = message_from_bytes((tmp_path / "messages" / "visit-summary.eml").read_bytes(), policy=policy.default)
    assert [part.get_content_type() for part in message.iter_attachments()] == ["application/pdf"] * 2


async def _pass(context: DemoContext) -> dict[str, Any]:
    return {"count": 2, "unit": "thing", "checked": ("it is [so]",)}


async def _fail(context: DemoContext) -> dict[str, Any]:
    raise ExceptionGroup("parallel", [CheckFailedError("two [things] differ")])


async def _break(context: DemoContext) -> dict[str, Any]:
    raise ZeroDivisionError("no value")


STEPS = {"good": Step("Good", _pass), "bad": Step("Bad", _fail), "broken": Step("Broken", _break)}


def test_failing_steps_are_named_with_status_1_and_keep_none_from_running(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = {**STEPS, "last": Step("Last", _pass)}
    assert run_demo(DemoOptions(output=tmp_path), steps) == 1
    told = capsys.readouterr().out
    assert "bad failed: two [things] differ" in told
    assert "broken failed: ZeroDivisionError: no value" in told
    assert told.count("it is [so]") == 2
    assert "All checks passed" not in told


def test_failing_steps_are_named_in_the_json_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_demo(DemoOptions(output=tmp_path, json=True), STEPS) == 1
    report = json.loads(capsys.readouterr().out)
    assert (report["held"], report["failed"]) == (False, ["bad", "broken"])
    assert [step["problem"] for step in report["steps"]] == [None, "two [things] differ", "ZeroDivisionError: no value"]


@pytest.mark.parametrize("output", ["file", "file/below"])
def test_output_folder_that_cannot_be_is_rejected(
    output: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    assert main(["demo", "--json", "--output", str(tmp_path / output)]) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert str(tmp_path / output) in told.err
    assert "--output" in told.err
    assert "Traceback" not in told.err
    assert (tmp_path / "file").read_text(encoding="utf-8") == "mine"


def test_output_folder_that_is_not_writable_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def denied(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("directsuite.cli.demo.tempfile.TemporaryFile", denied)  # root may write anywhere
    assert main(["demo", "--output", str(tmp_path)]) == 1
    told = capsys.readouterr().err
    assert told.startswith(f"directsuite: The output folder {tmp_path} cannot be written: Permission denied")


def test_full_disk_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def full(_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "/home/ada")

    monkeypatch.setattr("directsuite.cli.demo_steps.Sandbox.__aenter__", full)
    assert main(["demo", "--output", str(tmp_path)]) == 1
    told = capsys.readouterr().err
    assert told.startswith("directsuite: The disk is full")
    assert "ada" not in told


def _heed_interrupts() -> None:
    """Handle SIGINT, which shells ignore for background jobs and their children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.process
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_ends_the_demo_and_leaves_no_state(tmp_path: Path, number: signal.Signals, status: int) -> None:
    (tmp_path / "temporary").mkdir()
    process = subprocess.Popen(
        [*DEMO, "--messages", "5000", "--output", str(tmp_path / "out")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(tmp_path / "temporary")},
        text=True,
        preexec_fn=_heed_interrupts,
    )
    give_up = time.monotonic() + 30
    try:
        while not (tmp_path / "out" / "messages").exists():  # the second step writes it, and the third is long
            assert process.poll() is None
            assert time.monotonic() < give_up
        process.send_signal(number)
        out, errors = process.communicate(timeout=20)
    finally:
        process.kill()
    assert (process.returncode, out, errors) == (
        status,
        "",
        "directsuite: stopped; the same command starts again from the beginning\n",
    )
    assert list((tmp_path / "temporary").iterdir()) == []


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("report", ["table", "json"])
def test_sandbox_stays_with_its_page_until_a_signal_comes(tmp_path: Path, number: signal.Signals, report: str) -> None:
    (tmp_path / "temporary").mkdir()
    process = subprocess.Popen(
        [*DEMO, *SMALL, "--keep", "--output", str(tmp_path / "out"), *(["--json"] if report == "json" else [])],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE if report == "json" else subprocess.STDOUT,
        env={**os.environ, "TMPDIR": str(tmp_path / "temporary")},
        text=True,
        preexec_fn=_heed_interrupts,
    )
    try:
        said = process.stderr if report == "json" else process.stdout
        assert said is not None
        found = next(each for line in said if (each := re.search(r"runs until Ctrl-C; its page: (http://\S+/)$", line)))
        with urllib.request.urlopen(found[1], timeout=10) as answer:  # noqa: S310  loopback
            assert "clinic@direct.example.test" in answer.read().decode()
        process.send_signal(number)
        out, errors = process.communicate(timeout=20)
    finally:
        process.kill()
    assert (process.returncode, errors or "") == (0, "")
    assert report != "json" or json.loads(out)["held"] is True
    assert list((tmp_path / "temporary").iterdir()) == []
