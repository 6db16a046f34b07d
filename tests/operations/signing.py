"""The operations of the signing service (specification 4.A)."""

from __future__ import annotations

from datetime import UTC, datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import pytest

import directsuite as ds
from tests.integration.documents import make_consent_form

from .case import BEARER_JSON, BEARER_TEXT, NO_BODY, OperationCase

if TYPE_CHECKING:
    from tests.integration.scenario import Scenario

_NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
_PATIENT = ds.Signature(name="PatientSig", reason="I agree", gs_name="Ada Example", timezone="America/New_York")
_WITNESS = ds.Signature(
    name="Extra", widget=ds.Widget(x=72, y=300, width=200, height=60, page=1), reason="Seen", gmt_offset=-5
)


async def _save(scenario: Scenario) -> None:
    document = await scenario.save()
    assert (document.document_type, document.created_time) == ("PDF", _NOON)
    assert document.document_digest == sha256(make_consent_form()).hexdigest()
    assert [effect["subject"] for effect in await scenario.list_effects("Save")] == [document.identifier]


async def _get_doc(scenario: Scenario) -> None:
    document = await scenario.save()
    assert await scenario.suite.signing.get_doc(document) == make_consent_form()
    path = await scenario.suite.signing.download(document, scenario.folder / "consent.pdf")
    assert path.read_bytes() == make_consent_form()


async def _get_doc_info(scenario: Scenario) -> None:
    document = await scenario.save()
    info = await scenario.suite.signing.get_doc_info(document)
    assert (info.identifier, info.document_digest) == (document.identifier, document.document_digest)
    assert [(page.index, page.width, page.height, page.rotate) for page in info.pages] == [(1, 612.0, 792.0, 0)]
    assert {field.name: field.value for field in info.form_fields}["patient"] == "Ada"
    assert [(signature.name, signature.is_signed) for signature in info.signatures] == [
        ("PatientSig", False),
        ("WitnessSig", False),
    ]
    assert info.meta_data["Title"] == "Consent"


async def _delete(scenario: Scenario) -> None:
    document = await scenario.save()
    update = await scenario.suite.signing.delete(document)
    assert (update.identifier, update.document_digest) == (document.identifier, "")
    with pytest.raises(ds.BadRequestError):
        await scenario.suite.signing.get_doc(document)


async def _flatten(scenario: Scenario) -> None:
    document = await scenario.save()
    update = await scenario.suite.signing.flatten(document)
    info = await scenario.suite.signing.get_doc_info(update)
    assert "patient" not in {field.name for field in info.form_fields}
    assert document.document_digest != update.document_digest == info.document_digest


async def _flatten_and_pull(scenario: Scenario) -> None:
    document = await scenario.save()
    pdf = await scenario.suite.signing.flatten_and_pull(document)
    assert pdf != make_consent_form()
    assert pdf == await scenario.suite.signing.get_doc(document)


async def _clear_unsigned_fields(scenario: Scenario) -> None:
    document = await scenario.save()
    update = await scenario.suite.signing.clear_unsigned_fields(document)
    info = await scenario.suite.signing.get_doc_info(document)
    assert info.signatures == []
    assert "patient" in {field.name for field in info.form_fields}
    assert document.document_digest != update.document_digest == info.document_digest


async def _clear_unsigned_fields_and_pull(scenario: Scenario) -> None:
    document = await scenario.save()
    path = await scenario.suite.signing.clear_unsigned_fields_and_pull(
        document, destination=scenario.folder / "cleared.pdf"
    )
    assert path.read_bytes() == await scenario.suite.signing.get_doc(document)
    assert (await scenario.suite.signing.get_doc_info(document)).signatures == []


async def _sign(scenario: Scenario) -> None:
    document = await scenario.save()
    update = await scenario.suite.signing.sign(document, _PATIENT)
    info = await scenario.suite.signing.get_doc_info(update)
    assert document.document_digest != update.document_digest == info.document_digest
    assert [(each.name, each.is_valid, each.reason) for each in info.signatures if each.is_signed] == [
        ("PatientSig", True, "I agree")
    ]


async def _sign_and_pull(scenario: Scenario) -> None:
    document = await scenario.save()
    pdf = await scenario.suite.signing.sign_and_pull(document, _PATIENT)
    assert pdf.startswith(b"%PDF-")
    assert b"/ByteRange" in pdf
    assert pdf == await scenario.suite.signing.get_doc(document)


async def _multi_sign(scenario: Scenario) -> None:
    document = await scenario.save()
    update = await scenario.suite.signing.multi_sign(document, [_PATIENT, _WITNESS])
    info = await scenario.suite.signing.get_doc_info(update)
    assert {each.name: each.is_valid for each in info.signatures if each.is_signed} == {
        "PatientSig": True,
        "Extra": True,
    }


async def _multi_sign_and_pull(scenario: Scenario) -> None:
    document = await scenario.save()
    path = await scenario.suite.signing.multi_sign_and_pull(
        document, [_PATIENT, _WITNESS], destination=scenario.folder / "signed.pdf"
    )
    assert path.read_bytes() == await scenario.suite.signing.get_doc(document)
    info = await scenario.suite.signing.get_doc_info(document)
    assert len([each for each in info.signatures if each.is_signed]) == 2


