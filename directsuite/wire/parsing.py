"""Parsers that turn JSON text into plain Python values: completely, or an array element by element.

{"success": true, "messages": [ {...}, {...}, ... ], "code": 0}
                                └─ ArraySplitter.feed() yields each element as soon as it is complete
"""

from __future__ import annotations

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
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""Bytes that some servers send before the text (RFC 8259, 8.1)."""
_SURROGATE = re.compile("[\ud800-\udfff]")
_NON_BYTE_SURROGATE = re.compile("[\ud800-\udc7f\udd00-\udfff]")
"""Surrogates that `surrogateescape` does not use for bytes."""

_SPACE = re.compile(rb"[ \t\r\n]*+")
_TEXT_BEFORE_VALUE = re.compile(rb"[\xef\xbb\xbf \t\r\n]*+")  # white space, and a byte order mark
_ELEMENT_SEPARATOR = re.compile(rb'\},[ \t\r\n]*+\{[ \t\r\n]*+"[^"\\]{1,64}+"')
"""The end of an object, and the start of the next one up to its first member name."""

_TEXT_INSIDE_BRACKETS: re.Pattern[bytes] = re.compile(
    rb'[^"{}\[\]]*+(?:"[^"\\]{0,256}+(?:\\.[^"\\]{0,256}+)*+"[^"{}\[\]]*+)*+', re.DOTALL
)
"""Text up to a bracket or a long string, for which searching for the end is faster."""
_TEXT_BEFORE_DELIMITER = re.compile(rb'[^"{}\[\],:]*+')
_STRING_CONTENT = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)

_QUOTE, _COMMA, _COLON, _OPEN_BRACE, _OPEN_BRACKET = b'",:{['

_LONG_BYTES = 65_536
"""Size from which base64 text is decoded without the parser, which is ten times slower. The ends of elements that are
longer are not guessed."""


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
        document = document.removeprefix(_BYTE_ORDER_MARK)
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

    Pieces may end anywhere. The text around the elements is retained, and parsed by `finish()`.

    base64_member: the name of a list of objects in the elements, and the name of a base64 text in these objects. Long
    text there is returned as decoded bytes.
    """

    def __init__(self, key: str, *, base64_member: tuple[str, str] | None = None) -> None:
        self._key = key
        self._base64_member = base64_member
        self._buffer = bytearray()  # the current element, or the current member of the top level
        self._position = 0  # in the buffer
        self._depth = 0  # the number of open brackets in the buffer before the position
        self._searched = 0  # how far an incomplete string at the position was searched for its end
        self._long_strings: list[tuple[int, int]] = []  # in the buffer, without their quotes
        self._outer_text = bytearray()
        self._elements = self._split_document()
        self.key_count = 0
        """The number of members with the key at the top level so far."""

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
        """Return the document without the elements of its array.

        Raises MismatchError if it is not a JSON object.
        """
        document = parse(bytes(self._outer_text + self._buffer))  # raises if an element is incomplete
        if not isinstance(document, dict):
            raise MismatchError("an object")
        return cast("dict[str, Any]", document)

    # The next two generators yield _NEEDS_MORE to wait until more text is in the buffer. `finish` rejects text that is
    # not JSON outside the elements.

    def _split_document(self) -> Iterator[Any]:
        while not self._find_value():
            yield _NEEDS_MORE
        if self._buffer[self._position] != _OPEN_BRACE:
            return
        self._retain(self._position + 1)
        delimiter = _COMMA
        while delimiter in (_COMMA, _COLON):
            while not self._find_delimiter():
                yield _NEEDS_MORE
            previous, delimiter = delimiter, self._buffer[self._position]
            if delimiter == previous == _COLON:
                return
            is_target = delimiter == _COLON and self._is_key()
            self._retain(self._position + 1)
            if is_target:
                self.key_count += 1
                while not self._find_value():
                    yield _NEEDS_MORE
                if self._buffer[self._position] == _OPEN_BRACKET:
                    self._retain(self._position + 1)
                    yield from self._split_array()

    def _is_key(self) -> bool:
        try:
            return bool(parse(self._buffer[: self._position]) == self._key)
        except MismatchError:
            return False

    def _split_array(self) -> Iterator[Any]:
        is_first, has_next = True, True
        while has_next:
            while not self._find_delimiter():
                yield _NEEDS_MORE
            end = self._position
            has_next = self._buffer[end] == _COMMA
            similar = _ELEMENT_SEPARATOR.match(self._buffer, max(end - 1, 0)) if end < _LONG_BYTES else None
            separator = b"" if similar is None else similar[0]
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

    def _guess_elements(self, separator: bytes, max_bytes: int) -> Iterator[Any]:
        """Yield the received elements that end like the one before them, which is five times as fast.

        separator: the text around the previous comma, such as `},{"uid"`. If the text up to the next one is JSON, it is
            the element.
        """
        with contextlib.suppress(*_DECODE_ERRORS):  # the element has another end
            while (end := self._buffer.find(separator, 0, max_bytes) + 1) > 0:
                element = _VALUE_DECODER.decode(self._buffer[:end])
                del self._buffer[: end + 1]
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

    # The following methods move the position. They return False if more text is needed.

    def _find_value(self) -> bool:
        """Move to the start of a value."""
        self._position = _find_end(_TEXT_BEFORE_VALUE, self._buffer, self._position)
        return self._position < len(self._buffer)

    def _find_delimiter(self) -> bool:
        """Move to the closing bracket after the position, or to the first comma or colon outside brackets."""
        while True:
            if not self._searched:
                skip = _TEXT_INSIDE_BRACKETS if self._depth else _TEXT_BEFORE_DELIMITER
                self._position = _find_end(skip, self._buffer, self._position)
            if self._position == len(self._buffer):
                return False
            byte = self._buffer[self._position]
            if byte == _QUOTE:
                if not self._skip_string():
                    return False
                continue
            if byte in (_OPEN_BRACE, _OPEN_BRACKET):
                self._depth += 1
            elif self._depth:
                self._depth -= 1
            else:
                return True
            self._position += 1

    def _skip_string(self) -> bool:
        first = self._position + 1
        start = self._searched or first
        end = self._buffer.find(b'"', start)
        if end < 0:
            end = len(self._buffer)
        if self._buffer.find(b"\\", start, end) >= 0:  # the quote may be escaped
            end = _find_end(_STRING_CONTENT, self._buffer, start)
        if not self._buffer.startswith(b'"', end):
            self._searched = end
            return False
        if end - first >= _LONG_BYTES:
            self._long_strings.append((first, end))
        self._searched = 0
        self._position = end + 1
        return True


def _find_end(pattern: re.Pattern[bytes], text: bytearray, start: int) -> int:
    found = pattern.match(text, start)
    return start if found is None else found.end()


def _parse_and_decode_base64(text: memoryview, strings: list[tuple[int, int]], list_name: str, name: str) -> Any:
    """Parse an object whose member `list_name` contains objects. Return their base64 texts `name` as decoded bytes.

    strings: the start and end of each long string. The parser gets a placeholder for each, so that it is not slow.
    """
    decoded: dict[str, bytes] = {}
    short, at = bytearray(), 0
    for start, end in strings:
        with contextlib.suppress(ValueError):
            content = pybase64.b64decode(text[start:end], validate=True)
            placeholder = secrets.token_hex(16)
            decoded[placeholder] = content
            short += text[at:start]
            short += placeholder.encode()
            at = end
    value = parse(short + text[at:])
    with contextlib.suppress(AttributeError, TypeError, KeyError):  # a placeholder may be at another place
        for item in value[list_name]:
            if name in item:
                item[name] = decoded.pop(item[name], item[name])
    return parse(text) if decoded else value  # other long strings may also be valid base64
