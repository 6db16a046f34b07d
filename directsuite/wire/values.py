"""How one JSON value becomes one Python value: a reader for each type that a model's field may have.

Tolerant where real servers are: digits as text for a number, a bare object for a list of one, null or the text
"null" for nothing. Strict otherwise, with a MismatchError that says what was wanted and where, never what was there.
"""

from __future__ import annotations

import functools
import math
import re
import threading
import types
from collections.abc import Callable
from datetime import date, datetime
from typing import Any, Protocol, TypeGuard, Union, get_args, get_origin

import msgspec

from directsuite.secret import Secret
from directsuite.wire import base64
from directsuite.wire.dates import read_datetime, read_day
from directsuite.wire.models import MAX_UID, NOTHING, TEXTS, OpenEnum, Uid, is_nothing
from directsuite.wire.parsing import Elements, MismatchError

Read = Callable[[Any], Any]

PAIR = frozenset({"key", "value"})
"""The members of an object that stands for one pair of a mapping."""

_DIGITS = re.compile(r"[+-]?\d{1,40}\Z")


def _is_list(value: Any) -> TypeGuard[list[Any]]:
    return type(value) is list


def _is_object(value: Any) -> TypeGuard[dict[str, Any]]:
    return type(value) is dict


class Reader(Protocol):
    """Reads a value of one type, and finds the first wrong place in one that it can't read."""

    read: Read

    def find(self, value: Any, path: str) -> MismatchError | None:
        """The mismatch in `value` with its JSON path, or None where it reads well."""
        ...


class Leaf:
    """A value without parts."""

    def __init__(self, read: Read) -> None:
        self.read = read

    def find(self, value: Any, path: str) -> MismatchError | None:
        """The mismatch in `value` with its JSON path, or None where it reads well."""
        try:
            self.read(value)
        except MismatchError as mismatch:
            return MismatchError(mismatch.expected, path + mismatch.path[1:])
        return None


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


class Maybe:
    """A value of this type that may be null or absent, or the text "null" where that is no value of the type."""

    def __init__(self, inner: Reader, kind: Any) -> None:
        self.inner = inner
        self.kind = kind
        read = inner.read
        nothing = (None,) if kind in TEXTS else NOTHING
        self.read: Read = lambda value: None if value in nothing else read(value)

    def find(self, value: Any, path: str) -> MismatchError | None:
        """The mismatch in `value` with its JSON path, or None where it reads well."""
        return None if is_nothing(value, self.kind) else self.inner.find(value, path)


class _Skipped(threading.local):
    """How many elements of lists this thread has passed over, since they were null."""

    count = 0


SKIPPED = _Skipped()


def count_skipped(elements: int) -> None:
    """Note that so many elements of a list were null."""
    SKIPPED.count += elements


class Sequence:
    """A list; nothing reads as an empty one, a bare element as a list of one. Null elements are passed over."""

    def __init__(self, item: Reader) -> None:
        self.item = item
        read = item.read

        def read_list(value: Any) -> list[Any]:
            if not (_is_list(value) or isinstance(value, Elements)):
                return [] if value in NOTHING else [read(value)]
            elements: list[Any] = []
            for element in value:
                if element is None:
                    count_skipped(1)
                else:
                    elements.append(read(element))
            return elements

        self.read: Read = read_list

    def find(self, value: Any, path: str) -> MismatchError | None:
        """The mismatch in `value` with its JSON path, or None where it reads well."""
        if value in NOTHING:
            return None
        if not (_is_list(value) or isinstance(value, Elements)):
            return self.item.find(value, path)
        mismatches = (self.item.find(element, f"{path}[{i}]") for i, element in enumerate(value) if element is not None)
        return next((mismatch for mismatch in mismatches if mismatch is not None), None)


def reader_for(annotation: Any, of_converter: Callable[[Any], Reader | None]) -> Reader:
    """The reader of a field annotated so. of_converter: gives the converter's reader for a type, which goes first."""
    reader = of_converter(annotation)
    if reader is not None:
        return reader
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (types.UnionType, Union):
        kinds = [kind for kind in arguments if kind is not type(None)]
        if set(kinds) == {date, str}:
            inner: Reader = _day_reader(of_converter(date), of_converter(str))
        elif len(kinds) == 1:
            inner = reader_for(kinds[0], of_converter)
        else:
            raise TypeError(f"no reader for {annotation}")
        if len(kinds) == len(arguments):
            return inner
        return Maybe(inner, kinds[0] if len(kinds) == 1 else date)
    if origin is list:
        return Sequence(reader_for(arguments[0], of_converter))
    if origin is dict:
        texts = of_converter(str)
        return Leaf(read_pairs if texts is None else lambda value: _each(read_pairs(value), texts.read))
    if isinstance(annotation, type) and issubclass(annotation, OpenEnum):
        return EnumReader(annotation)
    return LEAVES[annotation]


def _each(pairs: dict[str, str], read: Read) -> dict[str, Any]:
    return {key: read(value) for key, value in pairs.items()}


def _day_reader(days: Reader | None, texts: Reader | None) -> Reader:
    """A day, or any other text; the converter may have hooks for each of them."""

    def read(value: Any) -> Any:
        day = read_day(value)
        own = days if isinstance(day, date) else texts
        return day if own is None else own.read(value)

    return Leaf(read)


def read_text(value: Any) -> str:
    """Text, as it is."""
    if type(value) is str:
        return value
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
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def read_member(cls: type[OpenEnum], value: Any) -> OpenEnum:
    """A member of an open enum."""
    return cls(read_text(value))


LEAVES: dict[Any, Reader] = {
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