_PDF = b"%PDF-1.7\n%%EOF\n"
_BASE64 = b"JVBERi0xLjcKJSVFT0YK"
_SIGNATURE = ds.Signature(
    name='Signature "1"/é',
    widget=ds.Widget(x=72.5, y=36.25, width=144.5, height=48.5, page=2),
    reason="I approve",
    gs_name="Alice Ä",
    timezone="Europe/Berlin",
    gmt_offset=-5,
    graphical_signature=b"\x89PNG\xff",
)
_SIGNATURE_JSON = {
    "name": 'Signature "1"/é',
    "widget": {"x": 72.5, "y": 36.25, "width": 144.5, "height": 48.5, "page": 2},
    "reason": "I approve",
    "gsName": "Alice Ä",
    "timezone": "Europe/Berlin",
    "GMTOffset": -5,
    "graphicalSignature": "iVBOR/8=",
}
_SECOND = ds.Signature(name="second")
_STORED_JSON = {
    "documentType": "PDF",
    "createdTime": "2026-05-01T12:00:00.000+0000",
    "identifier": "d1",
    "documentDigest": "abc",
    "description": "stored",
}
_INFO_JSON = {
    **_STORED_JSON,
    "signatures": [{"name": "PatientSig", "isSigned": True, "pageIndex": 1, "left": 72.5, "isValid": True}],
    "formFields": [{"name": "patient", "value": "Ada", "tabIndex": 1}],
    "pages": [{"index": 1, "width": 612, "height": 792, "rotate": 90}],
    "metaData": [{"key": "Title", "value": "Consent"}],
}
_STORED: dict[str, Any] = {
    "document_type": "PDF",
    "created_time": _NOON,
    "identifier": "d1",
    "document_digest": "abc",
    "description": "stored",
}
_INFO = ds.DocumentInfo(
    **_STORED,
    signatures=[ds.DocumentSignature(name="PatientSig", is_signed=True, page_index=1, left=72.5, is_valid=True)],
    form_fields=[ds.FormField(name="patient", value="Ada", tab_index=1)],
    pages=[ds.Page(index=1, width=612.0, height=792.0, rotate=90)],
    meta_data={"Title": "Consent"},
)


def _make_change(
    path: str, identifier: str, exercise: Any, body: object = NO_BODY, **arguments: object
) -> OperationCase:
    """Return the row of a PATCH, whose response is the new digest, or for a `pull` the PDF.

    exercise: named like the method, after an underscore.
    """
    pulls = path.endswith("/pull")
    update = ds.DocumentUpdate(identifier=identifier, document_digest="def", description="changed")
    return OperationCase(
        name="".join(word.capitalize() for word in exercise.__name__.split("_")),
        method="PATCH",
        facade="signing",
        function=exercise.__name__[1:],
        arguments={"identifier": identifier, **arguments},
        path_texts=("identifier",),
        target=f"/signing/pdf/{path}",
        headers=BEARER_JSON,
        body=body,
        response=_BASE64 if pulls else {"documentDigest": "def", "description": "changed"},
        result=_PDF if pulls else update,
        required=() if pulls else ("identifier", "documentDigest"),
        exercise=exercise,
    )


SIGNING = [
    OperationCase(
        name="Save",
        method="POST",
        facade="signing",
        function="save",
        arguments={"pdf": _PDF},
        target="/signing/pdf",
        headers=BEARER_TEXT,
        body=_BASE64,
        response=_STORED_JSON,
        result=ds.StoredDocument(**_STORED),
        required=("identifier", "documentDigest"),
        exercise=_save,
    ),
    OperationCase(
        name="GetDoc",
        method="GET",
        facade="signing",
        function="get_doc",
        arguments={"identifier": "a/b"},
        path_texts=("identifier",),
        target="/signing/pdf/a%2Fb",
        headers=BEARER_JSON,
        response=_BASE64,
        result=_PDF,
        exercise=_get_doc,
    ),
    OperationCase(
        name="GetDocInfo",
        method="GET",
        facade="signing",
        function="get_doc_info",
        arguments={"identifier": "%2F"},
        path_texts=("identifier",),
        target="/signing/pdf/%252F/info",
        headers=BEARER_JSON,
        response=_INFO_JSON,
        result=_INFO,
        required=("identifier", "documentDigest"),
        exercise=_get_doc_info,
    ),
    OperationCase(
        name="Delete",
        method="DELETE",
        facade="signing",
        function="delete",
        arguments={"identifier": "a..b"},
        path_texts=("identifier",),
        target="/signing/pdf/a..b",
        headers=BEARER_JSON,
        response={"documentDigest": "", "description": "deleted"},
        result=ds.DocumentUpdate(identifier="a..b", document_digest="", description="deleted"),
        required=("identifier", "documentDigest"),
        exercise=_delete,
    ),
    _make_change("a%2Bb/flatten", "a+b", _flatten),
    _make_change("a%3Fb/flatten/pull", "a?b", _flatten_and_pull),
    _make_change("a%23b/clearUnsignedFields", "a#b", _clear_unsigned_fields),
    _make_change("a%22%27b/clearUnsignedFields/pull", "a\"'b", _clear_unsigned_fields_and_pull),
    _make_change("a%20b/sign", "a b", _sign, _SIGNATURE_JSON, signature=_SIGNATURE),
    _make_change(
        "%C3%A9%E2%82%AC%F0%9F%98%80/sign/pull",
        "é€😀",
        _sign_and_pull,
        {"name": "only a name"},
        signature=ds.Signature(name="only a name"),
    ),
    _make_change(
        "..%2Fb/multiSign",
        "../b",
        _multi_sign,
        {"Signatures": [_SIGNATURE_JSON, {"name": "second"}]},
        signatures=[_SIGNATURE, _SECOND],
    ),
    _make_change(
        "a%2520b%3Bc%3Dd%26e/multiSign/pull",
        "a%20b;c=d&e",
        _multi_sign_and_pull,
        {"Signatures": [{"name": "second"}]},
        signatures=[_SECOND],
    ),
]

SIGNING_VARIANTS = [_make_change("d1/sign", "d1", _sign, {}, signature=ds.Signature())]
