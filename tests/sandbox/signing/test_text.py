"""Measuring and laying out text."""

from __future__ import annotations

import io
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

import pikepdf
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from directsuite.sandbox.signing import text
from directsuite.sandbox.signing.document import Rectangle, compute_upright_matrix
from directsuite.sandbox.signing.text import EmbeddedFont, Helvetica, find_font, wrap_text
from tests.examples import scale_examples

from .caller import find_font_for

pytestmark = pytest.mark.wide

WESTERN = st.text(st.characters(codec="cp1252", min_codepoint=32, categories=("L", "N", "P", "S", "Zs")))


@given(WESTERN)
def test_helvetica_is_as_wide_as_adobe_says(line: str) -> None:
    metrics: Any = import_module("reportlab.pdfbase.pdfmetrics")
    assert Helvetica().measure_width(line, 10) == pytest.approx(metrics.stringWidth(line, "Helvetica", 10), abs=0.01)


@given(WESTERN)
def test_western_text_needs_no_embedded_font(line: str) -> None:
    assert isinstance(find_font(line), Helvetica)


@given(st.lists(st.text("abc", min_size=1, max_size=12), max_size=20), st.floats(5, 200))
def test_wrapping_keeps_every_word_in_order(words: list[str], width: float) -> None:
    lines = wrap_text(Helvetica(), " ".join(words), 10, width)
    assert " ".join(lines).split() == words
    assert all(Helvetica().measure_width(line, 10) <= width or " " not in line for line in lines)


@given(st.sampled_from([0, 90, 180, 270]), st.floats(1, 500), st.floats(1, 500))
def test_an_upright_drawing_fills_its_rectangle(turned: int, width: float, height: float) -> None:
    across, up, (a, b, c, d, e, f) = compute_upright_matrix(turned, width, height)
    corners = [(a * x + c * y + e, b * x + d * y + f) for x, y in ((0, 0), (across, up))]
    box = Rectangle.from_corners([*corners[0], *corners[1]])
    assert box.to_corners() == pytest.approx((0, 0, width, height))


def test_an_embedded_subset_is_a_font_with_the_same_glyphs(tmp_path: Path) -> None:
    string = "\u017b\u00f3\u0142\u0107 \u0434"
    font = find_font_for(string)
    assert isinstance(font, EmbeddedFont)
    with pikepdf.new() as pdf:
        descendant: Any = font.make_resource(pdf)["/DescendantFonts"][0]
        subset = bytes(descendant["/FontDescriptor"]["/FontFile2"].read_bytes())
    original = font._font.content
    (tmp_path / "subset.ttf").write_bytes(_with_tables_of(subset, original))
    rasterizer: Any = import_module("PIL.ImageFont")
    drawn, expected = (
        rasterizer.truetype(file, 40).getmask(string) for file in (tmp_path / "subset.ttf", io.BytesIO(original))
    )
    assert bytes(drawn) == bytes(expected)
    assert len(subset) < 100_000


def _with_tables_of(subset: bytes, original: bytes) -> bytes:
    """The subset with the character map that a PDF does without, so that a rasterizer can use it."""
    library: Any = import_module("fontTools.ttLib")
    font, whole = library.TTFont(io.BytesIO(subset)), library.TTFont(io.BytesIO(original))
    font.setGlyphOrder(whole.getGlyphOrder())
    for tag in ("cmap", "name", "post", "OS/2"):
        font[tag] = whole[tag]
    output = io.BytesIO()
    font.save(output)
    return output.getvalue()


@given(st.data())
@settings(max_examples=scale_examples(60))
def test_a_damaged_font_is_passed_over(data: st.DataObject) -> None:
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


def test_a_font_whose_outlines_are_damaged_gives_way_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
