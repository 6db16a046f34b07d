"""Signing: PAdES signatures in incremental updates, at a widget's place or in an existing empty field.

Several signatures are made one after the other, each an update of its own; the document is stored only when the
last one is there.
"""

from __future__ import annotations

import asyncio
import io
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

import pikepdf
from pyhanko.pdf_utils.misc import PdfError
from pyhanko.sign.fields import SigFieldSpec, SigSeedSubFilter
from pyhanko.sign.general import SigningError
from pyhanko.sign.signers import PdfSignatureMetadata, PdfSigner
from pyhanko.sign.signers.pdf_cms import PdfCMSSignedAttributes

from directsuite.sandbox.refusals import InvalidActionError, InvalidParameterError
from directsuite.sandbox.signing.document import incremental_writer, open_pdf
from directsuite.sandbox.signing.flatten import without_outdated_appearances
from directsuite.sandbox.signing.form import Rectangle, crop_box, fields, page_numbers, rotation
from directsuite.sandbox.signing.stamp import DrawnStampStyle, draw_stamp, read_picture

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from PIL.Image import Image
    from pyhanko.sign.signers import Signer

    from directsuite.sandbox.signing.form import Field
    from directsuite.sandbox.signing.request import Placement, SignatureRequest

_DIGEST = "sha256"
_TOLERANCE = 0.5  # points that a widget may reach beyond the page, for rounding in the caller's units
_TIME_FORMAT = "%Y-%m-%d %H:%M:%S %Z"


def sign(content: bytes, requests: Sequence[SignatureRequest], signer: Signer, at: datetime) -> tuple[bytes, list[str]]:
    """Return the document with one more signature for each request, and their names. All or none of them are made.

    at: the time of signing, which each signature tells in its signer's time zone. Raises InvalidActionError where the
    document does not take the signature, InvalidParameterError where the request is at fault.
    """
    with open_pdf(content) as pdf:
        content = without_outdated_appearances(pdf, content)
        signatures = _checked(pdf, requests)
    for signature in signatures:
        content = _signed(content, signature, signer, at)
    return content, [signature.name for signature in signatures]


@dataclass(frozen=True, slots=True)
class _Signature:
    """A signature that the document takes, before it is made."""

    request: SignatureRequest
    name: str
    new_field: SigFieldSpec | None
    """None for a field that the document has."""
    rotation: int
    """How far viewers turn the page that it is on: 0, 90, 180 or 270 degrees clockwise."""
    picture: Image | None


def _checked(pdf: pikepdf.Pdf, requests: Sequence[SignatureRequest]) -> list[_Signature]:
    """Return the signatures to make, each in a field that is free once those before it are made."""
    permitted = _permitted(pdf)
    if permitted == 1:
        raise InvalidActionError("the document is certified, which does not allow any change")
    existing = {field.name: field for field in fields(pdf)}
    made: dict[str, _Signature] = {}
    for request in requests:
        taken = {*existing, *made}
        name = request.name or next(free for free in map("Signature{}".format, count(1)) if free not in taken)
        field = existing.get(name)
        if name in made or (field is not None and field.signed):
            raise InvalidActionError(f"the signature field {name!r} is signed already")
        if field is not None and field.kind != "signature":
            raise InvalidParameterError(
                f"the form field {name!r} is a {field.kind} field: give the signature another name"
            )
        new_field = None
        if field is None:
            new_field = _new_field(pdf, name, taken, request.placement)
            if permitted is not None and new_field.box is not None:
                raise InvalidActionError("the document is certified, which allows only existing fields to be signed")
        picture = read_picture(request.picture) if request.picture is not None else None
        page = new_field.on_page + 1 if new_field is not None else _page_of(pdf, existing[name])
        turned = rotation(pdf.pages[page - 1]) if page is not None else 0
        made[name] = _Signature(request, name, new_field, turned, picture)
    return list(made.values())


def _permitted(pdf: pikepdf.Pdf) -> int | None:
    """Return what a certificate permits: 1 nothing, 2 filling in and signing, 3 annotating too; None without one."""
    permissions = pdf.Root.get("/Perms")
    signature = permissions.get("/DocMDP") if isinstance(permissions, pikepdf.Dictionary) else None
    if not isinstance(signature, pikepdf.Dictionary):
        return None
    for reference in list(signature.get("/Reference", pikepdf.Array([]))):
        if str(reference.get("/TransformMethod")) == "/DocMDP":
            parameters = reference.get("/TransformParams")
            return int(str(parameters.get("/P", 2))) if parameters is not None else 2
    return 2


def _new_field(pdf: pikepdf.Pdf, name: str, taken: set[str], placement: Placement | None) -> SigFieldSpec:
    if "." in name:
        raise InvalidParameterError(f"the document has no signature field {name!r}, and a new one cannot have a period")
    if any(other.startswith(f"{name}.") for other in taken):
        raise InvalidParameterError(f"{name!r} is a group of form fields: give the signature another name")
    if placement is None:
        return SigFieldSpec(name)
    corners: Any = _rectangle(pdf, placement).corners()
    return SigFieldSpec(name, on_page=placement.page - 1, box=corners)


def _rectangle(pdf: pikepdf.Pdf, placement: Placement) -> Rectangle:
    """Return where a widget is to be in the page's user space."""
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


def _page_of(pdf: pikepdf.Pdf, field: Field) -> int | None:
    """Return the number of the page that shows a field, from 1; None if none does."""
    place = page_numbers(pdf).get(field.widgets[0].objgen)
    return place[0] if place is not None else None


def _signed(content: bytes, signature: _Signature, signer: Signer, at: datetime) -> bytes:
    request = signature.request
    local = at.astimezone(request.zone)
    lines = [request.signer_name or str(signer.subject_name or "")]
    if request.reason:
        lines.append(f"Reason: {request.reason}")
    lines.append(local.strftime(_TIME_FORMAT))
    draw = partial(draw_stamp, lines=lines, picture=signature.picture, turned=signature.rotation)
    metadata = PdfSignatureMetadata(
        field_name=signature.name,
        md_algorithm=_DIGEST,
        reason=request.reason,
        name=request.signer_name,
        subfilter=SigSeedSubFilter.PADES,
    )
    pdf_signer = PdfSigner(metadata, signer, stamp_style=DrawnStampStyle(draw=draw), new_field_spec=signature.new_field)
    try:
        return asyncio.run(_embed(content, pdf_signer, local)).getvalue()  # which BytesIO does not copy
    except (SigningError, PdfError) as error:
        raise InvalidActionError(f"the signature {signature.name!r} cannot be made: {error}") from error


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
