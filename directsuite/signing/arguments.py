"""Validate the signatures to create before anything is sent."""

from __future__ import annotations

import re

from directsuite.errors import InvalidArgumentError
from directsuite.signing.models import DocumentInfo, Signature, Widget
from directsuite.wire.models import require_instance

_ENCODED_IMAGE = re.compile(rb"\s*(data:|iVBORw0KGgo|/9j/)")
"""Matches a data URL, and the base64 text of a PNG or JPEG file. No image file begins like that."""


def validate_signatures(signatures: list[Signature], document: object) -> None:
    """Raise InvalidArgumentError if there is no signature, or no service could accept one of them.

    The specification has no formats for time zones, offsets and images, so that services may accept any of them.
    """
    if not signatures:
        raise InvalidArgumentError("give at least one Signature", parameter="signatures")
    for signature in signatures:
        _validate_signature(signature, document)


def _validate_signature(signature: Signature, document: object) -> None:
    image, widget = signature.graphical_signature, signature.widget
    if image == b"":
        raise InvalidArgumentError(
            "it is empty: give the bytes of an image, or omit it", parameter="graphical_signature"
        )
    if image is not None and _ENCODED_IMAGE.match(image):
        image = b""  # tracebacks expose local variables
        raise InvalidArgumentError(
            "it is base64 text: give the bytes of the image file, which are encoded when they are sent",
            parameter="graphical_signature",
        )
    if widget is None:
        return
    require_instance(widget, Widget, "widget")
    if widget.page is not None and widget.page < 1:
        raise InvalidArgumentError("give 1 or more: the first page is 1", parameter="widget.page")
    if isinstance(document, DocumentInfo) and document.pages and (widget.page or 1) > len(document.pages):
        raise InvalidArgumentError(
            f"give a page of the document, from 1 to {len(document.pages)}", parameter="widget.page"
        )
    for name, length in (("width", widget.width), ("height", widget.height)):
        if length is not None and length < 0:
            raise InvalidArgumentError("give a number of points, 0 or more", parameter=f"widget.{name}")


def make_rejection_advice(signatures: list[Signature]) -> str:
    """Return what to check after the service has rejected these signatures, without their values."""
    names = [signature.name for signature in signatures if signature.name]
    widgets = [signature.widget for signature in signatures if signature.widget]
    checks = list[str]()
    if len(widgets) == 1:
        checks.append(f"page {widgets[0].page or 1} exists and contains the widget")
    elif widgets:
        checks.append("the pages exist and contain the widgets")
    if len(names) == 1:
        checks.append("the document has no signature of this name")
    elif names:
        checks.append("the names differ, and the document has no signatures of these names")
    if any(signature.graphical_signature for signature in signatures):
        checks.append("graphical_signature is a PNG or JPEG file")
    if any(signature.timezone for signature in signatures):
        checks.append("timezone is a known name such as Europe/Berlin")
    if any(signature.gmt_offset is not None for signature in signatures):
        checks.append("gmt_offset is a number of hours from -12 to 14")
    checks.append("the document exists, is not encrypted and allows signatures")
    return f"check that {'; that '.join(checks)}"
