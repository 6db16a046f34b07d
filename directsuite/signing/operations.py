"""The operations of the signing service (specification 4.A)."""

from __future__ import annotations

from functools import partial
from typing import Any, TypeVar

from directsuite.core.operation import Auth, FaultFormat, MediaType, Operation, Semantics, Service, StatusErrors
from directsuite.errors import BadRequestError, DocumentNotFoundError
from directsuite.signing.models import DocumentInfo, DocumentUpdate, StoredDocument

R = TypeVar("R")

FAULT_FORMAT = FaultFormat(message_keys=("error", "description"))

_HOW_TO_FIND_OUT = (
    "call get_doc_info(identifier). It shows the signatures, and whether document_digest has changed. If it has not, "
    "the request may still take effect later. To be sure that the change happens only once, delete the document and "
    "start again from save."
)

# Status 400 has several reasons in the specification. The operation determines which of them are possible.
_DOCUMENT_MISSING = {
    400: (
        DocumentNotFoundError,
        "the document does not exist: it is unknown, deleted or expired",
        "check the identifier, or save the document again",
    )
}
_DOCUMENT_UNUSABLE = {400: (BadRequestError, "the document does not exist, or does not allow this operation", "")}
_PDF_REJECTED = {400: (BadRequestError, "the service did not accept the PDF", "")}
_SIGNATURE_REJECTED = {400: (BadRequestError, "the service did not accept the signature or the document", "")}


def _make_operation(
    name: str,
    method: str,
    path: str,
    response: type[R],
    *,
    semantics: Semantics = Semantics.SAFE,
    status_errors: StatusErrors = _DOCUMENT_UNUSABLE,
    **others: Any,
) -> Operation[R]:
    return Operation(
        name=name,
        service=Service.SIGNING,
        method=method,
        path=path,
        semantics=semantics,
        auth=Auth.BEARER,
        response=response,
        fault_format=FAULT_FORMAT,
        status_errors=status_errors,
        how_to_find_out=_HOW_TO_FIND_OUT if semantics is Semantics.NON_IDEMPOTENT else "",
        **others,
    )


def _make_change(
    name: str, path: str, status_errors: StatusErrors = _DOCUMENT_UNUSABLE
) -> tuple[Operation[DocumentUpdate], Operation[bytes]]:
    """Return the operation of a change, and the one that also returns the PDF."""
    make = partial(_make_operation, method="PATCH", semantics=Semantics.NON_IDEMPOTENT, status_errors=status_errors)
    update = make(name, path=f"pdf/{{identifier}}/{path}", response=DocumentUpdate)
    pull = make(
        f"{name}AndPull",
        path=f"pdf/{{identifier}}/{path}/pull",
        response=bytes,
        streaming_method="the method's destination=",
    )
    return update, pull


SAVE = _make_operation(
    "Save",
    "POST",
    "pdf",
    StoredDocument,
    semantics=Semantics.REPEATABLE,  # a duplicate document expires
    required_fields=("identifier",),
    status_errors=_PDF_REJECTED,
    content_type=MediaType.TEXT,
)
GET_DOC = _make_operation(
    "GetDoc", "GET", "pdf/{identifier}", bytes, status_errors=_DOCUMENT_MISSING, streaming_method="download"
)
GET_DOC_INFO = _make_operation("GetDocInfo", "GET", "pdf/{identifier}/info", DocumentInfo)
DELETE = _make_operation(
    "Delete",
    "DELETE",
    "pdf/{identifier}",
    DocumentUpdate,
    semantics=Semantics.IDEMPOTENT,
    status_errors=_DOCUMENT_MISSING,
    already_done_codes=frozenset({400, 404}),  # the specification does not say which of them means "no such document"
)
FLATTEN, FLATTEN_AND_PULL = _make_change("Flatten", "flatten")
CLEAR_UNSIGNED_FIELDS, CLEAR_UNSIGNED_FIELDS_AND_PULL = _make_change("ClearUnsignedFields", "clearUnsignedFields")
SIGN, SIGN_AND_PULL = _make_change("Sign", "sign", _SIGNATURE_REJECTED)
MULTI_SIGN, MULTI_SIGN_AND_PULL = _make_change("MultiSign", "multiSign", _SIGNATURE_REJECTED)
