"""Parsers that turn JSON text into plain Python values: completely, or an array element by element.

{"success": true, "messages": [ {...}, {...}, ... ], "code": 0}
                                └─ ArraySplitter.feed() yields each element as soon as it is complete
"""

from __future__ import annotations

import binascii
import contextlib
import json
import math
import re
import secrets
from collections.abc import Iterator
from typing import Any, cast

import msgspec
import pybase64

_VALUE_DECODER = msgspec.json.Decoder()
_DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_SURROGATE = re.compile("[\ud800-\udfff]")
_NON_BYTE_SURROGATE = re.compile("[\ud800-\udc7f\udd00-\udfff]")
"""Surrogates that `surrogateescape` does not use for bytes."""

_SPACE = re.compile(rb"[ \t\r\n]*+")
_ELEMENT_SEPARATOR = re.compile(rb'\}[ \t\r\n]*+,[ \t\r\n]*+\{[ \t\r\n]*+"[^"\\]{1,64}+"')
"""The end of an object, and the start of the next one up to its first member name."""

_TEXT_INSIDE_BRACKETS = re.compile(rb'[^"{}\[\]]*+(?:"[^"\\]{0,256}+(?:\\.[^"\\]{0,256}+)*+"[^"{}\[\]]*+)*+', re.DOTALL)
"""Text up to a bracket or a long string, for which searching for the end is faster."""
_TEXT_BEFORE_DELIMITER = re.compile(rb'[^"{}\[\],:]*+')

_QUOTE, _BACKSLASH, _COMMA, _COLON, _OPEN_BRACE, _OPEN_BRACKET = b'"\\,:{['

_MAX_GUESSED_BYTES = 65_536
"""Size after which the end of the next element is not guessed."""
_MIN_LONG_STRING_BYTES = 65_536
"""Size from which base64 text is decoded without the parser, which is ten times slower."""


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
    """A text that contained invalid UTF-8 or half of a surrogate pair, replaced by U+FFFD."""

    __slots__ = ()


def parse(document: bytes | bytearray | memoryview) -> Any:
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
        text = bytes(document).decode("utf-8", "surrogateescape")
        return _mark_broken_texts(
            json.loads(text, parse_int=_read_int, parse_float=_read_float, parse_constant=_reject_constant)
        )
    except (ValueError, RecursionError):
        pass
    raise MismatchError("JSON")


def strip_byte_order_mark(document: bytes) -> bytes:
    """Return the document without the byte order mark that some servers add (RFC 8259, 8.1)."""
    return document.removeprefix(BYTE_ORDER_MARK)


def _mark_broken_texts(value: Any) -> Any:
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value).items()
        return {_replace_broken_chars(name): _mark_broken_texts(member) for name, member in members}
    if isinstance(value, list):
        return list(map(_mark_broken_texts, cast("list[object]", value)))
    return BrokenText(_replace_broken_chars(value)) if isinstance(value, str) and _SURROGATE.search(value) else value


def _replace_broken_chars(text: str) -> str:
    return _NON_BYTE_SURROGATE.sub("\ufffd", text).encode("utf-8", "surrogateescape").decode("utf-8", "replace")


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


_NEEDS_MORE = object()


