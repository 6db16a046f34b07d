"""Service A of the specification, document signing: its types, its twelve operations and its refusals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from directsuite.sandbox.openapi.json_schema import (
    Schema,
    all_nullable,
    array_of,
    base64,
    boolean,
    extending,
    integer,
    nullable,
    number,
    obj,
    one_of,
    ref,
    text,
)
from directsuite.sandbox.openapi.moments import timestamp
from directsuite.sandbox.openapi.operations import TEXT, Content, Operation, Service, named

if TYPE_CHECKING:
    from collections.abc import Sequence

REFUSAL = ref("Refusal")

BEARER_REFUSALS: dict[int, tuple[str, Schema]] = {
    400: ("Invalid action, or a parameter is missing or invalid.", REFUSAL),
    401: ("No valid access token in the request.", REFUSAL),
    403: ("Permission denied for the requested action.", REFUSAL),
    404: ("Endpoint not found.", REFUSAL),
    500: ("Server error.", REFUSAL),
}
"""The refusals that the signing and fax services share (specification 7)."""

_page_index = integer("Page, counted from 1.", minimum=1)

_rectangle: dict[str, Schema] = {
    "width": number("Width in points."),
    "height": number("Height in points."),
    "left": number("Distance from the left edge of the page."),
    "top": number("Distance from the top edge of the page."),
    "pageIndex": _page_index,
}

_updated: dict[str, Schema] = {
    "documentDigest": text("Changes whenever the document changes.", minLength=1),
    "description": text("Description text."),
}

SCHEMAS: dict[str, Schema] = {
    "Refusal": obj(
        "The error body of the signing and fax services.",
        required={"error": text("Error message.", minLength=1), "description": text("Error description.")},
    ),
    "StoredDocument": obj(
        "A document as Save has stored it.",
        required={
            "documentType": text("Document type."),
            "createdTime": timestamp("When the document was saved or created."),
            "identifier": text("Unique document identifier, used for all actions on the document.", minLength=1),
            "documentDigest": text("Digest identifying document updates.", minLength=1),
            "description": text("Description text."),
        },
    ),
    "DocumentInfo": extending(
        "StoredDocument",
        obj(
            "All that GetDocInfo says about a stored document.",
            required={
                "signatures": nullable(array_of(ref("SignatureObject"), "Signatures of the document.")),
                "formFields": nullable(array_of(ref("FormFieldObject"), "Form fields.")),
                "pages": nullable(array_of(ref("PageObject"), "Pages.")),
                "metaData": nullable(ref("MetaDataObject", "Document metadata.")),
            },
        ),
    ),
    "DocumentUpdate": obj("A document after a change.", required=_updated),
    "DocumentDeletion": obj(
        "A document after its deletion.",
        required={**_updated, "documentDigest": text("Empty: there is no document any more.", maxLength=0)},
    ),
    "SignBody": obj(
        "One signature to make: the body of Sign, and an element of MultiSign's list.",
        optional={
            "name": text("Name of the signature."),
            "widget": ref("WidgetObject", "Where the signature is shown."),
            "reason": text("Reason for signing."),
            "gsName": text("Signer name."),
            "timezone": text("Signer time zone."),
            "GMTOffset": integer("GMT offset."),
            "graphicalSignature": base64("Graphical signature."),
        },
    ),
    "MultiSignBody": obj(
        "Several signatures to make.",
        required={"Signatures": array_of(ref("SignBody"), "The signatures, in the order of signing.")},
    ),
    "WidgetObject": obj(
        "Where a signature is shown on a page.",
        optional={
            "x": number("Distance from the left edge in points."),
            "y": number("Distance from the top edge in points."),
            "width": number("Width in points."),
            "height": number("Height in points."),
            "page": _page_index,
        },
    ),
    "SignatureObject": obj(
        "A signature, or an empty signature field, that a document has.",
        optional=all_nullable(
            {
                "name": text("Name of the signature field."),
                **_rectangle,
                "isSigned": boolean("Whether the field is signed."),
                "signerName": text("Who signed."),
                "signatureTime": text("When it was signed."),
                "reason": text("Reason for signing."),
                "isValid": boolean("Whether the signature is valid."),
                "modification": text("What was changed after signing: NONE, LTA_UPDATES, FORM_FILLING, and so on."),
            }
        ),
    ),
    "FormFieldObject": obj(
        "A field of a form.",
        optional=all_nullable(
            {
                "name": text("Full name of the field."),
                "type": text("Kind of field: text, checkbox and so on."),
                "value": {
                    "type": ["string", "number", "boolean", "array"],
                    "items": text(),
                    "description": "Present value; a list where several choices are selected.",
                },
                **_rectangle,
                "tabIndex": integer("Place in the tab order, counted from 1.", minimum=1),
            }
        ),
    ),
    "PageObject": obj(
        "A page.",
        optional=all_nullable(
            {
                "index": _page_index,
                "width": number("Width in points."),
                "height": number("Height in points."),
                "rotate": one_of([0, 90, 180, 270], "Clockwise rotation in degrees."),
            }
        ),
    ),
    "MetaDataObject": {
        "description": "Document metadata: a list of pairs, or an object whose members are the pairs.",
        "anyOf": [
            array_of(obj(required={"key": text("Name of the property."), "value": nullable(text("Its value."))})),
            obj(),
        ],
    },
}

_pdf = Content(schema=base64("PDF content."), media_type=TEXT)
_updated_document = named("DocumentUpdate")

_changes: Sequence[tuple[str, str, str, Content | None]] = (
    ("Flatten", "flatten", "Flattens the document's form.", None),
    ("ClearUnsignedFields", "clearUnsignedFields", "Removes empty signature fields.", None),
    ("Sign", "sign", "Makes one digital signature.", named("SignBody")),
    ("MultiSign", "multiSign", "Makes several digital signatures.", named("MultiSignBody")),
)


def _both_variants(name: str, segment: str, summary: str, body: Content | None) -> list[Operation]:
    path = f"/{{identifier}}/{segment}"
    pulled = f"{summary} Returns the resulting document."
    return [
        Operation(name, "PATCH", path, summary, _updated_document, body=body),
        Operation(f"{name}AndPull", "PATCH", f"{path}/pull", pulled, _pdf, body=body),
    ]


OPERATIONS: list[Operation] = [
    Operation("Save", "POST", "", "Stores a PDF document.", named("StoredDocument"), body=_pdf),
    Operation("GetDoc", "GET", "/{identifier}", "Downloads a document.", _pdf),
    Operation("GetDocInfo", "GET", "/{identifier}/info", "Describes a document.", named("DocumentInfo")),
    Operation("Delete", "DELETE", "/{identifier}", "Deletes a document.", named("DocumentDeletion")),
    *(operation for change in _changes for operation in _both_variants(*change)),
]

SERVICE = Service(
    name="signing",
    description="Stores, describes, flattens and signs PDF documents.",
    base="/signing/pdf",
    operations=OPERATIONS,
    schemas=SCHEMAS,
    parameters={"identifier": text("The document's identifier, from Save.", minLength=1)},
    refusals={**BEARER_REFUSALS, 501: ("The sandbox runs without its PDF libraries.", REFUSAL)},
    security=[{"bearer": []}],
)
