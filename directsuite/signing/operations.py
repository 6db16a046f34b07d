"""The operations of the signing service, in the order of the specification (section 4.A)."""

from __future__ import annotations

from typing import TypeVar

from directsuite.core.operation import Auth, MediaType, Operation, Semantics, Service
from directsuite.core.refusals import Refusals
from directsuite.signing.models import DocumentInfo, DocumentUpdate, StoredDocument

R = TypeVar("R")

REFUSALS = Refusals(texts=("error", "description"))

_HOW_TO_FIND_OUT = (
    "get_doc_info(identifier) shows whether document_digest has changed and which signatures are there, once nothing "
    "can arrive late any more; to be sure that it happens once only, delete the document and start again from save."
)


def _operation(
    name: str,
    method: str,
    path: str,
    semantics: Semantics,
    response: type[R],
    *,
    essential: tuple[str, ...] = (),
    done_answers: frozenset[int | str] = frozenset(),
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
        refusals=REFUSALS,
        essential=essential,
        done_answers=done_answers,
        content_type=content_type,
        how_to_find_out="" if semantics.may_repeat else _HOW_TO_FIND_OUT,
        streaming_method=streaming_method,
    )


_SAFE, _ONCE = Semantics.SAFE, Semantics.NON_IDEMPOTENT
_GONE: frozenset[int | str] = frozenset({400, 404})  # the specification leaves open which one "no such document" is
_PULL = "the method's destination="

SAVE = _operation(
    "Save",
    "POST",
    "pdf",
    Semantics.REPEATABLE,  # a second document expires by itself
    StoredDocument,
    essential=("identifier",),
    content_type=MediaType.TEXT,
)
GET_DOC = _operation("GetDoc", "GET", "pdf/{identifier}", _SAFE, bytes, streaming_method="download")
GET_DOC_INFO = _operation("GetDocInfo", "GET", "pdf/{identifier}/info", _SAFE, DocumentInfo)
DELETE = _operation("Delete", "DELETE", "pdf/{identifier}", Semantics.IDEMPOTENT, DocumentUpdate, done_answers=_GONE)
FLATTEN = _operation("Flatten", "PATCH", "pdf/{identifier}/flatten", _ONCE, DocumentUpdate)
FLATTEN_AND_PULL = _operation(
    "FlattenAndPull", "PATCH", "pdf/{identifier}/flatten/pull", _ONCE, bytes, streaming_method=_PULL
)
CLEAR_UNSIGNED_FIELDS = _operation(
    "ClearUnsignedFields", "PATCH", "pdf/{identifier}/clearUnsignedFields", _ONCE, DocumentUpdate
)
CLEAR_UNSIGNED_FIELDS_AND_PULL = _operation(
    "ClearUnsignedFieldsAndPull",
    "PATCH",
    "pdf/{identifier}/clearUnsignedFields/pull",
    _ONCE,
    bytes,
    streaming_method=_PULL,
)
SIGN = _operation("Sign", "PATCH", "pdf/{identifier}/sign", _ONCE, DocumentUpdate)
SIGN_AND_PULL = _operation("SignAndPull", "PATCH", "pdf/{identifier}/sign/pull", _ONCE, bytes, streaming_method=_PULL)
MULTI_SIGN = _operation("MultiSign", "PATCH", "pdf/{identifier}/multiSign", _ONCE, DocumentUpdate)
MULTI_SIGN_AND_PULL = _operation(
    "MultiSignAndPull", "PATCH", "pdf/{identifier}/multiSign/pull", _ONCE, bytes, streaming_method=_PULL
)
