"""The signing facade: the result of each method, identifiers in all their forms, PDFs to and from files."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any, cast

import pytest

import directsuite as ds
from tests.fake_services import SETTINGS, SIGNING, FakeServices

PDF = b"%PDF-1.7\n" + bytes(range(256)) * 3
TEXT = base64.b64encode(PDF)
DOCUMENT = f"{SIGNING}/pdf/d1"
SIGNATURE = ds.Signature(name="PatientSig", graphical_signature=b"png")

SECOND = ds.Signature(name="WitnessSig")

_UPDATE = {"documentDigest": "def", "description": "changed"}


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


DOCUMENT_UNUSABLE = "the document does not exist, or does not allow this operation"
SIGNATURE_REJECTED = "the service did not accept the signature or the document"
REASONS: list[tuple[str, str, str, tuple[object, ...], str]] = [
    ("save", "POST", f"{SIGNING}/pdf", (PDF,), "the service did not accept the PDF"),
    ("get_doc_info", "GET", f"{DOCUMENT}/info", ("d1",), DOCUMENT_UNUSABLE),
    ("flatten", "PATCH", f"{DOCUMENT}/flatten", ("d1",), DOCUMENT_UNUSABLE),
    ("clear_unsigned_fields_and_pull", "PATCH", f"{DOCUMENT}/clearUnsignedFields/pull", ("d1",), DOCUMENT_UNUSABLE),
    ("sign", "PATCH", f"{DOCUMENT}/sign", ("d1", SIGNATURE), SIGNATURE_REJECTED),
    ("sign_and_pull", "PATCH", f"{DOCUMENT}/sign/pull", ("d1", SIGNATURE), SIGNATURE_REJECTED),
    ("multi_sign", "PATCH", f"{DOCUMENT}/multiSign", ("d1", [SIGNATURE]), SIGNATURE_REJECTED),
    ("multi_sign_and_pull", "PATCH", f"{DOCUMENT}/multiSign/pull", ("d1", [SIGNATURE]), SIGNATURE_REJECTED),
]


async def test_rejection_says_what_the_service_can_have_rejected(services: FakeServices, suite: ds.DirectSuite) -> None:
    for method, verb, url, arguments, reason in REASONS:
        services.add_response(verb, url, {"error": "no", "description": "Ada"}, status=400)
        with pytest.raises(ds.BadRequestError) as caught:
            await getattr(suite.signing, method)(*arguments)
        assert caught.value.explanation == f"{reason} (HTTP 400)", method
        assert "(HTTP 400). To see the service's reason, print .message" in str(caught.value), method
        assert caught.value.message == "no: Ada", method


NO_SUCH_DOCUMENT = {"error": "no_such_document", "description": "gone"}
DOCUMENT_CALLS: list[tuple[str, str, str, tuple[object, ...], type[ds.ServiceError]]] = [
    ("get_doc", "GET", "", (), ds.DocumentNotFoundError),
    ("download", "GET", "", (io.BytesIO(),), ds.DocumentNotFoundError),
    ("delete", "DELETE", "", (), ds.DocumentNotFoundError),
    ("get_doc_info", "GET", "/info", (), ds.BadRequestError),
    ("sign", "PATCH", "/sign", (SIGNATURE,), ds.BadRequestError),
]


async def test_missing_document_is_named_only_by_operations_with_no_other_reason(
    services: FakeServices, suite: ds.DirectSuite
) -> None:
    for method, verb, path, arguments, expected in DOCUMENT_CALLS:
        call = getattr(suite.signing, method)
        rejections: tuple[dict[str, Any], ...] = (
            {"payload": NO_SUCH_DOCUMENT, "status": 400},
            {"body": b"", "status": 400},
            {"status": 404},
        )
        for rejection, kind in zip(rejections, (expected, ds.BadRequestError, ds.NotFoundError), strict=True):
            services.add_response(verb, DOCUMENT + path, **rejection)
            with pytest.raises(ds.ServiceError) as caught:
                await call("d1", *arguments)
            assert type(caught.value) is kind, method
            advice = "check the identifier, or save the document again"
            assert (caught.value.advice == advice) is (kind is ds.DocumentNotFoundError), method


async def test_later_responses_have_the_identifier_that_was_requested(
    services: FakeServices, suite: ds.DirectSuite
) -> None:
    services.add_response("GET", f"{DOCUMENT}/info", {"documentDigest": "abc"})
    services.add_response("PATCH", f"{DOCUMENT}/sign", {"documentDigest": "abc"})
    services.add_response("DELETE", DOCUMENT, {"documentDigest": "", "identifier": None})
    assert (await suite.signing.get_doc_info("d1")).identifier == "d1"
    assert (await suite.signing.sign("d1", SIGNATURE)).identifier == "d1"
    assert (await suite.signing.delete("d1")).identifier == "d1"


_PNG, _JPEG = b"\x89PNG\r\n\x1a\n" + bytes(9), b"\xff\xd8\xff\xe0" + bytes(9)
_TWO_PAGES = ds.DocumentInfo(identifier="d1", pages=[ds.Page(index=1), ds.Page(index=2)])
IMPOSSIBLE: dict[str, tuple[ds.Signature, str]] = {
    "empty image": (ds.Signature(graphical_signature=b""), "graphical_signature: it is empty"),
    **{
        f"base64 image {number}": (ds.Signature(graphical_signature=text), "graphical_signature: it is base64 text")
        for number, text in enumerate(
            (base64.b64encode(_PNG), b"\n" + base64.b64encode(_JPEG), b"data:image/gif;base64,R0lGODlh")
        )
    },
    "text": (ds.Signature(widget=cast("ds.Widget", "72,620,200,70")), "widget: give a Widget, not str"),
    "page 0": (ds.Signature(widget=ds.Widget(page=0)), "widget.page: give 1 or more"),
    "page -1": (ds.Signature(widget=ds.Widget(page=-1)), "widget.page: give 1 or more"),
    "page 3 of 2": (ds.Signature(widget=ds.Widget(page=3)), "widget.page: give a page of the document, from 1 to 2"),
    "width": (ds.Signature(widget=ds.Widget(width=-1)), "widget.width: give a number of points, 0 or more"),
    "height": (ds.Signature(widget=ds.Widget(height=-0.5)), "widget.height: give a number of points, 0 or more"),
}


async def test_impossible_signature_is_rejected_before_anything_is_sent(
    services: FakeServices, suite: ds.DirectSuite
) -> None:
    signing = suite.signing
    for case, (signature, message) in IMPOSSIBLE.items():
        for sending in (
            signing.sign(_TWO_PAGES, signature),
            signing.multi_sign_and_pull(_TWO_PAGES, [SECOND, signature]),
        ):
            with pytest.raises(ds.InvalidArgumentError) as caught:
                await sending
            assert str(caught.value).startswith(message), case
        assert not services.requests_by_url, case


POSSIBLE = [
    ds.Signature(),
    ds.Signature(graphical_signature=_PNG),
    ds.Signature(graphical_signature=b"<svg/>"),
    ds.Signature(widget=ds.Widget(x=-5, y=1e6, width=0, height=0, page=2)),
    ds.Signature(timezone="Eastern Standard Time", gmt_offset=-18_000_000),
]


async def test_signature_that_some_service_may_accept_is_sent(services: FakeServices, suite: ds.DirectSuite) -> None:
    for signature in POSSIBLE:
        services.add_response("PATCH", f"{DOCUMENT}/sign", _UPDATE)
        await suite.signing.sign(_TWO_PAGES, signature)


_END = "the document exists, is not encrypted and allows signatures"
_WIDGET = ds.Widget(width=9, height=9, page=2)
REJECTED: list[tuple[list[ds.Signature], str]] = [
    ([ds.Signature()], f"check that {_END}"),
    (
        [ds.Signature(name="Ada", widget=_WIDGET), ds.Signature()],
        "check that page 2 exists and contains the widget; that the document has no signature of this name; "
        f"that {_END}",
    ),
    (
        [ds.Signature(name="Ada", widget=_WIDGET), ds.Signature(name="Bob", widget=ds.Widget())],
        "check that the pages exist and contain the widgets; that the names differ, and the document has no signatures "
        f"of these names; that {_END}",
    ),
    (
        [ds.Signature(graphical_signature=b"GIF89a", timezone="Berlin"), ds.Signature(gmt_offset=0)],
        "check that graphical_signature is a PNG or JPEG file; that timezone is a known name such as Europe/Berlin; "
        f"that gmt_offset is a number of hours from -12 to 14; that {_END}",
    ),
]


async def test_rejected_signature_is_explained_by_its_arguments_without_their_values(
    services: FakeServices, suite: ds.DirectSuite
) -> None:
    for signatures, advice in REJECTED:
        services.add_response("PATCH", f"{DOCUMENT}/multiSign", {"error": "no", "description": "Ada"}, status=400)
        with pytest.raises(ds.BadRequestError) as caught:
            await suite.signing.multi_sign("d1", signatures)
        assert caught.value.advice == advice, (signatures, advice)


async def test_rejected_token_request_does_not_blame_the_signature(services: FakeServices) -> None:
    async def fetch() -> str:
        raise ds.BadRequestError("no", status=400, operation="token", service="oauth")

    async with ds.DirectSuite(SETTINGS, token=fetch) as suite:
        with pytest.raises(ds.BadRequestError) as caught:
            await suite.signing.sign("d1", ds.Signature(name="Ada"))
    assert caught.value.advice == ""


async def test_argument_that_is_no_list_of_signatures_is_named(suite: ds.DirectSuite) -> None:
    cases: list[tuple[Any, str]] = [
        (iter([ds.Signature(), 3]), ": an element is int"),
        ({None}, ": an element is None"),
        ("ab", ", not str"),
        ({"a": 1}, ": an element is str"),
        (ds.Signature(), ", not a single one"),
    ]
    for signatures, problem in cases:
        with pytest.raises(ds.InvalidArgumentError) as caught:
            await suite.signing.multi_sign("d1", signatures)
        assert caught.value.explanation == f"signatures: give a list of Signature{problem}", (signatures, problem)
