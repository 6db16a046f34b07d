"""Parsers that turn JSON text into plain Python values: completely, lazily for large arrays, or while it is received.

{"success": true, "messages": [ {...}, {...}, ... ], "code": 0}
                                └─ ArraySplitter.feed() yields each element as soon as it is complete
"""

from __future__ import annotations

import binascii
import json
import math
import re
import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum, auto
from typing import Any, cast

import attrs
import msgspec
import pybase64

MIN_LAZY_BYTES = 256 * 1024
"""Size from which documents are parsed element by element."""

REPLACEMENT_CHAR = "\N{REPLACEMENT CHARACTER}"
"""Replaces a broken character."""

_VALUE_DECODER = msgspec.json.Decoder()
_MEMBERS_DECODER = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ELEMENTS_DECODER = msgspec.json.Decoder(list[msgspec.Raw])
_DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_SURROGATE = re.compile("[\ud800-\udfff]")
_NON_BYTE_SURROGATE = re.compile("[\ud800-\udc7f\udd00-\udfff]")
"""Surrogates that `surrogateescape` does not use for bytes."""

_SPACE = re.compile(rb"[ \t\r\n]*+")
_ELEMENT_SEPARATOR = re.compile(rb'\}[ \t\r\n]*+,[ \t\r\n]*+\{[ \t\r\n]*+"[^"\\]{1,64}+"')
"""The end of an object, and the start of the next one up to its first member name."""

_PLAIN_CHARS = rb'[^"{}\[\]]*+'
_SHORT_STRING = rb'"[^"\\]{0,256}+(?:\\.[^"\\]{0,256}+)*+"'  # for longer strings, searching for the end is faster
_INNERMOST_BRACKETS = rb"[{\[]%b(?:%b%b)*+[}\]]" % (_PLAIN_CHARS, _SHORT_STRING, _PLAIN_CHARS)
_BALANCED_TEXT = re.compile(
    rb"%b(?:(?>%b|%b)%b)*+" % (_PLAIN_CHARS, _SHORT_STRING, _INNERMOST_BRACKETS, _PLAIN_CHARS), re.DOTALL
)
"""Text inside brackets, up to the first short string or innermost bracket that is not closed."""
_TEXT_BEFORE_DELIMITER = re.compile(rb'[^"{}\[\],:]*+')

_QUOTE, _BACKSLASH, _COMMA, _COLON, _OPEN_BRACE, _OPEN_BRACKET = b'"\\,:{['

_MIN_LONG_STRING_BYTES = 65_536
"""Size from which strings are recorded, and after which the separator is not guessed."""


class MismatchError(ValueError):
    """Value that does not match its field, or bytes that are not JSON or base64: the only error of the wire layer.

    It never contains the value, which may be patient data.
    """

    def __init__(self, expected: str, path: str = "$") -> None:
        super().__init__(f"{path} should be {expected}")
        self.expected = expected
        """The expected kind of value."""
        self.path = path
        """The JSON path of the value, from `$`."""

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.expected, self.path), self.__dict__

    def prepend_step(self, step: str) -> MismatchError:
        """Return the error for the enclosing value. step: the path from there to this value, such as `.uids`."""
        return MismatchError(self.expected, f"${step}{self.path[1:]}")


class BrokenText(str):
    """A text that contained invalid UTF-8 or half of a surrogate pair, replaced by REPLACEMENT_CHAR."""

    __slots__ = ()


class Elements:
    """The elements of a large array, parsed one at a time. Iterating raises MismatchError if one is not JSON."""

    def __init__(self, text: msgspec.Raw) -> None:
        self._text = text

    def __iter__(self) -> Iterator[Any]:
        try:
            elements = _ELEMENTS_DECODER.decode(self._text)
        except _DECODE_ERRORS:
            elements = None
        yield from parse(self._text) if elements is None else map(parse, elements)


def parse(document: bytes | bytearray | memoryview | msgspec.Raw) -> Any:
    """Parse a JSON document. Raises MismatchError if it is not JSON.

    A text with broken characters becomes a BrokenText. A number that is too large for Python becomes the text of its
    digits.
    """
    if isinstance(document, bytes):
        document = strip_byte_order_mark(document)
    try:
        return _VALUE_DECODER.decode(document)
    except _DECODE_ERRORS:
        pass
    try:
        return _parse_leniently(bytes(document))
    except (ValueError, RecursionError):
        pass
    raise MismatchError("JSON")


