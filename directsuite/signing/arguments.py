"""Validate the signatures to create before anything is sent."""

from __future__ import annotations

import re
from collections.abc import Iterator
from zoneinfo import ZoneInfo

from directsuite.errors import InvalidArgumentError
from directsuite.signing.models import DocumentInfo, Signature, Widget
from directsuite.wire.models import require_instance

_ENCODED_IMAGE = re.compile(rb"\s*(data:|iVBORw0KGgo|/9j/)")
"""Matches a data URL, and the base64 text of a PNG or JPEG file. No image file begins like that."""
_IMAGE_STARTS = (b"\x89PNG\r\n", b"\xff\xd8\xff")
"""The first bytes of PNG and JPEG files."""


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
    """Return what to check after the service has rejected these signatures, without their values.

    It names arguments that are unusual, although the specification allows them.
    """
    names = [signature.name for signature in signatures if signature.name]
    unusual = [each for signature in signatures for each in _find_unusual_arguments(signature)]
    if len(set(names)) < len(names):
        unusual.append("two signatures have the same name")
    if unusual:
        return f"check the signature, because {', and '.join(dict.fromkeys(unusual))}"
    pages = sorted({signature.widget.page or 1 for signature in signatures if signature.widget})
    checks = [f"page {page} exists and contains the widget" for page in pages]
    if names:
        checks.append("the document has no signature of this name")
    checks.append("the document exists, is not encrypted and allows signatures")
    return f"check that {', and that '.join(checks)}"


def _find_unusual_arguments(signature: Signature) -> Iterator[str]:
    image, widget, offset = signature.graphical_signature, signature.widget, signature.gmt_offset
    if image is not None and not image.startswith(_IMAGE_STARTS):
        yield "graphical_signature is neither a PNG nor a JPEG file"
    if widget is not None and not (widget.width and widget.height):
        yield "the widget has no width or no height"
    if widget is not None and min(widget.x or 0, widget.y or 0) < 0:
        yield "widget.x or widget.y is less than 0"
    if offset is not None and not -12 <= offset <= 14:
        yield "gmt_offset is not a number of hours from -12 to 14"
    if signature.timezone is not None:
        try:
            ZoneInfo(signature.timezone)
        except (ValueError, OSError, LookupError):
            yield "timezone is not a known name such as Europe/Berlin"
