"""Sign accepts all documents that Save accepts, and Save rejects others with a reason."""

from __future__ import annotations

import io
import re
import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pikepdf
import pytest
from pikepdf import Array, Dictionary, Name, String
from pyhanko.pdf_utils.crypt.pubkey import RecipientEncryptionPolicy
from pyhanko.pdf_utils.reader import PdfFileReader

from . import documents
from .caller import SigningCaller, count_pdfsig_valid, extract_poppler_text

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from directsuite.sandbox.signing.keys import FileKeyStore

pytestmark = pytest.mark.wide


def draft_of_aes_256() -> bytes:
    """Encrypted by revision 5, with an empty user password."""
    return _encrypted(documents.make_plain_pages(), R=5, aes=True)


def without_key_length() -> bytes:
    content = _encrypted(documents.make_plain_pages(), R=4, aes=True)
    assert content.count(b"/Length 128") == 1
    return content.replace(b"/Length 128", b"           ")


def xfa_form_with_usage_rights() -> bytes:
    """An encrypted XFA form whose catalog holds the signature of its usage rights, which is never encrypted."""
    with pikepdf.open(io.BytesIO(documents.make_consent_form())) as pdf:
        form: Any = pdf.Root["/AcroForm"]
        form["/XFA"] = Array([String("template"), documents.make_stream(pdf, b"<template/>")])
        rights = Dictionary(Type=Name.Sig, Filter=Name("/Adobe.PPKLite"), Contents=String(b"0" * 37))
        rights["/ByteRange"] = Array([0, 1, 2, 3])
        pdf.Root["/Perms"] = Dictionary(UR3=rights)
        content = documents.save_to_bytes(pdf)
    return _encrypted(content, R=4, aes=True)


def with_broken_metadata() -> bytes:
    with documents.open_pages() as pdf:
        pdf.Root["/Metadata"] = documents.make_stream(pdf, b"<x:xmpmeta \xff", Type=Name.Metadata, Subtype=Name.XML)
        return documents.save_to_bytes(pdf, fix_metadata_version=False)  # which would mend it


def with_broken_cross_references() -> bytes:
    """A cross-reference stream whose compressed bytes end too early."""
    with documents.open_pages() as pdf:
        content = documents.save_to_bytes(pdf, object_stream_mode=pikepdf.ObjectStreamMode.generate)
    end = content.rindex(b"\nendstream")
    return content[: end - 6] + b"\0" * 6 + content[end:]


def with_all_objects_on_a_line() -> bytes:
    page = b"3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 300 300]>>endobj"
    objects = b"1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj 2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj " + page
    return b"%PDF-1.4\n" + objects + b" trailer<</Root 1 0 R/Size 4>>"


def with_high_object_numbers() -> bytes:
    """No cross-reference table, and objects with numbers above a third of the file's size."""
    return re.sub(rb"\b([123]) 0 ", rb"2580\1 0 ", with_all_objects_on_a_line().replace(b"endobj ", b"endobj\n"))


def with_a_wrong_startxref() -> bytes:
    """The end points to a part of the cross-reference table that does not lead to the catalog."""
    content = documents.make_plain_pages()
    return content.replace(b"xref\n0", b"xref\n9", 1)


def with_a_number_for_a_parent() -> bytes:
    with documents.open_pages() as pdf:
        pdf.pages[0].obj["/Parent"] = 1
        return documents.save_to_bytes(pdf)


def with_numbers_in_the_catalog() -> bytes:
    with documents.open_pages() as pdf:
        pdf.Root["/Extensions"], pdf.Root["/Perms"] = 1, pikepdf.Array([2])
        return documents.save_to_bytes(pdf)


def with_a_period_in_a_field_name() -> bytes:
    return documents.make_single_field_form(FT=Name.Tx, T=String("a.b"), V=String("x"))


