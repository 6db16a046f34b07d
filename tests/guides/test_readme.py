"""README's programs, unchanged, and its length."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import directsuite as ds
from directsuite.sandbox import Sandbox
from directsuite.testing import LeapingClock
from tests.consent_form import build_consent_form
from tests.guides.documents import find_code_blocks, read_document

ALICE = ("alice@direct.example.test", "secret")
PROGRAMS = {program.partition("\n")[0].removeprefix("# "): program for program in find_code_blocks("README")}


@pytest.fixture
async def sandbox(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Sandbox]:
    async with Sandbox() as sandbox:
        for name, value in sandbox.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr("directsuite.suite.SystemClock", lambda: LeapingClock(sandbox.clock))
        await sandbox.add_account(*ALICE)
        yield sandbox


def main_of(name: str) -> Any:
    program, runs, _ = PROGRAMS[name].partition("\n\nasyncio.run(main(*sys.argv[1:]))\n")
    assert runs
    defined = dict[str, Any]()
    exec(compile(program, name, "exec", dont_inherit=True), defined)  # noqa: S102  the text of our own README
    return defined["main"]


def test_readme_is_short() -> None:
    assert len(read_document("README").splitlines()) <= 300


@pytest.mark.process
def test_first_program_prints_the_message_it_sent(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(find_code_blocks("README")[0], encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, "-W", "error", str(script)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "1 Hello\n", "")


async def test_documents_are_sent_followed_and_read(
    sandbox: Sandbox, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "summary.xml").write_bytes(b"<ClinicalDocument/>")
    for _ in range(2):  # the second run sends nothing
        await main_of("send.py")("referral", *ALICE, ALICE[0], str(tmp_path / "summary.xml"))
        assert capsys.readouterr().out == f"{ALICE[0]} Delivered\n"
    await main_of("read.py")(*ALICE, str(tmp_path))
    assert capsys.readouterr().out == f"1 {ALICE[0]} Referral\n   summary.xml application/xml\n"
    assert (tmp_path / "1-0").read_bytes() == b"<ClinicalDocument/>"


async def test_pdf_is_signed_visibly(sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "consent.pdf").write_bytes(build_consent_form(1))
    Image.new("L", (20, 10)).save(tmp_path / "ink.png")
    await main_of("sign.py")(*(str(tmp_path / name) for name in ("consent.pdf", "signed.pdf", "ink.png")))
    async with ds.DirectSuite.from_env(sandbox.environment) as suite:
        signatures = (await suite.signing.get_doc_info(await suite.signing.save(tmp_path / "signed.pdf"))).signatures
    approval = next(signature for signature in signatures if signature.name == "Approval")
    assert (approval.left, approval.top, approval.width, approval.height) == (72, 620, 200, 70)
    assert [effect["operation"] for effect in await sandbox.ledger()][-3:] == ["SignAndPull", "Delete", "Save"]


async def test_faxes_are_paged_through(sandbox: Sandbox, capsys: pytest.CaptureFixture[str]) -> None:
    handles = [await sandbox.add_fax("15550100100") for _ in range(12)]
    await main_of("faxes.py")("15550100100")
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == handles[::-1]


async def test_patient_is_provisioned_once(sandbox: Sandbox, capsys: pytest.CaptureFixture[str]) -> None:
    await sandbox.add_individual("Ada", "Example", "1234", "1980-02-29")
    await main_of("provision.py")("direct.example.test")
    assert capsys.readouterr().out == "['ada@direct.example.test']\n"
    await main_of("provision.py")("direct.example.test")
    assert capsys.readouterr().out.startswith("The service refuses it: 014 ")
