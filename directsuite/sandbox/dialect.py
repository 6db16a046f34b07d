"""The dialect of a server: how its responses differ from the OpenAPI document, and in which forms it writes values.

`directsuite doctor --deep` writes a dialect as a Report, which contains paths, types and forms, but no values.
`quirks.py` reads it, and has the sandbox respond in that dialect. A form is one of several ways to write a value
that the document allows, such as a moment in milliseconds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from email.utils import format_datetime
from typing import Any, Literal

import msgspec

FORM = "has the form: "
"""The start of `Difference.what` for a form that the sandbox does not write by itself."""

Role = Literal["array", "base64", "moment"]
"""The kinds of values that have several forms."""

_TYPES: Mapping[Any, str] = {
    bool: "boolean",
    str: "string",
    int: "integer",
    float: "number",
    list: "array",
    dict: "object",
}
EXAMPLES: dict[str, Any] = {"string": "text", "integer": 1, "number": 0.5, "boolean": True, "array": [], "object": {}}
ORDINARY_HEADERS = (
    *("age", "alt-svc", "cache-control", "connection", "content-encoding", "content-length", "content-type"),
    *("content-security-policy", "date", "expires", "keep-alive", "pragma", "referrer-policy", "retry-after"),
    *("server", "strict-transport-security", "transfer-encoding", "vary", "via", "www-authenticate"),
    *("x-content-type-options", "x-frame-options", "x-xss-protection"),
)
"""Headers that any HTTP server or proxy may add."""
_MOMENT_FORM = "9999-99-99T99:99:99.999+9999"  # of the moments that the sandbox writes
_DATE_LIKE = re.compile(r"[0-9TZ :.,/+-]{8,40}")
_MIN_MILLISECONDS = 10**11  # a smaller number counts seconds, up to the year 5138
_LINE_CHARS = 76  # of base64 with line breaks (RFC 2045, section 6.8)


class Difference(msgspec.Struct, frozen=True, order=True):
    """A difference between a response and the document, or a form."""

    path: str
    """The place in the response: `$.messages[].uid`, `status`, `refusal status` or `header Date`."""
    what: str
    """The difference, without a value of the response."""

    @property
    def is_form(self) -> bool:
        """True for a form, which the document allows, False for a real difference."""
        return self.what.startswith(FORM)


class OperationReport(msgspec.Struct, frozen=True, kw_only=True):
    """The differences of one operation."""

    operation: str
    status: int | None = None
    """The HTTP status, or None without a response."""
    skipped: str | None = None
    """Why the operation was not called or has no result, or None."""
    differences: list[Difference] = []
    forms: list[Difference] = []


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The report of `directsuite doctor --deep`, with the version that wrote it."""

    directsuite: str = ""
    operations: list[OperationReport]


def name_type(value: object) -> str:
    """Return the name of a value's JSON type, such as "string" or "null"."""
    return _TYPES.get(type(value), "null")


def write_type(kind: str, value: Any) -> Any:
    """Return a value as the JSON type `kind`, or an example of that type if it cannot be converted.

    A single-element array of that type becomes the element; longer ones are unchanged. Of arrays, only empty ones
    become null.
    """
    if kind == "null" and name_type(value) == "array":
        return value or None
    if kind == "object" and value is None:  # was an empty array
        return None
    if name_type(value) == "array" and all(name_type(each) == kind for each in value):
        return value[0] if len(value) == 1 else value  # an element in place of an array of one
    if kind == "string":
        return value if isinstance(value, str) else json.dumps(value)
    if kind == "array":
        return [value]
    moment = _read_moment(value) if kind == "number" else None
    return moment.timestamp() if moment else EXAMPLES.get(kind)


def find_form(role: Role | None, value: object) -> str:
    """Return the name of a value's form, or "" without a form or if the sandbox writes this form by itself."""
    for name, form in _FORMS.items():
        if form.role == role and form.matches(value):
            return name
    is_text = role == "moment" and isinstance(value, str)
    return f"a moment as {mask_digits(value)}" if is_text and mask_digits(value) != _MOMENT_FORM else ""


def write_form(name: str, value: Any) -> Any:
    """Return a value of the sandbox in the form with this name, or unchanged if it cannot have that form."""
    return _FORMS[name].write(value) if name in _FORMS else write_moment(name.removeprefix("a moment as "), value)


def mask_digits(text: object) -> str:
    """Return a date with a 9 for each digit, the name of a form, or "no date in digits" for any other text."""
    masked = re.sub("[0-9]", "9", str(text)) if _DATE_LIKE.fullmatch(str(text)) else "no date in digits"
    return next((name for name, form in _TEXT_FORMS.items() if re.fullmatch(form[0], str(text))), masked)


def write_moment(mask: str, value: Any) -> Any:
    """Return a moment of the sandbox in the form that `mask_digits` returned, in UTC. Other values are unchanged.

    If the year is not at the start of the mask, the date is month, day, year.
    """
    moment = _read_moment(value)
    if moment is None:
        return value
    if mask in _TEXT_FORMS:
        return _TEXT_FORMS[mask][1](moment)
    date = f"{moment:%Y%m%d}" if mask.startswith("9999") else f"{moment:%m%d%Y}"
    fraction = re.search(r"\.(9+)", mask[10:])
    digits = iter(f"{date}{moment:%H%M%S}" + (f"{moment:%f}"[: len(fraction[1])] if fraction else ""))
    return re.sub("9", lambda _: next(digits, "0"), mask)


_TEXT_FORMS: Mapping[str, tuple[str, Callable[[datetime], str]]] = {
    "milliseconds since 1970 as text": (r"\d{13}", lambda moment: f"{moment.timestamp() * 1000:.0f}"),
    "seconds since 1970 as text": (r"\d{10}", lambda moment: f"{moment.timestamp():.0f}"),
    "EEE, dd MMM yyyy HH:mm:ss Z": (r"\w{3}, \d\d? \w{3} \d{4} [\d:]{8} [A-Z\d+-]{1,5}", format_datetime),
    "MMM d, yyyy h:mm:ss a": (r"\w{3} \d\d?, \d{4},? [\d:]{7,8}\s[AP]M", "{:%b %d, %Y %I:%M:%S %p}".format),
}
"""The forms of moments that a mask of digits does not describe: a pattern and a function that writes it."""


@dataclass(frozen=True)
class _Form:
    role: Role
    matches: Callable[[Any], bool]
    write: Callable[[Any], Any]


_FORMS: Mapping[str, _Form] = {
    "null for an empty array": _Form("array", lambda value: value is None, lambda value: value or None),
    "milliseconds since 1970": _Form(
        "moment",
        lambda value: isinstance(value, int) and abs(value) >= _MIN_MILLISECONDS,
        lambda value: _write_epoch(value, 1000),
    ),
    "seconds since 1970": _Form("moment", lambda value: isinstance(value, int), lambda value: _write_epoch(value, 1)),
    "base64 with line breaks": _Form(
        "base64",
        lambda value: isinstance(value, str) and len(value.split()) > 1,
        lambda value: re.sub(rf".{{{_LINE_CHARS}}}(?=.)", r"\g<0>\r\n", value) if isinstance(value, str) else value,
    ),
}
"""The forms by name. For a moment, `mask_digits` makes more."""


def _write_epoch(value: Any, units_per_second: int) -> Any:
    moment = _read_moment(value)
    return value if moment is None else int(moment.timestamp() * units_per_second)


def _read_moment(value: object) -> datetime | None:
    try:
        return datetime.strptime(str(value), "%Y-%m-%dT%H:%M:%S.%f%z")
    except ValueError:
        return None