def parse_strictly(document: bytes) -> Any:
    """Parse a JSON document. Raises MismatchError if it is not JSON, or has broken characters or too large numbers."""
    try:
        return _VALUE_DECODER.decode(strip_byte_order_mark(document))
    except _DECODE_ERRORS:
        pass
    raise MismatchError("JSON")


def parse_in_parts(document: bytes, arrays: Collection[str]) -> Any:
    """Parse a JSON document as `parse` does, but return the named arrays of a large object as `Elements`.

    An element that is not JSON may raise MismatchError only when the array is iterated.
    """
    document = strip_byte_order_mark(document)
    if len(document) < MIN_LAZY_BYTES or not arrays or not document.lstrip().startswith(b"{"):
        return parse(document)
    try:
        members = _MEMBERS_DECODER.decode(document)
    except _DECODE_ERRORS:
        return parse(document)
    return {
        name: Elements(text) if name in arrays and bytes(memoryview(text)[:1]) == b"[" else parse(text)
        for name, text in members.items()
    }


def strip_byte_order_mark(document: bytes) -> bytes:
    """Return the document without the byte order mark that some servers add (RFC 8259, 8.1)."""
    return document.removeprefix(BYTE_ORDER_MARK)


def _parse_leniently(document: bytes) -> Any:
    """Parse a document with broken characters or too large numbers. Raises ValueError or RecursionError."""
    text = document.decode("utf-8", "surrogateescape")
    value: Any = json.loads(text, parse_int=_read_int, parse_float=_read_float, parse_constant=_reject_constant)
    if isinstance(value, str):
        return _wrap_broken_text(value)
    containers = [value]
    while containers:
        container = containers.pop()
        if isinstance(container, dict):
            object_ = cast("dict[str, Any]", container)
            members = [(_replace_broken_chars(name), _wrap_broken_text(member)) for name, member in object_.items()]
            object_.clear()
            object_.update(members)
            containers += object_.values()
        elif isinstance(container, list):
            array = cast("list[object]", container)
            array[:] = map(_wrap_broken_text, array)
            containers += array
    return value


def _wrap_broken_text(value: Any) -> Any:
    return BrokenText(_replace_broken_chars(value)) if isinstance(value, str) and _SURROGATE.search(value) else value


def _replace_broken_chars(text: str) -> str:
    return _NON_BYTE_SURROGATE.sub(REPLACEMENT_CHAR, text).encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _read_int(digits: str) -> int | str:
    try:
        return int(digits)
    except ValueError:  # exceeds the digit limit of Python
        return digits


def _read_float(digits: str) -> float | str:
    number = float(digits)
    return number if math.isfinite(number) else digits


def _reject_constant(name: str) -> Any:
    raise ValueError(name)


@attrs.frozen(eq=False)
class Shape:
    """The places of base64 text in objects of one kind."""

    texts: frozenset[str]
    """The names of members with base64 text."""
    lists: Mapping[str, Shape]
    """The names of members with lists of objects, and the shape of those objects."""


def parse_and_decode_base64(text: memoryview, strings: Sequence[tuple[int, int]], shape: Shape) -> Any:
    """Parse a JSON document. At the places of the shape, return bytes decoded from base64 instead of long texts.

    If a long string at another place is also valid base64, nothing is decoded. Raises MismatchError if the document is
    not JSON.

    The parser gets placeholders for long strings, because it is ten times slower than decoding.

    strings: the start and end of each long string, without its quotes.
    """
    prefix = secrets.token_hex(16)
    decoded: dict[str, bytes] = {}
    short, at = bytearray(), 0
    for start, end in strings:
        try:
            content = pybase64.b64decode(text[start:end], validate=True)
        except (binascii.Error, ValueError):
            continue
        name = f"{prefix}{len(decoded)}"
        decoded[name] = content
        short += text[at:start]
        short += name.encode()
        at = end
    short += text[at:]
    value = parse(short)
    _insert_decoded(value, shape, decoded)
    return parse(text) if decoded else value  # some strings look like base64 but are not in the shape


def _insert_decoded(value: Any, shape: Shape, decoded: dict[str, bytes]) -> None:
    if not isinstance(value, dict):
        return
    members = cast("dict[str, Any]", value)
    for name in shape.texts & members.keys():
        placeholder = members[name]
        if isinstance(placeholder, str) and placeholder in decoded:
            members[name] = decoded.pop(placeholder)
    for name in shape.lists.keys() & members.keys():
        listed = members[name]
        for each in cast("Iterable[Any]", listed) if isinstance(listed, list) else (listed,):
            _insert_decoded(each, shape.lists[name], decoded)


