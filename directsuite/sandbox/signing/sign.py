"""Add PAdES signatures to a document, in new fields or in existing empty ones.

Each signature is a separate incremental update. The document is stored only after the last one.

The appearance of a visible signature (picture, signer, reason and time) is a page of a new PDF, which pyHanko imports
into the document. It is upright even on a rotated page.
"""

from __future__ import annotations

import asyncio
import io
import shutil
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from pikepdf import Rectangle
from PIL import Image, ImageOps
from pyhanko.pdf_utils.content import AppearanceContent
from pyhanko.pdf_utils.misc import PdfError
from pyhanko.pdf_utils.reader import PdfFileReader
from pyhanko.sign.fields import SigFieldSpec, SigSeedSubFilter
from pyhanko.sign.general import SigningError
from pyhanko.sign.signers import PdfSignatureMetadata, PdfSigner
from pyhanko.sign.signers.pdf_cms import PdfCMSSignedAttributes
from pyhanko.stamp import BaseStampStyle

from directsuite.sandbox.rejections import InvalidActionError, InvalidParameterError
from directsuite.sandbox.signing import document
from directsuite.sandbox.signing.appearance import (
    HELVETICA,
    Drawing,
    TextStyle,
    draw_paragraph,
    fill_rectangle,
    find_font,
)
from directsuite.sandbox.signing.flatten import complete_appearances

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from pathlib import Path

    import pikepdf
    from pyhanko.pdf_utils.layout import BoxConstraints
    from pyhanko.pdf_utils.writer import BasePdfFileWriter
    from pyhanko.sign.signers import Signer

    from directsuite.sandbox.signing.request import Placement, SignatureRequest

_DIGEST_ALGORITHM = "sha256"
_TOLERANCE = 0.5  # points beyond the page, because clients round
_TIME_FORMAT = "%Y-%m-%d %H:%M:%S %Z"
_PICTURE_FORMATS = ("PNG", "JPEG", "GIF", "BMP")
_MAX_PICTURE_PIXELS = 25_000_000
"""More than a camera's picture of 24 megapixels. Drawing a picture takes about 20 bytes per pixel."""
_GAP = 2.0  # points around the picture, and between picture and text


def sign(source: Path, target: Path, requests: Sequence[SignatureRequest], signer: Signer, at: datetime) -> list[str]:
    """Write the document to `target` with a signature for each request. Return the names of the signature fields.

    at: the time of signing, converted to each signer's time zone.
    """
    with document.open_pdf(source) as pdf:
        form = document.find_acro_form(pdf)
        outdated = form is not None and "/NeedAppearances" in form and not document.count_signatures(pdf)
        if outdated:
            # Otherwise a viewer would draw the form later, which would invalidate the signature.
            complete_appearances(pdf)
            document.rewrite(pdf, target)
        signatures = _plan_signatures(pdf, requests)
    if not outdated:
        shutil.copyfile(source, target)
    for signature in signatures:
        _append_signature(target, signature, signer, at)
    return [signature.name for signature in signatures]


@dataclass(frozen=True, slots=True)
class _PlannedSignature:
    request: SignatureRequest
    name: str
    new_field: SigFieldSpec | None
    """The field to create, or None if it exists already."""
    rotation: int
    """The rotation of the page, clockwise in degrees."""
    picture: Image.Image | None


def _plan_signatures(pdf: pikepdf.Pdf, requests: Sequence[SignatureRequest]) -> list[_PlannedSignature]:
    existing = {field.name: field for field in document.iter_fields(pdf)}
    made: dict[str, _PlannedSignature] = {}
    for request in requests:
        taken = {*existing, *made}
        name = request.name or next(free for free in map("Signature{}".format, count(1)) if free not in taken)
        field = existing.get(name)
        if name in made or (field is not None and field.is_signed):
            raise InvalidActionError(f"the signature field {name!r} is already signed")
        if field is not None and field.kind != "signature":
            raise InvalidParameterError(
                f"the form field {name!r} is a {field.kind} field: use another name for the signature"
            )
        new_field = None
        if field is None:
            new_field = _make_field(pdf, name, taken, request.placement)
        picture = _read_picture(request.picture) if request.picture is not None else None
        turned = 0
        if new_field is not None:
            turned = document.find_rotation(pdf.pages[new_field.on_page])
        elif place := document.map_widget_places(pdf).get(existing[name].widgets[0].objgen):
            turned = document.find_rotation(pdf.pages[place[0] - 1])
        made[name] = _PlannedSignature(request, name, new_field, turned, picture)
    return list(made.values())


def _make_field(pdf: pikepdf.Pdf, name: str, taken: set[str], placement: Placement | None) -> SigFieldSpec:
    if "." in name:
        raise InvalidParameterError(
            f"the document has no signature field {name!r}, and the name of a new one cannot have a period"
        )
    if any(other.startswith(f"{name}.") for other in taken):
        raise InvalidParameterError(f"{name!r} is a group of form fields: use another name for the signature")
    if placement is None:
        return SigFieldSpec(name)
    place = _compute_rectangle(pdf, placement)
    corners: Any = place.llx, place.lly, place.urx, place.ury
    return SigFieldSpec(name, on_page=placement.page - 1, box=corners)


