"""The rows of the signing service: every PATCH, with the bare identifier and with an answer that makes it traceable."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from typing import Any

import directsuite as ds
from tests.integration.documents import make_consent_form

from .matrix_row import Effect, MatrixContext, MatrixRow, PlainRequest

SIGNATURES = [ds.Signature(name="PatientSig", reason="I agree"), ds.Signature(name="WitnessSig", reason="Seen")]


async def _save_document(context: MatrixContext) -> ds.StoredDocument:
    return await context.suite.signing.save(make_consent_form())


def _has_new_digest(update: Any, effect: Effect) -> bool:
    return bool(update.document_digest == effect["detail"]["digest"])


def _has_pdf_digest(pdf: Any, effect: Effect) -> bool:
    return bool(hashlib.sha256(pdf).hexdigest() == effect["detail"]["digest"])


Change = Callable[[ds.Signing, Any], Awaitable[Any]]

_CHANGES: list[tuple[str, str, Any, Change]] = [
    ("Flatten", "flatten", None, lambda signing, document: signing.flatten(document)),
    ("FlattenAndPull", "flatten/pull", None, lambda signing, document: signing.flatten_and_pull(document)),
    (
        "ClearUnsignedFields",
        "clearUnsignedFields",
        None,
        lambda signing, document: signing.clear_unsigned_fields(document),
    ),
    (
        "ClearUnsignedFieldsAndPull",
        "clearUnsignedFields/pull",
        None,
        lambda signing, document: signing.clear_unsigned_fields_and_pull(document),
    ),
    ("Sign", "sign", {"name": "PatientSig"}, lambda signing, document: signing.sign(document, SIGNATURES[0])),
    (
        "SignAndPull",
        "sign/pull",
        {"name": "PatientSig"},
        lambda signing, document: signing.sign_and_pull(document, SIGNATURES[0]),
    ),
    (
        "MultiSign",
        "multiSign",
        {"Signatures": [{"name": "PatientSig"}, {"name": "WitnessSig"}]},
        lambda signing, document: signing.multi_sign(document, SIGNATURES),
    ),
    (
        "MultiSignAndPull",
        "multiSign/pull",
        {"Signatures": [{"name": "PatientSig"}, {"name": "WitnessSig"}]},
        lambda signing, document: signing.multi_sign_and_pull(document, SIGNATURES),
    ),
]


def _make_signing_row(operation: str, path: str, body: Any, change: Change, *, bare: bool) -> MatrixRow:
    pull = path.endswith("pull")

    async def call(context: MatrixContext, document: ds.StoredDocument) -> Any:
        return await change(context.suite.signing, document.identifier if bare else document)

    async def plain(context: MatrixContext, document: ds.StoredDocument) -> PlainRequest:
        url = f"{context.sandbox.signing_url}/pdf/{document.identifier}/{path}"
        return PlainRequest(method="PATCH", url=url, json=body, token=context.token, base64=pull)

    variant = "bare identifier" if bare else "StoredDocument"
    agrees = _has_pdf_digest if pull else _has_new_digest
    return MatrixRow(
        operation=operation,
        variant=variant,
        prepare=_save_document,
        call=call,
        plain_request=plain,
        is_consistent=agrees,
    )


SIGNING_ROWS: list[MatrixRow] = [_make_signing_row(*change, bare=bare) for change in _CHANGES for bare in (True, False)]
