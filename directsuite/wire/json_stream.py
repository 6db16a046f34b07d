"""One array of a JSON document, element by element, while the document is still coming.

    {"success": true, "messages": [ {...}, {...}, ... ], "code": 0}
                                    └─ feed() gives each as soon as it is whole

Cut anywhere: inside a string, an escape, a UTF-8 character. What stands around the elements is kept, with a 0 in the
place of each, and read at the end: `finish()` gives the rest of the document, or raises MismatchError where the
whole was not JSON.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, cast

from directsuite.wire import codec
from directsuite.wire.mismatch import MismatchError

_STRUCTURE = re.compile(rb'["{}\[\],:]')
_END_OF_STRING = re.compile(rb'["\\]')
_OPENING, _CLOSING = b"{[", b"}]"


class ArraySplitter:
    """The elements of the top-level object's array `key`, parsed; a bare value there counts as an array of one."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._buffer = bytearray()  # what isn't settled: the current element, or the current member of the top level
        self._rest = bytearray()  # the document without its elements
        self._position = 0
        self._depth = 0
        self._in_string = False
        self._name_start = -1  # of the string at the top level that may turn out to be a member's name
        self._name: Any = None
        self._array_depth = 0  # the depth of the array's elements, 0 outside it
        self._bare = False

    @property
    def pending(self) -> int:
        """Bytes that are kept since they are not whole yet, or stand around the elements."""
        return len(self._buffer) + len(self._rest)

    def feed(self, piece: bytes) -> Iterator[Any]:
        """The elements that are whole by now."""
        self._buffer += piece
        while (found := self._next_mark()) is not None:
            mark, position = found
            if mark == b'"':
                self._string_opens(position)
            elif mark in _OPENING:
                self._opens(mark, position)
            elif mark in _CLOSING:
                yield from self._closes(position)
            else:
                yield from self._separates(mark, position)

    def finish(self) -> dict[str, Any]:
        """The document without the array's elements (a list of zeros in their place)."""
        document = codec.parse(bytes(self._rest + self._buffer))
        if self._array_depth or not isinstance(document, dict):
            raise MismatchError("an object")
        return cast("dict[str, Any]", document)

    def _next_mark(self) -> tuple[bytes, int] | None:
        while True:
            if self._in_string and not self._skip_string():
                return None
            match = _STRUCTURE.search(self._buffer, self._position)
            if match is None:
                self._position = len(self._buffer)
                return None
            self._position = match.end()
            return match[0], match.start()

    def _skip_string(self) -> bool:
        """Go past the end of the string; False where more bytes are needed for that."""
        while (match := _END_OF_STRING.search(self._buffer, self._position)) is not None:
            if match[0] == b"\\":
                if match.end() == len(self._buffer):
                    self._position = match.start()
                    return False
                self._position = match.end() + 1
                continue
            self._position = match.end()
            self._in_string = False
            return True
        self._position = len(self._buffer)
        return False

    def _string_opens(self, position: int) -> None:
        self._in_string = True
        if self._depth == 1 and not self._array_depth:
            self._name_start = position

    def _opens(self, mark: bytes, position: int) -> None:
        self._depth += 1
        if self._array_depth or self._name != self._key or self._depth != 2:
            return
        # The value of the member that is looked for begins here.
        self._bare = mark == b"{"
        self._array_depth = 1 if self._bare else 2
        self._settle(position if self._bare else position + 1)
        if self._bare:
            self._rest += b"["

    def _closes(self, position: int) -> Iterator[Any]:
        if self._array_depth and not self._bare and self._depth == self._array_depth:
            yield from self._element(position, last=True)
            self._end_of_array()
        self._depth -= 1
        if self._bare and self._array_depth and self._depth == self._array_depth:
            yield from self._element(self._position, last=True)
            self._rest += b"]"
            self._end_of_array()

    def _separates(self, mark: bytes, position: int) -> Iterator[Any]:
        if self._array_depth:
            if mark == b"," and self._depth == self._array_depth and not self._bare:
                yield from self._element(position, last=False)
                self._rest += b","
                self._settle_nothing(1)
        elif self._depth == 1:
            self._name = self._name_before(position) if mark == b":" else None
            if mark == b",":
                self._settle(self._position)

    def _name_before(self, position: int) -> Any:
        """The member's name that ends before the colon; None where there is no string."""
        if self._name_start < 0:
            return None
        text = bytes(self._buffer[self._name_start : position])
        self._name_start = -1
        try:
            return codec.parse(text)
        except MismatchError:
            return None

    def _element(self, end: int, *, last: bool) -> Iterator[Any]:
        text = bytes(self._buffer[:end])
        self._settle_nothing(end)
        if not text.strip(b" \t\r\n"):
            if not last:
                raise MismatchError("an element between commas", f"$.{self._key}")
            return  # an empty array, or a comma before the bracket, which `finish` refuses
        self._rest += b"0"
        yield codec.parse(text)

    def _end_of_array(self) -> None:
        self._array_depth = 0
        self._bare = False
        self._name = None

    def _settle(self, end: int) -> None:
        """Move what stands before `end` to the rest of the document."""
        self._rest += self._buffer[:end]
        self._settle_nothing(end)

    def _settle_nothing(self, end: int) -> None:
        del self._buffer[:end]
        self._position -= end
        self._name_start = -1
