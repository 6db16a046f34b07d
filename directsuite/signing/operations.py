"""The operations of the signing service (specification 4.A)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from directsuite.core.operation import Auth, FaultFormat, MediaType, Operation, Semantics, Service
from directsuite.errors import BadRequestError, DocumentNotFoundError, ServiceError
from directsuite.signing.models import DocumentInfo, DocumentUpdate, StoredDocument

R = TypeVar("R")

FAULT_FORMAT = FaultFormat(message_keys=("error", "description"))

_HOW_TO_FIND_OUT = (
    "call get_doc_info(identifier). It shows the signatures, and whether document_digest has changed. If it has not, "
    "the request may still take effect later. To be sure that the change happens only once, delete the document and "
    "start again from save."
)

# Status 400 has several reasons in the specification. The operation determines which of them are possible.
_DOCUMENT_MISSING = {400: (DocumentNotFoundError, "the document does not exist: it is unknown, deleted or expired")}
_DOCUMENT_UNUSABLE = {400: (BadRequestError, "the document does not exist, or does not allow this operation")}
_PDF_REJECTED = {400: (BadRequestError, "the service did not accept the PDF")}
_SIGNATURE_REJECTED = {400: (BadRequestError, "the service did not accept the signature or the document")}


def _make_operation(
    name: str,
    method: str,
    path: str,
    semantics: Semantics,
    response: type[R],
    *,
    required_fields: tuple[str, ...] = (),
    status_errors: Mapping[int, tuple[type[ServiceError], str]] = _DOCUMENT_UNUSABLE,
    already_done_codes: frozenset[int | str] = frozenset(),
    content_type: MediaType = MediaType.JSON,
    streaming_method: str | None = None,
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
        required_fields=required_fields,
        status_errors=status_errors,
        already_done_codes=already_done_codes,
        content_type=content_type,
        how_to_find_out="" if semantics.may_repeat else _HOW_TO_FIND_OUT,
        streaming_method=streaming_method,
    )


_SAFE, _NON_IDEMPOTENT = Semantics.SAFE, Semantics.NON_IDEMPOTENT
# The specification does not say which status means "no such document".
_DOCUMENT_MISSING_STATUSES: frozenset[int | str] = frozenset({400, 404})
_USE_DESTINATION = "the method's destination="

SAVE = _make_operation(
    "Save",
    "POST",
    "pdf",
    Semantics.REPEATABLE,  # a duplicate document expires
    StoredDocument,
    required_fields=("identifier",),
    status_errors=_PDF_REJECTED,
    content_type=MediaType.TEXT,
)
GET_DOC = _make_operation(
    "GetDoc",
    "GET",
    "pdf/{identifier}",
    _SAFE,
    bytes,
    status_errors=_DOCUMENT_MISSING,
    streaming_method="download",
)
GET_DOC_INFO = _make_operation("GetDocInfo", "GET", "pdf/{identifier}/info", _SAFE, DocumentInfo)
DELETE = _make_operation(
    "Delete",
    "DELETE",
    "pdf/{identifier}",
    Semantics.IDEMPOTENT,
    DocumentUpdate,
    status_errors=_DOCUMENT_MISSING,
    already_done_codes=_DOCUMENT_MISSING_STATUSES,
)
FLATTEN = _make_operation("Flatten", "PATCH", "pdf/{identifier}/flatten", _NON_IDEMPOTENT, DocumentUpdate)
FLATTEN_AND_PULL = _make_operation(
    "FlattenAndPull",
    "PATCH",
    "pdf/{identifier}/flatten/pull",
    _NON_IDEMPOTENT,
    bytes,
    streaming_method=_USE_DESTINATION,
)
CLEAR_UNSIGNED_FIELDS = _make_operation(
    "ClearUnsignedFields", "PATCH", "pdf/{identifier}/clearUnsignedFields", _NON_IDEMPOTENT, DocumentUpdate
)
CLEAR_UNSIGNED_FIELDS_AND_PULL = _make_operation(
    "ClearUnsignedFieldsAndPull",
    "PATCH",
    "pdf/{identifier}/clearUnsignedFields/pull",
    _NON_IDEMPOTENT,
    bytes,
    streaming_method=_USE_DESTINATION,
)
SIGN = _make_operation(
    "Sign", "PATCH", "pdf/{identifier}/sign", _NON_IDEMPOTENT, DocumentUpdate, status_errors=_SIGNATURE_REJECTED
)
SIGN_AND_PULL = _make_operation(
    "SignAndPull",
    "PATCH",
    "pdf/{identifier}/sign/pull",
    _NON_IDEMPOTENT,
    bytes,
    status_errors=_SIGNATURE_REJECTED,
    streaming_method=_USE_DESTINATION,
)
MULTI_SIGN = _make_operation(
    "MultiSign",
    "PATCH",
    "pdf/{identifier}/multiSign",
    _NON_IDEMPOTENT,
    DocumentUpdate,
    status_errors=_SIGNATURE_REJECTED,
)
MULTI_SIGN_AND_PULL = _make_operation(
    "MultiSignAndPull",
    "PATCH",
    "pdf/{identifier}/multiSign/pull",
    _NON_IDEMPOTENT,
    bytes,
    status_errors=_SIGNATURE_REJECTED,
    streaming_method=_USE_DESTINATION,
)