class _SplitterState(Enum):
    """The part of the document to which the next unprocessed byte belongs."""

    START = auto()
    NAME = auto()
    TARGET_VALUE = auto()  # the value of `key`
    OTHER_VALUE = auto()
    ELEMENT = auto()
    SINGLE_ELEMENT = auto()  # an object instead of an array
    END = auto()


class ArraySplitter:
    """Yields the parsed elements of the top-level array `key` while the document is received.

    An object instead of the array counts as an array with one element. Pieces may end anywhere. The text around the
    elements is retained, with a 0 for each element, and parsed by `finish()`.

    The end of an element is guessed from the text around the previous comma (`},{"uid"`): if the text up to there is
    JSON, it is the element.
    """

    def __init__(self, key: str, *, shape: Shape | None = None) -> None:
        """shape: the places of base64 text in the elements. Long text there is returned as decoded bytes."""
        self._key = key
        self._shape = shape
        self._buffer = bytearray()  # the current element, or the current member of the top level
        self._outer_text = bytearray()  # the text around the elements
        self._state = _SplitterState.START
        self._scanner = _JsonScanner()
        self._separator = b""  # the text around the last comma
        self._can_guess = False

    @property
    def pending(self) -> int:
        """The number of retained bytes."""
        return len(self._buffer) + len(self._outer_text)

    def feed(self, piece: bytes) -> Iterator[Any]:
        """Yield the elements that are complete now. Raises MismatchError if one is not JSON."""
        self._buffer += piece
        self._can_guess = True  # until a guess fails
        while True:
            if self._state is _SplitterState.START or self._state is _SplitterState.TARGET_VALUE:
                if not self._read_first_byte():
                    return
            elif self._state is _SplitterState.END:
                self._move_to_outer_text(len(self._buffer))
                return
            else:
                if (
                    self._state is _SplitterState.ELEMENT
                    and self._separator
                    and self._can_guess
                    and not self._scanner.position
                ):
                    yield from self._guess_elements()
                if not self._scanner.skip_to_delimiter(self._buffer):
                    return
                yield from self._handle_delimiter(self._scanner.position)

    def finish(self) -> dict[str, Any]:
        """Return the document with an array of zeros instead of the elements.

        Raises MismatchError if it is not a JSON object.
        """
        document = parse(bytes(self._outer_text))  # raises if an element is incomplete
        if not isinstance(document, dict):
            raise MismatchError("an object")
        return cast("dict[str, Any]", document)

    def _read_first_byte(self) -> bool:
        """Read the first byte of the document or of the value of `key`. Return False if there is none yet."""
        first = self._scanner.position = cast(
            "re.Match[bytes]", _SPACE.match(self._buffer, self._scanner.position)
        ).end()
        if first == len(self._buffer):
            return False
        byte = self._buffer[first]
        if self._state is _SplitterState.START:
            if not first and BYTE_ORDER_MARK.startswith(self._buffer[: len(BYTE_ORDER_MARK)]):
                if len(self._buffer) < len(BYTE_ORDER_MARK):
                    return False
                self._drop_prefix(len(BYTE_ORDER_MARK))
                return True
            self._state = _SplitterState.NAME if byte == _OPEN_BRACE else _SplitterState.END
            self._move_to_outer_text(first + 1)
        elif byte == _OPEN_BRACKET:
            self._state = _SplitterState.ELEMENT
            self._move_to_outer_text(first + 1)
        else:
            self._state = _SplitterState.SINGLE_ELEMENT if byte == _OPEN_BRACE else _SplitterState.OTHER_VALUE
        return True

    def _handle_delimiter(self, position: int) -> Iterator[Any]:
        byte = self._buffer[position]
        if byte == _COLON:
            if self._state is _SplitterState.NAME:
                self._state = _SplitterState.TARGET_VALUE if self._is_key(position) else _SplitterState.OTHER_VALUE
                self._move_to_outer_text(position + 1)
            else:
                self._scanner.position += 1  # not JSON: the parser raises
        elif self._state is _SplitterState.ELEMENT:
            yield from self._finish_element(position, last=byte != _COMMA)
        else:
            if self._state is _SplitterState.SINGLE_ELEMENT:
                element = self._parse_element(position)
                self._drop_prefix(position)
                self._outer_text += b"[0]"
                self._state, position = _SplitterState.OTHER_VALUE, 0
                yield element
            self._state = _SplitterState.NAME if byte == _COMMA else _SplitterState.END
            self._move_to_outer_text(position + 1)

    def _is_key(self, end: int) -> bool:
        try:
            return bool(parse(bytes(self._buffer[:end])) == self._key)
        except MismatchError:
            return False

    def _finish_element(self, end: int, *, last: bool) -> Iterator[Any]:
        if last:
            self._state = _SplitterState.OTHER_VALUE
        if _SPACE.fullmatch(self._buffer, 0, end) is not None:
            if not last:
                raise MismatchError("an element between commas", f"$.{self._key}")
            self._move_to_outer_text(end + 1)  # an empty array, or a trailing comma, for which `finish` raises
            return
        element = self._parse_element(end)
        if not last:
            self._learn_separator(end)
        self._outer_text += b"0"
        self._outer_text.append(self._buffer[end])
        self._drop_prefix(end + 1)
        yield element

    def _learn_separator(self, end: int) -> None:
        if end > _MIN_LONG_STRING_BYTES:
            self._separator = b""
            return
        between = _ELEMENT_SEPARATOR.match(self._buffer, max(self._buffer.rfind(b"}", 0, end), 0))
        if between is not None:
            self._separator = bytes(between[0])

    def _guess_elements(self) -> Iterator[Any]:
        """Yield the received elements that end with the same separator as the previous one."""
        between, buffer, start = self._separator, self._buffer, 0
        to_next = between.index(b",")
        try:
            while end := buffer.find(between, start) + 1:
                element = _VALUE_DECODER.decode(buffer[start:end])
                start = end + to_next
                self._outer_text += b"0,"
                yield element
        except _DECODE_ERRORS:
            pass  # the element has another end
        finally:
            self._drop_prefix(start)
        self._can_guess = False

    def _parse_element(self, end: int) -> Any:
        with memoryview(self._buffer) as view, view[:end] as text:  # no copy
            if self._shape is not None and self._scanner.long_strings:
                return parse_and_decode_base64(text, self._scanner.long_strings, self._shape)
            return parse(text)

    def _move_to_outer_text(self, end: int) -> None:
        self._outer_text += self._buffer[:end]
        self._drop_prefix(end)

    def _drop_prefix(self, end: int) -> None:
        del self._buffer[:end]
        self._scanner.reset()


