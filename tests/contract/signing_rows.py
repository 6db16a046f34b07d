"""The requests of the signing service (specification 4.A) and the fax service (4.B)."""

from __future__ import annotations

import directsuite as ds

from .recorder import CannedResponse
from .row import BEARER_JSON, BEARER_TEXT, RequestRow, make_json_response

PDF = b"%PDF-1.7\n%%EOF\n"
PDF_BASE64 = b"JVBERi0xLjcKJSVFT0YK"

_PDF_RESPONSE = CannedResponse(PDF_BASE64, media_type="text/plain")
_SAVE_RESPONSE = make_json_response(
    documentType="PDF", createdTime=1777636800000, identifier="d1", documentDigest="abc", description="stored"
)
_INFO = make_json_response(
    documentType="PDF",
    createdTime=1777636800000,
    identifier="d1",
    documentDigest="abc",
    description="stored",
    signatures=[],
    formFields=[],
    pages=[],
    metaData=[],
)
_UPDATE_RESPONSE = make_json_response(documentDigest="def", description="changed")
_DELETE_RESPONSE = make_json_response(documentDigest="", description="deleted")

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
_SECOND_SIGNATURE = ds.Signature(name="second")

SIGNING_ROWS = [
    RequestRow(
        operation="Save",
        call=lambda suite: suite.signing.save(PDF),
        method="POST",
        target="/base/signing/pdf",
        headers=BEARER_TEXT,
        body=PDF_BASE64,
        response=_SAVE_RESPONSE,
    ),
    RequestRow(
        operation="GetDoc",
        call=lambda suite: suite.signing.get_doc("a/b"),
        method="GET",
        target="/base/signing/pdf/a%2Fb",
        headers=BEARER_JSON,
        response=_PDF_RESPONSE,
    ),
    RequestRow(
        operation="GetDocInfo",
        call=lambda suite: suite.signing.get_doc_info("%2F"),
        method="GET",
        target="/base/signing/pdf/%252F/info",
        headers=BEARER_JSON,
        response=_INFO,
    ),
    RequestRow(
        operation="Delete",
        call=lambda suite: suite.signing.delete("a..b"),
        method="DELETE",
        target="/base/signing/pdf/a..b",
        headers=BEARER_JSON,
        response=_DELETE_RESPONSE,
    ),
    RequestRow(
        operation="Flatten",
        call=lambda suite: suite.signing.flatten("a+b"),
        method="PATCH",
        target="/base/signing/pdf/a%2Bb/flatten",
        headers=BEARER_JSON,
        response=_UPDATE_RESPONSE,
    ),
    RequestRow(
        operation="FlattenAndPull",
        call=lambda suite: suite.signing.flatten_and_pull("a?b"),
        method="PATCH",
        target="/base/signing/pdf/a%3Fb/flatten/pull",
        headers=BEARER_JSON,
        response=_PDF_RESPONSE,
    ),
    RequestRow(
        operation="ClearUnsignedFields",
        call=lambda suite: suite.signing.clear_unsigned_fields("a#b"),
        method="PATCH",
        target="/base/signing/pdf/a%23b/clearUnsignedFields",
        headers=BEARER_JSON,
        response=_UPDATE_RESPONSE,
    ),
    RequestRow(
        operation="ClearUnsignedFieldsAndPull",
        call=lambda suite: suite.signing.clear_unsigned_fields_and_pull("a\"'b"),
        method="PATCH",
        target="/base/signing/pdf/a%22%27b/clearUnsignedFields/pull",
        headers=BEARER_JSON,
        response=_PDF_RESPONSE,
    ),
    RequestRow(
        operation="Sign",
        call=lambda suite: suite.signing.sign("a b", _SIGNATURE),
        method="PATCH",
        target="/base/signing/pdf/a%20b/sign",
        headers=BEARER_JSON,
        body=_SIGNATURE_JSON,
        response=_UPDATE_RESPONSE,
    ),
    RequestRow(
        operation="SignAndPull",
        call=lambda suite: suite.signing.sign_and_pull("é€😀", ds.Signature(name="only a name")),
        method="PATCH",
        target="/base/signing/pdf/%C3%A9%E2%82%AC%F0%9F%98%80/sign/pull",
        headers=BEARER_JSON,
        body={"name": "only a name"},
        response=_PDF_RESPONSE,
    ),
    RequestRow(
        operation="MultiSign",
        call=lambda suite: suite.signing.multi_sign("../b", [_SIGNATURE, _SECOND_SIGNATURE]),
        method="PATCH",
        target="/base/signing/pdf/..%2Fb/multiSign",
        headers=BEARER_JSON,
        body={"Signatures": [_SIGNATURE_JSON, {"name": "second"}]},
        response=_UPDATE_RESPONSE,
    ),
    RequestRow(
        operation="MultiSignAndPull",
        call=lambda suite: suite.signing.multi_sign_and_pull("a%20b;c=d&e", iter([_SECOND_SIGNATURE])),
        method="PATCH",
        target="/base/signing/pdf/a%2520b%3Bc%3Dd%26e/multiSign/pull",
        headers=BEARER_JSON,
        body={"Signatures": [{"name": "second"}]},
        response=_PDF_RESPONSE,
    ),
]

_FAX = make_json_response(Username="clinic", MessageHandle="h1", MessageDetail=[], description="")

FAX_ROWS = [
    RequestRow(
        operation="getSingleMessageInfo",
        call=lambda suite: suite.fax.get_single_message_info("+1 (555) 010/0199", "h#1%2F"),
        method="GET",
        target="/base/fax/api/fax/%2B1%20%28555%29%20010%2F0199/h%231%252F",
        headers=BEARER_JSON,
        response=_FAX,
    ),
    RequestRow(
        operation="getMultipleMessageInfo",
        call=lambda suite: suite.fax.get_multiple_message_info("+15550100199?", offset=20),
        method="GET",
        target="/base/fax/api/fax/getMessageList/%2B15550100199%3F/20",
        headers=BEARER_JSON,
        response=_FAX,
    ),
]
