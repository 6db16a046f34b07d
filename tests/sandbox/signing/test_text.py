"""Measuring and laying out text."""

from __future__ import annotations

import io
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from directsuite.sandbox.signing import text
from directsuite.sandbox.signing.text import EmbeddedFont, Helvetica, find_font
from tests.examples import scale_examples

from .caller import find_font_for

pytestmark = pytest.mark.wide

WESTERN = st.text(st.characters(codec="cp1252", min_codepoint=32, categories=("L", "N", "P", "S", "Zs")))


@given(WESTERN)
def test_helvetica_is_as_wide_as_adobe_says(line: str) -> None:
    metrics: Any = import_module("reportlab.pdfbase.pdfmetrics")
    assert Helvetica().measure_width(line, 10) == pytest.approx(metrics.stringWidth(line, "Helvetica", 10), abs=0.01)


@given(st.data())
@settings(max_examples=scale_examples(60))
def test_a_damaged_font_is_skipped(data: st.DataObject) -> None:
    sound = find_font_for("\u017b")
    assert isinstance(sound, EmbeddedFont)
    content = sound._font.content
    start = data.draw(st.one_of(st.integers(0, 400), st.integers(0, len(content))), "start")
    damage = data.draw(st.one_of(st.binary(min_size=1, max_size=64), st.just(bytes(2000))), "damage")
    end = data.draw(st.sampled_from([start, start + len(damage), len(content)]), "end")
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        path = Path(folder) / "font.ttf"
        path.write_bytes(content[:start] + damage + content[end:])
        patch.setattr(text, "FONT_PATHS", (str(path),))
        font = find_font("\u017b")
        assert font is None or font.encode("\u017b")


def test_a_font_with_damaged_outlines_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sound = find_font_for("\u017b")
    assert isinstance(sound, EmbeddedFont)
    library: Any = import_module("fontTools.ttLib")
    tables = library.TTFont(io.BytesIO(sound._font.content)).reader.tables
    good, bad = tmp_path / "good.ttf", tmp_path / "bad.ttf"
    good.write_bytes(sound._font.content)
    offset, length = tables["glyf"].offset, tables["glyf"].length
    bad.write_bytes(good.read_bytes()[:offset] + b"\xff" * length + good.read_bytes()[offset + length :])
    monkeypatch.setattr(text, "FONT_PATHS", (str(tmp_path / "absent.ttf"), str(bad), str(good)))
    found = find_font("\u017b")
    assert isinstance(found, EmbeddedFont)
    assert found._font.name == "good"