class _JsonScanner:
    """Skips JSON text from one delimiter to the next, while the text is received."""

    def __init__(self) -> None:
        self.position = 0
        self._depth = 0
        self._is_in_string = False
        self._string_start = 0
        self.long_strings: list[tuple[int, int]] = []
        """The start and end of each long string, without its quotes."""

    def reset(self) -> None:
        self.position = self._depth = 0
        self._is_in_string = False
        self.long_strings = []

    def skip_to_delimiter(self, text: bytearray) -> bool:
        """Move to the next comma, colon or closing bracket outside the brackets opened on the way.

        Return False if more text is needed. The next call continues from there.
        """
        while not self._is_in_string or self._skip_string(text):
            skip = _BALANCED_TEXT if self._depth else _TEXT_BEFORE_DELIMITER
            self.position = position = cast("re.Match[bytes]", skip.match(text, self.position)).end()
            if position == len(text):
                return False
            byte = text[position]
            if byte == _QUOTE:
                self._is_in_string, self._string_start = True, position + 1
            elif byte in (_OPEN_BRACE, _OPEN_BRACKET):
                self._depth += 1
            elif not self._depth:
                return True
            else:
                self._depth -= 1
            self.position += 1
        return False

    def _skip_string(self, text: bytearray) -> bool:
        while True:
            start, quote = self.position, text.find(b'"', self.position)
            end = len(text) if quote < 0 else quote
            # An odd number of backslashes escapes the next character. `start` itself is not escaped.
            escaped = end > start and text[end - 1] == _BACKSLASH and _has_odd_backslashes(text[start:end])
            if quote < 0:
                self.position = end - escaped
                return False
            self.position = end + 1
            if not escaped:
                self._is_in_string = False
                if end - self._string_start >= _MIN_LONG_STRING_BYTES:
                    self.long_strings.append((self._string_start, end))
                return True


def _has_odd_backslashes(text: bytearray) -> bool:
    return (len(text) - len(text.rstrip(b"\\"))) % 2 == 1
