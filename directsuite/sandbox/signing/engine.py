"""The work on PDFs that the service asks for: storing, changing, describing; runs in worker threads.

Importing this module imports pyHanko and pikepdf, which takes the better part of a second and the `sandbox` extra:
the service does so when the first document arrives.

In what GetDocInfo tells, every place is in points from the top-left corner of the unrotated crop box; pages and tabs
count from 1.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

import pikepdf
from pyhanko.pdf_utils.misc import PdfError
from pyhanko.sign.validation import async_validate_pdf_signature
from pyhanko.sign.validation.errors import SignatureValidationError
from pyhanko_certvalidator import ValidationContext

from directsuite.sandbox.refusals import InvalidActionError, InvalidParameterError, RefusedError
from directsuite.sandbox.signing import document
from directsuite.sandbox.signing.clear import POLICY, clear_unsigned_fields
from directsuite.sandbox.signing.document import (
    Field,
    Rectangle,
    crop_box,
    fields,
    open_pdf,
    page_numbers,
    reader,
    rotation,
    text_of,
)
from directsuite.sandbox.signing.flatten import flatten
from directsuite.sandbox.signing.sign import sign

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from datetime import datetime
    from pathlib import Path

    from directsuite.sandbox.signing.keys import Certificate, KeySource
    from directsuite.sandbox.signing.request import SignatureRequest

Json = dict[str, Any]
Operation = Literal["Flatten", "ClearUnsignedFields", "Sign", "MultiSign"]
"""The operations that change a document."""

logger = logging.getLogger("directsuite.sandbox")

_at_work: ContextVar[bool] = ContextVar("_at_work", default=False)


def _is_of_others(_: logging.LogRecord) -> bool:
    """Return False for what the PDF libraries log of the sandbox's documents: tracebacks that name their signers."""
    return not _at_work.get()


for _name in list(logging.Logger.manager.loggerDict):  # a filter works at the logger alone, not at those below it
    if _name.split(".")[0] in ("pyhanko", "pyhanko_certvalidator", "pikepdf"):
        logging.getLogger(_name).addFilter(_is_of_others)


@dataclass(frozen=True, slots=True)
class Change:
    """What an operation makes of a document."""

    names: list[str]
    """The fields or signatures concerned; none where the document stays as it is."""
    description: str
    """A sentence on what was done, for the answer."""


def receive(uploaded: Path, target: Path) -> bool:
    """Return True if an uploaded document was repaired, into `target`. Raises InvalidParameterError."""
    with _at_work_on_a_document(InvalidParameterError("the PDF document is damaged beyond repair")):
        return document.repair(uploaded, target)


def change(
    operation: Operation,
    source: Path,
    target: Path,
    signatures: Sequence[SignatureRequest],
    keys: KeySource,
    at: datetime,
) -> Change:
    """Write what an operation makes of a document, at this time, unless it stays as it is. Raises RefusedError."""
    with _at_work_on_a_document():
        match operation:
            case "Flatten":
                names = flatten(source, target)
                return Change(names, f"{len(names)} form field(s) flattened")
            case "ClearUnsignedFields":
                names = clear_unsigned_fields(source, target)
                return Change(names, f"{len(names)} unsigned signature field(s) removed")
            case "Sign" | "MultiSign":
                names = sign(source, target, signatures, keys.signer(), at)
                return Change(names, f"signed: {', '.join(names)}")


def describe(file: Path, keys: KeySource, moment: datetime) -> dict[str, Any]:
    """Return the members of GetDocInfo that come from the document. Raises RefusedError."""
    with _at_work_on_a_document():
        return inspect(file, keys.trust_roots(), moment)


@contextmanager
def _at_work_on_a_document(refusal: RefusedError | None = None) -> Generator[None]:
    """Keep the libraries' logs back, and turn what they raise for a document that breaks PDF's rules into a refusal."""
    token = _at_work.set(True)
    try:
        yield
    except (RefusedError, MemoryError):
        raise
    except Exception as error:  # the libraries raise almost anything where an object has a wrong type
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise  # the disk is full, whatever the document is like
        logger.warning("a document is taken for malformed after %s", type(error).__name__)  # its text quotes content
        raise refusal or InvalidActionError("the document is malformed") from None
    finally:
        _at_work.reset(token)


def inspect(file: Path, trust_roots: Sequence[Certificate], moment: datetime) -> Json:
    """Return the members signatures, formFields, pages and metaData of GetDocInfo; validity is judged as of `moment`.

    A form field is listed once for each of its widgets, so that the buttons of a radio group tell their places.
    """
    with open_pdf(file) as pdf:
        places = page_numbers(pdf)
        boxes = [crop_box(page) for page in pdf.pages]
        form = list(fields(pdf))
        signatures = [field for field in form if field.kind == "signature"]
        verdicts = validate(file, trust_roots, moment) if any(field.signed for field in signatures) else {}
        return {
            "signatures": [
                {**_place(field.widgets[0], places, boxes), **_signature(field, verdicts.get(field.name))}
                for field in signatures
            ],
            "formFields": [
                {**_place(widget, places, boxes), "name": field.name, "value": field.value, "type": field.kind,
                 "tabIndex": places.get(widget.objgen, (None, None))[1]}
                for field in form if field.kind != "signature" for widget in field.widgets
            ],
            "pages": [
                {"index": number, "width": _points(box.width), "height": _points(box.height), "rotate": rotation(page)}
                for number, (page, box) in enumerate(zip(pdf.pages, boxes, strict=True), 1)
            ],
            "metaData": _metadata(pdf),
        }  # fmt: skip


