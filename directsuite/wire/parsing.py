"""JSON text to plain values: whole, with the elements of large arrays one after the other, or while it is coming.

{"success": true, "messages": [ {...}, {...}, ... ], "code": 0}
                                └─ ArraySplitter.feed() gives each as soon as it is whole
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
"""Bytes from which on a document's elements are parsed one by one."""

REPLACEMENT_CHAR = "\N{REPLACEMENT CHARACTER}"
"""Stands in the place of a broken character."""

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
"""The end of an object, and the beginning of the next one up to its first name."""

_PLAIN_CHARS = rb'[^"{}\[\]]*+'
_SHORT_STRING = rb'"[^"\\]{0,256}+(?:\\.[^"\\]{0,256}+)*+"'  # a long one is crossed faster by looking for its end
_INNERMOST_BRACKETS = rb"[{\[]%b(?:%b%b)*+[}\]]" % (_PLAIN_CHARS, _SHORT_STRING, _PLAIN_CHARS)
_BALANCED_TEXT = re.compile(
    rb"%b(?:(?>%b|%b)%b)*+" % (_PLAIN_CHARS, _SHORT_STRING, _INNERMOST_BRACKETS, _PLAIN_CHARS), re.DOTALL
)
"""Text inside brackets, as far as every short string and innermost bracket in it is closed."""
_TEXT_BEFORE_DELIMITER = re.compile(rb'[^"{}\[\],:]*+')

_QUOTE, _BACKSLASH, _COMMA, _COLON, _OPEN_BRACE, _OPEN_BRACKET = b'"\\,:{['

_MIN_LONG_STRING_BYTES = 65_536
"""Bytes from which on a string's place is noted, and an element is too large to guess where the next one ends."""


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

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.expected, self.path), self.__dict__

    def prepend_step(self, step: str) -> MismatchError:
        """Return the same error for the value around this one. step: from that one to this, such as `.uids`."""
        return MismatchError(self.expected, f"${step}{self.path[1:]}")


class BrokenText(str):
    """A text from a document in which it was not UTF-8, or had half a surrogate pair. It has BROKEN in these places."""

    __slots__ = ()


class Elements:
    """The elements of a large array, parsed one at a time: all of them together would take as much again as the text.

    Iterating raises MismatchError where one is not JSON.
    """

    def __init__(self, text: msgspec.Raw) -> None:
        self._text = text

    def __iter__(self) -> Iterator[Any]:
        try:
            elements = _ELEMENTS_DECODER.decode(self._text)
        except _DECODE_ERRORS:
            elements = None
        yield from parse(self._text) if elements is None else map(parse, elements)


def parse(document: bytes | bytearray | memoryview | msgspec.Raw) -> Any:
    """Plain Python values from a JSON document; MismatchError where it is not JSON.

    A text with broken characters is a BrokenText: any sender of one message could spoil the listing of all others. A
    number that is too large for Python is the text of its digits.
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
    """As `parse`, but MismatchError where a character is broken."""
    try:
        return _VALUE_DECODER.decode(strip_byte_order_mark(document))
    except _DECODE_ERRORS:
        pass
    raise MismatchError("JSON")


def parse_in_parts(document: bytes, arrays: Collection[str]) -> Any:
    """As `parse`; of a large object the members `arrays`, where they are arrays, are given as `Elements`."""
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
    """Return the document without the mark that some servers write before it (RFC 8259, 8.1)."""
    return document.removeprefix(BYTE_ORDER_MARK)


def _parse_leniently(document: bytes) -> Any:
    """Parse what msgspec does not: broken characters, and numbers that are too large."""
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
    """Return a BrokenText for a text with broken characters, and any other value unchanged."""
    return BrokenText(_replace_broken_chars(value)) if isinstance(value, str) and _SURROGATE.search(value) else value


def _replace_broken_chars(text: str) -> str:
    return _NON_BYTE_SURROGATE.sub(REPLACEMENT_CHAR, text).encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _read_int(digits: str) -> int | str:
    try:
        return int(digits)
    except ValueError:  # more digits than Python reads
        return digits


def _read_float(digits: str) -> float | str:
    number = float(digits)
    return number if math.isfinite(number) else digits


def _reject_constant(name: str) -> Any:
    raise ValueError(name)


@attrs.frozen(eq=False)
class Shape:
    """Where objects of one kind have base64 text."""

    texts: frozenset[str]
    """The members that are base64 text."""
    lists: Mapping[str, Shape]
    """The members that list objects, and the shape of these."""


def parse_and_decode_base64(text: memoryview, strings: Sequence[tuple[int, int]], shape: Shape) -> Any:
    """As `parse`, but base64 text of the shape's is given decoded, from where it stands.

    strings: the places of long strings between their quotes. The parser looks at each character of a string, which
    takes ten times as long as decoding it does; so it gets a mark in its place.
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
    return parse(text) if decoded else value  # not all were the shape's: a long text that only looks like base64


def _insert_decoded(value: Any, shape: Shape, decoded: dict[str, bytes]) -> None:
    """Put what was decoded in the places of its marks, and take it out of `decoded`."""
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
    """What the next byte that isn't settled belongs to."""

    START = auto()
    NAME = auto()
    TARGET_VALUE = auto()  # of the member that is looked for
    OTHER_VALUE = auto()
    ELEMENT = auto()
    SINGLE_ELEMENT = auto()  # without brackets of an array around it
    END = auto()


