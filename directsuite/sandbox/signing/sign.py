"""Signing: PAdES signatures in incremental updates, at a widget's place or in an existing empty field.

Several signatures are made one after the other, each an update of its own; the document is stored only when the
last one is there.
"""

from __future__ import annotations

import asyncio
import io
from functools import partial
from typing import TYPE_CHECKING, Any

from pyhanko.pdf_utils.misc import PdfError
from pyhanko.sign.fields import SigFieldSpec, SigSeedSubFilter
from pyhanko.sign.general import SigningError
from pyhanko.sign.signers import PdfSignatureMetadata, PdfSigner
from pyhanko.sign.signers.pdf_cms import PdfCMSSignedAttributes

from directsuite.sandbox.signing.document import certification, field_kinds, incremental_writer, open_pdf
from directsuite.sandbox.signing.flatten import without_outdated_appearances
from directsuite.sandbox.signing.form import fields, page_numbers
from directsuite.sandbox.signing.geometry import Rectangle, crop_box, rotation
from directsuite.sandbox.signing.refusals import InvalidActionError, InvalidParameterError
from directsuite.sandbox.signing.stamp import DrawnStampStyle, draw_stamp, read_picture

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from pyhanko.sign.signers import Signer

    from directsuite.sandbox.signing.signature_request import Placement, SignatureRequest

_DIGEST = "sha256"
_TOLERANCE = 0.5  # points that a widget may reach beyond the page, for rounding in the caller's units
_TIME_FORMAT = "%Y-%m-%d %H:%M:%S %Z"


def sign(content: bytes, requests: Sequence[SignatureRequest], signer: Signer, at: datetime) -> tuple[bytes, list[str]]:
    """The document with one more signature for each request, and their names. All or none of them are made.

    at: the time of signing, which each signature tells in its signer's time zone. Raises InvalidActionError where the
    document does not take the signature, InvalidParameterError where the request is at fault.
    """
    content = without_outdated_appearances(content)
    permitted = certification(content)
    if permitted == 1:
        raise InvalidActionError("the document is certified, which does not allow any change")
    names: list[str] = []
    for request in requests:
        content, name = _sign_once(content, request, signer, at, certified=permitted is not None)
        names.append(name)
    return content, names


def _sign_once(
    content: bytes, request: SignatureRequest, signer: Signer, at: datetime, *, certified: bool
) -> tuple[bytes, str]:
    existing = field_kinds(content)
    name = request.name or _free_name(existing)
    kind, signed = existing.get(name, (None, False))
    if signed:
        raise InvalidActionError(f"the signature field {name!r} is signed already")
    if kind not in (None, "signature"):
        raise InvalidParameterError(f"the form field {name!r} is a {kind} field: give the signature another name")
    new_field = None
    if kind is None:
        new_field = _new_field(content, name, existing, request.placement)
        if certified and new_field.box is not None:
            raise InvalidActionError("the document is certified, which allows only existing fields to be signed")
    draw = partial(
        draw_stamp,
        lines=_lines(request, signer, at),
        picture=read_picture(request.picture) if request.picture is not None else None,
        turned=_turned(content, name, new_field),
    )
    pdf_signer = PdfSigner(
        PdfSignatureMetadata(
            field_name=name,
            md_algorithm=_DIGEST,
            reason=request.reason,
            name=request.signer_name,
            subfilter=SigSeedSubFilter.PADES,
        ),
        signer,
        stamp_style=DrawnStampStyle(draw=draw),
        new_field_spec=new_field,
    )
    try:
        output = asyncio.run(_embed(content, pdf_signer, at.astimezone(request.zone)))
        return output.getvalue(), name  # which BytesIO does not copy
    except (SigningError, PdfError) as error:
        raise InvalidActionError(f"the signature {name!r} cannot be made: {error}") from error


async def _embed(content: bytes, pdf_signer: PdfSigner, at: datetime) -> io.BytesIO:
    """pyHanko's async_sign_pdf, step by step, since only so the time of signing can be set.

    Gives a buffer and no bytes, since asyncio.run prints a result of its main task, which takes long for megabytes.
    """
    session: Any = pdf_signer.init_signing_session(incremental_writer(content))
    session.system_time = at
    validation = await session.perform_presign_validation(session.pdf_out)
    reserved = await session.estimate_signature_container_size(validation, tight=False)
    prepared = session.prepare_tbs_document(validation_info=validation, bytes_reserved=reserved)
    output = io.BytesIO()
    digest, _ = prepared.digest_tbs_document(output=output)
    signed = await prepared.perform_signature(
        document_digest=digest.document_digest, pdf_cms_signed_attrs=PdfCMSSignedAttributes(signing_time=at)
    )
    await signed.post_signature_processing(output)
    return output


def _free_name(existing: dict[str, tuple[str, bool]]) -> str:
    number = 1
    while f"Signature{number}" in existing:
        number += 1
    return f"Signature{number}"


def _new_field(
    content: bytes, name: str, existing: dict[str, tuple[str, bool]], placement: Placement | None
) -> SigFieldSpec:
    if "." in name:
        raise InvalidParameterError(f"the document has no signature field {name!r}, and a new one cannot have a period")
    if any(other.startswith(f"{name}.") for other in existing):
        raise InvalidParameterError(f"{name!r} is a group of form fields: give the signature another name")
    if placement is None:
        return SigFieldSpec(name)
    corners: Any = _rectangle(content, placement).corners()
    return SigFieldSpec(name, on_page=placement.page - 1, box=corners)


def _rectangle(content: bytes, placement: Placement) -> Rectangle:
    """Where a widget is to be in the page's user space."""
    with open_pdf(content) as pdf:
        if placement.page > len(pdf.pages):
            raise InvalidParameterError(
                f"the widget is to be on page {placement.page}, but the document has {len(pdf.pages)} page(s)"
            )
        page = crop_box(pdf.pages[placement.page - 1])
    left, top = page.left + placement.left, page.top - placement.top
    rectangle = Rectangle(left, top - placement.height, left + placement.width, top)
    if not rectangle.within(page, tolerance=_TOLERANCE):
        raise InvalidParameterError(
            f"the widget reaches beyond page {placement.page}, which is {page.width:g} wide and {page.height:g} high"
            " (points, before rotation, measured from the top-left corner)"
        )
    return rectangle


def _turned(content: bytes, name: str, new_field: SigFieldSpec | None) -> int:
    with open_pdf(content) as pdf:
        if new_field is not None:
            return rotation(pdf.pages[new_field.on_page])
        places = page_numbers(pdf)
        widgets = next(field.widgets for field in fields(pdf) if field.name == name)
        place = places.get(widgets[0].objgen)
        return rotation(pdf.pages[place[0] - 1]) if place is not None else 0


def _lines(request: SignatureRequest, signer: Signer, at: datetime) -> list[str]:
    lines = [request.signer_name or str(signer.subject_name or "")]
    if request.reason:
        lines.append(f"Reason: {request.reason}")
    return [*lines, at.astimezone(request.zone).strftime(_TIME_FORMAT)]
