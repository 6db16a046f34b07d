"""Parse and validate the requests of the signing service.

Base64 may contain line breaks and have a `data:` prefix. The specification does not define the members of a widget.
Two spellings are accepted, both in points from the top-left corner of the page's crop box before rotation, with pages
counted from 1:

    {"x": 72, "y": 620, "width": 200, "height": 70, "page": 1}
    {"left": 72, "top": 620, "width": 200, "height": 70, "pageIndex": 1}
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, timedelta, timezone, tzinfo
from typing import Annotated, Any, BinaryIO
from zoneinfo import ZoneInfo

import msgspec
import pybase64

from directsuite.sandbox.files import Base64Decoder
from directsuite.sandbox.rejections import InvalidParameterError, convert_body

_DATA_PREFIX = re.compile(rb"\s*data:[^,]{0,200},")
_WHITE_SPACE = b" \t\r\n"
_MAX_OFFSET_HOURS = 14  # of time zones; a larger GMTOffset is in minutes
_OFFSET = re.compile(r"(?:GMT|UTC)?([+-])(\d{1,2}):?(\d{2})?", re.IGNORECASE)
_ABBREVIATIONS = {  # not in the IANA database
    "PST": "America/Los_Angeles", "PDT": "America/Los_Angeles", "MDT": "America/Denver", "CST": "America/Chicago",
    "CDT": "America/Chicago", "EDT": "America/New_York", "AKST": "America/Anchorage", "AKDT": "America/Anchorage",
    "Z": "UTC",
}  # fmt: skip


def _decode_base64(text: str, what: str) -> bytes:
    raw = text.encode("ascii", "replace")
    prefix = _DATA_PREFIX.match(raw)
    try:
        return pybase64.b64decode(raw[prefix.end() if prefix else 0 :].translate(None, _WHITE_SPACE), validate=True)
    except ValueError:
        raise InvalidParameterError(f"{what} is not valid base64") from None


class Base64Writer:
    """Decodes base64 text piece by piece into an open file. Not thread-safe.

    The prefix of a data URL is ignored if the first piece contains all of it.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._decoder = Base64Decoder()
        self._at_start = True

    def write(self, text: bytes, *, last: bool = False) -> None:
        """Decode a piece of the text. Raises InvalidParameterError if it is invalid, or if all are empty."""
        if self._at_start and text:
            prefix = _DATA_PREFIX.match(text)
            text, self._at_start = text[prefix.end() if prefix else 0 :], False
        try:
            octets = self._decoder.decode(text.translate(None, _WHITE_SPACE), last=last)
        except ValueError:
            raise InvalidParameterError("the body is not valid base64") from None
        self._file.write(octets)
        if last and not self._file.tell():
            raise InvalidParameterError("the body is empty: base64 text is expected")


class Placement(msgspec.Struct, frozen=True):
    """The place of a signature. See the module docstring for its units."""

    x: float
    y: float
    width: float
    height: float
    page: int = 1


_OTHER_SPELLINGS = {"left": "x", "top": "y", "pageIndex": "page"}


@dataclass(frozen=True, slots=True)
class SignatureRequest:
    """A validated request for a signature."""

    name: str | None = None
    """The name of the signature field. None: an unused name is chosen."""
    placement: Placement | None = None
    """None for an existing field or an invisible signature."""
    reason: str | None = None
    signer_name: str | None = None
    zone: tzinfo = UTC
    picture: bytes | None = None


_Text = Annotated[str, msgspec.Meta(max_length=1000, pattern=r"^[^\0]*\Z")]


class _SignBody(
    msgspec.Struct,
    rename={"signer_name": "gsName", "gmt_offset": "GMTOffset", "picture": "graphicalSignature"},
):
    name: _Text | None = None
    widget: dict[str, Any] | None = None
    reason: _Text | None = None
    signer_name: _Text | None = None
    timezone: _Text | None = None
    gmt_offset: int | None = None
    picture: Annotated[str, msgspec.Meta(pattern=r"^[^\0]*\Z")] | None = None


class _MultiSignBody(msgspec.Struct, rename={"signatures": "Signatures"}):
    signatures: Annotated[list[dict[str, Any]], msgspec.Meta(min_length=1)]


