"""README's example of many PDFs to sign."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import directsuite as ds
from directsuite.sandbox import Sandbox
from tests.integration.documents import consent

README = Path(__file__).parent.parent / "README.md"


async def test_a_folder_is_signed_and_what_failed_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    for name in ("one.pdf", "two.pdf"):
        (tmp_path / "in" / name).write_bytes(consent())
    (tmp_path / "in" / "three.pdf").write_text("no PDF")
    program = re.search(r"### Many PDFs to sign\n.*?```python\n(.*?)```", README.read_text("utf-8"), re.DOTALL)
    assert program is not None
    names: dict[str, Any] = {"ds": ds}
    exec(program[1], names)  # noqa: S102  the text of our own README
    async with Sandbox() as sandbox, ds.DirectSuite.from_env(sandbox.environment) as suite:
        await names["sign_all"](suite)
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == ["one.pdf", "two.pdf"]
    printed = capsys.readouterr().out
    assert "done=2, failed=1" in printed
    assert "three.pdf InvalidArgumentError: pdf: this is not a PDF" in printed
