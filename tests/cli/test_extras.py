"""What is said where an extra is not installed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from directsuite.cli import main
from directsuite.sandbox import serving

REMEDY = "pip install 'directsuite[cli,sandbox]'"


@pytest.mark.parametrize("library", ["cyclopts", "justhtml", "rich"])
def test_missing_cli_extra_is_named_with_the_remedy(
    library: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    assert main(["--help"]) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err == f"directsuite: this needs {library}, which the extra 'cli' brings: {REMEDY}\n"


@pytest.mark.parametrize("library", ["pikepdf", "pyhanko", "pyhanko_certvalidator", "cryptography", "PIL"])
def test_demo_without_the_sandbox_extra_names_the_remedy_and_writes_nothing(
    library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    assert main(["demo", "--output", str(tmp_path / "out")]) == 1
    assert capsys.readouterr().err == f"directsuite: this needs {library}, which the extra 'sandbox' brings: {REMEDY}\n"
    assert list(tmp_path.iterdir()) == []


def test_sandbox_without_its_extra_runs_and_says_what_will_refuse(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def serves(folder: Path | None, *, host: str, port: int, profile: object) -> None:
        """It ends at once."""

    monkeypatch.setitem(sys.modules, "pikepdf", None)
    monkeypatch.setattr(serving, "serve", serves)
    assert main(["sandbox", "--memory"]) == 0
    told = capsys.readouterr()
    assert told.out == ""
    assert REMEDY in told.err
