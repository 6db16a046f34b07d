"""Base64 text, whole and in pieces: strict about the alphabet, indifferent to line breaks."""

from __future__ import annotations

import binascii

import pybase64

from directsuite.wire.parsing import BYTE_ORDER_MARK, MismatchError

_WHITESPACE = b" \t\r\n"
_EXPECTED = "base64 text"
_BASE_BLANK_CHARS, _BLANK_CHARS_PER_BYTE = 65_536, 4
"""White space that a stream may have, and how much more for each byte behind it: else it could go on for ever."""


def encode(content: bytes | memoryview) -> bytes:
    """Base64 on one line."""
    return pybase64.b64encode(content)


def encode_text(content: bytes) -> str:
    """The same, as text."""
    return pybase64.b64encode_as_string(content)


def decode(text: bytes | str) -> bytes:
    """The bytes behind base64 text, with or without line breaks; MismatchError where it is anything else."""
    try:
        return pybase64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        pass
    try:
        plain = text.encode("ascii") if isinstance(text, str) else bytes(text)
        return pybase64.b64decode(plain.translate(None, _WHITESPACE), validate=True)
    except (binascii.Error, ValueError):
        pass
    raise MismatchError(_EXPECTED)


class Encoder:
    """Base64 of a stream, piece by piece. The pieces joined are the encoding of the whole."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, piece: bytes | memoryview) -> bytes:
        """The text that is settled by now; up to two bytes are kept back for the next piece."""
        content = self._rest + piece if self._rest else piece
        complete_size = len(content) - len(content) % 3
        self._rest = bytes(content[complete_size:])
        return pybase64.b64encode(memoryview(content)[:complete_size])

    def finish(self) -> bytes:
        """The end of the text, with its padding."""
        rest, self._rest = self._rest, b""
        return pybase64.b64encode(rest)


class Decoder:
    """Decodes base64 text that comes in pieces, cut anywhere. Raises MismatchError if it is not base64.

    A byte order mark before the text is left out.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._is_at_start = True
        self._ended = False
        self._blanks_left = _BASE_BLANK_CHARS

    def feed(self, piece: bytes | memoryview) -> bytes:
        """The bytes that are settled by now; up to three characters are kept back for the next piece."""
        text = self._rest + piece if self._rest else piece
        if self._is_at_start:
            head = bytes(text[:3])
            if len(head) < 3 and BYTE_ORDER_MARK.startswith(head):
                self._rest = head
                return b""
            self._is_at_start = False
            text = text[3:] if head == BYTE_ORDER_MARK else text
        content = None if self._ended else self._decode_without_blanks(text)
        content = self._decode_with_blanks(bytes(text)) if content is None else content
        self._blanks_left += _BLANK_CHARS_PER_BYTE * len(content)
        if self._blanks_left < 0:
            raise MismatchError(_EXPECTED)
        return content

    def _decode_without_blanks(self, text: bytes | memoryview) -> bytes | None:
        """The same, of text without white space, which is not copied; None where it is anything else."""
        complete_size = len(text) - len(text) % 4
        try:
            content = pybase64.b64decode(memoryview(text)[:complete_size], validate=True)
        except (binascii.Error, ValueError):
            return None
        self._store_rest(
            self._remove_blanks(bytes(text[complete_size:])), ended=text[complete_size - 1 : complete_size] == b"="
        )
        return content

    def _decode_with_blanks(self, text: bytes) -> bytes:
        text = self._remove_blanks(text)
        complete_size = len(text) - len(text) % 4
        if complete_size and self._ended:
            raise MismatchError(_EXPECTED)
        complete = text[:complete_size]
        self._store_rest(text[complete_size:], ended=self._ended or complete.endswith(b"="))
        return decode(complete)

    def _remove_blanks(self, text: bytes) -> bytes:
        dense = text.translate(None, _WHITESPACE)
        self._blanks_left -= len(text) - len(dense)
        return dense

    def _store_rest(self, rest: bytes, *, ended: bool) -> None:
        self._rest, self._ended = rest, ended

    def finish(self) -> None:
        """Raise MismatchError where the text ended in the middle of a group."""
        if self._rest:
            raise MismatchError(_EXPECTED)


def compute_encoded_size(size: int) -> int:
    """How long the base64 text of so many bytes is."""
    return (size + 2) // 3 * 4
