"""The signing facade: what each method gives, identifiers in all their forms, PDFs to and from files."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import attrs
import pytest

import directsuite as ds
from tests.fake_services import SIGNING, FakeServices
from tests.operations import OPERATIONS

PDF = b"%PDF-1.7\n" + bytes(range(256)) * 3
TEXT = base64.b64encode(PDF)
DOCUMENT = f"{SIGNING}/pdf/d1"
SIGNATURE = ds.Signature(name="PatientSig", graphical_signature=b"png")

_STORED_BODY = OPERATIONS["Save"].response
_DOCUMENT = OPERATIONS["Save"].result
_UPDATE = {"documentDigest": "def", "description": "changed"}

PULLS: dict[str, tuple[str, str, tuple[object, ...]]] = {
    "download": ("GET", "", ()),
    "flatten_and_pull": ("PATCH", "/flatten/pull", ()),
    "clear_unsigned_fields_and_pull": ("PATCH", "/clearUnsignedFields/pull", ()),
    "sign_and_pull": ("PATCH", "/sign/pull", (SIGNATURE,)),
    "multi_sign_and_pull": ("PATCH", "/multiSign/pull", ([SIGNATURE],)),
}


def list_files(folder: Path) -> list[Path]:
    """The folder's files, temporary ones included."""
    return list(folder.iterdir())


@pytest.mark.parametrize(
    "document",
    ["d1", ds.StoredDocument(identifier="d1"), ds.DocumentInfo(identifier="d1"), ds.DocumentUpdate(identifier="d1")],
    ids=lambda document: type(document).__name__,
)
async def test_document_stands_for_its_identifier(
    document: str | ds.StoredDocument | ds.DocumentUpdate, services: FakeServices, suite: ds.DirectSuite, tmp_path: Path
) -> None:
    services.add_response("GET", DOCUMENT, body=TEXT)
    services.add_response("GET", DOCUMENT, body=TEXT)
    services.add_response("PATCH", f"{DOCUMENT}/sign", _UPDATE)
    assert await suite.signing.get_doc(document) == PDF
    assert await suite.signing.download(document, tmp_path / "d1.pdf") == tmp_path / "d1.pdf"
    assert (await suite.signing.sign(document, SIGNATURE)).identifier == "d1"


async def test_update_leads_on_to_the_next_call(services: FakeServices, suite: ds.DirectSuite) -> None:
    services.add_response("PATCH", f"{DOCUMENT}/flatten", _UPDATE)
    services.add_response("DELETE", DOCUMENT, {"documentDigest": ""})
    update = await suite.signing.flatten("d1")
    assert await suite.signing.delete(update) == ds.DocumentUpdate(identifier="d1", document_digest="")


@pytest.mark.parametrize("function", PULLS)
async def test_destination_gets_the_pdf(
    function: str, services: FakeServices, suite: ds.DirectSuite, tmp_path: Path
) -> None:
    method, path, arguments = PULLS[function]
    destination = tmp_path / "signed.pdf"
    destination.write_bytes(b"the file before")
    services.add_response(method, DOCUMENT + path, body=base64.encodebytes(PDF), content_type="text/plain")
    assert await getattr(suite.signing, function)("d1", *arguments, destination=destination) == destination
    assert destination.read_bytes() == PDF
    assert list_files(tmp_path) == [destination]


@pytest.mark.parametrize("answer", [TEXT[:-5], b'{"identifier": "d1"}', b"%PDF-1.7"], ids=["cut", "json", "bare"])
async def test_destination_stays_as_it_was_where_the_answer_is_no_base64(
    answer: bytes, services: FakeServices, suite: ds.DirectSuite, tmp_path: Path
) -> None:
    destination = tmp_path / "signed.pdf"
    destination.write_bytes(b"the file before")
    services.add_response("GET", DOCUMENT, body=answer, content_type="text/plain")
    with pytest.raises(ds.ResponseDecodeError):
        await suite.signing.download("d1", destination)
    assert destination.read_bytes() == b"the file before"
    assert list_files(tmp_path) == [destination]


async def test_refusal_leaves_no_file(services: FakeServices, suite: ds.DirectSuite, tmp_path: Path) -> None:
    services.add_response("GET", DOCUMENT, {"error": "no_such_document", "description": "gone"}, status=400)
    with pytest.raises(ds.BadRequestError) as caught:
        await suite.signing.download("d1", tmp_path / "d1.pdf")
    assert caught.value.message == "no_such_document: gone"
    assert list_files(tmp_path) == []


