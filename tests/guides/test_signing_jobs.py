"""The programs of the guide `signing-jobs`."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

import directsuite as ds
from directsuite.sandbox import Sandbox
from tests.guides.documents import execute_programs, find_code_blocks
from tests.integration.documents import make_consent_form


@pytest.fixture
def examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    for name in ("one.pdf", "two.pdf"):
        (tmp_path / "in" / name).write_bytes(make_consent_form())
    (tmp_path / "in" / "three.pdf").write_text("no PDF")
    return execute_programs(*find_code_blocks("signing-jobs"))


@pytest.fixture
async def suite() -> AsyncGenerator[ds.DirectSuite]:
    async with Sandbox() as sandbox, ds.DirectSuite.from_env(sandbox.environment) as suite:
        yield suite


def outputs(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir() if file.is_file())


async def test_folder_is_signed_and_what_failed_is_reported(
    examples: dict[str, Any], suite: ds.DirectSuite, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await examples["sign_all"](suite)
    assert outputs(tmp_path / "out") == ["one.pdf", "two.pdf"]
    printed = capsys.readouterr().out
    assert "done=2, failed=1" in printed
    assert "three.pdf it is not a PDF" in printed


async def test_single_pdfs_are_signed(examples: dict[str, Any], suite: ds.DirectSuite, tmp_path: Path) -> None:
    await examples["sign_one"](suite, tmp_path / "in" / "one.pdf", tmp_path / "signed.pdf")
    signed = [(tmp_path / "signed.pdf").read_bytes(), await examples["flatten_and_sign"](suite, make_consent_form())]
    infos = [await suite.signing.get_doc_info(await suite.signing.save(pdf)) for pdf in signed]
    names = [{each.name for each in info.signatures if each.is_signed} for info in infos]
    assert names == [{"PatientSig", "WitnessSig"}, {"Approval"}]


async def test_storage_is_signed_into_another(
    examples: dict[str, Any], suite: ds.DirectSuite, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("fsspec", reason="fsspec isn't installed: the extra 'storage' brings it")
    await examples["sign_in_storage"](suite, f"file://{tmp_path}/in", f"file://{tmp_path}/out")
    assert outputs(tmp_path / "out") == ["one.pdf", "two.pdf"]
    assert "done=2, failed=1" in capsys.readouterr().out


@pytest.mark.postgres
async def test_fleet_signs_the_names_that_it_was_given(
    conninfo: str, examples: dict[str, Any], suite: ds.DirectSuite, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await examples["sign_in_many_processes"](suite, conninfo, ["one.pdf", "two.pdf", "three.pdf"])
    assert outputs(tmp_path / "out") == ["one.pdf", "two.pdf"]
    assert "done=2, failed=1" in capsys.readouterr().out
