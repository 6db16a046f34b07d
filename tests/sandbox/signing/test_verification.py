"""GetDocInfo verifies each signature and the changes after it, and no document makes the sandbox contact a server."""

from __future__ import annotations

import io
import logging
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from pikepdf import Array, Dictionary, Name, String
from pyhanko.pdf_utils import generic
from pyhanko.pdf_utils.generic import pdf_name

from directsuite.sandbox.signing import clear
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
    assert "The changes after a signature take too much time" in caplog.text


async def test_no_changes_are_read_after_too_many_paths(
    signing: SigningCaller, monkeypatch: pytest.MonkeyPatch
) -> None:
    identifier = await sign_twice(signing, with_many_paths())
    await signing.call_ok("PATCH", f"/{identifier}/sign", json={"name": "C"})
    enumerate_fields, read = clear._enumerate_fields, list[object]()

    def record(document: object, **options: Any) -> Any:
        read.append(document)
        return enumerate_fields(document, **options)

    monkeypatch.setattr(clear, "_enumerate_fields", record)
    assert await verdicts(signing, identifier) == {"A": (True, "UNKNOWN"), "B": (True, "UNKNOWN"), "C": (True, "NONE")}
    assert len(read) == 2  # for the first signature


async def test_the_changes_of_an_ordinary_document_are_judged(signing: SigningCaller) -> None:
    identifier = await sign_twice(signing, documents.make_consent_form())
    assert (await verdicts(signing, identifier))["A"] == (True, "FORM_FILLING")


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


@pytest.mark.parametrize(("content", "filters"), [(b"not compressed", Name.FlateDecode), (b"a", Name.Unknown)])
async def test_a_value_that_cannot_be_decoded_is_empty(signing: SigningCaller, content: bytes, filters: Name) -> None:
    with documents.open_field(FT=Name.Tx, T=String("a")) as (pdf, field):
        field["/V"] = documents.make_stream(pdf, content, Filter=filters)
        identifier = await signing.save(documents.save_to_bytes(pdf))
    assert [entry["value"] for entry in (await signing.get_doc_info(identifier))["formFields"]] == [""]


async def test_a_page_rotated_after_a_signature_makes_it_invalid(signing: SigningCaller) -> None:
    signed = await signing.change(documents.make_plain_pages(), "sign/pull", {"name": "A"})
    writer: Any = open_incremental_writer(io.BytesIO(signed))
    page: Any = writer.find_page_for_modification(0)[0].get_object()
    number: Any = generic.NumberObject  # whose __new__ has no types
    page[pdf_name("/Rotate")] = number(90)
    writer.update_container(page)
    output = io.BytesIO()
    writer.write(output)
    assert await verdicts(signing, await signing.save(output.getvalue())) == {"A": (False, "OTHER")}


async def test_the_signer_is_the_one_in_the_certificate(signing: SigningCaller, keys: FileKeyStore) -> None:
    identifier = await sign_twice(signing, documents.make_plain_pages())
    names = [entry["signerName"] for entry in (await signing.get_doc_info(identifier))["signatures"]]
    assert names == [keys.signer().subject_name] * 2


async def test_a_time_stamp_server_in_a_document_is_never_contacted(signing: SigningCaller) -> None:
    requests: list[str] = []

    async def response(request: web.Request) -> web.Response:
        requests.append(request.path)
        return web.Response(status=500)

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", response)
    async with TestServer(application, host="127.0.0.1") as server:
        with documents.open_field(FT=Name.Sig, T=String("A")) as (pdf, field):
            stamp = Dictionary(URL=String(str(server.make_url("/tsa"))), Ff=1)
            field["/SV"] = pdf.make_indirect(Dictionary(Type=Name.SV, TimeStamp=stamp))
            identifier = await signing.save(documents.save_to_bytes(pdf))
        refused = await signing.call_rejected("PATCH", f"/{identifier}/sign", json={"name": "A"})
    assert requests == []
    assert "time stamp" in refused
