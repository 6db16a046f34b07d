"""ClearUnsignedFields removes empty signature fields. Signatures stay valid."""

from __future__ import annotations

import asyncio
import io
from typing import TYPE_CHECKING, Any

import pikepdf
import pytest
from pyhanko.pdf_utils import generic
from pyhanko.pdf_utils.generic import pdf_name
from pyhanko.sign.fields import MDPPerm

from directsuite.sandbox.signing.document import open_incremental_writer

from . import documents
from .caller import SigningCaller, count_pdfsig_valid

if TYPE_CHECKING:
    from pathlib import Path

    from directsuite.sandbox.signing.keys import FileKeyStore

pytestmark = pytest.mark.wide


async def test_signatures_stay_valid_when_unsigned_fields_go(signing: SigningCaller, tmp_path: Path) -> None:
    identifier = await signing.save(documents.make_consent_form())
    body = {"Signatures": [{"name": "PatientSig"}, {"name": "WitnessSig"}]}
    await signing.call_ok("PATCH", f"/{identifier}/multiSign", json=body)
    assert count_pdfsig_valid(await signing.get_doc(identifier), tmp_path) == 2
    response = await signing.call_ok("PATCH", f"/{identifier}/clearUnsignedFields")
    assert set(response) == {"documentDigest", "description"}
    assert await signing.get_signature_states(identifier) == {"PatientSig": True, "WitnessSig": True}
    assert count_pdfsig_valid(await signing.get_doc(identifier), tmp_path) == 2
    [effect] = await signing.list_effects("ClearUnsignedFields")
    assert effect["detail"]["names"] == ["UnusedSig"]


@pytest.mark.parametrize("signed", [["group.first"], ["pair.one"], ["group.first", "pair.two"], ["New"]])
async def test_nested_fields_go_and_signatures_stay_valid(
    signing: SigningCaller, tmp_path: Path, signed: list[str]
) -> None:
    identifier = await signing.save(documents.make_nested_fields())
    body = {"Signatures": [{"name": name} for name in signed]}
    await signing.call_ok("PATCH", f"/{identifier}/multiSign", json=body)
    await signing.call_ok("PATCH", f"/{identifier}/clearUnsignedFields")
    assert await signing.get_signature_states(identifier) == dict.fromkeys(signed, True)
    assert [entry["name"] for entry in (await signing.get_doc_info(identifier))["formFields"]] == ["group.note"]
    assert count_pdfsig_valid(await signing.get_doc(identifier), tmp_path) == len(signed)


async def test_separate_widgets_are_removed_with_their_fields(signing: SigningCaller, tmp_path: Path) -> None:
    identifier = await signing.save(documents.make_separate_widgets("A", "B"))
    await signing.call_ok("PATCH", f"/{identifier}/sign", json={"name": "A"})
    content = await signing.call_ok("PATCH", f"/{identifier}/clearUnsignedFields/pull")
    assert await signing.get_signature_states(identifier) == {"A": True}
    assert count_pdfsig_valid(content, tmp_path) == 1
    with pikepdf.open(io.BytesIO(content)) as pdf:
        assert len(pdf.pages[0].obj["/Annots"]) == 1


async def test_removing_another_field_makes_signatures_invalid(signing: SigningCaller) -> None:
    signed = await signing.change(documents.make_consent_form(), "sign/pull", {"name": "PatientSig"})
    assert await signing.get_signature_states(await signing.save(_without_field(signed, "agree"))) == {
        "PatientSig": False, "WitnessSig": None, "UnusedSig": None,
    }  # fmt: skip


async def test_removing_another_annotation_along_makes_signatures_invalid(signing: SigningCaller) -> None:
    signed = await signing.change(documents.make_consent_form(), "sign/pull", {"name": "WitnessSig"})
    cleared = _without_field(signed, "UnusedSig")
    assert (await signing.get_signature_states(await signing.save(cleared)))["WitnessSig"] is True
    assert (await signing.get_signature_states(await signing.save(_without_link(cleared))))["WitnessSig"] is False


@pytest.mark.parametrize("has_lock", [True, False])
async def test_a_removal_that_a_signature_forbids_makes_it_invalid(
    signing: SigningCaller, keys: FileKeyStore, *, has_lock: bool
) -> None:
    document, signer = documents.make_nested_fields(), keys.signer()
    if has_lock:
        signed = await asyncio.to_thread(documents.lock_fields, document, signer)
    else:
        signed = await asyncio.to_thread(documents.certify, document, signer, MDPPerm.FILL_FORMS)
    identifier = await signing.save(signed)
    assert (await signing.get_signature_states(identifier))["Author"] is True
    await signing.call_ok("PATCH", f"/{identifier}/clearUnsignedFields")
    assert await signing.get_signature_states(identifier) == {"Author": False}


def _without_field(content: bytes, name: str) -> bytes:
    writer: Any = open_incremental_writer(io.BytesIO(content))
    form: Any = writer.root["/AcroForm"]
    [gone] = [field for field in form["/Fields"] if field.get_object()["/T"] == name]
    form[pdf_name("/Fields")] = generic.ArrayObject(field for field in form["/Fields"] if field != gone)
    writer.update_container(form)
    for number in range(3):
        page: Any = writer.find_page_for_modification(number)[0].get_object()
        if "/Annots" in page and gone in page["/Annots"]:
            page[pdf_name("/Annots")] = generic.ArrayObject(note for note in page["/Annots"] if note != gone)
            writer.update_container(page)
    return _written(writer)


def _without_link(content: bytes) -> bytes:
    writer: Any = open_incremental_writer(io.BytesIO(content))
    page: Any = writer.find_page_for_modification(0)[0].get_object()
    notes = [page["/Annots"].raw_get(number) for number in range(len(page["/Annots"]))]
    page[pdf_name("/Annots")] = generic.ArrayObject(note for note in notes if note.get_object()["/Subtype"] != "/Link")
    writer.update_container(page)
    return _written(writer)


def _written(writer: Any) -> bytes:
    output = io.BytesIO()
    writer.write(output)
    return output.getvalue()
