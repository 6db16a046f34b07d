"""Names of files that a hostile sender chose."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from directsuite.cli.mail.file_names import safe_name, written


@given(st.text() | st.text(alphabet="./\\:-~ \x00aux.con\u202e") | st.none())
def test_a_name_is_one_component_of_a_path_on_any_system(name: str | None) -> None:
    safe = safe_name(name, "fallback")
    assert safe not in ("", ".", "..")
    assert not set(safe) & set('/\\:*?"<>|\x00\r\n\x1b\u202e')
    assert safe[0] not in ".-"
    assert safe[-1] not in ". "
    assert len(os.fsencode(safe)) <= 200
    assert safe_name(safe, "fallback") == safe


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("report.pdf", "report.pdf"),
        ("Befund Müller.pdf", "Befund Müller.pdf"),
        ("../../etc/passwd", "passwd"),
        ("C:\\windows\\system.ini", "system.ini"),
        ("a/", "fallback"),
        ("..", "fallback"),
        (None, "fallback"),
        ("NUL", "_NUL"),
        ("com1.txt", "_com1.txt"),
        ("console.txt", "console.txt"),
        ("x\u202efdp.exe", "x_fdp.exe"),
        (f"{'x' * 300}.pdf", f"{'x' * 130}.pdf"),
        (f"{'ü' * 300}.pdf", f"{'ü' * 65}.pdf"),
    ],
)
def test_names_as_they_become(name: str | None, safe: str) -> None:
    assert safe_name(name, "fallback") == safe


def test_what_can_not_be_written_leaves_no_part(tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        written(tmp_path, "a.pdf", "no bytes")  # type: ignore[arg-type]  # stands for a disk that is full
    assert list(tmp_path.iterdir()) == []
