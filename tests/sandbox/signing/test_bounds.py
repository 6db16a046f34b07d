"""Limits of documents, descriptions and requests."""

from __future__ import annotations

import base64
import io
import struct
import subprocess
import sys
import zlib
from typing import TYPE_CHECKING, Any

import pikepdf
import pytest
from pikepdf import Array, Dictionary, Name, String
from PIL import Image

from directsuite.sandbox.signing import document, flatten, locks
from directsuite.sandbox.signing.text import find_font

from . import documents

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .caller import SigningCaller

pytestmark = pytest.mark.wide


def value_that_unpacks_to_much() -> bytes:
    with documents.open_field(FT=Name.Tx, T=String("a")) as (pdf, field):
        field["/V"] = documents.make_stream(pdf, zlib.compress(b"A" * 20_000_000), Filter=Name.FlateDecode)
        return documents.save_to_bytes(pdf)


def value_with_two_filters() -> bytes:
    with documents.open_field(FT=Name.Tx, T=String("a")) as (pdf, field):
        packed = zlib.compress(zlib.compress(b"A" * 20_000_000))
        field["/V"] = documents.make_stream(pdf, packed, Filter=Array([Name.FlateDecode, Name.FlateDecode]))
        return documents.save_to_bytes(pdf, stream_decode_level=pikepdf.StreamDecodeLevel.none)


def value_of_many_fields() -> bytes:
    return documents.make_many_fields(400, lambda pdf: {"FT": Name.Tx, "V": pdf.make_indirect(String("A" * 60_000))})


def value_of_many_items() -> bytes:
    with documents.open_field(FT=Name.Ch, T=String("a")) as (pdf, field):
        item: Any = pdf.make_indirect(String("A" * 10_000))
        field["/V"] = Array([item] * 2000)
        return documents.save_to_bytes(pdf)


def metadata_of_many_keys() -> bytes:
    with documents.open_pages() as pdf:
        value: Any = pdf.make_indirect(String("A" * 60_000))
        for number in range(400):
            pdf.docinfo[f"/K{number}"] = value
        return documents.save_to_bytes(pdf)


@pytest.mark.parametrize(
    "build",
    [
        *(value_that_unpacks_to_much, value_with_two_filters, value_of_many_fields, value_of_many_items),
        metadata_of_many_keys,
    ],
)
async def test_the_texts_of_a_description_are_limited(signing: SigningCaller, build: Callable[[], bytes]) -> None:
    identifier = await signing.save(build())
    info = await signing.get_doc_info(identifier)
    assert sum(len(str(entry)) for entries in (info["formFields"], info["metaData"]) for entry in entries) < 5_000_000


async def test_a_form_with_too_many_widgets_is_rejected(signing: SigningCaller) -> None:
    def share_widgets(pdf: pikepdf.Pdf) -> dict[str, Any]:
        widget: Any = pdf.make_indirect(Dictionary(Type=Name.Annot, Subtype=Name.Widget, Rect=Array([0, 0, 9, 9])))
        return {"FT": Name.Tx, "Kids": pdf.make_indirect(Array([widget] * 6000))}

    content = documents.make_many_fields(10, share_widgets)
    assert "more than 50,000 form fields" in await signing.reject_upload(content)


def form_of_many_paths(key: str) -> bytes:
    """A document with 2**40 paths through its form to one field; `key` is the key of the names on the way."""
    lines = [
        "%PDF-1.7",
        "1 0 obj <</Type /Catalog /Pages 2 0 R /AcroForm <</Fields 10 0 R>>>> endobj",
        "2 0 obj <</Type /Pages /Kids [3 0 R] /Count 1>> endobj",
        "3 0 obj <</Type /Page /Parent 2 0 R /MediaBox [0 0 99 99]>> endobj",
        "4 0 obj <</FT /Tx /T (x)>> endobj",
        *(f"{n} 0 obj [<<{key} (a) /Kids {n + 1} 0 R>> <<{key} (b) /Kids {n + 1} 0 R>>] endobj" for n in range(10, 50)),
        "50 0 obj [4 0 R] endobj",
        "trailer <</Root 1 0 R>>",
    ]
    return "\n".join(lines).encode()


