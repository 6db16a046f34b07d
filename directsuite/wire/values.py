"""How one JSON value becomes one Python value: a reader for each type that a model's field may have.

Real servers send digits as text for a number, a number for a text, a bare object for a list of one, and null or the
text "null" for nothing: all are read. Any other value raises a MismatchError, which says what was expected and where,
never what was there. The reader of the object around it decides whether the field's default is used instead.
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
from directsuite.wire.models import MAX_UID, NOTHING, TEXTS, OpenEnum, Uid, is_model
from directsuite.wire.parsing import BrokenText, Elements, MismatchError

Read = Callable[[Any], Any]

PAIR = frozenset({"key", "value"})
"""The members of an object that stands for one pair of a mapping."""

_DIGITS = re.compile(r"[+-]?\d{1,40}\Z")


def _is_list(value: Any) -> TypeGuard[list[Any]]:
    return type(value) is list


def _is_object(value: Any) -> TypeGuard[dict[str, Any]]:
    return type(value) is dict


Place = Union["Counter[str]", "tuple[Place, str]", type, None]
"""Where a value is: the report of its document, or the place of the value around it and the step to it.

A step is written as in a JSON path, without indices: `.messages[]`. None, or a class, if nobody asked for a report.
"""


class Document(dict[str, Any]):
    """A JSON object on its way through a converter, with its place."""

    __slots__ = ("place",)

    place: Place


def note(place: Place, step: str = "") -> None:
    """Count a value that could not be read, in the report of its document."""
    while isinstance(place, tuple):
        above, last = place
        place, step = above, last + step
    if isinstance(place, Counter):
        place[f"${step}"] += 1


class Leaf:
    """Reads a value without parts: `read(value)` returns it, or raises MismatchError."""

    def __init__(self, read: Read) -> None:
        self.read = read


class Nested(Protocol):
    """Reads a value with parts: `read(value, place)` counts those that are unreadable in the report of the place."""

    read: Callable[[Any, Place], Any]


Reader = Leaf | Nested


class Hook(Leaf):
    """A value that a hook of the program's own converter reads. What it raises may show the value, and is replaced."""

    def __init__(self, hook: Callable[[Any, Any], Any], kind: Any) -> None:
        def read(value: Any) -> Any:
            try:
                return hook(value, kind)
            except (MismatchError, MemoryError, RecursionError):
                raise
            except Exception:  # noqa: BLE001, S110  a hook may raise anything
                pass
            raise MismatchError("what the converter's hook takes")

        super().__init__(read)


class EnumReader(Leaf):
    """A member of an open enum."""

    def __init__(self, cls: type[OpenEnum]) -> None:
        self.members: dict[Any, OpenEnum] = dict(cls._value2member_map_.items())  # type: ignore[arg-type]  # cls's members
        super().__init__(functools.partial(read_member, cls))


class ExactLeaf(Leaf):
    """A text that later calls send or compare: broken UTF-8 in it is a mismatch."""

    def __init__(self, inner: Leaf) -> None:
        self.inner = inner
        read = inner.read

        def read_exactly(value: Any) -> Any:
            if isinstance(value, BrokenText):
                raise MismatchError("text without broken characters")
            return read(value)

        super().__init__(read_exactly)


class OptionalLeaf(Leaf):
    """A value of this type that may be null or absent, or the text "null" where that is no value of the type."""

    def __init__(self, inner: Leaf, kind: Any) -> None:
        self.inner = inner
        read = inner.read
        nothing = (None,) if kind in TEXTS else NOTHING
        super().__init__(lambda value: None if value in nothing else read(value))


class OptionalNested:
    """An object that may be null or absent, or the text "null"."""

    def __init__(self, inner: Nested) -> None:
        read = inner.read
        self.read: Callable[[Any, Place], Any] = lambda value, place: None if value in NOTHING else read(value, place)


class ObjectList:
    """A list of objects; nothing reads as an empty one, a bare element as a list of one.

    Elements that cannot be read are left out and counted. In a required list only null is.
    """

    def __init__(self, item: Reader, *, required: bool = False) -> None:
        self.item = item
        read = as_nested(item)

        def read_list(value: Any, place: Place) -> list[Any]:
            elements: list[Any] = []
            for number, element in enumerate(listed(value)):
                try:
                    elements.append(read(element, place))
                except MismatchError as mismatch:
                    if required and element is not None:
                        raise mismatch.below(f"[{number}]") from None
                    note(place)
            return elements

        self.read: Callable[[Any, Place], list[Any]] = read_list


class ScalarList:
    """A list of texts or numbers, which keeps its length: programs compare the positions of elements.

    A text that cannot be read becomes an empty one, and is counted. A number that cannot be read fails the list.
    exact: broken UTF-8 in a text fails the list too.
    """

    def __init__(self, item: Leaf, *, is_text: bool, exact: bool) -> None:
        read = item.read

        def read_list(value: Any, place: Place) -> list[Any]:
            elements: list[Any] = []
            for number, element in enumerate(listed(value)):
                try:
                    elements.append(read(element))
                except MismatchError as mismatch:
                    if not is_text or (exact and isinstance(element, BrokenText)):
                        raise mismatch.below(f"[{number}]") from None
                    note(place)
                    elements.append("")
            return elements

        self.read: Callable[[Any, Place], list[Any]] = read_list


def listed(value: Any) -> Iterable[Any]:
    """The elements of a list. Null is an empty one, and a bare value a list of one."""
    if _is_list(value) or isinstance(value, Elements):
        return value
    return () if value in NOTHING else (value,)


