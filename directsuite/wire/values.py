"""Readers that convert one JSON value to one Python value, for each type that a model's field can have.

Real servers send a text of digits for a number, a number for a text, a single object for a list with one element, and
null or the text "null" for no value. The readers accept all of these. For any other value they raise MismatchError.
The reader of the enclosing object then decides whether to use the field's default.

A *scalar* reader reads a value without parts, such as a number. A *nested* reader reads objects and lists. It skips
unreadable parts and counts them in a *report*, a Counter that maps JSON paths to numbers. A *hook* is a function
that a user of this package has registered with a cattrs converter.
"""

from __future__ import annotations

import functools
import math
import re
import types
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import date, datetime
from typing import Any, Protocol, TypeGuard, Union, get_args, get_origin

import msgspec

from directsuite.secret import Secret
from directsuite.wire import base64
from directsuite.wire.dates import read_datetime, read_day
from directsuite.wire.models import MAX_UID, NULL_VALUES, TEXT_TYPES, OpenEnum, Uid, is_model
from directsuite.wire.parsing import BrokenText, Elements, MismatchError

Read = Callable[[Any], Any]

PAIR_MEMBERS = frozenset({"key", "value"})
"""The member names of an object that is one entry of a mapping."""

_DIGITS = re.compile(r"[+-]?\d{1,40}\Z")


def _is_list(value: Any) -> TypeGuard[list[Any]]:
    return type(value) is list


def _is_object(value: Any) -> TypeGuard[dict[str, Any]]:
    return type(value) is dict


Place = Union["Counter[str]", "tuple[Place, str]", type, None]
"""The position of a value, used to count unreadable values.

For a document it is the report. For a value inside, it is a tuple: the place of the enclosing value, and the step from
there, a part of a JSON path without indices, such as `.messages[]`. None, or a class (which cattrs passes), means that
values are not counted.
"""


class Document(dict[str, Any]):
    """A JSON object that carries its place through a cattrs converter, which has no argument for it."""

    __slots__ = ("place",)

    place: Place


def count_unreadable(place: Place, step: str = "") -> None:
    """Count an unreadable value in the report of its document, if any."""
    while isinstance(place, tuple):
        above, last = place
        place, step = above, last + step
    if isinstance(place, Counter):
        place[f"${step}"] += 1


class Scalar:
    """Reads a value without parts. `read(value)` returns the Python value or raises MismatchError."""

    def __init__(self, read: Read) -> None:
        self.read = read


class Nested(Protocol):
    """Reads a value with parts. `read(value, place)` counts unreadable parts in the report."""

    read: Callable[[Any, Place], Any]


Reader = Scalar | Nested


class Hook(Scalar):
    """Reads a value with a hook. Exceptions of the hook, which may show the value, become MismatchError."""

    def __init__(self, hook: Callable[[Any, Any], Any], kind: Any) -> None:
        def read(value: Any) -> Any:
            try:
                return hook(value, kind)
            except (MismatchError, MemoryError, RecursionError):
                raise
            except Exception:  # noqa: BLE001, S110  a hook may raise anything
                pass
            raise MismatchError("a value that the converter's hook accepts")

        super().__init__(read)


class EnumReader(Scalar):
    """Reads a member of an open enum."""

    def __init__(self, cls: type[OpenEnum]) -> None:
        self.members: dict[Any, OpenEnum] = dict(cls._value2member_map_.items())  # type: ignore[arg-type]  # cls's members
        super().__init__(functools.partial(read_member, cls))


class ExactScalar(Scalar):
    """Reads a text that later calls send or compare. Raises MismatchError if the text had broken UTF-8."""

    def __init__(self, inner: Scalar) -> None:
        self.inner = inner
        read = inner.read

        def read_exactly(value: Any) -> Any:
            if isinstance(value, BrokenText):
                raise MismatchError("text without broken characters")
            return read(value)

        super().__init__(read_exactly)


class OptionalScalar(Scalar):
    """Reads a value that may be null or absent. "null" also means None, unless the type is in TEXT_TYPES."""

    def __init__(self, inner: Scalar, kind: Any) -> None:
        self.inner = inner
        read = inner.read
        nothing = (None,) if kind in TEXT_TYPES else NULL_VALUES
        super().__init__(lambda value: None if value in nothing else read(value))


class OptionalNested:
    """Reads an object or list. null, "null" and no value become None."""

    def __init__(self, inner: Nested) -> None:
        read = inner.read
        self.read: Callable[[Any, Place], Any] = lambda value, place: (
            None if value in NULL_VALUES else read(value, place)
        )


class ObjectList:
    """Reads a list of objects. No value means an empty list, and a single object a list with one element.

    Unreadable elements are skipped and counted. In a required list only null is skipped; others raise MismatchError.
    """

    def __init__(self, item: Reader, *, required: bool = False) -> None:
        self.item = item
        read = as_nested(item)

        def read_list(value: Any, place: Place) -> list[Any]:
            elements: list[Any] = []
            for number, element in enumerate(as_elements(value)):
                try:
                    elements.append(read(element, place))
                except MismatchError as mismatch:
                    if required and element is not None:
                        raise mismatch.prepend_step(f"[{number}]") from None
                    count_unreadable(place)
            return elements

        self.read: Callable[[Any, Place], list[Any]] = read_list