async def test_spoilt_answer_to_a_pull_leaves_the_outcome_open(
    services: FakeServices, suite: ds.DirectSuite, tmp_path: Path
) -> None:
    services.add_response("PATCH", f"{DOCUMENT}/sign/pull", body=TEXT[:-5])
    with pytest.raises(ds.OutcomeUnknownError) as caught:
        await suite.signing.sign_and_pull("d1", SIGNATURE, destination=tmp_path / "d1.pdf")
    assert isinstance(caught.value.__cause__, ds.ResponseDecodeError)


async def test_save_codes_bytes_files_and_streams_alike(
    services: FakeServices, suite: ds.DirectSuite, tmp_path: Path
) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(PDF), 7):
            yield PDF[start : start + 7]

    path = tmp_path / "consent.pdf"
    path.write_bytes(PDF)
    for source in (PDF, bytearray(PDF), memoryview(PDF), path, str(path), pieces()):
        services.add_response("POST", f"{SIGNING}/pdf", _STORED_BODY)
        assert await suite.signing.save(source) == _DOCUMENT
    assert [request.body for request in services.requests_by_url] == [TEXT] * 6


async def test_magic_may_stand_anywhere_in_the_first_kilobyte(services: FakeServices, suite: ds.DirectSuite) -> None:
    services.add_response("POST", f"{SIGNING}/pdf", _STORED_BODY)
    await suite.signing.save(b"\n" * 1019 + b"%PDF-")
    with pytest.raises(ds.InvalidArgumentError):
        await suite.signing.save(b"\n" * 1020 + b"%PDF-")


@pytest.mark.parametrize(
    "identifier", [{}, {"identifier": None}, {"identifier": ""}, {"identifier": "a\ud800"}], ids=ascii
)
async def test_save_without_an_identifier_is_no_answer(
    identifier: dict[str, Any], services: FakeServices, suite: ds.DirectSuite
) -> None:
    services.add_response("POST", f"{SIGNING}/pdf", {"documentDigest": "abc"} | identifier)
    with pytest.raises(ds.ResponseDecodeError) as caught:
        await suite.signing.save(PDF)
    assert caught.value.path == "$.identifier"


async def test_later_answers_have_the_identifier_that_was_asked_for(
    services: FakeServices, suite: ds.DirectSuite
) -> None:
    services.add_response("GET", f"{DOCUMENT}/info", {"documentDigest": "abc"})
    services.add_response("PATCH", f"{DOCUMENT}/sign", {"documentDigest": "abc"})
    services.add_response("DELETE", DOCUMENT, {"documentDigest": "", "identifier": None})
    assert (await suite.signing.get_doc_info("d1")).identifier == "d1"
    assert (await suite.signing.sign("d1", SIGNATURE)).identifier == "d1"
    assert (await suite.signing.delete("d1")).identifier == "d1"


async def test_an_image_without_a_byte_is_refused_before_anything_is_sent(
    services: FakeServices, suite: ds.DirectSuite
) -> None:
    empty = attrs.evolve(SIGNATURE, graphical_signature=b"")
    for sending in (suite.signing.sign("d1", empty), suite.signing.multi_sign_and_pull("d1", [SIGNATURE, empty])):
        with pytest.raises(ds.InvalidArgumentError, match="graphical_signature: it is empty"):
            await sending
    assert not services.requests_by_url


async def test_graphical_signature_goes_as_base64_and_defaults_stay_out(
    services: FakeServices, suite: ds.DirectSuite
) -> None:
    services.add_response("PATCH", f"{DOCUMENT}/multiSign", _UPDATE)
    second = attrs.evolve(SIGNATURE, name="Witness", widget=ds.Widget(x=1, y=2, width=3, height=4, page=1))
    await suite.signing.multi_sign("d1", (SIGNATURE, second))
    assert services.requests_by_url[0].members == {
        "Signatures": [
            {"name": "PatientSig", "graphicalSignature": "cG5n"},
            {
                "name": "Witness",
                "graphicalSignature": "cG5n",
                "widget": {"x": 1, "y": 2, "width": 3, "height": 4, "page": 1},
            },
        ]
    }


async def test_raw_view_gives_the_answer_around_the_value(services: FakeServices, suite: ds.DirectSuite) -> None:
    services.add_response("GET", f"{DOCUMENT}/info", OPERATIONS["GetDocInfo"].response, headers={"X-Trace": "t1"})
    raw = await suite.signing.with_raw_response.get_doc_info("d1")
    assert raw.value == OPERATIONS["GetDocInfo"].result
    assert (raw.status, raw.headers["X-Trace"], raw.attempts) == (200, "t1", 1)
    assert raw.elapsed >= 0
