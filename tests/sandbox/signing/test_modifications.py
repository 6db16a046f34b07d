"""GetDocInfo verifies each signature separately, with a time limit for the changes after it."""

from __future__ import annotations

import io
import logging
import re
from typing import TYPE_CHECKING, Any

import pytest
from pikepdf import Array, Dictionary, Name, String
from pyhanko.pdf_utils import generic
from pyhanko.pdf_utils.generic import pdf_name

from directsuite.sandbox.signing import engine
from directsuite.sandbox.signing.document import open_incremental_writer

from . import documents

if TYPE_CHECKING:
    from directsuite.sandbox.signing.keys import FileKeyStore

    from .caller import Json, SigningCaller

pytestmark = pytest.mark.wide


def with_many_paths(levels: int = 60) -> bytes:
    """A document in which each of these objects refers twice to the next one, and the last one to the page."""
    with documents.open_pages() as pdf:
        next_object: Any = pdf.pages[0].obj
        for _ in range(levels):
            next_object = pdf.make_indirect(Dictionary(A=next_object, B=next_object))
        pdf.Root["/PieceInfo"] = next_object
        return documents.save_to_bytes(pdf)


async def sign_twice(signing: SigningCaller, content: bytes) -> str:
    identifier = await signing.save(content)
    widget = {"x": 50, "y": 50, "width": 99, "height": 50, "page": 1}
    for name in ("A", "B"):
        await signing.call_ok("PATCH", f"/{identifier}/sign", json={"name": name, "widget": widget})
    return identifier


async def verdicts(signing: SigningCaller, identifier: str) -> dict[str, tuple[bool, str]]:
    signatures: list[Json] = (await signing.get_doc_info(identifier))["signatures"]
    return {entry["name"]: (entry["isValid"], entry["modification"]) for entry in signatures}


async def test_too_many_paths_leave_the_changes_unknown(
    signing: SigningCaller, caplog: pytest.LogCaptureFixture
) -> None:
    identifier = await sign_twice(signing, with_many_paths())
    with caplog.at_level(logging.WARNING, "directsuite.sandbox"):
        assert await verdicts(signing, identifier) == {"A": (True, "UNKNOWN"), "B": (True, "NONE")}
    assert "1 signature(s) of a document take too much time" in caplog.text


async def test_the_changes_of_an_ordinary_document_are_judged(signing: SigningCaller) -> None:
    identifier = await sign_twice(signing, documents.make_consent_form())
    assert (await verdicts(signing, identifier))["A"] == (True, "FORM_FILLING")


async def test_a_changed_byte_is_found_despite_too_many_paths(signing: SigningCaller) -> None:
    identifier = await sign_twice(signing, with_many_paths())
    signed = await signing.get_doc(identifier)
    forged = signed.replace(b"(Page 1)", b"(Page 9)").replace(b"/PieceInfo", b"/PieceInfp")
    assert forged != signed
    assert await verdicts(signing, await signing.save(forged)) == {"A": (False, "UNKNOWN"), "B": (False, "NONE")}


@pytest.mark.parametrize(
    "malformed",
    [
        Dictionary(Type=Name.Sig),
        Dictionary(Type=Name.Sig, Filter=Name("/Adobe.PPKLite"), SubFilter=Name("/adbe.pkcs7.detached")),
        Dictionary(
            Type=Name.Sig, SubFilter=Name("/adbe.pkcs7.detached"), ByteRange=Array([0, 1]), Contents=String("0")
        ),
        Dictionary(Type=1, SubFilter=Array([]), ByteRange=7, Contents=Array([])),
    ],
)
async def test_a_malformed_signature_does_not_affect_others(signing: SigningCaller, malformed: Dictionary) -> None:
    with documents.open_pages() as pdf:
        field = pdf.make_indirect(Dictionary(FT=Name.Sig, T=String("Bad"), V=pdf.make_indirect(malformed)))
        pdf.Root["/AcroForm"] = pdf.make_indirect(Dictionary(Fields=Array([field])))
        content = documents.save_to_bytes(pdf)
    found = await verdicts(signing, await sign_twice(signing, content))
    assert found.pop("Bad")[0] is False
    assert found == {"A": (True, "FORM_FILLING"), "B": (True, "NONE")}


@pytest.mark.parametrize(
    "widget",
    [
        {"Rect": Array([1, 2, 3])},
        {"Rect": Array([1, 2, Name.X, 4])},
        {"Rect": 5},
        {"Ff": Name.X},
        {"V": Array([Array([])])},
    ],
)
async def test_a_malformed_field_does_not_hide_others(signing: SigningCaller, widget: Json) -> None:
    content = documents.make_single_field_form(**{"FT": Name.Tx, "T": String("bad"), **widget})
    identifier = await signing.save(content)
    await signing.call_ok("PATCH", f"/{identifier}/sign", json={"name": "A"})
    info = await signing.get_doc_info(identifier)
    assert [entry["isValid"] for entry in info["signatures"]] == [True]
    assert len(info["formFields"]) == 1


async def test_a_page_rotated_after_a_signature_makes_it_invalid(signing: SigningCaller) -> None:
    identifier = await signing.save(documents.make_plain_pages())
    signed = await signing.call_ok("PATCH", f"/{identifier}/sign/pull", json={"name": "A"})
    writer: Any = open_incremental_writer(io.BytesIO(signed))
    page: Any = writer.find_page_for_modification(0)[0].get_object()
    number: Any = generic.NumberObject  # whose __new__ has no types
    page[pdf_name("/Rotate")] = number(90)
    writer.update_container(page)
    output = io.BytesIO()
    writer.write(output)
    assert await verdicts(signing, await signing.save(output.getvalue())) == {"A": (False, "OTHER")}


async def test_a_signature_with_many_byte_ranges_is_invalid(
    signing: SigningCaller, monkeypatch: pytest.MonkeyPatch
) -> None:
    identifier = await signing.save(documents.make_plain_pages())
    signed = await signing.call_ok("PATCH", f"/{identifier}/sign/pull", json={"name": "A"})
    written = re.findall(rb"/ByteRange *\[[^\]]*\]", signed)[-1]
    forged = signed.replace(written, b"/ByteRange[0 1 0 1 0 1".ljust(len(written) - 1) + b"]")
    validated: list[object] = []

    async def validate(found: object, *_: object, **__: object) -> None:
        validated.append(found)

    monkeypatch.setattr(engine, "async_validate_pdf_signature", validate)
    assert (await verdicts(signing, await signing.save(forged)))["A"][0] is False
    assert validated == []


async def test_the_signer_is_the_one_in_the_certificate(signing: SigningCaller, keys: FileKeyStore) -> None:
    identifier = await sign_twice(signing, documents.make_plain_pages())
    names = [entry["signerName"] for entry in (await signing.get_doc_info(identifier))["signatures"]]
    assert names == [keys.signer().subject_name] * 2
