"""Readers: functions that convert a JSON value to a Python value, one for each type of a model's field.

Real servers send a text of digits for a number, a number for a text, a single object for a list with one element, and
null or the text "null" for no value. The readers accept all of these. For any other value they raise MismatchError.
The reader of the enclosing object then decides whether to use the field's default.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from datetime import date, datetime
from typing import Any, Union, cast

import attrs
import msgspec

from directsuite.wire import base64
from directsuite.wire.dates import read_datetime, read_day
from directsuite.wire.models import MAX_UID, NULL_VALUES, OpenEnum, Uid
from directsuite.wire.parsing import BrokenText, MismatchError

PAIR_MEMBERS = frozenset({"key", "value"})
"""The member names of an object that is one entry of a mapping."""

_DIGITS = re.compile(r"[+-]?\d{1,40}\Z")

Report = dict[str, int]
"""The number of unreadable values of a document, by JSON path."""
Place = Union["tuple[Place, str]", Report, None]
"""The position of a value, used to count unreadable values.

For a document it is a report, or None. For a value inside, it is a tuple: the place
of the enclosing value, and the step from there, a part of a JSON path without indices, such as `.messages[]`.
"""


def count_unreadable(place: Place, step: str = "") -> None:
    """Count an unreadable value in the report of its document, if any."""
    while isinstance(place, tuple):
        above, last = place
        place, step = above, last + step
    if place is not None:
        place[f"${step}"] = place.get(f"${step}", 0) + 1


@attrs.frozen
class ReadElements:
    """The elements of a list of objects that have been read already, in the place of the list's JSON value."""

    elements: list[Any]


def make_object_list_reader(read: Callable[[Any, Place], Any]) -> Callable[[Any, Place], list[Any]]:
    """Return a reader for lists of objects, which skips and counts unreadable elements. read: reads one object."""

    def read_list(value: Any, place: Place) -> list[Any]:
        if value.__class__ is not list:  # calls are slow
            if value.__class__ is ReadElements:
                return value.elements
            value = _as_elements(value)
        elements: list[Any] = []
        for element in value:
            try:
                elements.append(read(element, place))
            except MismatchError:
                count_unreadable(place)
        return elements

    return read_list


def make_scalar_list_reader(
    read: Callable[[Any], Any], *, is_text: bool, exact: bool
) -> Callable[[Any, Place], list[Any]]:
    """Return a reader for lists of texts or numbers, which skips no elements, because programs rely on their positions.

    An unreadable text becomes an empty text and is counted. An unreadable number raises MismatchError.

    exact: True if a text with broken UTF-8 also raises MismatchError.
    """

    def read_list(value: Any, place: Place) -> list[Any]:
        elements: list[Any] = []
        for number, element in enumerate(_as_elements(value)):
            try:
                elements.append(read(element))
            except MismatchError as mismatch:
                if not is_text or (exact and isinstance(element, BrokenText)):
                    raise mismatch.prepend_step(f"[{number}]") from None
                count_unreadable(place)
                elements.append("")
        return elements

    return read_list


def _as_elements(value: Any) -> Iterable[Any]:
    if type(value) is list:
        return cast("Iterable[Any]", value)
    return () if value in NULL_VALUES else (value,)


def make_exact_reader(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a reader that also rejects texts with broken UTF-8."""

    def read_exactly(value: Any) -> Any:
        if isinstance(value, BrokenText):
            raise MismatchError("text without broken characters")
        return read(value)

    return read_exactly


def read_text(value: Any) -> str:
    """Return a text unchanged, and a number as its JSON text. Raise MismatchError for any other value."""
    if type(value) is str:
        return value
    if isinstance(value, str):
        return str(value)
    if type(value) in (int, float):
        try:
            return msgspec.json.encode(value).decode()
        except ValueError:  # the int has too many digits
            pass
    raise MismatchError("text")


def read_int(value: Any) -> int:
    """Return an int from a whole number or a text of at most 40 digits. Raise MismatchError for any other value."""
    if type(value) is int:
        return value
    if type(value) is str and _DIGITS.match(value):
        return int(value)
    if type(value) is float and value.is_integer():
        return int(value)
    raise MismatchError("a whole number")


def read_uid(value: Any) -> int:
    """Return a message's number. Raise MismatchError unless `read_int` reads it and it is from 0 to MAX_UID."""
    uid = read_int(value)
    if 0 <= uid <= MAX_UID:
        return uid
    raise MismatchError("a uid: a whole number of 63 bits, not negative")


def read_float(value: Any) -> float:
    """Return a float from a finite number or its text. Raise MismatchError for any other value."""
    if type(value) in (int, float) or type(value) is str:
        try:
            number = float(value)
        except (ValueError, OverflowError):
            number = math.nan
        if math.isfinite(number) and not (type(value) is str and "_" in value):
            return number
    raise MismatchError("a number")


def read_bool(value: Any) -> bool:
    """Return a bool from true, false, "true" or "false" (in any case). Raise MismatchError for any other value."""
    if value is True or value is False:
        return bool(value)
    if type(value) is str and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise MismatchError("true or false")


def read_bytes(value: Any) -> bytes:
    """Decode base64 text, or return bytes unchanged. Raise MismatchError for any other value."""
    if type(value) is bytes:
        return value
    if type(value) is str:
        return base64.decode(value)
    raise MismatchError("base64 text")


def read_pairs(value: Any) -> dict[str, str]:
    """Return a mapping of texts.

    It is read from an object, a list of objects with the members `key` and `value`, or one such object. A missing
    `value` becomes an empty text. null and "null" become an empty mapping. Any other value raises MismatchError.
    """
    if value in NULL_VALUES:
        return {}
    if isinstance(value, dict) and value.keys() != PAIR_MEMBERS:
        return {key: _as_text(member) for key, member in cast("dict[str, Any]", value).items()}
    pairs = list(_as_elements(value))
    if all(isinstance(pair, dict) and "key" in pair for pair in pairs):
        return {_as_text(pair["key"]): _as_text(pair.get("value")) for pair in pairs}
    raise MismatchError("an object, or a list of key and value")


def _as_text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return str(value)
    try:
        return msgspec.json.encode(value, enc_hook=str).decode()
    except (ValueError, RecursionError):
        pass
    raise MismatchError("a string")


def read_member(cls: type[OpenEnum], value: Any) -> OpenEnum:
    """Return the enum's member for a text, or for a number's text. Raise MismatchError for any other value."""
    if value in NULL_VALUES:
        raise MismatchError("text")
    return cls(read_text(value))


def read_day_or_text(value: Any) -> date | str:
    """Return a date from a text in the form `yyyy-MM-dd`, and other texts unchanged.

    Raises MismatchError for "null", and if the value is neither a text nor a number.
    """
    if value in NULL_VALUES:
        raise MismatchError("text")
    return read_day(read_text(value))


READERS: dict[Any, Callable[[Any], Any]] = {
    str: read_text,
    int: read_int,
    Uid: read_uid,
    float: read_float,
    bool: read_bool,
    bytes: read_bytes,
    date: read_day_or_text,
    datetime: read_datetime,
    dict: read_pairs,
}
