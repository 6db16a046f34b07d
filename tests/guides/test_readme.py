"""README's programs, unchanged, and its length."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import directsuite as ds
from directsuite.sandbox import Sandbox
from directsuite.testing import LeapingClock
from tests.consent_form import build_consent_form
from tests.guides.documents import ALICE, execute_programs, find_code_blocks, read_document

PROGRAMS = {program.partition("\n")[0].removeprefix("# "): program for program in find_code_blocks("README")}


@pytest.fixture
def sandbox(sandbox: Sandbox, environment: None, monkeypatch: pytest.MonkeyPatch) -> Sandbox:
    monkeypatch.setattr("directsuite.suite.SystemClock", lambda: LeapingClock(sandbox.clock))
    return sandbox


def main_of(name: str) -> Any:
    program, runs, _ = PROGRAMS[name].partition("\n\nasyncio.run(main(")
    assert runs
    return execute_programs(program)["main"]


def test_readme_is_short() -> None:
    assert len(read_document("README").splitlines()) <= 260


async def test_first_program_signs_a_pdf(sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "consent.pdf").write_bytes(build_consent_form(1))
    await main_of("first.py")()
    async with ds.DirectSuite.from_env(sandbox.environment) as suite:
        signatures = (await suite.signing.get_doc_info(await suite.signing.save(tmp_path / "signed.pdf"))).signatures
    assert [signature.name for signature in signatures if signature.is_signed] == ["PatientSignature"]


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


async def test_mailbox_is_synchronised(sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with ds.DirectSuite.from_env(sandbox.environment) as suite:
        await suite.mailbox(*ALICE).send(ds.Message(subject="Hello", recipients=[ds.Recipient(ALICE[0])]))
    await main_of("sync.py")(*ALICE, str(tmp_path / "mail"))
    assert len(list((tmp_path / "mail").rglob("new/*"))) == 2  # received and sent
