"""Flatten: what the form shows goes into the pages, and nothing else is lost."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import pikepdf
import pytest
from pikepdf import Array, Dictionary, Name, String

from directsuite.sandbox.signing import text as signing_text

from . import documents
from .caller import Caller, font_with, page_by_poppler, text_by_poppler, valid_by_pdfsig

if TYPE_CHECKING:
    from pathlib import Path


async def test_fields_become_part_of_the_page(signing: Caller, tmp_path: Path) -> None:
    identifier = await signing.save(documents.consent())
    answer = await signing.ok("PATCH", f"/{identifier}/flatten")
    assert set(answer) == {"documentDigest", "description"}
    info = await signing.info(identifier)
    assert info["formFields"] == []
    assert info["documentDigest"] == answer["documentDigest"]
    text = text_by_poppler(await signing.pull(identifier), tmp_path)
    assert "alice" in text
    assert "Ohio" in text


async def test_links_and_empty_signature_fields_stay(signing: Caller) -> None:
    identifier = await signing.save(documents.consent())
    before = await signing.info(identifier)
    content = await signing.ok("PATCH", f"/{identifier}/flatten/pull")
    assert (await signing.info(identifier))["signatures"] == before["signatures"]
    with pikepdf.open(io.BytesIO(content)) as pdf:
        annotations: Any = pdf.pages[0].obj["/Annots"]
        assert sorted(str(annotation["/Subtype"]) for annotation in annotations) == ["/Link", "/Widget"]


async def test_a_flattened_document_can_be_signed_but_a_signed_one_not_flattened(
    signing: Caller, tmp_path: Path
) -> None:
    identifier = await signing.save(documents.consent())
    await signing.ok("PATCH", f"/{identifier}/flatten")
    await signing.ok("PATCH", f"/{identifier}/sign", json={"name": "PatientSig"})
    content = await signing.pull(identifier)
    assert "carries 1 signature(s)" in await signing.refused("PATCH", f"/{identifier}/flatten")
    assert await signing.pull(identifier) == content
    assert valid_by_pdfsig(content, tmp_path) == 1
    assert (await signing.signatures(identifier))["PatientSig"] is True


async def test_nested_signature_fields_stay_when_their_neighbours_go(signing: Caller) -> None:
    identifier = await signing.save(documents.nested())
    await signing.ok("PATCH", f"/{identifier}/flatten")
    assert await signing.signatures(identifier) == dict.fromkeys(["group.first", "pair.one", "pair.two"])
    assert (await signing.info(identifier))["formFields"] == []
    await signing.ok("PATCH", f"/{identifier}/sign", json={"name": "group.first"})


async def test_a_document_without_form_stays_as_it_is(signing: Caller) -> None:
    content = documents.plain()
    identifier = await signing.save(content)
    digest = (await signing.info(identifier))["documentDigest"]
    assert await signing.ok("PATCH", f"/{identifier}/flatten/pull") == content
    assert (await signing.ok("PATCH", f"/{identifier}/flatten"))["documentDigest"] == digest
    assert [effect["operation"] for effect in await signing.effects()] == ["Save"]


@pytest.mark.parametrize("value", ["José", "naïve € “quoted”", "Żółć", "Ωμέγα", "Жанна"])
async def test_values_keep_their_characters(signing: Caller, tmp_path: Path, value: str) -> None:
    font_with(value)
    identifier = await signing.save(documents.left_to_viewers(value))
    content = await signing.ok("PATCH", f"/{identifier}/flatten/pull")
    assert value in text_by_poppler(content, tmp_path)


async def test_a_value_that_no_font_has_is_refused(signing: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signing_text, "CANDIDATES", ())
    identifier = await signing.save(documents.left_to_viewers("Żółć"))
    assert "no font" in await signing.refused("PATCH", f"/{identifier}/flatten")


async def test_an_outdated_appearance_is_drawn_anew(signing: Caller, tmp_path: Path) -> None:
    identifier = await signing.save(documents.outdated(old="before", new="after"))
    text = text_by_poppler(await signing.ok("PATCH", f"/{identifier}/flatten/pull"), tmp_path)
    assert "after" in text
    assert "before" not in text


async def test_a_missing_check_mark_is_drawn(signing: Caller) -> None:
    box = documents.one_field(FT=Name.Btn, T=String("agree"), V=Name.Yes)
    content = await signing.ok("PATCH", f"/{await signing.save(box)}/flatten/pull")
    with pikepdf.open(io.BytesIO(content)) as pdf:
        page: Any = pdf.pages[0].obj
        assert len(page["/Resources"]["/XObject"]) == 1


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
    signing: Caller, tmp_path: Path, field: dict[str, Any]
) -> None:
    looks = Dictionary(BC=Array([1, 0, 0]), BG=Array([1, 1, 0]), CA=String("4"))
    box = documents.left_to_viewers("", **field, MK=looks, BS=Dictionary(W=4))
    content = await signing.ok("PATCH", f"/{await signing.save(box)}/flatten/pull")
    drawn = page_by_poppler(content, tmp_path)
    assert [drawn.getpixel(place) for place in ((52, 135), (60, 128))] == [(255, 0, 0), (255, 255, 0)]


async def test_the_caption_of_a_push_button_left_to_viewers_is_drawn(signing: Caller, tmp_path: Path) -> None:
    button = documents.left_to_viewers("", FT=Name.Btn, Ff=1 << 16, MK=Dictionary(CA=String("Submit")))
    content = await signing.ok("PATCH", f"/{await signing.save(button)}/flatten/pull")
    assert "Submit" in text_by_poppler(content, tmp_path)


@pytest.mark.parametrize(
    ("flags", "value", "expected"),
    [
        (1 << 13, "secret", "******"),
        (1 << 12, "one two three\nfour", "four"),
        (1 << 24, "42", "4"),
    ],
)
async def test_field_flags_change_what_is_shown(
    signing: Caller, tmp_path: Path, flags: int, value: str, expected: str
) -> None:
    field = documents.one_field(FT=Name.Tx, T=String("t"), V=String(value), Ff=flags, MaxLen=10)
    text = text_by_poppler(await signing.ok("PATCH", f"/{await signing.save(field)}/flatten/pull"), tmp_path)
    assert expected in text
    assert flags != 1 << 13 or value not in text


@pytest.mark.parametrize(("flags", "shown"), [(1 << 17, {"Ohio"}), (0, {"Ohio", "Texas"})])
async def test_a_choice_shows_its_items_by_their_labels(
    signing: Caller, tmp_path: Path, flags: int, shown: set[str]
) -> None:
    options: Any = Array([Array([String(code), String(label)]) for code, label in (("OH", "Ohio"), ("TX", "Texas"))])
    field = documents.one_field(FT=Name.Ch, T=String("state"), V=String("OH"), Opt=options, Ff=flags)
    text = text_by_poppler(await signing.ok("PATCH", f"/{await signing.save(field)}/flatten/pull"), tmp_path)
    assert {word for word in ("Ohio", "Texas", "OH", "TX") if word in text.split()} == shown


async def test_an_encrypted_form_stays_encrypted(signing: Caller) -> None:
    content = await signing.ok("PATCH", f"/{await signing.save(documents.encrypted(''))}/flatten/pull")
    with pikepdf.open(io.BytesIO(content)) as pdf:
        assert pdf.is_encrypted


async def test_a_radio_group_without_appearances_shows_its_choice(signing: Caller) -> None:
    content = await signing.ok("PATCH", f"/{await signing.save(documents.radio_group('b'))}/flatten/pull")
    with pikepdf.open(io.BytesIO(content)) as pdf:
        page: Any = pdf.pages[0].obj
        drawn = [bytes(form.read_bytes()) for form in page["/Resources"]["/XObject"].values()]
        assert sorted(b"Tj" in form for form in drawn) == [False, True]


async def test_widgets_that_belong_to_no_field_are_flattened_too(signing: Caller, tmp_path: Path) -> None:
    stray = documents.with_stray_widget("stray text")
    identifier = await signing.save(stray)
    await signing.ok("PATCH", f"/{identifier}/clearUnsignedFields")
    content = await signing.ok("PATCH", f"/{identifier}/flatten/pull")
    assert "stray text" in text_by_poppler(content, tmp_path)
    with pikepdf.open(io.BytesIO(content)) as pdf:
        assert "/Annots" not in pdf.pages[0].obj


RED, BLUE, WHITE = (255, 0, 0), (0, 0, 255), (255, 255, 255)
MIDDLE = (200, 135)  # pixels, of the field that `documents.one_field` makes


def filled(pdf: pikepdf.Pdf, colour: tuple[int, int, int]) -> Any:
    """An appearance of one colour."""
    content = b"%d %d %d rg 0 0 300 30 re f" % tuple(channel // 255 for channel in colour)
    return documents.stream(pdf, content, Type=Name.XObject, Subtype=Name.Form, BBox=Array([0, 0, 300, 30]))


@pytest.mark.parametrize(("flags", "colour"), [(2, WHITE), (32, WHITE), (36, WHITE), (4, RED), (0, RED), (5, RED)])
async def test_a_hidden_field_stays_hidden(
    signing: Caller, tmp_path: Path, flags: int, colour: tuple[int, int, int]
) -> None:
    with pikepdf.open(io.BytesIO(documents.one_field(FT=Name.Tx, T=String("a"), F=flags))) as pdf:
        form: Any = pdf.Root["/AcroForm"]
        form["/Fields"][0]["/AP"] = Dictionary(N=filled(pdf, RED))
        content = documents.saved(pdf)
    assert page_by_poppler(content, tmp_path).getpixel(MIDDLE) == colour
    flattened = await signing.ok("PATCH", f"/{await signing.save(content)}/flatten/pull")
    assert page_by_poppler(flattened, tmp_path).getpixel(MIDDLE) == colour


async def test_a_field_in_a_hidden_layer_stays_hidden(signing: Caller, tmp_path: Path) -> None:
    with pikepdf.open(io.BytesIO(documents.one_field(FT=Name.Tx, T=String("a")))) as pdf:
        form: Any = pdf.Root["/AcroForm"]
        layer: Any = pdf.make_indirect(Dictionary(Type=Name.OCG, Name=String("layer")))
        pdf.Root["/OCProperties"] = Dictionary(OCGs=Array([layer]), D=Dictionary(OFF=Array([layer])))
        form["/Fields"][0]["/AP"] = Dictionary(N=filled(pdf, RED))
        form["/Fields"][0]["/OC"] = layer
        content = documents.saved(pdf)
    flattened = await signing.ok("PATCH", f"/{await signing.save(content)}/flatten/pull")
    assert page_by_poppler(flattened, tmp_path).getpixel(MIDDLE) == WHITE


@pytest.mark.parametrize("order", [["note", "field"], ["field", "note"], ["field", "note", "other"]])
async def test_fields_and_notes_are_drawn_in_the_same_order(signing: Caller, tmp_path: Path, order: list[str]) -> None:
    with pikepdf.open(io.BytesIO(documents.one_field(FT=Name.Tx, T=String("a")))) as pdf:
        form: Any = pdf.Root["/AcroForm"]
        field = form["/Fields"][0]
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
        content = documents.saved(pdf)
    expected = BLUE if order[-1] == "note" else RED
    assert page_by_poppler(content, tmp_path).getpixel(MIDDLE) == expected
    identifier = await signing.save(content)
    flattened = await signing.ok("PATCH", f"/{identifier}/flatten/pull")
    assert page_by_poppler(flattened, tmp_path).getpixel(MIDDLE) == expected
    assert (await signing.info(identifier))["formFields"] == []
    with pikepdf.open(io.BytesIO(flattened)) as pdf:
        kept = [str(annotation["/Subtype"]) for annotation in pdf.pages[0].obj["/Annots"]]
    assert kept.count("/Square") == 1
    assert "/Widget" not in kept


async def test_a_form_that_contains_itself_is_flattened(signing: Caller) -> None:
    with pikepdf.open(io.BytesIO(documents.nested())) as pdf:
        form: Any = pdf.Root["/AcroForm"]
        group = form["/Fields"][0]
        group["/Kids"].append(group)
        identifier = await signing.save(documents.saved(pdf))
    await signing.ok("PATCH", f"/{identifier}/flatten")
    assert "group.first" in await signing.signatures(identifier)
