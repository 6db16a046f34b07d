"""What requests bring, checked and understood before any document is touched.

Base64 is taken with or without line breaks, and behind a `data:` prefix. The specification leaves the members of a
widget open. Two spellings are taken, both in points from the top-left corner of the page's crop box before rotation,
pages counted from 1:

    {"x": 72, "y": 620, "width": 200, "height": 70, "page": 1}
    {"left": 72, "top": 620, "width": 200, "height": 70, "pageIndex": 1}
"""

from __future__ import annotations

import math
import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, timedelta, timezone, tzinfo
from typing import TYPE_CHECKING, Any, cast
from zoneinfo import ZoneInfo

import pybase64

from directsuite.sandbox.refusals import InvalidParameterError

if TYPE_CHECKING:
    from collections.abc import Mapping

_DATA_PREFIX = re.compile(rb"\s*data:[^,]{0,200},")
_WHITE_SPACE = b" \t\r\n"
_MEMBERS = ("name", "widget", "reason", "gsName", "timezone", "GMTOffset", "graphicalSignature")
_LONGEST = 1000  # characters of a name or reason
_HOURS = 14  # the farthest time zone; a larger GMTOffset is in minutes
_OFFSET = re.compile(r"(?:GMT|UTC)?([+-])(\d{1,2}):?(\d{2})?", re.IGNORECASE)
_ABBREVIATIONS = {  # what people write for time zones that the IANA database does not name so
    "PST": "America/Los_Angeles", "PDT": "America/Los_Angeles", "MDT": "America/Denver", "CST": "America/Chicago",
    "CDT": "America/Chicago", "EDT": "America/New_York", "AKST": "America/Anchorage", "AKDT": "America/Anchorage",
    "Z": "UTC",
}  # fmt: skip


def decoded(text: bytes | str, what: str) -> bytes:
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


def encoded(content: bytes) -> bytes:
    """Return bytes as base64 text without line breaks."""
    return pybase64.b64encode(content)


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
    """One signature to make. name None: a free one; placement None: the existing field's place, or invisible."""

    name: str | None = None
    placement: Placement | None = None
    reason: str | None = None
    signer_name: str | None = None
    zone: tzinfo = UTC
    picture: bytes | None = None


def read_sign(body: object) -> SignatureRequest:
    """Return the signature that a Sign body asks for. Raises InvalidParameterError."""
    return _read(_object(body, "the body"), "")


def read_multi_sign(body: object) -> list[SignatureRequest]:
    """Return the signatures that a MultiSign body asks for, in order. Raises InvalidParameterError."""
    signatures = _object(body, "the body").get("Signatures")
    if not isinstance(signatures, list) or not signatures:
        raise InvalidParameterError("Signatures must be a list of at least one signature")
    entries = cast("list[object]", signatures)
    requests = [
        _read(_object(entry, f"Signatures[{position}]"), f"Signatures[{position}].")
        for position, entry in enumerate(entries)
    ]
    names: set[str] = set()
    for name in (request.name for request in requests if request.name is not None):
        if name in names:
            raise InvalidParameterError(f"Signatures names the signature {name!r} twice: give each its own name")
        names.add(name)
    return requests


def _read(body: Mapping[str, Any], path: str) -> SignatureRequest:
    # unknown members are ignored; a body of nothing else was meant for another operation
    if body and not body.keys() & set(_MEMBERS):
        raise InvalidParameterError(
            f"{path.rstrip('.') or 'the body'} has none of a signature's members: {', '.join(_MEMBERS)}"
        )
    picture = _text(body, "graphicalSignature", path, longest=None)
    return SignatureRequest(
        name=_text(body, "name", path) or None,
        placement=_placement(body.get("widget"), f"{path}widget"),
        reason=_text(body, "reason", path) or None,
        signer_name=_text(body, "gsName", path) or None,
        zone=_zone(_text(body, "timezone", path), body.get("GMTOffset"), path),
        picture=decoded(picture, f"{path}graphicalSignature") if picture else None,
    )


def _placement(widget: object, path: str) -> Placement | None:
    if widget is None:
        return None
    members = _object(widget, path)
    page = _number(members, ("page", "pageIndex"), path, default=1.0)
    placement = Placement(
        left=_number(members, ("x", "left"), path),
        top=_number(members, ("y", "top"), path),
        width=_number(members, ("width",), path),
        height=_number(members, ("height",), path),
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


def _number(members: Mapping[str, Any], spellings: tuple[str, ...], path: str, default: float | None = None) -> float:
    value: object = next((members[name] for name in spellings if members.get(name) is not None), default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InvalidParameterError(f"{path}.{spellings[0]} must be a number")
    return float(value)


def _zone(name: str | None, offset: object, path: str) -> tzinfo:
    """The signer's time zone: the IANA name, else what GMTOffset says, else UTC."""
    if offset is not None and (isinstance(offset, bool) or not isinstance(offset, int)):
        raise InvalidParameterError(f"{path}GMTOffset must be a whole number of hours or minutes")
    if name:
        zone = _named_zone(name.strip())
        if zone is not None:
            return zone
        if offset is None:
            raise InvalidParameterError(
                f"{path}timezone is not a known time zone: give an IANA name such as America/New_York, or a GMTOffset"
            )
    if offset is None:
        return UTC
    minutes = offset * 60 if abs(offset) <= _HOURS else offset
    if abs(minutes) > _HOURS * 60:
        raise InvalidParameterError(f"{path}GMTOffset must be at most {_HOURS} hours from GMT")
    return timezone(timedelta(minutes=minutes))


def _named_zone(name: str) -> tzinfo | None:
    offset = _OFFSET.fullmatch(name)
    if offset is not None:
        sign, hours, minutes = offset.groups()
        distance = timedelta(hours=int(hours), minutes=int(minutes or 0))
        if distance > timedelta(hours=_HOURS):
            return None
        return timezone(-distance if sign == "-" else distance)
    try:
        return ZoneInfo(_ABBREVIATIONS.get(name.upper(), name))
    except (LookupError, ValueError, OSError):  # unknown, or no name at all: a folder or a path of the zone database
        return None


def _text(body: Mapping[str, Any], name: str, path: str, *, longest: int | None = _LONGEST) -> str | None:
    value = body.get(name)
    if value is None:
        return None
    if not isinstance(value, str):
        raise InvalidParameterError(f"{path}{name} must be a string")
    if "\0" in value:
        raise InvalidParameterError(f"{path}{name} must not contain the character NUL")
    if longest is not None and len(value) > longest:
        raise InvalidParameterError(f"{path}{name} must have at most {longest} characters")
    return value


def _object(value: object, path: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise InvalidParameterError(f"{path} must be a JSON object")
    return cast("dict[str, Any]", value)
