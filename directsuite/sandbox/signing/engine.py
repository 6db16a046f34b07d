"""Process the PDFs of the signing service: repair, change and describe them. Called in worker threads.

The service imports this module when it receives the first document, because importing pyHanko and pikepdf takes
almost a second and requires the extra `sandbox`.

Positions in GetDocInfo are in points from the top-left corner of the unrotated crop box. Pages and tabs count from 1.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

import pikepdf
from pyhanko.pdf_utils.generic import Reference
from pyhanko.sign.validation import async_validate_pdf_signature
from pyhanko.sign.validation.pdf_embedded import EmbeddedPdfSignature
from pyhanko_certvalidator import ValidationContext

from directsuite.sandbox.rejections import InvalidActionError, InvalidParameterError, RejectionError
from directsuite.sandbox.signing import document
from directsuite.sandbox.signing.clear import POLICY, clear_unsigned_fields
from directsuite.sandbox.signing.document import PdfField, TooManyLookupsError
from directsuite.sandbox.signing.flatten import flatten
from directsuite.sandbox.signing.sign import sign

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from datetime import datetime
    from pathlib import Path

    from directsuite.sandbox.signing import Certificate, KeySource
    from directsuite.sandbox.signing.request import SignatureRequest

Json = dict[str, Any]
ChangeOperation = Literal["Flatten", "ClearUnsignedFields", "Sign", "MultiSign"]
"""The operations that change a document."""

_UNKNOWN = {"signerName": None, "signatureTime": None, "reason": None, "isValid": False, "modification": None}
"""The members of a signature that is missing or cannot be read."""

logger = logging.getLogger("directsuite.sandbox")

_is_processing: ContextVar[bool] = ContextVar("_is_processing", default=False)


def _is_unrelated_record(_: logging.LogRecord) -> bool:
    """Return False while a document is processed, because tracebacks contain names of signers."""
    return not _is_processing.get()


for _name in list(logging.Logger.manager.loggerDict):  # filters do not apply to child loggers
    if _name.split(".")[0] in ("pyhanko", "pyhanko_certvalidator", "pikepdf"):
        logging.getLogger(_name).addFilter(_is_unrelated_record)


def repair_upload(uploaded: Path, target: Path) -> bool:
    """Check an uploaded document. Return True if it could not be signed and a repaired copy was written to `target`."""
    with _guard_processing(InvalidParameterError("the PDF document is damaged beyond repair")):
        return document.repair(uploaded, target)


def change(
    operation: ChangeOperation,
    source: Path,
    target: Path,
    signatures: Sequence[SignatureRequest],
    keys: KeySource,
    at: datetime,
) -> list[str]:
    """Write the changed document to `target`, and return the names of the changed fields or signatures.

    If the operation has no effect, return [] and write nothing.

    at: the time of signing.
    """
    with _guard_processing():
        if operation == "Flatten":
            return flatten(source, target)
        if operation == "ClearUnsignedFields":
            return clear_unsigned_fields(source, target)
        return sign(source, target, signatures, keys.signer(), at)


def describe(file: Path, keys: KeySource, moment: datetime) -> Json:
    """Return the members signatures, formFields, pages and metaData of GetDocInfo's response.

    The signatures are verified at `moment` against the root certificates of `keys`. A form field is listed once for
    each widget, to include the place of each radio button.
    """
    with _guard_processing(), document.open_pdf(file) as pdf:
        places = document.map_widget_places(pdf)
        boxes = [document.find_crop_box(page) for page in pdf.pages]
        form = list(document.iter_fields(pdf))
        signatures = [field for field in form if field.kind == "signature"]
        verdicts: dict[tuple[int, int], Json] = {}
        if signed := [field for field in signatures if field.is_signed]:
            with file.open("rb") as stored:
                verdicts = asyncio.run(_validate_signatures(stored, signed, keys.trust_roots(), moment))
        return {
            "signatures": [
                {
                    **_describe_place(field.widgets[0], places, boxes),
                    "name": field.name, "isSigned": field.is_signed,
                    **verdicts.get(field.dictionary.objgen, _UNKNOWN),
                }
                for field in signatures
            ],
            "formFields": [
                {**_describe_place(widget, places, boxes), "name": field.name, "value": field.value,
                 "type": field.kind, "tabIndex": places.get(widget.objgen, (None, None))[1]}
                for field in form if field.kind != "signature" for widget in field.widgets
            ],
            "pages": [
                {
                    "index": number, "width": _round_points(box.width), "height": _round_points(box.height),
                    "rotate": document.find_rotation(page),
                }
                for number, (page, box) in enumerate(zip(pdf.pages, boxes, strict=True), 1)
            ],
            "metaData": _list_metadata(pdf),
        }  # fmt: skip


def count_signatures(file: Path) -> tuple[int, int]:
    """Return the numbers of signed and of unsigned signature fields in a document. The signatures are not verified."""
    with _guard_processing(), document.open_pdf(file) as pdf:
        states = [field.is_signed for field in document.iter_fields(pdf) if field.kind == "signature"]
    return sum(states), len(states) - sum(states)


@contextmanager
def _guard_processing(rejection: RejectionError | None = None) -> Generator[None]:
    """Suppress the logs of the PDF libraries, and convert all errors to `rejection` (default: InvalidActionError).

    RejectionError, MemoryError, and OSError because of a full disk are not converted.
    """
    token = _is_processing.set(True)
    try:
        yield
    except (RejectionError, MemoryError):
        raise
    except Exception as error:  # the libraries may raise any exception
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise  # the disk is full
        logger.warning("A document was rejected as malformed because of %s.", type(error).__name__)
        raise rejection or InvalidActionError("the document is malformed") from None
    finally:
        _is_processing.reset(token)


def _describe_place(
    widget: pikepdf.Object, places: dict[tuple[int, int], tuple[int, int]], boxes: list[pikepdf.Rectangle]
) -> Json:
    place = places.get(widget.objgen)
    rectangle = document.parse_rectangle(widget.get("/Rect"))
    if place is None or rectangle is None:
        return {"left": None, "top": None, "width": None, "height": None, "pageIndex": None}
    page = boxes[place[0] - 1]
    if rectangle.width == 0 or rectangle.height == 0:  # an invisible signature
        return {"left": 0, "top": 0, "width": 0, "height": 0, "pageIndex": place[0]}
    return {
        "left": _round_points(rectangle.llx - page.llx),
        "top": _round_points(page.ury - rectangle.ury),
        "width": _round_points(rectangle.width),
        "height": _round_points(rectangle.height),
        "pageIndex": place[0],
    }


def _list_metadata(pdf: pikepdf.Pdf) -> list[Json]:
    entries: list[Json] = []
    if isinstance(pdf.trailer.get("/Info"), pikepdf.Dictionary):
        entries = [{"key": str(key)[1:], "value": document.value_to_text(value)} for key, value in pdf.docinfo.items()]
    return [
        *entries,
        {"key": "PDFVersion", "value": pdf.pdf_version},
        {"key": "PageCount", "value": str(len(pdf.pages))},
    ]


def _round_points(length: float) -> float | int:
    rounded = round(length, 2)
    return int(rounded) if rounded == int(rounded) else rounded


async def _validate_signatures(
    stored: BinaryIO, signed: Sequence[PdfField], trust_roots: Sequence[Certificate], moment: datetime
) -> dict[tuple[int, int], Json]:
    """Return the response members of each readable signature by object number. Document time stamps are skipped."""
    verdicts: dict[tuple[int, int], Json] = {}
    opened = document.open_reader(stored)
    for field in signed:
        number = field.dictionary.objgen
        try:
            dictionary: Any = Reference(*number, opened).get_object()
            signature = EmbeddedPdfSignature(opened, dictionary, field.name)
            if signature.sig_object_type == "/Sig":
                verdict = await _validate_signature(signature, trust_roots, moment)
                verdicts[number] = {**_describe_signer(signature), **verdict}
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001  a malformed object only affects its own signature
            logger.info("A signature could not be read: %s.", type(error).__name__)
    return verdicts


async def _validate_signature(signature: Any, trust_roots: Sequence[Certificate], moment: datetime) -> Json:
    """Return isValid, and the name of pyHanko's ModificationLevel for the changes after the signature.

    If the changes cannot be judged, they are ignored, and the level is UNKNOWN.
    """
    for skip_diff in (False, True):
        context = ValidationContext(trust_roots=list(trust_roots), moment=moment, allow_fetching=False)
        try:
            status: Any = await async_validate_pdf_signature(
                signature, context, diff_policy=POLICY, skip_diff=skip_diff
            )
        except TooManyLookupsError:
            logger.warning("The changes after a signature take too much time to judge. Its isValid ignores them.")
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001  pyHanko may raise any exception for a malformed object
            logger.info("A signature or the changes after it could not be judged: %s.", type(error).__name__)
        else:
            level = "UNKNOWN" if skip_diff else str(status.modification_level.name)
            return {"isValid": bool(status.bottom_line), "modification": level}
    return {"isValid": False, "modification": "UNKNOWN"}


def _describe_signer(signature: Any) -> Json:
    dictionary: Any = signature.sig_object
    signed_at: str | None = None
    subject: Any = {}
    with suppress(Exception):  # the date or certificate may be malformed
        subject = signature.signer_cert.subject.native
        moment: datetime | None = signature.self_reported_timestamp
        if moment is not None:
            signed_at = moment.replace(tzinfo=None).isoformat(timespec="milliseconds") + moment.strftime("%z")
    return {
        "signerName": str(dictionary["/Name"] if "/Name" in dictionary else subject.get("common_name", "")),
        "signatureTime": signed_at,
        "reason": str(dictionary["/Reason"]) if "/Reason" in dictionary else None,
    }
