"""What requests bring, checked and understood before any document is touched.

Base64 is taken with or without line breaks, and behind a `data:` prefix. The specification leaves the members of a
widget open. Two spellings are taken, both in points from the top-left corner of the page's crop box before rotation,
pages counted from 1:

    {"x": 72, "y": 620, "width": 200, "height": 70, "page": 1}
    {"left": 72, "top": 620, "width": 200, "height": 70, "pageIndex": 1}
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, timedelta, timezone, tzinfo
from typing import TYPE_CHECKING, Annotated, Any, Self, cast
from zoneinfo import ZoneInfo

import msgspec
import pybase64

from directsuite.sandbox.files import Base64Decoder
from directsuite.sandbox.rejections import InvalidParameterError

if TYPE_CHECKING:
    from pathlib import Path

_DATA_PREFIX = re.compile(rb"\s*data:[^,]{0,200},")
_WHITE_SPACE = b" \t\r\n"
_MAX_OFFSET_HOURS = 14  # the farthest time zone; a larger GMTOffset is in minutes
_OFFSET = re.compile(r"(?:GMT|UTC)?([+-])(\d{1,2}):?(\d{2})?", re.IGNORECASE)
_ABBREVIATIONS = {  # what people write for time zones that the IANA database does not name so
    "PST": "America/Los_Angeles", "PDT": "America/Los_Angeles", "MDT": "America/Denver", "CST": "America/Chicago",
    "CDT": "America/Chicago", "EDT": "America/New_York", "AKST": "America/Anchorage", "AKDT": "America/Anchorage",
    "Z": "UTC",
}  # fmt: skip


def decode_base64(text: bytes | str, what: str) -> bytes:
    """Return the bytes behind base64 text. Raises InvalidParameterError, which names `what` was wrong."""
    raw = text.encode("ascii", "replace") if isinstance(text, str) else text
    with suppress(ValueError):  # the usual text has nothing to take out, which would be a copy of it
        if raw:
            return pybase64.b64decode(raw, validate=True)
    prefix = _DATA_PREFIX.match(raw)
    compact = (raw[prefix.end() :] if prefix else raw).translate(None, _WHITE_SPACE)
    if not compact:
        raise InvalidParameterError(f"{what} is empty: base64 text is expected")
    try:
        return pybase64.b64decode(compact, validate=True)
    except ValueError:
        raise InvalidParameterError(f"{what} is not valid base64") from None


class Base64File:
    """Base64 text, piece by piece, decoded into a file. Its methods may run in any thread, one after the other.

    White space and the beginning of a data URL, which is within the first piece, are passed over.
    """

    def __init__(self, file: Path) -> None:
        self._file = file.open("wb")
        self._decoder = Base64Decoder()
        self._at_start = True

    def write(self, text: bytes, *, last: bool = False) -> None:
        """Decode a piece of the text; `last` for the end of the text. Raises InvalidParameterError."""
        if self._at_start and text:
            found = _DATA_PREFIX.match(text)
            text = text[found.end() :] if found else text
            self._at_start = False
        try:
            octets = self._decoder.decode(text.translate(None, _WHITE_SPACE), last=last)
        except ValueError:
            raise InvalidParameterError("the body is not valid base64") from None
        self._file.write(octets)
        if last and not self._file.tell():
            raise InvalidParameterError("the body is empty: base64 text is expected")

    def __enter__(self) -> Self:
        """The file is open."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        self._file.close()


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a signature goes: points from the top-left corner of the unrotated crop box of a page, from 1."""

    left: float
    top: float
    width: float
    height: float
    page: int


@dataclass(frozen=True, slots=True)
class SignatureRequest:
    """One signature to make."""

    name: str | None = None
    """The name of its field; a free one is found where it is None."""
    placement: Placement | None = None
    """None for the place of the existing field, or for an invisible signature."""
    reason: str | None = None
    signer_name: str | None = None
    zone: tzinfo = UTC
    picture: bytes | None = None


_Text = Annotated[str, msgspec.Meta(max_length=1000, pattern=r"^[^\0]*\Z")]


class _Widget(msgspec.Struct, rename={"page_index": "pageIndex"}):
    """A WidgetObject in either spelling; a member that is null counts as left out."""

    x: float | None = None
    left: float | None = None
    y: float | None = None
    top: float | None = None
    width: float | None = None
    height: float | None = None
    page: float | None = None
    page_index: float | None = None


class _SignBody(
    msgspec.Struct,
    rename={"signer_name": "gsName", "gmt_offset": "GMTOffset", "picture": "graphicalSignature"},
):
    """The body of Sign, and an element of MultiSign's."""

    name: _Text | None = None
    widget: _Widget | None = None
    reason: _Text | None = None
    signer_name: _Text | None = None
    timezone: _Text | None = None
    gmt_offset: int | None = None
    picture: Annotated[str, msgspec.Meta(pattern=r"^[^\0]*\Z")] | None = None