class ArraySplitter:
    """The elements of the top-level object's array `key`, parsed; a bare object there counts as an array of one.

    Cut anywhere: inside a string, an escape, a UTF-8 character. What stands around the elements is kept, with a 0 in
    the place of each, and read at the end: `finish()` gives the rest of the document, or raises MismatchError where the
    whole was not JSON.

    Every byte is looked at a few times at most, however the document is cut: strings are crossed by searching for their
    end, short ones many at a time by one regular expression, and a whole element at once where it ends as the one
    before did (`},{"uid"`): what parses from its first byte to such a place is the element.
    """

    def __init__(self, key: str, *, shape: Shape | None = None) -> None:
        """shape: where the elements have base64 text; of large elements it is then given decoded."""
        self._key = key
        self._shape = shape
        self._buffer = bytearray()  # what isn't settled: the current element, or the current member of the top level
        self._outer_text = bytearray()  # the document without its elements
        self._state = _SplitterState.START
        self._scanner = _JsonScanner()
        self._separator = b""  # how one element ended and the next one began
        self._can_guess = False

    @property
    def pending(self) -> int:
        """Bytes that are kept since they are not whole yet, or stand around the elements."""
        return len(self._buffer) + len(self._outer_text)

    def feed(self, piece: bytes) -> Iterator[Any]:
        """The elements that are whole by now."""
        self._buffer += piece
        self._can_guess = True  # until it fails: one search in vain for each piece
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
        """The document without the array's elements (a list of zeros in their place)."""
        document = parse(bytes(self._outer_text))  # what isn't settled stands inside a bracket, which is refused
        if not isinstance(document, dict):
            raise MismatchError("an object")
        return cast("dict[str, Any]", document)

    def _read_first_byte(self) -> bool:
        """Look at the first byte of the document, or of the value that is looked for; False where it isn't here."""
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
        """The element that ends at this mark, if it isn't a name or another value that does."""
        byte = self._buffer[position]
        if byte == _COLON:
            if self._state is _SplitterState.NAME:
                self._state = _SplitterState.TARGET_VALUE if self._is_key(position) else _SplitterState.OTHER_VALUE
                self._move_to_outer_text(position + 1)
            else:
                self._scanner.position += 1  # no JSON, as the parser will say
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
        """The element that ends before the comma, or before the array's bracket."""
        if last:
            self._state = _SplitterState.OTHER_VALUE
        if _SPACE.fullmatch(self._buffer, 0, end) is not None:
            if not last:
                raise MismatchError("an element between commas", f"$.{self._key}")
            self._move_to_outer_text(end + 1)  # an empty array, or a comma before the bracket, which `finish` refuses
            return
        element = self._parse_element(end)
        if not last:
            self._learn_separator(end)
        self._outer_text += b"0"
        self._outer_text.append(self._buffer[end])
        self._drop_prefix(end + 1)
        yield element

    def _learn_separator(self, end: int) -> None:
        """Keep the text around this comma, if it stands between two objects; larger ones gain nothing from a guess."""
        if end > _MIN_LONG_STRING_BYTES:
            self._separator = b""
            return
        between = _ELEMENT_SEPARATOR.match(self._buffer, max(self._buffer.rfind(b"}", 0, end), 0))
        if between is not None:
            self._separator = bytes(between[0])

    def _guess_elements(self) -> Iterator[Any]:
        """The elements that end as the last one did, as far as they are here."""
        between, buffer, start = self._separator, self._buffer, 0
        to_next = between.index(b",")
        try:
            while end := buffer.find(between, start) + 1:
                element = _VALUE_DECODER.decode(buffer[start:end])
                start = end + to_next
                self._outer_text += b"0,"
                yield element
        except _DECODE_ERRORS:
            pass  # it ends elsewhere, or nowhere
        finally:
            self._drop_prefix(start)
        self._can_guess = False

    def _parse_element(self, end: int) -> Any:
        with memoryview(self._buffer) as view, view[:end] as text:  # as good as bytes, without a copy
            if self._shape is not None and self._scanner.long_strings:
                return parse_and_decode_base64(text, self._scanner.long_strings, self._shape)
            return parse(text)

    def _move_to_outer_text(self, end: int) -> None:
        """Move what stands before `end` to the rest of the document."""
        self._outer_text += self._buffer[:end]
        self._drop_prefix(end)

    def _drop_prefix(self, end: int) -> None:
        del self._buffer[:end]
        self._scanner.reset()


class _JsonScanner:
    """A way over JSON text that is still coming, from one mark to the next."""

    def __init__(self) -> None:
        self.position = 0
        self._depth = 0
        self._is_in_string = False
        self._string_start = 0  # where it began
        self.long_strings: list[tuple[int, int]] = []
        """From where to where they go, without their quotes."""

    def reset(self) -> None:
        """Begin at the first byte, outside strings and brackets."""
        self.position = self._depth = 0
        self._is_in_string = False
        self.long_strings = []

    def skip_to_delimiter(self, text: bytearray) -> bool:
        """Go to the next comma, colon or closing bracket that belongs to no bracket opened on the way.

        False where the text ends before that: the way goes on when there is more of it.
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
        """Go past the end of the string; False where more of it is to come."""
        while True:
            start, quote = self.position, text.find(b'"', self.position)
            end = len(text) if quote < 0 else quote
            # An odd number of backslashes escapes what follows; `start` is not escaped itself.
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