@pytest.mark.exhaustive(limit=4)
@pytest.mark.parametrize(
    "build",
    [
        *(draft_of_aes_256, without_key_length, xfa_form_with_usage_rights, with_broken_metadata),
        *(with_broken_cross_references, with_all_objects_on_a_line, with_high_object_numbers, with_a_wrong_startxref),
        *(with_a_number_for_a_parent, with_numbers_in_the_catalog, with_a_period_in_a_field_name),
    ],
)
async def test_unusual_documents_can_be_saved_and_signed(
    signing: SigningCaller, tmp_path: Path, build: Callable[[], bytes]
) -> None:
    content = build()
    extract_poppler_text(content, tmp_path)
    identifier = await signing.save(content)
    body = {"name": "A", "widget": {"x": 10, "y": 10, "width": 99, "height": 50, "page": 1}}
    await signing.call_ok("PATCH", f"/{identifier}/multiSign", json={"Signatures": [body, {"name": "B"}]})
    signed = {
        name: valid for name, valid in (await signing.get_signature_states(identifier)).items() if valid is not None
    }
    assert signed == {"A": True, "B": True}
    assert count_pdfsig_valid(await signing.get_doc(identifier), tmp_path) == 2
    with pikepdf.open(io.BytesIO(await signing.get_doc(identifier))) as pdf:
        assert pdf.is_encrypted is (b"/Encrypt" in content)
        assert pdf.allow.print_highres is not pdf.is_encrypted


async def test_a_document_encrypted_for_certificates_is_rejected(signing: SigningCaller, keys: FileKeyStore) -> None:
    copy_into: Any = import_module("pyhanko.pdf_utils.writer").copy_into_new_writer  # whose types are partial
    writer = copy_into(PdfFileReader(io.BytesIO(documents.make_plain_pages())))
    writer.encrypt_pubkey([keys.signer().signing_cert], policy=RecipientEncryptionPolicy(ignore_key_usage=True))
    output = io.BytesIO()
    writer.write(output)
    assert "certificates" in await signing.reject_upload(output.getvalue())


async def test_a_signed_document_that_cannot_be_signed_again_is_rejected(signing: SigningCaller) -> None:
    signed: bytes = await signing.change(documents.make_plain_pages(), "sign/pull", {})
    with pikepdf.open(io.BytesIO(signed)) as pdf:
        content = _encrypted(documents.save_to_bytes(pdf), R=5, aes=True)
    assert "signed" in await signing.reject_upload(content)


def _encrypted(content: bytes, **how: Any) -> bytes:
    """The document, encrypted for an empty user password and without permission to print."""
    with pikepdf.open(io.BytesIO(content)) as pdf:
        warnings.filterwarnings("ignore", "Encryption R=5 is deprecated")  # pytest takes the filter back
        allowed = pikepdf.Permissions(print_lowres=False, print_highres=False)
        encryption = pikepdf.Encryption(owner="owner", user="", allow=allowed, **how)
        return documents.save_to_bytes(pdf, encryption=encryption)


@pytest.mark.exhaustive(limit=3)
@pytest.mark.parametrize(
    "entry", [b"null", b"99 0 R", b"7", b"(text)", b"[ ]", b"<< /T (direct) /FT /Tx >>", b"<< /T 5 /FT /Tx >>"]
)
async def test_an_entry_of_the_form_that_is_no_field_is_repaired(signing: SigningCaller, entry: bytes) -> None:
    with documents.open_field(FT=Name.Tx, T=String("a")) as (pdf, _):
        content = documents.save_to_bytes(pdf, qdf=True)
    content = content.replace(b"/Fields [", b"/Fields [ %b " % entry)
    identifier = await signing.save(content)
    await signing.call_ok("PATCH", f"/{identifier}/sign", json={"name": "A"})
    assert await signing.get_signature_states(identifier) == {"A": True}
    assert "a" in [entry["name"] for entry in (await signing.get_doc_info(identifier))["formFields"]]


@pytest.mark.parametrize("form", [Name.X, Array([]), Dictionary(), Dictionary(Fields=7)])
async def test_an_invalid_form_is_repaired(signing: SigningCaller, form: pikepdf.Object) -> None:
    with documents.open_pages() as pdf:
        pdf.Root["/AcroForm"] = form
        identifier = await signing.save(documents.save_to_bytes(pdf))
    await signing.call_ok("PATCH", f"/{identifier}/sign", json={"name": "A"})
    assert await signing.get_signature_states(identifier) == {"A": True}