def _place(widget: pikepdf.Object, places: dict[tuple[int, int], tuple[int, int]], boxes: list[Rectangle]) -> Json:
    place = places.get(widget.objgen)
    corners = widget.get("/Rect")
    if place is None or corners is None:
        return {"left": None, "top": None, "width": None, "height": None, "pageIndex": None}
    rectangle, page = Rectangle.of(iter(corners)), boxes[place[0] - 1]
    if rectangle.width == 0 or rectangle.height == 0:  # an invisible signature, whose corner means nothing
        return {"left": 0, "top": 0, "width": 0, "height": 0, "pageIndex": place[0]}
    return {
        "left": _points(rectangle.left - page.left),
        "top": _points(page.top - rectangle.top),
        "width": _points(rectangle.width),
        "height": _points(rectangle.height),
        "pageIndex": place[0],
    }


def _signature(field: Field, verdict: Json | None) -> Json:
    unknown = {"signerName": None, "signatureTime": None, "reason": None, "isValid": False, "modification": None}
    return {"name": field.name, "isSigned": field.signed, **(unknown if verdict is None else verdict)}


def _written(moment: datetime) -> str:
    """Write a moment as `timestamp` does, but with the offset of the signer's zone, which the signature tells."""
    return moment.replace(tzinfo=None).isoformat(timespec="milliseconds") + moment.strftime("%z")


def _metadata(pdf: pikepdf.Pdf) -> list[Json]:
    entries: list[Json] = []
    if isinstance(pdf.trailer.get("/Info"), pikepdf.Dictionary):
        entries = [{"key": str(key)[1:], "value": text_of(value)} for key, value in pdf.docinfo.items()]
    return [
        *entries,
        {"key": "PDFVersion", "value": pdf.pdf_version},
        {"key": "PageCount", "value": str(len(pdf.pages))},
    ]


def _points(length: float) -> float | int:
    rounded = round(length, 2)
    return int(rounded) if rounded == int(rounded) else rounded


def validate(file: Path, trust_roots: Sequence[Certificate], moment: datetime) -> dict[str, Json]:
    """Return what GetDocInfo tells of each signature, by the name of its field; judged as of `moment`."""
    with file.open("rb") as stored:
        return asyncio.run(_validate(stored, trust_roots, moment))


async def _validate(stored: BinaryIO, trust_roots: Sequence[Certificate], moment: datetime) -> dict[str, Json]:
    verdicts: dict[str, Json] = {}
    try:
        signatures: list[Any] = list(reader(stored).embedded_regular_signatures)
    except (SignatureValidationError, PdfError, ValueError):  # what is in a signature's place is none
        return verdicts
    for position, signature in enumerate(signatures):
        context = ValidationContext(trust_roots=list(trust_roots), moment=moment, allow_fetching=False)
        name = str(signature.field_name)
        try:
            verdicts[name] = await _judge(stored, position, signature, context)
        except (SignatureValidationError, PdfError, ValueError):
            verdicts[name] = _verdict(signature, "", valid=False, modification="UNKNOWN")
    return verdicts


async def _judge(stored: BinaryIO, position: int, signature: Any, context: ValidationContext) -> Json:
    try:
        status: Any = await async_validate_pdf_signature(signature, context, diff_policy=POLICY)
    except PdfError:
        # The form of an earlier revision cannot be compared, a period in a field's own name (/T) being the usual
        # reason: what the signature covers is still judged, on a fresh reader, and later changes are not.
        signature = reader(stored).embedded_regular_signatures[position]
        status = await async_validate_pdf_signature(signature, context, skip_diff=True)
    subject: Any = status.signing_cert.subject.native
    level = status.modification_level
    return _verdict(
        signature,
        str(subject.get("common_name", "")),
        valid=bool(status.bottom_line),
        modification=level.name if level is not None else "UNKNOWN",
    )


def _verdict(signature: Any, subject: str, *, valid: bool, modification: str) -> Json:
    """The members of a signature. modification: pyHanko's word for later changes; UNKNOWN if they can't be read."""
    dictionary: Any = signature.sig_object
    signed_at: datetime | None = signature.self_reported_timestamp
    return {
        "signerName": str(dictionary["/Name"]) if "/Name" in dictionary else subject,
        "signatureTime": None if signed_at is None else _written(signed_at),
        "reason": str(dictionary["/Reason"]) if "/Reason" in dictionary else None,
        "isValid": valid,
        "modification": modification,
    }