@pytest.mark.parametrize("key", ["/T", "/X"])
async def test_a_form_with_too_many_paths_is_rejected(
    signing: SigningCaller, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setattr(document, "_MAX_NODES", 2000)
    content = form_of_many_paths(key)
    assert "more than 2,000 form fields" in await signing.reject_upload(content)


async def test_a_form_with_too_long_names_is_rejected(signing: SigningCaller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "_MAX_NAMES_CHARS", 10)
    content = documents.make_single_field_form(FT=Name.Tx, T=String("ten letters"))
    assert "characters in the names" in await signing.reject_upload(content)


async def test_the_fields_that_a_signature_locks_are_limited(
    signing: SigningCaller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "_MAX_NAMES", 2)
    lock = Dictionary(
        Type=Name.SigFieldLock, Action=Name.Include, Fields=Array([String("a"), String("b"), String("c")])
    )
    identifier = await signing.save(documents.make_single_field_form(FT=Name.Sig, T=String("S"), Lock=lock))
    refused = await signing.call_rejected("PATCH", f"/{identifier}/sign", json={"name": "S"})
    assert "locks too many fields" in refused


def with_signatures(number: int) -> bytes:
    """A document with this number of fields that share one signature."""
    return documents.make_many_fields(
        number, lambda pdf: {"FT": Name.Sig, "V": pdf.make_indirect(Dictionary(Type=Name.Sig))}
    )


async def test_a_document_has_a_limited_number_of_signatures(signing: SigningCaller) -> None:
    content = with_signatures(251)
    assert "more than 250 signatures" in await signing.reject_upload(content)
    identifier = await signing.save(with_signatures(249))
    refused = await signing.call_rejected("PATCH", f"/{identifier}/multiSign", json={"Signatures": [{}, {}]})
    assert "more than 250 signatures" in refused
    await signing.call_ok("PATCH", f"/{identifier}/sign", json={})


async def test_a_large_document_has_few_signatures(signing: SigningCaller, monkeypatch: pytest.MonkeyPatch) -> None:
    identifier = await signing.save(documents.make_plain_pages())
    await signing.call_ok("PATCH", f"/{identifier}/sign", json={})
    signed = await signing.get_doc(identifier)
    monkeypatch.setattr(document, "_MAX_HASHED_BYTES", len(signed) + 1)
    refused = await signing.call_rejected("PATCH", f"/{identifier}/sign", json={})
    assert "too large for this number of signatures" in refused
    await signing.save(signed)
    content = with_signatures(250)
    assert "too large for its number of signatures" in await signing.reject_upload(content)


async def test_the_pictures_of_a_request_are_limited_together(signing: SigningCaller) -> None:
    written = io.BytesIO()
    Image.new("1", (8000, 1000)).save(written, "PNG")
    picture = base64.b64encode(written.getvalue()).decode()
    identifier = await signing.save(documents.make_plain_pages())
    widget = {"x": 72, "y": 72, "width": 9, "height": 9}
    signature = {"widget": widget, "graphicalSignature": picture}
    path = f"/{identifier}/multiSign"
    refused = await signing.call_rejected("PATCH", path, json={"Signatures": [signature] * 5})
    assert "more than 32,000,000 pixels in total" in refused


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


def with_object_stream(content: bytes, filters: str) -> bytes:
    """A document whose catalog is in an object stream with this content, which is encoded already."""
    written, offsets = bytearray(b"%PDF-1.7\n"), list[int]()
    for number, text in (
        (2, b"<</Type /Pages /Kids [3 0 R] /Count 1>>"),
        (3, b"<</Type /Page /Parent 2 0 R /MediaBox [0 0 99 99]>>"),
        (4, b"<</Type /ObjStm /N 1 /First 4 /Filter %s /Length %d>>" % (filters.encode(), len(content))),
    ):
        offsets.append(len(written))
        stream = b"\nstream\n" + content + b"\nendstream" if number == 4 else b""
        written += b"%d 0 obj\n" % number + text + stream + b"\nendobj\n"
    start = len(written)
    entries = [(0, 0, 65535), (2, 4, 0), *((1, offset, 0) for offset in (*offsets, start))]
    table = b"".join(struct.pack(">BIH", *entry) for entry in entries)
    written += b"5 0 obj\n<</Type /XRef /Size 6 /W [1 4 2] /Root 1 0 R /Length %d>>\nstream\n" % len(table)
    return bytes(written + table + b"\nendstream\nendobj\nstartxref\n%d\n%%%%EOF\n" % start)


def object_stream_with_layers(layers: int) -> bytes:
    content = b"1 0 <</Type /Catalog /Pages 2 0 R>>" + b" " * 400_000_000
    for _ in range(layers):
        content = zlib.compress(content)
    return with_object_stream(content, f"[{'/FlateDecode ' * layers}]")


_SAVE_AND_PRINT_MEMORY = """
import pathlib, sys
from directsuite.cli import sandbox_server
from directsuite.sandbox.rejections import InvalidParameterError
from directsuite.sandbox.signing import engine
from tests.sandbox.signing.documents import measure_peak
before = measure_peak()
with sandbox_server.limit_pdf_streams():
    try:
        engine.repair_upload(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
    except InvalidParameterError:
        print(measure_peak() - before)
"""


@pytest.mark.process
@pytest.mark.skipif(sys.platform == "win32", reason="Windows does not count the memory of a process in this way")
@pytest.mark.parametrize("layers", [1, 2])
def test_the_command_rejects_streams_that_decode_to_much_data(layers: int, tmp_path: Path) -> None:
    (tmp_path / "uploaded").write_bytes(object_stream_with_layers(layers))
    files = map(str, (tmp_path / "uploaded", tmp_path / "repaired"))
    command = [sys.executable, "-c", _SAVE_AND_PRINT_MEMORY, *files]
    printed = subprocess.run(command, capture_output=True, check=True)
    assert int(printed.stdout) < 300_000_000


def signed_with_entries(number: int, width: int) -> bytes:
    """A signed document whose second cross-reference stream has many entries of this width, in an /Index or not."""
    written, offsets = bytearray(b"%PDF-1.7\n"), [0]
    for text in (
        b"<</Type /Catalog /Pages 2 0 R /AcroForm <</Fields [4 0 R]>>>>",
        b"<</Type /Pages /Kids [3 0 R] /Count 1>>",
        b"<</Type /Page /Parent 2 0 R /MediaBox [0 0 99 99]>>",
        b"<</FT /Sig /T (a) /V <</Type /Sig>>>>",
    ):
        offsets.append(len(written))
        written += b"%d 0 obj\n%s\nendobj\n" % (len(offsets) - 1, text)
    first = len(written)
    entries = [(0, 0, 65535), *((1, offset, 0) for offset in (*offsets[1:], first))]
    table = b"".join(struct.pack(">BIH", *entry) for entry in entries)
    written += b"5 0 obj\n<</Type /XRef /Size 6 /W [1 4 2] /Root 1 0 R /Length %d>>\nstream\n" % len(table)
    written += table + b"\nendstream\nendobj\n"
    second = len(written)
    content = zlib.compress(struct.pack(">B", 1) * width * number)
    written += b"6 0 obj\n<</Type /XRef /Size %d /W [%d %d %d] /Index [6 %d]" % (number + 6, *[width] * 3, number)
    written += b" /Root 1 0 R /Prev %d /Filter /FlateDecode /Length %d>>\nstream\n" % (first, len(content))
    return bytes(written + content + b"\nendstream\nendobj\nstartxref\n%d\n%%%%EOF\n" % second)


@pytest.mark.parametrize("width", [0, 1])
async def test_a_signed_document_with_too_many_entries_is_rejected(
    signing: SigningCaller, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setattr(document, "_MAX_ENTRIES", 1000)
    content = signed_with_entries(1001, width)
    assert "cannot be repaired" in await signing.reject_upload(content)
    await signing.save(signed_with_entries(900, width))
