"""Limits of the texts and appearances that flattening draws."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pikepdf
import pytest
from pikepdf import Array, Dictionary, Name, String

from directsuite.sandbox.signing import flatten
from directsuite.sandbox.signing.text import find_font

from . import documents

if TYPE_CHECKING:
    from collections.abc import Callable

    from .caller import SigningCaller

pytestmark = pytest.mark.wide


def form_with_widgets(number: int, shared: Callable[[pikepdf.Pdf], dict[str, Any]], **field: Any) -> bytes:
    """A document with one field of this number of widgets, which have `shared` in common."""
    with documents.open_pages() as pdf:
        common = shared(pdf)
        widgets: list[Any] = [
            pdf.make_indirect(Dictionary(Type=Name.Annot, Subtype=Name.Widget, Rect=Array([0, 0, 99, 99]), **common))
            for _ in range(number)
        ]
        one: Any = pdf.make_indirect(Dictionary(T=String("a"), Kids=Array(widgets), **field))
        pdf.pages[0].obj["/Annots"] = Array(widgets)
        pdf.Root["/AcroForm"] = pdf.make_indirect(Dictionary(Fields=Array([one])))
        return documents.save_to_bytes(pdf)


def nothing(_: pikepdf.Pdf) -> dict[str, Any]:
    return {}


def options_of_one_text() -> bytes:
    with documents.open_field(FT=Name.Ch, T=String("a")) as (pdf, field):
        option: Any = pdf.make_indirect(String("A" * 10_000))
        field["/Opt"] = Array([option] * 2000)
        return documents.save_to_bytes(pdf)


def state_of_many_boxes() -> bytes:
    return form_with_widgets(100, nothing, FT=Name.Btn, V=String("A" * 10_000))


def text_in_many_widgets() -> bytes:
    return form_with_widgets(100, nothing, FT=Name.Tx, V=String("A" * 10_000))


def fonts_in_many_widgets() -> bytes:
    return form_with_widgets(150, nothing, FT=Name.Tx, V=String("\u0416"))


@pytest.mark.parametrize(
    "build", [options_of_one_text, state_of_many_boxes, text_in_many_widgets, fonts_in_many_widgets]
)
async def test_the_texts_that_flattening_draws_are_limited(signing: SigningCaller, build: Callable[[], bytes]) -> None:
    if build is fonts_in_many_widgets and find_font("\u0416") is None:
        pytest.skip("this machine has no font with Cyrillic letters")
    identifier = await signing.save(build())
    assert "more than 262,144 characters" in await signing.call_rejected("PATCH", f"/{identifier}/flatten")


async def test_long_lists_of_options_can_be_flattened(signing: SigningCaller) -> None:
    for widgets, number in ((100, 250), (1, 20_000)):
        options = Array([String(f"an option with the number {each}") for each in range(number)])
        form = form_with_widgets(widgets, nothing, FT=Name.Ch, Ff=1 << 17, Opt=options, V=options[1])
        await signing.call_ok("PATCH", f"/{await signing.save(form)}/flatten")


async def test_appearances_that_flattening_copies_are_limited(
    signing: SigningCaller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flatten, "_MAX_COPIED_BYTES", 100_000)

    def in_layer(pdf: pikepdf.Pdf) -> dict[str, Any]:
        appearance = documents.make_stream(
            pdf, b"%" * 1000, Type=Name.XObject, Subtype=Name.Form, BBox=Array([0, 0, 9, 9])
        )
        layer: Any = pdf.make_indirect(Dictionary(Type=Name.OCG, Name=String("layer")))
        return {"AP": Dictionary(N=appearance), "OC": layer}

    few = await signing.save(form_with_widgets(50, in_layer, FT=Name.Tx))
    await signing.call_ok("PATCH", f"/{few}/flatten")
    monkeypatch.setattr(flatten, "_MAX_COPIED_BYTES", 100)
    many = await signing.save(form_with_widgets(50, in_layer, FT=Name.Tx))
    assert "more than 100 bytes" in await signing.call_rejected("PATCH", f"/{many}/flatten")
