"""Decode base64 text, complete or in pieces. The alphabet is checked strictly; line breaks are ignored."""

from __future__ import annotations

import pybase64

from directsuite.wire.parsing import BYTE_ORDER_MARK, MismatchError

_WHITESPACE = b" \t\r\n"
_EXPECTED = "base64 text"
_BASE_BLANK_CHARS, _BLANK_CHARS_PER_BYTE = 65_536, 4
"""Whitespace allowed at first, and for each decoded byte: the limit prevents endless responses."""


def decode(text: bytes | str) -> bytes:
    """Decode base64 text with or without line breaks. Raises MismatchError if it is not base64."""
    try:
        return pybase64.b64decode(text, validate=True)
    except ValueError:
        pass
    try:
        plain = text.encode("ascii") if isinstance(text, str) else bytes(text)
        return pybase64.b64decode(plain.translate(None, _WHITESPACE), validate=True)
    except ValueError:
        pass
    raise MismatchError(_EXPECTED)


class Decoder:
    """Decodes base64 text in pieces that may end anywhere. Raises MismatchError if it is not base64.

    Text with far more white space than base64 needs is also rejected. A byte order mark before the text is ignored.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._is_at_start = True
        self._has_ended = False
        self._blanks_left = _BASE_BLANK_CHARS

    def feed(self, piece: bytes | memoryview) -> bytes:
        """Return the bytes of all complete groups. Up to three characters are retained."""
        text = self._rest + piece if self._rest else piece
        if self._is_at_start:
            if len(text) < 3 and BYTE_ORDER_MARK.startswith(text):
                self._rest = bytes(text)
                return b""
            self._is_at_start = False
            text = text[3:] if text[:3] == BYTE_ORDER_MARK else text
        complete_size = len(text) - len(text) % 4
        try:  # without a copy; fails if there are line breaks
            content = pybase64.b64decode(memoryview(text)[:complete_size], validate=True)
            rest = self._remove_blanks(text[complete_size:])
        except ValueError:
            text = self._remove_blanks(text)
            complete_size = len(text) - len(text) % 4
            content, rest = decode(text[:complete_size]), text[complete_size:]
        if content and self._has_ended:
            raise MismatchError(_EXPECTED)
        self._rest = rest
        self._has_ended = self._has_ended or text[complete_size - 1 : complete_size] == b"="
        self._blanks_left += _BLANK_CHARS_PER_BYTE * len(content)
        if self._blanks_left < 0:
            raise MismatchError(_EXPECTED)
        return content

    def _remove_blanks(self, text: bytes | memoryview) -> bytes:
        dense = bytes(text).translate(None, _WHITESPACE)
        self._blanks_left -= len(text) - len(dense)
        return dense

    def finish(self) -> None:
        """Raise MismatchError if the text ended within a group."""
        if self._rest:
            raise MismatchError(_EXPECTED)


def compute_encoded_size(size: int) -> int:
    """Return the length of the base64 text of `size` bytes."""
    return (size + 2) // 3 * 4