class ScalarList:
    """Reads a list of texts or numbers without skipping elements, because programs rely on their positions.

    An unreadable text becomes an empty text and is counted. An unreadable number raises MismatchError.

    is_text: True if the elements are texts.
    exact: True if a text with broken UTF-8 also raises MismatchError.
    """

    def __init__(self, item: Scalar, *, is_text: bool, exact: bool) -> None:
        read = item.read

        def read_list(value: Any, place: Place) -> list[Any]:
            elements: list[Any] = []
            for number, element in enumerate(as_elements(value)):
                try:
                    elements.append(read(element))
                except MismatchError as mismatch:
                    if not is_text or (exact and isinstance(element, BrokenText)):
                        raise mismatch.prepend_step(f"[{number}]") from None
                    count_unreadable(place)
                    elements.append("")
            return elements

        self.read: Callable[[Any, Place], list[Any]] = read_list


def as_elements(value: Any) -> Iterable[Any]:
    """Return the elements of a list: none for null or "null", and the value itself if it is not a list."""
    if _is_list(value) or isinstance(value, Elements):
        return value
    return () if value in NULL_VALUES else (value,)


def as_nested(reader: Reader) -> Callable[[Any, Place], Any]:
    """Return a function that reads a value and its place. A scalar reader ignores the place."""
    if not isinstance(reader, Scalar):
        return reader.read
    read = reader.read
    return lambda value, _: read(value)


def reader_for(
    annotation: Any,
    find_converter_reader: Callable[[Any], Reader | None],
    *,
    exact: bool = False,
    required: bool = False,
) -> Reader:
    """Return the reader for a field with this annotation.

    find_converter_reader: returns the converter's reader for a type, which takes precedence, or None.
    exact: True if a text with broken UTF-8 is unreadable.
    required: True if the field is required.

    Raises TypeError for a union of several types, except date and str, and KeyError for a type without reader.
    """
    reader = find_converter_reader(annotation)
    if reader is not None:
        return ExactScalar(reader) if exact and isinstance(reader, Scalar) else reader
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (types.UnionType, Union):
        kinds = [kind for kind in arguments if kind is not type(None)]
        if set(kinds) == {date, str}:
            inner: Reader = _make_day_reader(
                _as_scalar(find_converter_reader(date)), _as_scalar(find_converter_reader(str))
            )
        elif len(kinds) == 1:
            inner = reader_for(kinds[0], find_converter_reader, exact=exact)
        else:
            raise TypeError(f"no reader for {annotation}")
        if len(kinds) == len(arguments):
            return inner
        if isinstance(inner, Scalar):
            return OptionalScalar(inner, kinds[0] if len(kinds) == 1 else date)
        return OptionalNested(inner)
    if origin is list:
        item = reader_for(arguments[0], find_converter_reader, exact=exact)
        if is_model(arguments[0]):
            return ObjectList(item, required=required)
        return ScalarList(_as_scalar(item) or SCALARS[Any], is_text=arguments[0] is str, exact=exact)
    if origin is dict:
        texts = _as_scalar(find_converter_reader(str))
        return Scalar(read_pairs if texts is None else lambda value: _map_values(read_pairs(value), texts.read))
    if isinstance(annotation, type) and issubclass(annotation, OpenEnum):
        return EnumReader(annotation)
    scalar = SCALARS[annotation]
    return ExactScalar(scalar) if exact else scalar


def _as_scalar(reader: Reader | None) -> Scalar | None:
    return reader if isinstance(reader, Scalar) else None


def _map_values(pairs: dict[str, str], read: Read) -> dict[str, Any]:
    return {key: read(value) for key, value in pairs.items()}


def _make_day_reader(days: Scalar | None, texts: Scalar | None) -> Scalar:
    """Return a reader that reads a day as a date, and leaves any other text unchanged.

    days, texts: the converter's hook for each of the two types, or None.
    """

    def read(value: Any) -> Any:
        day = read_day(read_text(value))
        hook = days if isinstance(day, date) else texts
        return day if hook is None else hook.read(value)

    return Scalar(read)


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


def read_secret(value: Any) -> Secret:
    """Return a text, or the text of a number, as a Secret. Raise MismatchError for any other value."""
    return Secret(read_text(value))


def read_pairs(value: Any) -> dict[str, str]:
    """Return a mapping of texts.

    It is read from an object, a list of objects with the members `key` and `value`, or one such object. A missing
    `value` becomes an empty text. null and "null" become an empty mapping. Any other value raises MismatchError.
    """
    if value in NULL_VALUES:
        return {}
    if _is_object(value) and value.keys() != PAIR_MEMBERS:
        return {key: _as_text(member) for key, member in value.items()}
    pairs: list[Any] = value if _is_list(value) else [value]
    if all(_is_object(pair) and "key" in pair for pair in pairs):
        return {_as_text(pair["key"]): _as_text(pair.get("value")) for pair in pairs}
    raise MismatchError("an object, or a list of key and value")


def write_pairs(pairs: dict[str, str]) -> dict[str, str] | list[dict[str, str]]:
    """Return the JSON form of a mapping.

    A mapping with exactly the keys `key` and `value` becomes a list of pairs, because `read_pairs` would read it as one
    pair.
    """
    if pairs.keys() == PAIR_MEMBERS:
        return [{"key": key, "value": value} for key, value in pairs.items()]
    return pairs


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
    return cls(read_text(value))


SCALARS: dict[Any, Scalar] = {
    str: Scalar(read_text),
    int: Scalar(read_int),
    Uid: Scalar(read_uid),
    float: Scalar(read_float),
    bool: Scalar(read_bool),
    bytes: Scalar(read_bytes),
    datetime: Scalar(read_datetime),
    Secret: Scalar(read_secret),
    Any: Scalar(lambda value: value),
}