def as_nested(reader: Reader) -> Callable[[Any, Place], Any]:
    """The function of a reader, with the place as its second parameter."""
    if not isinstance(reader, Leaf):
        return reader.read
    read = reader.read
    return lambda value, _: read(value)


def reader_for(
    annotation: Any, of_converter: Callable[[Any], Reader | None], *, exact: bool = False, required: bool = False
) -> Reader:
    """The reader of a field annotated so.

    of_converter: gives the converter's reader for a type, which goes first. exact, required: of the field.
    """
    reader = of_converter(annotation)
    if reader is not None:
        return ExactLeaf(reader) if exact and isinstance(reader, Leaf) else reader
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (types.UnionType, Union):
        kinds = [kind for kind in arguments if kind is not type(None)]
        if set(kinds) == {date, str}:
            inner: Reader = _day_reader(_leaf(of_converter(date)), _leaf(of_converter(str)))
        elif len(kinds) == 1:
            inner = reader_for(kinds[0], of_converter, exact=exact)
        else:
            raise TypeError(f"no reader for {annotation}")
        if len(kinds) == len(arguments):
            return inner
        if isinstance(inner, Leaf):
            return OptionalLeaf(inner, kinds[0] if len(kinds) == 1 else date)
        return OptionalNested(inner)
    if origin is list:
        item = reader_for(arguments[0], of_converter, exact=exact)
        if is_model(arguments[0]):
            return ObjectList(item, required=required)
        return ScalarList(_leaf(item) or LEAVES[Any], is_text=arguments[0] is str, exact=exact)
    if origin is dict:
        texts = _leaf(of_converter(str))
        return Leaf(read_pairs if texts is None else lambda value: _each(read_pairs(value), texts.read))
    if isinstance(annotation, type) and issubclass(annotation, OpenEnum):
        return EnumReader(annotation)
    leaf = LEAVES[annotation]
    return ExactLeaf(leaf) if exact else leaf


def _leaf(reader: Reader | None) -> Leaf | None:
    return reader if isinstance(reader, Leaf) else None


def _each(pairs: dict[str, str], read: Read) -> dict[str, Any]:
    return {key: read(value) for key, value in pairs.items()}


def _day_reader(days: Leaf | None, texts: Leaf | None) -> Leaf:
    """A day, or any other text; the converter may have hooks for each of them."""

    def read(value: Any) -> Any:
        day = read_day(read_text(value))
        own = days if isinstance(day, date) else texts
        return day if own is None else own.read(value)

    return Leaf(read)


def read_text(value: Any) -> str:
    """Return the text, or the digits of a number."""
    if type(value) is str:
        return value
    if isinstance(value, str):
        return str(value)
    if type(value) in (int, float):
        try:
            return msgspec.json.encode(value).decode()
        except ValueError:  # more digits than Python writes
            pass
    raise MismatchError("text")


def read_int(value: Any) -> int:
    """A whole number, or its digits as text."""
    if type(value) is int:
        return value
    if type(value) is str and _DIGITS.match(value):
        return int(value)
    if type(value) is float and value.is_integer():
        return int(value)
    raise MismatchError("a whole number")


def read_uid(value: Any) -> int:
    """A message's number, which a later call takes."""
    uid = read_int(value)
    if 0 <= uid <= MAX_UID:
        return uid
    raise MismatchError("a uid: a whole number of 63 bits, not negative")


def read_float(value: Any) -> float:
    """A number, or its digits as text."""
    if type(value) in (int, float) or type(value) is str:
        try:
            number = float(value)
        except (ValueError, OverflowError):
            number = math.nan
        if math.isfinite(number) and not (type(value) is str and "_" in value):
            return number
    raise MismatchError("a number")


def read_bool(value: Any) -> bool:
    """true or false, also as text."""
    if value is True or value is False:
        return bool(value)
    if type(value) is str and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise MismatchError("true or false")


def read_bytes(value: Any) -> bytes:
    """The bytes behind base64 text; bytes are such as were decoded while they were parsed."""
    if type(value) is bytes:
        return value
    if type(value) is str:
        return base64.decode(value)
    raise MismatchError("base64 text")


def read_secret(value: Any) -> Secret:
    """Text that no repr shows from here on."""
    return Secret(read_text(value))


def read_pairs(value: Any) -> dict[str, str]:
    """A mapping of texts: an object, or a list of objects with `key` and `value`, or a single one of these."""
    if value in NOTHING:
        return {}
    if _is_object(value) and value.keys() != PAIR:
        return {key: _as_text(member) for key, member in value.items()}
    pairs: list[Any] = value if _is_list(value) else [value]
    if all(_is_object(pair) and "key" in pair for pair in pairs):
        return {_as_text(pair["key"]): _as_text(pair.get("value")) for pair in pairs}
    raise MismatchError("an object, or a list of key and value")


def write_pairs(pairs: dict[str, str]) -> dict[str, str] | list[dict[str, str]]:
    """An object; a list of pairs where the object would read as a single pair."""
    if pairs.keys() == PAIR:
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
    raise MismatchError("a text")


def read_member(cls: type[OpenEnum], value: Any) -> OpenEnum:
    """A member of an open enum."""
    return cls(read_text(value))


LEAVES: dict[Any, Leaf] = {
    str: Leaf(read_text),
    int: Leaf(read_int),
    Uid: Leaf(read_uid),
    float: Leaf(read_float),
    bool: Leaf(read_bool),
    bytes: Leaf(read_bytes),
    datetime: Leaf(read_datetime),
    Secret: Leaf(read_secret),
    Any: Leaf(lambda value: value),
}