def _compute_rectangle(pdf: pikepdf.Pdf, placement: Placement) -> Rectangle:
    if placement.page > len(pdf.pages):
        raise InvalidParameterError(
            f"the widget is for page {placement.page}, but the document has {len(pdf.pages)} page(s)"
        )
    page = document.find_crop_box(pdf.pages[placement.page - 1])
    left, top = page.llx + placement.x, page.ury - placement.y
    rectangle = Rectangle(left, top - placement.height, left + placement.width, top)
    tolerated = (page.llx - _TOLERANCE, page.lly - _TOLERANCE, page.urx + _TOLERANCE, page.ury + _TOLERANCE)
    if not rectangle <= Rectangle(*tolerated):
        raise InvalidParameterError(
            f"the widget reaches beyond page {placement.page}, which is {page.width:g} wide and {page.height:g} high"
            " (points, before rotation, measured from the top-left corner)"
        )
    return rectangle


def _append_signature(target: Path, signature: _PlannedSignature, signer: Signer, at: datetime) -> None:
    request = signature.request
    local = at.astimezone(request.zone)
    lines = [request.signer_name or str(signer.subject_name or "")]
    if request.reason:
        lines.append(f"Reason: {request.reason}")
    lines.append(local.strftime(_TIME_FORMAT))
    style = _StampStyle(lines=lines, picture=signature.picture, turned=signature.rotation)
    metadata = PdfSignatureMetadata(
        field_name=signature.name,
        md_algorithm=_DIGEST_ALGORITHM,
        reason=request.reason,
        name=request.signer_name,
        subfilter=SigSeedSubFilter.PADES,
    )
    pdf_signer = PdfSigner(metadata, signer, stamp_style=style, new_field_spec=signature.new_field)
    try:
        with target.open("r+b") as file:
            asyncio.run(_embed(file, pdf_signer, local))
    except (SigningError, PdfError) as error:
        raise InvalidActionError(f"the signature {signature.name!r} could not be added: {error}") from error


async def _embed(file: BinaryIO, pdf_signer: PdfSigner, at: datetime) -> None:
    """Sign the document in place. pyHanko's async_sign_pdf does not allow setting the time of signing."""
    session: Any = pdf_signer.init_signing_session(document.open_incremental_writer(file))
    if session.timestamper is not None:
        raise SigningError(
            "the field requires a time stamp from a server that the document names, but the sandbox does not contact"
            " such servers"
        )
    session.system_time = at
    validation = await session.perform_presign_validation(session.pdf_out)
    reserved = await session.estimate_signature_container_size(validation, tight=False)
    prepared = session.prepare_tbs_document(validation_info=validation, bytes_reserved=reserved)
    digest, output = prepared.digest_tbs_document(in_place=True)
    signed = await prepared.perform_signature(
        document_digest=digest.document_digest, pdf_cms_signed_attrs=PdfCMSSignedAttributes(signing_time=at)
    )
    await signed.post_signature_processing(output)


def _read_picture(picture: bytes) -> Image.Image:
    try:
        opened = Image.open(io.BytesIO(picture), formats=_PICTURE_FORMATS)
        if opened.width * opened.height > _MAX_PICTURE_PIXELS:
            raise Image.DecompressionBombError
        opened.load()  # so that errors of the picture itself are raised
        with suppress(Exception):  # Pillow may raise any exception for damaged EXIF data
            return ImageOps.exif_transpose(opened).convert("RGBA")
        return opened.convert("RGBA")
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise InvalidParameterError(
            f"graphicalSignature has more than {_MAX_PICTURE_PIXELS // 1_000_000} million pixels"
        ) from None
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001  Pillow may raise any exception for a damaged file
        raise InvalidParameterError("graphicalSignature is not a readable PNG, JPEG, GIF or BMP picture") from None


@dataclass(frozen=True, kw_only=True)
class _StampStyle(BaseStampStyle):
    """The appearance of a signature. The background is white, because the page may be a dark scan."""

    lines: list[str]
    picture: Image.Image | None
    turned: int
    """The clockwise rotation of the page in degrees."""

    def create_stamp(self, writer: BasePdfFileWriter, box: BoxConstraints, text_params: dict[str, Any]) -> Any:
        drawing = Drawing(float(box.width), float(box.height), self.turned)
        canvas, across, up = drawing.canvas, drawing.width, drawing.height
        fill_rectangle(canvas, "1 g", 0, 0, across, up)
        text_width, text_height = across, up
        if self.picture is not None:
            text_width, text_height = (across / 2, up) if across >= up else (across, up / 2)
            place = _GAP, up - text_height + _GAP, max(text_width - 2 * _GAP, 0.01), max(text_height - 2 * _GAP, 0.01)
            drawing.draw_picture(self.picture, *place)
            canvas.translate(across - text_width, 0)
        text = "\n".join(self.lines)
        draw_paragraph(canvas, TextStyle(find_font(text) or HELVETICA, 0.0, "0 g", 0, text_width, text_height), text)
        stamp, untyped_writer = AppearanceContent(writer, box), cast("Any", writer)
        page: Any = PdfFileReader(io.BytesIO(drawing.to_pdf()))
        stamp._content_xobj_ref = untyped_writer.import_page_as_xobject(page)  # pyright: ignore[reportPrivateUsage]
        return stamp
