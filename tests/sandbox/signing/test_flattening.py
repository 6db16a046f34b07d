"""Flatten draws the fields of a form on the pages, and preserves everything else."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import pikepdf
import pytest
from pikepdf import Array, Dictionary, Name, String

from directsuite.sandbox.signing import appearance

from . import documents
from .caller import SigningCaller, count_pdfsig_valid, extract_poppler_text, render_poppler_page, require_font_for

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.wide


async def test_fields_become_part_of_the_page(signing: SigningCaller, tmp_path: Path) -> None:
    identifier = await signing.save(documents.make_consent_form())
    response = await signing.call_ok("PATCH", f"/{identifier}/flatten")
    assert set(response) == {"documentDigest", "description"}
    info = await signing.get_doc_info(identifier)
    assert info["formFields"] == []
    assert info["documentDigest"] == response["documentDigest"]
    text = extract_poppler_text(await signing.get_doc(identifier), tmp_path)
    assert "alice" in text
    assert "Ohio" in text


async def test_links_and_empty_signature_fields_stay(signing: SigningCaller) -> None:
    identifier = await signing.save(documents.make_consent_form())
    before = await signing.get_doc_info(identifier)
    content = await signing.call_ok("PATCH", f"/{identifier}/flatten/pull")
    assert (await signing.get_doc_info(identifier))["signatures"] == before["signatures"]
    with pikepdf.open(io.BytesIO(content)) as pdf:
        annotations: Any = pdf.pages[0].obj["/Annots"]
        assert sorted(str(annotation["/Subtype"]) for annotation in annotations) == ["/Link", "/Widget"]


async def test_a_signed_document_cannot_be_flattened(signing: SigningCaller, tmp_path: Path) -> None:
    identifier = await signing.save(documents.make_consent_form())
    await signing.call_ok("PATCH", f"/{identifier}/flatten")
    await signing.call_ok("PATCH", f"/{identifier}/sign", json={"name": "PatientSig"})
    content = await signing.get_doc(identifier)
    assert "has 1 signature(s)" in await signing.call_rejected("PATCH", f"/{identifier}/flatten")
    assert await signing.get_doc(identifier) == content
    assert count_pdfsig_valid(content, tmp_path) == 1
    assert (await signing.get_signature_states(identifier))["PatientSig"] is True


async def test_nested_signature_fields_are_preserved(signing: SigningCaller) -> None:
    identifier = await signing.save(documents.make_nested_fields())
    await signing.call_ok("PATCH", f"/{identifier}/flatten")
    assert await signing.get_signature_states(identifier) == dict.fromkeys(["group.first", "pair.one", "pair.two"])
    assert (await signing.get_doc_info(identifier))["formFields"] == []
    await signing.call_ok("PATCH", f"/{identifier}/sign", json={"name": "group.first"})


@pytest.mark.parametrize("value", ["José", "naïve € “quoted”", "Żółć", "Ωμέγα", "Жанна", "\N{GRINNING FACE}1"])
async def test_values_keep_their_characters(signing: SigningCaller, tmp_path: Path, value: str) -> None:
    require_font_for(value)
    content = await signing.change(documents.make_unrendered_field(value), "flatten/pull")
    assert value in extract_poppler_text(content, tmp_path)


async def test_a_value_that_no_font_has_is_rejected(
    signing: SigningCaller, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    identifier = await signing.save(documents.make_unrendered_field("Żółć"))
    damaged = tmp_path / "damaged.ttf"
    damaged.write_bytes(b"\0\1\0\0" + bytes(2000))
    monkeypatch.setattr(appearance, "FONT_PATHS", (str(tmp_path / "absent.ttf"), str(damaged)))
    assert "no font" in await signing.call_rejected("PATCH", f"/{identifier}/flatten")


@pytest.mark.parametrize(
    "field",
    [
        {"FT": Name.Btn, "V": Name.Off, "AS": Name.Off, "AP": Dictionary(N=Dictionary(Yes=Dictionary()))},
        {"FT": Name.Btn, "V": Name.Off},
        {"FT": Name.Btn},
        {"FT": Name.Btn, "Ff": 1 << 16},
        {"FT": Name.Tx},
    ],
)
async def test_the_frame_of_a_field_left_to_viewers_keeps_its_colour(
    signing: SigningCaller, tmp_path: Path, field: dict[str, Any]
) -> None:
    looks = Dictionary(BC=Array([1, 0, 0]), BG=Array([1, 1, 0]), CA=String("4"))
    box = documents.make_unrendered_field("", **field, MK=looks, BS=Dictionary(W=4))
    content = await signing.change(box, "flatten/pull")
    drawn = render_poppler_page(content, tmp_path)
    assert [drawn.getpixel(place) for place in ((52, 135), (60, 128))] == [(255, 0, 0), (255, 255, 0)]


async def test_a_field_with_an_invalid_rotation_is_upright(signing: SigningCaller, tmp_path: Path) -> None:
    looks = Dictionary(BG=Array([1, 1, 0]), R=45)
    content = await signing.change(documents.make_unrendered_field("", FT=Name.Tx, MK=looks), "flatten/pull")
    assert render_poppler_page(content, tmp_path).getpixel(MIDDLE) == (255, 255, 0)


def make_text(flags: int, value: str) -> bytes:
    return documents.make_single_field_form(FT=Name.Tx, T=String("t"), V=String(value), Ff=flags, MaxLen=10)


def make_choice(flags: int) -> bytes:
    options: Any = Array([Array([String(code), String(label)]) for code, label in (("OH", "Ohio"), ("TX", "Texas"))])
    return documents.make_single_field_form(FT=Name.Ch, T=String("state"), V=String("OH"), Opt=options, Ff=flags)


def make_button() -> bytes:
    return documents.make_unrendered_field("", FT=Name.Btn, Ff=1 << 16, MK=Dictionary(CA=String("Submit")))


@pytest.mark.parametrize(
    ("form", "shown", "hidden"),
    [
        (documents.make_stale_field(old="before", new="after"), {"after"}, {"before"}),
        (make_button(), {"Submit"}, set[str]()),
        (make_text(1 << 13, "secret"), {"******"}, {"secret"}),
        (make_text(1 << 12, "one two three\nfour"), {"four"}, set[str]()),
        (make_text(1 << 24, "42"), {"4"}, {"42"}),
        (make_choice(1 << 17), {"Ohio"}, {"OH", "TX", "Texas"}),
        (make_choice(0), {"Ohio", "Texas"}, {"OH", "TX"}),
    ],
    ids=["outdated", "caption", "password", "lines", "comb", "combo box", "list box"],
)
async def test_missing_and_outdated_appearances_are_drawn(
    signing: SigningCaller, tmp_path: Path, form: bytes, shown: set[str], hidden: set[str]
) -> None:
    text = extract_poppler_text(await signing.change(form, "flatten/pull"), tmp_path)
    assert {word for word in shown | hidden if word in text.split()} == shown


async def test_an_encrypted_form_stays_encrypted(signing: SigningCaller) -> None:
    content = await signing.change(documents.make_encrypted_form(""), "flatten/pull")
    with pikepdf.open(io.BytesIO(content)) as pdf:
        assert pdf.is_encrypted


async def test_a_radio_group_without_appearances_shows_its_choice(signing: SigningCaller) -> None:
    content = await signing.change(documents.make_radio_group("b"), "flatten/pull")
    with pikepdf.open(io.BytesIO(content)) as pdf:
        page: Any = pdf.pages[0].obj
        drawn = [bytes(form.read_bytes()) for form in page["/Resources"]["/XObject"].values()]
        assert sorted(b"Tj" in form for form in drawn) == [False, True]


async def test_widgets_without_a_field_are_flattened(signing: SigningCaller, tmp_path: Path) -> None:
    stray = documents.make_form_with_stray_widget("stray text")
    identifier = await signing.save(stray)
    await signing.call_ok("PATCH", f"/{identifier}/clearUnsignedFields")
    content = await signing.call_ok("PATCH", f"/{identifier}/flatten/pull")
    assert "stray text" in extract_poppler_text(content, tmp_path)
    with pikepdf.open(io.BytesIO(content)) as pdf:
        assert "/Annots" not in pdf.pages[0].obj


RED, BLUE, WHITE = (255, 0, 0), (0, 0, 255), (255, 255, 255)
MIDDLE = (200, 135)  # pixels, of the field that `documents.one_field` makes


def filled(pdf: pikepdf.Pdf, colour: tuple[int, int, int]) -> Any:
    content = b"%d %d %d rg 0 0 300 30 re f" % tuple(channel // 255 for channel in colour)
    return documents.make_stream(pdf, content, Type=Name.XObject, Subtype=Name.Form, BBox=Array([0, 0, 300, 30]))


@pytest.mark.parametrize(("flags", "colour"), [(2, WHITE), (32, WHITE), (36, WHITE), (4, RED), (0, RED), (5, RED)])
async def test_a_hidden_field_stays_hidden(
    signing: SigningCaller, tmp_path: Path, flags: int, colour: tuple[int, int, int]
) -> None:
    with documents.open_field(FT=Name.Tx, T=String("a"), F=flags) as (pdf, field):
        field["/AP"] = Dictionary(N=filled(pdf, RED))
        content = documents.save_to_bytes(pdf)
    assert render_poppler_page(content, tmp_path).getpixel(MIDDLE) == colour
    flattened = await signing.change(content, "flatten/pull")
    assert render_poppler_page(flattened, tmp_path).getpixel(MIDDLE) == colour


async def test_a_field_in_a_hidden_layer_stays_hidden(signing: SigningCaller, tmp_path: Path) -> None:
    with documents.open_field(FT=Name.Tx, T=String("a")) as (pdf, field):
        layer: Any = pdf.make_indirect(Dictionary(Type=Name.OCG, Name=String("layer")))
        pdf.Root["/OCProperties"] = Dictionary(OCGs=Array([layer]), D=Dictionary(OFF=Array([layer])))
        field["/AP"] = Dictionary(N=filled(pdf, RED))
        field["/OC"] = layer
        content = documents.save_to_bytes(pdf)
    flattened = await signing.change(content, "flatten/pull")
    assert render_poppler_page(flattened, tmp_path).getpixel(MIDDLE) == WHITE


@pytest.mark.parametrize("order", [["note", "field"], ["field", "note"], ["field", "note", "other"]])
async def test_fields_and_notes_are_drawn_in_the_same_order(
    signing: SigningCaller, tmp_path: Path, order: list[str]
) -> None:
    with documents.open_field(FT=Name.Tx, T=String("a")) as (pdf, field):
        form: Any = pdf.Root["/AcroForm"]
        field["/AP"] = Dictionary(N=filled(pdf, RED))
        note = Dictionary(
            Type=Name.Annot, Subtype=Name.Square, Rect=field["/Rect"], F=4, AP=Dictionary(N=filled(pdf, BLUE))
        )
        other = Dictionary(Type=Name.Annot, Subtype=Name.Widget, FT=Name.Tx, T=String("b"), F=4, Rect=field["/Rect"])
        other["/AP"] = field["/AP"]
        annotations: dict[str, Any] = {
            "field": field,
            "note": pdf.make_indirect(note),
            "other": pdf.make_indirect(other),
        }
        form["/Fields"] = Array([annotations[name] for name in order if name != "note"])
        pdf.pages[0].obj["/Annots"] = Array([annotations[name] for name in order])
        content = documents.save_to_bytes(pdf)
    expected = BLUE if order[-1] == "note" else RED
    assert render_poppler_page(content, tmp_path).getpixel(MIDDLE) == expected
    identifier = await signing.save(content)
    flattened = await signing.call_ok("PATCH", f"/{identifier}/flatten/pull")
    assert render_poppler_page(flattened, tmp_path).getpixel(MIDDLE) == expected
    assert (await signing.get_doc_info(identifier))["formFields"] == []
    with pikepdf.open(io.BytesIO(flattened)) as pdf:
        kept = [str(annotation["/Subtype"]) for annotation in pdf.pages[0].obj["/Annots"]]
    assert kept.count("/Square") == 1
    assert "/Widget" not in kept


async def test_a_form_that_contains_itself_is_flattened(signing: SigningCaller) -> None:
    with pikepdf.open(io.BytesIO(documents.make_nested_fields())) as pdf:
        form: Any = pdf.Root["/AcroForm"]
        group = form["/Fields"][0]
        group["/Kids"].append(group)
        identifier = await signing.save(documents.save_to_bytes(pdf))
    await signing.call_ok("PATCH", f"/{identifier}/flatten")
    assert "group.first" in await signing.get_signature_states(identifier)
