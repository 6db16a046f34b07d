"""Measuring and laying out text."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from directsuite.sandbox.signing import fonts, truetype
from directsuite.sandbox.signing.fonts import EmbeddedFont, Helvetica, font_for
from directsuite.sandbox.signing.geometry import Rectangle, upright
from directsuite.sandbox.signing.text_layout import wrapped

from .caller import font_with

if TYPE_CHECKING:
    from directsuite.sandbox.signing.truetype import TrueType

WESTERN = st.text(st.characters(codec="cp1252", min_codepoint=32, categories=("L", "N", "P", "S", "Zs")))


@given(WESTERN)
def test_helvetica_is_as_wide_as_adobe_says(text: str) -> None:
    metrics: Any = import_module("reportlab.pdfbase.pdfmetrics")
    assert Helvetica().width(text, 10) == pytest.approx(metrics.stringWidth(text, "Helvetica", 10), abs=0.01)


@given(WESTERN)
def test_western_text_needs_no_embedded_font(text: str) -> None:
    assert isinstance(font_for(text), Helvetica)


@given(st.lists(st.text("abc", min_size=1, max_size=12), max_size=20), st.floats(5, 200))
def test_wrapping_keeps_every_word_in_order(words: list[str], width: float) -> None:
    lines = wrapped(Helvetica(), " ".join(words), 10, width)
    assert " ".join(lines).split() == words
    assert all(Helvetica().width(line, 10) <= width or " " not in line for line in lines)


@given(st.sampled_from([0, 90, 180, 270]), st.floats(1, 500), st.floats(1, 500))
def test_an_upright_drawing_fills_its_rectangle(turned: int, width: float, height: float) -> None:
    across, up, (a, b, c, d, e, f) = upright(turned, width, height)
    corners = [(a * x + c * y + e, b * x + d * y + f) for x, y in ((0, 0), (across, up))]
    box = Rectangle.of([*corners[0], *corners[1]])
    assert box.corners() == pytest.approx((0, 0, width, height))


def test_an_embedded_subset_is_a_font_with_the_same_glyphs(tmp_path: Any) -> None:
    text = "\u017b\u00f3\u0142\u0107 \u0434"
    font = font_with(text)
    assert isinstance(font, EmbeddedFont)
    path = next(path for path in fonts.CANDIDATES if (loaded := fonts._load(path)) is not None and loaded.covers(text))
    original = fonts._load(path)
    assert original is not None
    subset = original.subset([original.glyph(character) for character in text])
    metrics: Any = import_module("PIL.ImageFont")
    (tmp_path / "subset.ttf").write_bytes(_with_tables_of(subset, original))
    drawn = metrics.truetype(str(tmp_path / "subset.ttf"), 40).getmask(text)
    assert bytes(drawn) == bytes(metrics.truetype(path, 40).getmask(text))
    assert len(subset) < 100_000


def _with_tables_of(subset: bytes, original: TrueType) -> bytes:
    """The subset with the character map that a PDF does without, so that a rasterizer can use it."""
    tables = dict(original._tables)
    embedded = truetype.read_tables(subset)
    return truetype.font_file(
        {tag: embedded.get(tag, tables[tag]) for tag in (*embedded, "cmap", "name", "post", "OS/2")}
    )
