"""File names chosen by a hostile sender."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from directsuite.cli.inbox import make_safe_name, write_new_file

DEVICES = ["CON", "prn", "Aux", "NUL", "CONIN$", "conout$", "COM1", "lpt0", "COM\u00b9", "LPT\u00b2"]

NAMES = st.one_of(
    st.none(),
    st.text(),
    st.text("./\\:-~_ \x00aux.con$\u00a0\u202e\u200f\u0338"),
    st.tuples(st.sampled_from(DEVICES), st.text(". \u3000x", max_size=250), st.text(". x", max_size=30)).map("".join),
    st.tuples(st.text(max_size=3), st.text(". \u00adxü_", min_size=100, max_size=200), st.text(". _x")).map("".join),
)


@given(NAMES)
def test_name_is_one_component_of_a_path_on_any_system(name: str | None) -> None:
    safe = make_safe_name(name, "fallback")
    assert safe not in ("", ".", "..")
    assert not set(safe) & set('/\\:*?"<>|')
    assert not {unicodedata.category(letter) for letter in safe} & {"Cc", "Cf", "Cs", "Zl", "Zp"}
    assert safe[0] not in ".-"
    assert safe == safe.strip()
    assert safe[-1] != "."
    assert safe.partition(".")[0].rstrip().upper() not in {device.upper() for device in DEVICES}
    assert len(safe.encode()) <= 150
    assert make_safe_name(safe, "fallback") == safe


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
        ("CONIN$", "_CONIN$"),
        ("conout$ .txt", "_conout$ .txt"),
        ("COM\u00b9.tar.gz", "_COM\u00b9.tar.gz"),
        ("console.txt", "console.txt"),
        ("x\u202efdp.exe", "x_fdp.exe"),
        ("x\u200efdp\u061c.\u00adexe\u200f", "x_fdp_._exe_"),
        ("report.pdf\u00a0. ", "report.pdf"),
        ("\u3000 .hidden", "hidden"),
        (f"{'x' * 129}. y{'z' * 30}", "x" * 129),
        (f"con{' ' * 200}x.pdf", "_con.pdf"),
        ("_" * 200 + "x", "fallback"),
        (f"{'x' * 300}.pdf", f"{'x' * 130}.pdf"),
        (f"{'ü' * 300}.pdf", f"{'ü' * 65}.pdf"),
    ],
)
def test_names_as_they_become(name: str | None, safe: str) -> None:
    assert make_safe_name(name, "fallback") == safe


def test_what_can_not_be_written_leaves_no_part(tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        write_new_file(tmp_path, "a.pdf", "no bytes")  # type: ignore[arg-type]  # stands for a disk that is full
    assert list(tmp_path.iterdir()) == []
