"""The appearance of a visible signature: the picture and the lines."""

from __future__ import annotations

import base64
import io
from typing import TYPE_CHECKING, Any

import pikepdf
import pytest
from PIL import Image

from . import documents
from .caller import SigningCaller, extract_poppler_text, render_poppler_page

if TYPE_CHECKING:
    from pathlib import Path

WIDGET = {"x": 100, "y": 100, "width": 200, "height": 80, "page": 1}
BLUE, WHITE = (0, 0, 255), (255, 255, 255)


def half_blue() -> str:
    """A square picture as base64: blue on the left, transparent red on the right."""
    picture = Image.new("RGBA", (60, 60), (255, 0, 0, 0))
    picture.paste((*BLUE, 255), (0, 0, 30, 60))
    output = io.BytesIO()
    picture.save(output, "PNG")
    return base64.b64encode(output.getvalue()).decode()


def images_below(form: Any) -> list[Any]:
    """The images that a form object draws, or the forms that it draws."""
    found: list[Any] = []
    for drawn in form.get("/Resources", {}).get("/XObject", {}).values():
        found += [drawn] if drawn["/Subtype"] == pikepdf.Name.Image else images_below(drawn)
    return found


@pytest.mark.parametrize("pictured", [True, False])
async def test_the_picture_is_in_the_appearance(signing: SigningCaller, tmp_path: Path, *, pictured: bool) -> None:
    identifier = await signing.save(documents.make_plain_pages())
    body: dict[str, Any] = {"gsName": "Alexandra", "widget": WIDGET}
    if pictured:
        body["graphicalSignature"] = half_blue()
    content = await signing.call_ok("PATCH", f"/{identifier}/sign/pull", json=body)
    with pikepdf.open(io.BytesIO(content)) as pdf:
        [widget] = list[Any](pdf.pages[0].obj["/Annots"])
        images = images_below(widget["/AP"]["/N"])
        assert [(image["/Width"], image["/Height"], "/SMask" in image) for image in images] == (
            [(60, 60, True)] if pictured else []
        )
    drawn = render_poppler_page(content, tmp_path)
    # The picture fills a square of 76 points from (112, 102) on; its right half lets the background show through.
    left_half = [drawn.getpixel(place) for place in ((115, 105), (130, 140), (145, 175))]
    assert (left_half == [BLUE] * 3) is pictured
    if pictured:
        assert [drawn.getpixel(place) for place in ((105, 140), (155, 105), (180, 175))] == [WHITE] * 3


async def test_the_lines_have_signer_reason_and_time_with_its_zone(signing: SigningCaller, tmp_path: Path) -> None:
    identifier = await signing.save(documents.make_plain_pages())
    body = {"gsName": "Alexandra", "reason": "agreed", "timezone": "America/New_York", "widget": WIDGET}
    content = await signing.call_ok("PATCH", f"/{identifier}/sign/pull", json=body)
    text = " ".join(extract_poppler_text(content, tmp_path).split())
    assert "Alexandra Reason: agreed 2026-03-01 07:00:00 EST" in text


@pytest.mark.exhaustive(limit=1)
@pytest.mark.parametrize("degrees", [0, 90])
async def test_the_lines_are_readable_on_a_dark_page(signing: SigningCaller, tmp_path: Path, degrees: int) -> None:
    with pikepdf.open(io.BytesIO(documents.make_rotated_page(degrees))) as pdf:
        pdf.pages[0].contents_add(b"0 g 0 0 612 792 re f")
        dark = documents.save_to_bytes(pdf)
    body = {"gsName": "Alexandra", "widget": WIDGET}
    drawn = render_poppler_page(await signing.change(dark, "sign/pull", body), tmp_path).rotate(degrees, expand=True)
    colours: Any = drawn.crop((100, 100, 300, 180)).getcolors(100_000)
    light = sum(number for number, colour in colours if colour == WHITE)
    assert 0.5 < light / (200 * 80) < 0.99
    assert {drawn.getpixel(place) for place in ((98, 140), (302, 140), (200, 98), (200, 182))} == {(0, 0, 0)}


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
async def test_a_picture_is_turned_as_its_exif_data_says(signing: SigningCaller, tmp_path: Path, kind: str) -> None:
    picture, output = Image.new("RGB", (60, 60), (255, 0, 0)), io.BytesIO()
    picture.paste(BLUE, (0, 0, 30, 60))
    exif = Image.Exif()
    exif[0x0112] = 6  # orientation: to be turned clockwise by 90 degrees
    picture.save(output, kind, exif=exif, quality=100)
    body = {"widget": WIDGET, "graphicalSignature": base64.b64encode(output.getvalue()).decode()}
    content = await signing.call_ok(
        "PATCH", f"/{await signing.save(documents.make_plain_pages())}/sign/pull", json=body
    )
    drawn = render_poppler_page(content, tmp_path)
    colours: list[Any] = [drawn.getpixel(place) for place in ((118, 108), (180, 108), (118, 170))]
    assert [blue > red for red, _, blue in colours] == [True, True, False]


async def test_a_picture_that_pillow_cannot_open_is_rejected(signing: SigningCaller) -> None:
    output = io.BytesIO()
    Image.new("RGB", (60, 60)).save(output, "JPEG", exif=b"Exif\0\0MM\0*\0\0\0\x08\xff\xff")
    body = {"widget": WIDGET, "graphicalSignature": base64.b64encode(output.getvalue()).decode()}
    refused = await signing.call_rejected(
        "PATCH", f"/{await signing.save(documents.make_plain_pages())}/sign", json=body
    )
    assert "graphicalSignature is not a readable" in refused
