"""`directsuite demo`: its exit status, report and files; each step notices a service that deviates."""

from __future__ import annotations

import asyncio
import base64
import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from directsuite.cli import main
from directsuite.cli.demo import (
    STEPS,
    DemoContext,
    DemoOptions,
    open_context,
    run_demo,
    run_step,
    verify_signatures,
)
from directsuite.sandbox.signing.keys import FileKeyStore

pytestmark = pytest.mark.wide

SMALL = ("--messages", "4", "--documents", "3", "--faxes", "12")
NAMES = ["patient", "message", "mailbox", "signing", "fax"]
DEMO = (sys.executable, "-W", "error", "-m", "directsuite", "demo")


@pytest.fixture
async def opened_demo(tmp_path: Path) -> AsyncIterator[DemoContext]:
    async with open_context(DemoOptions(output=tmp_path, messages=3, documents=2, faxes=12)) as opened:
        yield opened


def test_all_checks_pass_and_the_files_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "new" / "folder"
    assert main(["demo", *SMALL, "--output", str(output)]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert "All checks passed" in captured.out
    assert str(output) in captured.out
    assert [line.split()[0] for line in captured.out.splitlines()[1:6]] == NAMES
    assert sorted(file.relative_to(output).as_posix() for file in output.rglob("*") if file.is_file()) == [
        *(f"mailbox/{number:04d}.eml" for number in range(1, 5)),
        "messages/visit-summary.eml",
        *(f"{folder}/consent-{number:03d}.pdf" for folder in ("signed", "unsigned") for number in range(1, 4)),
    ]


async def _pass(context: DemoContext) -> str:
    return "1 item"


async def _fail(context: DemoContext) -> str:
    raise AssertionError("two [things] differ")


async def _break(context: DemoContext) -> str:
    raise ZeroDivisionError("no value")


async def test_failing_steps_are_named_and_the_others_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    steps = {"good": _pass, "bad": _fail, "broken": _break, "last": _pass}
    assert await run_demo(DemoOptions(output=tmp_path), steps) == 1
    out = capsys.readouterr().out
    assert "bad failed: two [things] differ\nbroken failed: ZeroDivisionError: no value\n" in out
    assert [line.split()[-1] for line in out.splitlines()[1:5]] == ["yes", "NO", "NO", "yes"]
    assert "All checks passed" not in out


@pytest.mark.parametrize("output", ["file", "file/below"])
def test_output_folder_that_cannot_be_created_is_rejected(
    output: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    assert main(["demo", "--output", str(tmp_path / output)]) == 2
    captured = capsys.readouterr()
    assert (captured.out, captured.err.endswith(" file. Name a folder.\n")) == ("", True)
    assert captured.err.startswith("directsuite: --output is ")
    assert (tmp_path / "file").read_text(encoding="utf-8") == "mine"


def test_full_disk_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def fail(_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "/home/ada")

    monkeypatch.setattr("directsuite.sandbox.server.Sandbox.__aenter__", fail)
    assert main(["demo", "--output", str(tmp_path)]) == 1
    err = capsys.readouterr().err
    assert err.startswith("directsuite: The disk is full")
    assert "ada" not in err


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
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # shells ignore it for background jobs
    )
    give_up = time.monotonic() + 30
    try:
        while not (tmp_path / "out" / "messages").exists():  # the second step writes it, and the third is long
            assert process.poll() is None
            assert time.monotonic() < give_up
        process.send_signal(number)
        out, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    stopped = "directsuite: stopped; the same command starts again from the beginning\n"
    assert (process.returncode, out, errors) == (status, "", stopped)
    assert list((tmp_path / "temporary").iterdir()) == []


DONE: dict[str, Any] = {"success": True, "code": 0}
REGISTERED: dict[str, Any] = {"success": True, "code": "000"}
REFUSED = {"success": False, "code": "002"}
ACTIVE = {"username": "ada", "UserStateType": "activated"}
OTHER_PDF = base64.b64encode(b"%PDF-1.7\n% another document\n").decode()


@pytest.mark.parametrize(
    ("name", "operation", "rule", "problem"),
    [
        ("patient", "ProvisionIDProofedPatient", {"body": REGISTERED}, "not active"),
        ("patient", "ProvisionIDProofedPatient", {"body": REGISTERED | {"users": [ACTIVE]}}, "no payment"),
        ("patient", "GetMessageCount", {"body": DONE | {"count": 1}}, "the mailbox is not empty"),
        ("patient", "GetPatientAddressByMeta", {"body": REGISTERED}, "not found by name and birth date"),
        ("patient", "GetPatientAddressByUsername", {"body": REGISTERED}, "not found by username"),
        ("patient", "ProvisionIDProofedPatient", {"body": REGISTERED, "skip": 1}, "provisioned twice"),
        ("patient", "ProvisionIDProofedPatient", {"body": REFUSED, "skip": 1}, "the code 002, not 014"),
        ("patient", "SetPatientsPasswords", {"status": 400}, "SetPatientsPasswords: "),
        ("message", "GetMessageStatus", {"body": DONE}, "after 0 minutes the statuses are , not"),
        ("message", "GetMessagesByUIDs", {"body": DONE}, "instead of one"),
        ("message", "Send", {"status": 400}, "Send: "),
        ("mailbox", "GetUIDs", {"body": DONE | {"uids": [1, 2]}}, "the uids are not those"),
        ("mailbox", "GetMessagesByUIDs", {"body": DONE}, "iter_messages returned 0 messages"),
        ("mailbox", "GetRawMessagesByUIDs", {"body": DONE}, "iter_raw returned 0 messages"),
        (
            "signing",
            "GetDocInfo",
            {"body": {"identifier": "1", "signatures": []}},
            "GetDocInfo does not report exactly",
        ),
        ("signing", "MultiSignAndPull", {"body": OTHER_PDF, "processed": True}, "has changed"),
        ("signing", "Delete", {"body": {"documentDigest": "still there"}}, "returned a digest for the deleted"),
        ("fax", "getSingleMessageInfo", {"status": 400}, "getSingleMessageInfo: "),
        ("fax", "getMultipleMessageInfo", {"body": {"MessageDetail": []}, "skip": 1}, "the listing of 10 records"),
    ],
)
async def test_step_notices_a_false_response(
    name: str, operation: str, rule: dict[str, Any], problem: str, opened_demo: DemoContext
) -> None:
    if name == "message":  # it writes to the patient of the first step
        assert (await run_step(STEPS["patient"], opened_demo))[1] is None
    media_type = "text/plain" if isinstance(rule.get("body"), str) else "application/json"
    fault = {"status": 200, "media_type": media_type, "times": None, **rule}
    opened_demo.sandbox.inject_fault(operation, "status", **fault)
    effect, actual = await run_step(STEPS[name], opened_demo)
    assert effect == ""
    assert problem in (actual or "")


async def test_signature_of_a_foreign_authority_is_not_accepted(opened_demo: DemoContext) -> None:
    assert (await run_step(STEPS["signing"], opened_demo))[1] is None
    content = (opened_demo.options.output / "signed" / "consent-002.pdf").read_bytes()
    authority = opened_demo.sandbox.authority_pem()
    changed = content.replace(b"Consent form 2", b"Consent form 3")
    foreign = FileKeyStore(None).authority_pem()
    arguments = ((content, authority), (content, foreign), (changed, authority))
    verified, untrusted, spoilt = [await asyncio.to_thread(verify_signatures, *each) for each in arguments]
    assert verified == {"PatientSignature": True, "ClinicSignature": True}
    assert set(untrusted.values()) == {False}
    assert False in spoilt.values()


async def test_clock_of_the_sandbox_is_reset_after_a_step(opened_demo: DemoContext) -> None:
    before = opened_demo.sandbox.clock.now()
    opened_demo.sandbox.clock.advance(timedelta(hours=5))
    await run_step(STEPS["fax"], opened_demo)
    assert (opened_demo.sandbox.clock.now() - before).total_seconds() < 600
