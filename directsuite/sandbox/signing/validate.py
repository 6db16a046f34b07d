"""Judging the signatures of a document: whether each is intact, trusted, and not undone by a later change."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyhanko.pdf_utils.misc import PdfError
from pyhanko.sign.validation import async_validate_pdf_signature
from pyhanko.sign.validation.errors import SignatureValidationError
from pyhanko_certvalidator import ValidationContext

from directsuite.sandbox.signing.difference_policy import POLICY
from directsuite.sandbox.signing.document import reader

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from directsuite.sandbox.signing.keys import Certificate


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is known of one signature. modification: pyHanko's word for later changes; UNKNOWN if they can't be read."""

    signer_name: str
    signed_at: datetime | None
    reason: str | None
    valid: bool
    modification: str


def validate(content: bytes, trust_roots: Sequence[Certificate], moment: datetime) -> dict[str, Verdict]:
    """The verdict on each signature, by the name of its field; certificates are judged as of `moment`."""
    return asyncio.run(_validate(content, trust_roots, moment))


async def _validate(content: bytes, trust_roots: Sequence[Certificate], moment: datetime) -> dict[str, Verdict]:
    verdicts: dict[str, Verdict] = {}
    try:
        signatures: list[Any] = list(reader(content).embedded_regular_signatures)
    except (SignatureValidationError, PdfError, ValueError):  # what is in a signature's place is none
        return verdicts
    for position, signature in enumerate(signatures):
        context = ValidationContext(trust_roots=list(trust_roots), moment=moment, allow_fetching=False)
        name = str(signature.field_name)
        try:
            verdicts[name] = await _judge(content, position, signature, context)
        except (SignatureValidationError, PdfError, ValueError):
            verdicts[name] = _verdict(signature, "", valid=False, modification="UNKNOWN")
    return verdicts


async def _judge(content: bytes, position: int, signature: Any, context: ValidationContext) -> Verdict:
    try:
        status: Any = await async_validate_pdf_signature(signature, context, diff_policy=POLICY)
    except PdfError:
        # The form of an earlier revision cannot be compared, a period in a field's own name (/T) being the usual
        # reason: what the signature covers is still judged, on a fresh reader, and later changes are not.
        signature = reader(content).embedded_regular_signatures[position]
        status = await async_validate_pdf_signature(signature, context, skip_diff=True)
    subject: Any = status.signing_cert.subject.native
    level = status.modification_level
    return _verdict(
        signature,
        str(subject.get("common_name", "")),
        valid=bool(status.bottom_line),
        modification=level.name if level is not None else "UNKNOWN",
    )


def _verdict(signature: Any, subject: str, *, valid: bool, modification: str) -> Verdict:
    dictionary: Any = signature.sig_object
    return Verdict(
        signer_name=str(dictionary["/Name"]) if "/Name" in dictionary else subject,
        signed_at=signature.self_reported_timestamp,
        reason=str(dictionary["/Reason"]) if "/Reason" in dictionary else None,
        valid=valid,
        modification=modification,
    )
