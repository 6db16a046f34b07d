"""Folders and files without permissions are reported, and the others are signed."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from tests.cli.conftest import CliResult
from tests.cli.sign.conftest import PATIENT, SignRunner

if sys.platform == "win32":
    pytest.skip("rights are others there", allow_module_level=True)

SIGNED = ("--output", "out", "--name", PATIENT, "--recursive", "--json")
_TOLD = "directsuite: {} not signed. The table shows the reasons. Fix them, then run the same command with --again.\n"
_ADVICE = "change the folder's permissions, or name a different --output"
_FROM_ROOT = ("setpriv", "--bounding-set=-dac_override,-dac_read_search")
"""Runs a command without the capabilities of root, which could read everything."""
_TAKEN = _FROM_ROOT if os.geteuid() == 0 else ()


def _can_be_taken() -> bool:
    return not _TAKEN or (
        shutil.which(_TAKEN[0]) is not None and subprocess.run([*_TAKEN, "true"], check=False).returncode == 0
    )


pytestmark = [pytest.mark.process, pytest.mark.skipif(not _can_be_taken(), reason="nothing takes its rights from root")]


async def sign(runner: SignRunner, *sources: str) -> CliResult:
    command = (*_TAKEN, sys.executable, "-m", "directsuite", "sign", *sources, *SIGNED)
    process = await asyncio.create_subprocess_exec(*command, cwd=runner.folder, stdout=PIPE, stderr=PIPE)
    out, err = await process.communicate()
    return CliResult(process.returncode or 0, out.decode(), err.decode())


def assert_reported(told: CliResult, signed: int, refused: dict[str, str]) -> None:
    """Check that these documents were not signed, for these reasons, and that the command says so."""
    pdfs = "1 PDF" if len(refused) == 1 else f"{len(refused)} PDFs"
    assert (told.status, told.document["signed"], told.err) == (1, signed, _TOLD.format(pdfs))
    assert {each["name"]: each["problem"] for each in told.document["refused"]} == refused


async def test_folder_in_a_folder_is_reported_whatever_else_has_its_name(cli: SignRunner) -> None:
    cli.write_pdfs("one/a.pdf", "one/sub/x.pdf", "two/sub/b.pdf", "two/c.pdf")
    (cli.folder / "one/sub").chmod(0)
    told = await sign(cli, "one", "two")
    assert_reported(told, 3, {"sub": "the folder can't be read (Permission denied)"})
    assert cli.list_files() == ["a.pdf", "c.pdf", "sub/b.pdf"]


async def test_unreadable_file_is_reported(cli: SignRunner) -> None:
    cli.write_pdfs("in/a.pdf", "in/b.pdf")
    (cli.folder / "in/b.pdf").chmod(0)
    assert_reported(await sign(cli, "in"), 1, {"b.pdf": "it can't be read (Permission denied)"})


async def test_report_comes_of_failures_whose_folder_has_lost_its_rights(cli: SignRunner) -> None:
    cli.write_pdfs("in/sub/bad.pdf")
    cli.sandbox.inject_fault("Save", "status", status=413, times=1)
    assert (await cli.run("in", *SIGNED)).document["signed"] == 0
    cli.write_pdfs("in/a.pdf")
    (cli.folder / "in/sub").chmod(0)
    assert_reported(await sign(cli, "in"), 1, {"sub": "the folder can't be read (Permission denied)"})


@pytest.mark.parametrize(
    ("mode", "problem"),
    [
        (0, "its path in --output can't be checked (Permission denied)"),
        (0o500, f"this user can't write to the PDF's folder in --output; {_ADVICE}"),
    ],
    ids=["nothing", "reading"],
)
async def test_folder_in_the_output_is_reported(mode: int, problem: str, cli: SignRunner) -> None:
    cli.write_pdfs("in/sub/a.pdf", "in/sub/deep/b.pdf", "in/c.pdf")
    (cli.folder / "out/sub").mkdir(parents=True)
    (cli.folder / "out/sub").chmod(mode)
    told = await sign(cli, "in")
    (cli.folder / "out/sub").chmod(0o700)
    assert_reported(told, 1, {"sub/a.pdf": problem, "sub/deep/b.pdf": problem})
    assert cli.list_files() == ["c.pdf"]


async def test_output_is_reported_by_its_option(cli: SignRunner, tmp_path: Path) -> None:
    cli.write_pdfs("in/a.pdf")
    (tmp_path / "out").mkdir()
    (tmp_path / "out").chmod(0o500)
    told = await sign(cli, "in")
    assert (told.status, told.document["signed"]) == (1, 0)
    assert told.err.startswith("directsuite: the target can't be written (Permission denied)")