class ArraySplitter:
    """Yields the parsed elements of the top-level array `key` while the document is received.

    An object instead of the array counts as an array with one element. Pieces may end anywhere. The text around the
    elements is retained, and parsed by `finish()`.

    base64_member: the name of a list of objects in the elements, and the name of a base64 text in these objects. Long
    text there is returned as decoded bytes.
    """

    def __init__(self, key: str, *, base64_member: tuple[str, str] | None = None) -> None:
        self._key = key
        self._base64_member = base64_member
        self._buffer = bytearray()  # the current element, or the current member of the top level
        self._position = 0  # in the buffer
        self._long_strings: list[tuple[int, int]] = []  # in the buffer, without their quotes
        self._outer_text = bytearray()
        self._elements = self._split_document()
        self.key_count = 0
        """How often the top level has the key so far."""

    @property
    def pending(self) -> int:
        """The number of retained bytes."""
        return len(self._buffer) + len(self._outer_text)

    def feed(self, piece: bytes) -> Iterator[Any]:
        """Yield the elements that are complete now. Raises MismatchError if one is not JSON."""
        self._buffer += piece
        for element in self._elements:
            if element is _NEEDS_MORE:
                return
            yield element

    def finish(self) -> dict[str, Any]:
        """Return the document with an empty array instead of the elements.

        Raises MismatchError if it is not a JSON object.
        """
        document = parse(bytes(self._outer_text))  # raises if an element is incomplete
        if not isinstance(document, dict):
            raise MismatchError("an object")
        return cast("dict[str, Any]", document)

    # The following methods yield elements. They yield _NEEDS_MORE to wait until more text is in the buffer.

    def _split_document(self) -> Iterator[Any]:
        while len(self._buffer) < len(BYTE_ORDER_MARK) and BYTE_ORDER_MARK.startswith(self._buffer):
            yield _NEEDS_MORE
        if self._buffer.startswith(BYTE_ORDER_MARK):
            del self._buffer[: len(BYTE_ORDER_MARK)]
        yield from self._skip_space()
        has_member = self._buffer[self._position] == _OPEN_BRACE
        self._retain(self._position + 1)
        while has_member:
            yield from self._skip_text()
            delimiter = self._buffer[self._position]
            if delimiter == _COLON:
                is_target = self._is_key()
                self.key_count += is_target
                self._retain(self._position + 1)
                if is_target:
                    yield from self._skip_space()
                    if self._buffer[self._position] == _OPEN_BRACE:
                        yield from self._skip_text()
                        yield self._take_element()
                        self._outer_text += b"[]"
                    elif self._buffer[self._position] == _OPEN_BRACKET:
                        self._retain(self._position + 1)
                        yield from self._split_array()
                yield from self._skip_text()
                delimiter = self._buffer[self._position]
            self._retain(self._position + 1)
            has_member = delimiter == _COMMA
        while True:
            self._retain(len(self._buffer))
            yield _NEEDS_MORE

    def _is_key(self) -> bool:
        try:
            return bool(parse(self._buffer[: self._position]) == self._key)
        except MismatchError:
            return False

    def _split_array(self) -> Iterator[Any]:
        is_first, has_next = True, True
        while has_next:
            yield from self._skip_text()
            end = self._position
            has_next = self._buffer[end] == _COMMA
            separator = self._find_separator(end)
            if not _SPACE.fullmatch(self._buffer, 0, end):
                yield self._take_element()
            elif has_next or not is_first:
                raise MismatchError("an element between commas", f"$.{self._key}")
            if has_next:
                self._remove(1)
            if separator:
                yield from self._guess_elements(separator, 2 * end)
            is_first = False
        self._retain(self._position + 1)

    def _find_separator(self, end: int) -> bytes:
        if end > _MAX_GUESSED_BYTES:
            return b""
        found = _ELEMENT_SEPARATOR.match(self._buffer, max(self._buffer.rfind(b"}", 0, end), 0))
        return b"" if found is None else found[0]

    def _guess_elements(self, separator: bytes, max_bytes: int) -> Iterator[Any]:
        """Yield the received elements that end like the one before them, which is faster than skipping text.

        The end is guessed from the text around the previous comma, such as `},{"uid"`. If the text up to there is JSON,
        it is the element.
        """
        buffer, to_next = self._buffer, separator.index(b",")
        with contextlib.suppress(*_DECODE_ERRORS):  # the element has another end
            while (end := buffer.find(separator, 0, max_bytes) + 1) > 0:
                element = _VALUE_DECODER.decode(buffer[:end])
                del buffer[: end + to_next]
                yield element

    def _take_element(self) -> Any:
        """Parse the element up to the position, and remove it from the buffer."""
        with memoryview(self._buffer) as view, view[: self._position] as text:  # no copy
            if self._base64_member is not None and self._long_strings:
                element = _parse_and_decode_base64(text, self._long_strings, *self._base64_member)
            else:
                element = parse(text)
        self._remove(self._position)
        return element

    def _retain(self, end: int) -> None:
        self._outer_text += self._buffer[:end]
        self._remove(end)

    def _remove(self, end: int) -> None:
        del self._buffer[:end]
        self._position = 0
        self._long_strings = []

    def _skip_space(self) -> Iterator[Any]:
        while (position := cast("re.Match[bytes]", _SPACE.match(self._buffer, self._position)).end()) == len(
            self._buffer
        ):
            self._position = position
            yield _NEEDS_MORE
        self._position = position

    def _skip_text(self) -> Iterator[Any]:
        """Move to the closing bracket after the position, or to the first comma or colon outside brackets."""
        depth = 0
        while True:
            skip = _TEXT_INSIDE_BRACKETS if depth else _TEXT_BEFORE_DELIMITER
            self._position = cast("re.Match[bytes]", skip.match(self._buffer, self._position)).end()
            if self._position == len(self._buffer):
                yield _NEEDS_MORE
                continue
            byte = self._buffer[self._position]
            if byte == _QUOTE:
                yield from self._skip_string()
                continue
            if byte in (_OPEN_BRACE, _OPEN_BRACKET):
                depth += 1
            elif depth:
                depth -= 1
            else:
                return
            self._position += 1

    def _skip_string(self) -> Iterator[Any]:
        self._position += 1
        first = start = self._position
        while True:
            quote = self._buffer.find(b'"', start)
            end = len(self._buffer) if quote < 0 else quote
            # An odd number of backslashes escapes the next character. `start` itself is not escaped.
            is_escaped = end > start and self._buffer[end - 1] == _BACKSLASH and self._has_odd_backslashes(start, end)
            if quote < 0:
                start = end - is_escaped
                yield _NEEDS_MORE
            elif is_escaped:
                start = quote + 1
            else:
                break
        self._position = quote + 1
        if quote - first >= _MIN_LONG_STRING_BYTES:
            self._long_strings.append((first, quote))

    def _has_odd_backslashes(self, start: int, end: int) -> bool:
        text = self._buffer[start:end]
        return (len(text) - len(text.rstrip(b"\\"))) % 2 == 1


def _parse_and_decode_base64(text: memoryview, strings: list[tuple[int, int]], list_name: str, name: str) -> Any:
    """Parse an object whose member `list_name` contains objects. Return their base64 texts `name` as decoded bytes.

    strings: the start and end of each long string. The parser gets a placeholder for each, so that it is not slow.
    """
    prefix = secrets.token_hex(16)
    decoded: dict[str, bytes] = {}
    short, at = bytearray(), 0
    for start, end in strings:
        try:
            content = pybase64.b64decode(text[start:end], validate=True)
        except (binascii.Error, ValueError):
            continue
        decoded[f"{prefix}{len(decoded)}"] = content
        short += text[at:start]
        short += f"{prefix}{len(decoded) - 1}".encode()
        at = end
    short += text[at:]
    value = parse(short)
    with contextlib.suppress(AttributeError, TypeError, KeyError):  # a placeholder may be at another place
        for item in value[list_name]:
            if name in item:
                item[name] = decoded.pop(item[name], item[name])
    return parse(text) if decoded else value  # other long strings may also be valid base64
