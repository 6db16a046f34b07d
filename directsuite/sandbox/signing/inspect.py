"""What GetDocInfo tells of a document: signatures, form fields, pages and metadata.

Every place is in points from the top-left corner of the unrotated crop box; pages and tabs count from 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pikepdf

from directsuite.sandbox.signing.document import open_pdf
from directsuite.sandbox.signing.form import Field, fields, page_numbers, text_of
from directsuite.sandbox.signing.geometry import Rectangle, crop_box, rotation
from directsuite.sandbox.signing.validate import Verdict, validate

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from directsuite.sandbox.signing.keys import Certificate

Json = dict[str, Any]


def inspect(content: bytes, trust_roots: Sequence[Certificate], moment: datetime) -> Json:
    """The members signatures, formFields, pages and metaData of GetDocInfo; validity is judged as of `moment`.

    A form field is listed once for each of its widgets, so that the buttons of a radio group tell their places.
    """
    with open_pdf(content) as pdf:
        places = page_numbers(pdf)
        boxes = [crop_box(page) for page in pdf.pages]
        form = list(fields(pdf))
        signatures = [field for field in form if field.kind == "signature"]
        verdicts = validate(content, trust_roots, moment) if any(field.signed for field in signatures) else {}
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


def _signature(field: Field, verdict: Verdict | None) -> Json:
    signed_at = verdict.signed_at if verdict is not None else None
    return {
        "name": field.name,
        "isSigned": field.signed,
        "signerName": verdict.signer_name if verdict is not None else None,
        "signatureTime": _written(signed_at) if signed_at is not None else None,
        "reason": verdict.reason if verdict is not None else None,
        "isValid": verdict.valid if verdict is not None else False,
        "modification": verdict.modification if verdict is not None else None,
    }


def _written(moment: datetime) -> str:
    """A moment in the form of moments.py, but with the offset of the signer's zone, which the signature tells."""
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
