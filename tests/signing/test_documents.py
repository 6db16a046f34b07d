"""The signing facade: what each method gives, identifiers in all their forms, PDFs to and from files."""

from __future__ import annotations

import base64
from pathlib import Path

import attrs
import pytest

import directsuite as ds
from tests.fake_services import SIGNING, FakeServices
from tests.operations import OPERATIONS

PDF = b"%PDF-1.7\n" + bytes(range(256)) * 3
TEXT = base64.b64encode(PDF)
DOCUMENT = f"{SIGNING}/pdf/d1"
SIGNATURE = ds.Signature(name="PatientSig", graphical_signature=b"png")

_UPDATE = {"documentDigest": "def", "description": "changed"}

PULLS: dict[str, tuple[str, str, tuple[object, ...]]] = {
    "download": ("GET", "", ()),
    "flatten_and_pull": ("PATCH", "/flatten/pull", ()),
    "clear_unsigned_fields_and_pull": ("PATCH", "/clearUnsignedFields/pull", ()),
    "sign_and_pull": ("PATCH", "/sign/pull", (SIGNATURE,)),
    "multi_sign_and_pull": ("PATCH", "/multiSign/pull", ([SIGNATURE],)),
}


def list_files(folder: Path) -> list[Path]:
    return list(folder.iterdir())


@pytest.mark.parametrize(
    "document",
    ["d1", ds.StoredDocument(identifier="d1"), ds.DocumentInfo(identifier="d1"), ds.DocumentUpdate(identifier="d1")],
    ids=lambda document: type(document).__name__,
)
async def test_document_may_replace_its_identifier(
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


@pytest.mark.parametrize("answer", [TEXT[:-5], b'{"identifier": "d1"}', b"%PDF-1.7"], ids=["cut", "json", "bare"])
async def test_destination_is_unchanged_if_the_response_is_not_base64(
    answer: bytes, services: FakeServices, suite: ds.DirectSuite, tmp_path: Path
) -> None:
    destination = tmp_path / "signed.pdf"
    destination.write_bytes(b"the file before")
    services.add_response("GET", DOCUMENT, body=answer, content_type="text/plain")
    with pytest.raises(ds.ResponseDecodeError):
        await suite.signing.download("d1", destination)
    assert destination.read_bytes() == b"the file before"
    assert list_files(tmp_path) == [destination]


async def test_rejection_leaves_no_file(services: FakeServices, suite: ds.DirectSuite, tmp_path: Path) -> None:
    services.add_response("GET", DOCUMENT, {"error": "no_such_document", "description": "gone"}, status=400)
    with pytest.raises(ds.BadRequestError) as caught:
        await suite.signing.download("d1", tmp_path / "d1.pdf")
    assert caught.value.message == "no_such_document: gone"
    assert list_files(tmp_path) == []


async def test_later_responses_have_the_identifier_that_was_requested(
    services: FakeServices, suite: ds.DirectSuite
) -> None:
    services.add_response("GET", f"{DOCUMENT}/info", {"documentDigest": "abc"})
    services.add_response("PATCH", f"{DOCUMENT}/sign", {"documentDigest": "abc"})
    services.add_response("DELETE", DOCUMENT, {"documentDigest": "", "identifier": None})
    assert (await suite.signing.get_doc_info("d1")).identifier == "d1"
    assert (await suite.signing.sign("d1", SIGNATURE)).identifier == "d1"
    assert (await suite.signing.delete("d1")).identifier == "d1"


async def test_image_without_a_byte_is_rejected_before_anything_is_sent(
    services: FakeServices, suite: ds.DirectSuite
) -> None:
    empty = attrs.evolve(SIGNATURE, graphical_signature=b"")
    for sending in (suite.signing.sign("d1", empty), suite.signing.multi_sign_and_pull("d1", [SIGNATURE, empty])):
        with pytest.raises(ds.InvalidArgumentError, match="graphical_signature: it is empty"):
            await sending
    assert not services.requests_by_url


async def test_raw_view_has_the_value_and_its_response(services: FakeServices, suite: ds.DirectSuite) -> None:
    services.add_response("GET", f"{DOCUMENT}/info", OPERATIONS["GetDocInfo"].response, headers={"X-Trace": "t1"})
    raw = await suite.signing.with_raw_response.get_doc_info("d1")
    assert raw.value == OPERATIONS["GetDocInfo"].result
    assert (raw.status, raw.headers["X-Trace"], raw.attempts) == (200, "t1", 1)
    assert raw.elapsed >= 0
