"""JSON text to plain values: whole, or where it is large with the elements of its arrays one after the other."""

from __future__ import annotations

import binascii
import re
import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import attrs
import msgspec
import pybase64

LARGE = 256 * 1024
"""Bytes from which on a document's elements are parsed one by one."""

BROKEN = "\N{REPLACEMENT CHARACTER}"
"""Stands in the place of a broken character."""

_VALUES = msgspec.json.Decoder()
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ELEMENTS = msgspec.json.Decoder(list[msgspec.Raw])
_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_SURROGATE = re.compile(
    r"\\u[dD](?:[89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?P<half>[89a-fA-F][0-9a-fA-F]{2}))"
)
"""An escaped half of a pair, or both; its first backslash may be escaped itself."""


class MismatchError(ValueError):
    """The one failure of the wire layer: a value that its field does not take, or bytes that are no JSON or base64.

    It never holds the value, which may be a patient's.
    """

    def __init__(self, expected: str, path: str = "$") -> None:
        super().__init__(f"{path} should be {expected}")
        self.expected = expected
        """What should be there."""
        self.path = path
        """The JSON path of the place, from `$`."""


class Elements:
    """The elements of a large array, parsed one at a time: all of them together would take as much again as the text.

    Iterating raises MismatchError where one is not JSON.
    """

    def __init__(self, text: msgspec.Raw) -> None:
        self._text = text

    def __iter__(self) -> Iterator[Any]:
        for element in _decoded(_ELEMENTS, self._text):
            yield parse(element)


def parse(document: bytes | bytearray | memoryview | msgspec.Raw) -> Any:
    """Plain Python values from a JSON document; MismatchError where it is not JSON.

    Broken characters in its texts read as BROKEN: any sender of one message could spoil the listing of all others.
    """
    return _decoded(_VALUES, document)


def parse_strictly(document: bytes) -> Any:
    """As `parse`, but MismatchError where a character is broken."""
    try:
        return _VALUES.decode(document)
    except _ERRORS:
        pass
    raise MismatchError("JSON")


def parse_in_parts(document: bytes, arrays: Collection[str]) -> Any:
    """As `parse`; of a large object the members `arrays`, where they are arrays, are given as `Elements`."""
    if len(document) < LARGE or not arrays or not document.lstrip().startswith(b"{"):
        return parse(document)
    members: dict[str, msgspec.Raw] = _decoded(_MEMBERS, document)
    return {
        name: Elements(text) if name in arrays and bytes(memoryview(text)[:1]) == b"[" else parse(text)
        for name, text in members.items()
    }


def _decoded(decoder: msgspec.json.Decoder[Any], text: bytes | bytearray | memoryview | msgspec.Raw) -> Any:
    try:
        return decoder.decode(text)
    except _ERRORS:
        pass
    try:
        return decoder.decode(_repaired(bytes(text)))
    except _ERRORS:
        pass
    raise MismatchError("JSON")


def _repaired(text: bytes) -> bytes:
    """The text with BROKEN for bytes that are no UTF-8, and for escaped surrogates without their other half."""
    return _SURROGATE.sub(_mended, text.decode("utf-8", "replace")).encode()


def _mended(found: re.Match[str]) -> str:
    before = found.start()
    while before and found.string[before - 1] == "\\":
        before -= 1
    if (found.start() - before) % 2 == 0:
        return BROKEN if found["half"] else found[0]
    return found[0] if found["half"] else found[0][: len(r"\ud83d")] + BROKEN  # what seems the first half is plain text


@attrs.frozen(eq=False)
class Shape:
    """Where objects of one kind have base64 text."""

    texts: frozenset[str]
    """The members that are base64 text."""
    lists: Mapping[str, Shape]
    """The members that list objects, and the shape of these."""


def parse_around(text: memoryview, strings: Sequence[tuple[int, int]], shape: Shape) -> Any:
    """As `parse`, but base64 text of the shape's is given decoded, from where it stands.

    strings: the places of long strings between their quotes. The parser looks at each character of a string, which
    takes ten times as long as decoding it does; so it gets a mark in its place.
    """
    mark = secrets.token_hex(16)
    decoded: dict[str, bytes] = {}
    short, at = bytearray(), 0
    for start, end in strings:
        try:
            content = pybase64.b64decode(text[start:end], validate=True)
        except (binascii.Error, ValueError):
            continue
        name = f"{mark}{len(decoded)}"
        decoded[name] = content
        short += text[at:start]
        short += name.encode()
        at = end
    short += text[at:]
    value = parse(short)
    _fill_in(value, shape, decoded)
    return parse(text) if decoded else value  # not all were the shape's: a long text that only looks like base64


def _fill_in(value: Any, shape: Shape, decoded: dict[str, bytes]) -> None:
    """Put what was decoded in the places of its marks, and take it out of `decoded`."""
    if not isinstance(value, dict):
        return
    members = cast("dict[str, Any]", value)
    for name in shape.texts & members.keys():
        mark = members[name]
        if isinstance(mark, str) and mark in decoded:
            members[name] = decoded.pop(mark)
    for name in shape.lists.keys() & members.keys():
        listed = members[name]
        for each in cast("Iterable[Any]", listed) if isinstance(listed, list) else (listed,):
            _fill_in(each, shape.lists[name], decoded)