_MEMBERS = _SignBody.__struct_encode_fields__


def read_sign(body: object) -> list[SignatureRequest]:
    """Parse the body of Sign into a list of one. Raises InvalidParameterError if it is invalid."""
    return [_read_signature(convert_body(body, dict[str, Any], InvalidParameterError), "")]


def read_multi_sign(body: object) -> list[SignatureRequest]:
    """Parse the body of MultiSign. Raises InvalidParameterError if it is invalid or repeats a name."""
    entries = convert_body(body, _MultiSignBody, InvalidParameterError).signatures
    requests = [_read_signature(entry, f"Signatures[{position}].") for position, entry in enumerate(entries)]
    for name, uses in Counter(request.name for request in requests).items():
        if name is not None and uses > 1:
            raise InvalidParameterError(f"Signatures contains the name {name!r} twice: use different names")
    return requests


def _read_signature(body: dict[str, Any], path: str) -> SignatureRequest:
    owner = path.rstrip(".") or "the body"
    # A body with only unknown members was meant for another operation.
    if body and body.keys().isdisjoint(_MEMBERS):
        raise InvalidParameterError(f"{owner} has none of a signature's members: {', '.join(_MEMBERS)}")
    signature = convert_body(body, _SignBody, InvalidParameterError, owner)
    return SignatureRequest(
        name=signature.name or None,
        placement=None if signature.widget is None else _read_placement(signature.widget, f"{path}widget"),
        reason=signature.reason or None,
        signer_name=signature.signer_name or None,
        zone=_find_zone(signature.timezone, signature.gmt_offset, path),
        picture=_decode_base64(signature.picture, f"{path}graphicalSignature") if signature.picture else None,
    )


def _read_placement(widget: dict[str, Any], path: str) -> Placement:
    given = {
        name: int(value) if isinstance(value, float) and value.is_integer() else value  # a page may be 1.0
        for name, value in widget.items()
        if value is not None
    }
    renamed = {_OTHER_SPELLINGS[name]: value for name, value in given.items() if name in _OTHER_SPELLINGS}
    placed = {**renamed, **given}
    for name in ("x", "y", "width", "height"):
        if type(placed.get(name)) not in {int, float}:  # a bool is not a number
            raise InvalidParameterError(f"{path}.{name} must be a number")
    page = placed.get("page", 1)
    if type(page) is not int or page < 1:
        raise InvalidParameterError(f"{path}.page must be a whole number, counted from 1")
    placement = convert_body(placed, Placement, InvalidParameterError, path)
    if placement.width < 1 or placement.height < 1:  # pyHanko uses integers
        raise InvalidParameterError(
            f"{path} must have a width and a height of at least 1 point: leave it out for an invisible signature"
        )
    return placement


def _find_zone(name: str | None, offset: int | None, path: str) -> tzinfo:
    if name:
        zone = _find_named_zone(name.strip())
        if zone is not None:
            return zone
        if offset is None:
            raise InvalidParameterError(
                f"{path}timezone is not a known time zone: use an IANA name such as America/New_York, or a GMTOffset"
            )
    if offset is None:
        return UTC
    minutes = offset * 60 if abs(offset) <= _MAX_OFFSET_HOURS else offset
    if abs(minutes) > _MAX_OFFSET_HOURS * 60:
        raise InvalidParameterError(f"{path}GMTOffset must be at most {_MAX_OFFSET_HOURS} hours from GMT")
    return timezone(timedelta(minutes=minutes))


def _find_named_zone(name: str) -> tzinfo | None:
    offset = _OFFSET.fullmatch(name)
    if offset is not None:
        sign, hours, minutes = offset.groups()
        distance = timedelta(hours=int(hours), minutes=int(minutes or 0))
        if distance > timedelta(hours=_MAX_OFFSET_HOURS):
            return None
        return timezone(-distance if sign == "-" else distance)
    try:
        return ZoneInfo(_ABBREVIATIONS.get(name.upper(), name))
    except (LookupError, ValueError, OSError):  # unknown, or a folder in the database
        return None