class _MultiSignBody(msgspec.Struct, rename={"signatures": "Signatures"}):
    """The body of MultiSign; each signature is read by itself, so that a refusal names its position."""

    signatures: Annotated[list[Any], msgspec.Meta(min_length=1)]


_MEMBERS = _SignBody.__struct_encode_fields__
_MISMATCHES = {  # what msgspec says of a member, and what the service says
    "length <= 1000": "must have at most 1000 characters",
    "matching regex": "must not contain the character NUL",
    "Expected `str": "must be a string",
    "Expected `float": "must be a number",
    "Expected `int": "must be a whole number of hours or minutes",
    "Integer value out of range": "must be a whole number of hours or minutes",
    "Expected `object": "must be a JSON object",
}
_PLACE = re.compile(r"(.*) - at `\$\.(.*)`", re.DOTALL)


def read_sign(body: object) -> list[SignatureRequest]:
    """Return the one signature that a Sign body asks for. Raises InvalidParameterError."""
    return [_read_signature(body, "")]


def read_multi_sign(body: object) -> list[SignatureRequest]:
    """Return the signatures that a MultiSign body asks for, in order. Raises InvalidParameterError."""
    try:
        entries = msgspec.convert(body, _MultiSignBody).signatures
    except msgspec.ValidationError:
        if isinstance(body, dict):
            raise InvalidParameterError("Signatures must be a list of at least one signature") from None
        raise InvalidParameterError("the body must be a JSON object") from None
    requests = [_read_signature(entry, f"Signatures[{position}].") for position, entry in enumerate(entries)]
    names: set[str] = set()
    for name in (request.name for request in requests if request.name is not None):
        if name in names:
            raise InvalidParameterError(f"Signatures names the signature {name!r} twice: give each its own name")
        names.add(name)
    return requests


def _read_signature(body: object, path: str) -> SignatureRequest:
    whole = path.rstrip(".") or "the body"
    # unknown members are ignored; a body of nothing else was meant for another operation
    if isinstance(body, dict) and body and not set(cast("dict[str, Any]", body)) & set(_MEMBERS):
        raise InvalidParameterError(f"{whole} has none of a signature's members: {', '.join(_MEMBERS)}")
    try:
        signature = msgspec.convert(body, _SignBody)
    except msgspec.ValidationError as mismatch:
        place = _PLACE.fullmatch(str(mismatch))
        text, member = (place[1], path + place[2]) if place else (str(mismatch), whole)
        wrong = next(words for fragment, words in _MISMATCHES.items() if fragment in text)
        raise InvalidParameterError(f"{member} {wrong}") from None
    return SignatureRequest(
        name=signature.name or None,
        placement=None if signature.widget is None else _read_placement(signature.widget, f"{path}widget"),
        reason=signature.reason or None,
        signer_name=signature.signer_name or None,
        zone=_find_zone(signature.timezone, signature.gmt_offset, path),
        picture=decode_base64(signature.picture, f"{path}graphicalSignature") if signature.picture else None,
    )


def _read_placement(widget: _Widget, path: str) -> Placement:
    page = _require_number(widget.page, widget.page_index, 1.0, name=f"{path}.page")
    placement = Placement(
        left=_require_number(widget.x, widget.left, name=f"{path}.x"),
        top=_require_number(widget.y, widget.top, name=f"{path}.y"),
        width=_require_number(widget.width, name=f"{path}.width"),
        height=_require_number(widget.height, name=f"{path}.height"),
        page=int(page),
    )
    if placement.width < 1 or placement.height < 1:  # pyHanko counts whole points
        raise InvalidParameterError(
            f"{path} must have a width and a height above 0, of 1 point at least: leave it out for an"
            " invisible signature"
        )
    if page != placement.page or placement.page < 1:
        raise InvalidParameterError(f"{path}.page must be a whole number, counted from 1")
    return placement


def _require_number(*spellings: float | None, name: str) -> float:
    number = next((value for value in spellings if value is not None), None)
    if number is None:
        raise InvalidParameterError(f"{name} must be a number")
    return number


def _find_zone(name: str | None, offset: int | None, path: str) -> tzinfo:
    """The signer's time zone: the IANA name, else what GMTOffset says, else UTC."""
    if name:
        zone = _find_named_zone(name.strip())
        if zone is not None:
            return zone
        if offset is None:
            raise InvalidParameterError(
                f"{path}timezone is not a known time zone: give an IANA name such as America/New_York, or a GMTOffset"
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
    except (LookupError, ValueError, OSError):  # unknown, or no name at all: a folder or a path of the zone database
        return None
