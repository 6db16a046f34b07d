"""Parses and formats header values of mail.

A raw value is unfolded and still contains its encoded words (RFC 2047). Addresses are parsed before encoded words are
decoded, because a decoded word is only text. The standard library's header registry is not used: it decodes within
addresses, and takes minutes for some malicious values. All functions here take linear time.
"""

from __future__ import annotations

import binascii
import codecs
import re
import unicodedata
from typing import TYPE_CHECKING, NamedTuple

import pybase64

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_ADDRESS_HEADERS = {
    *("from", "sender", "to", "cc", "bcc", "reply-to", "disposition-notification-to", "return-receipt-to", "errors-to"),
    *("resent-from", "resent-sender", "resent-to", "resent-cc", "resent-bcc", "resent-reply-to"),
}
_CHARSET_SUPERSETS = {
    "ascii": "utf-8",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "euc_kr": "cp949",
    "shift_jis": "cp932",
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "tis-620": "cp874",
}
"""Charsets are decoded as supersets, because senders confuse them."""
_NON_MAIL_CODECS = {"idna", "punycode", "raw-unicode-escape", "unicode-escape", "undefined"}
"""Python's codecs that are not charsets of mail. `idna` and `punycode` take quadratic time."""

_ENCODED_WORD_BYTES = 45  # 60 in base64, of 75 (RFC 2047 section 2)
MAX_PLAIN_VALUE_CHARS = 900  # of 998 in a line (RFC 5322 section 2.1.1)

_WORD = r"=\?[^?\s]+\?[bBqQ]\?[^?]*\?="
_WORDS = re.compile(rf"{_WORD}(?:\s*{_WORD})*+")
_WORD_PARTS = re.compile(r"=\?([^?\s*]++)[^?\s]*+\?([bBqQ])\?([^?]*+)\?=")
# A quoted string, perhaps without its end, or encoded words separated from other text (RFC 2047 section 5). Words next
# to other text are matched as misplaced, so that the search does not restart at each of them.
_OPAQUE = re.compile(
    rf'(?P<quoted>"(?:[^"\\]|\\.)*+(?P<end>"?))|(?<![^\s(),;:]){_WORDS.pattern}(?:(?![^\s(),;:<])|(?P<misplaced>))',
    re.DOTALL,
)
_OPAQUE_OR_COMMENT = re.compile(rf"{_OPAQUE.pattern}|\(", re.DOTALL)
_COMMENT_TOKEN = re.compile(r"\\.|[()]", re.DOTALL)
_MAILBOX = re.compile(r"(?:<[^<>]*>?|[^,;<])+")
_ANGLE = re.compile(r"<([^<>]*)")
_ADDRESS_PREFIX = re.compile(r"(?:\s*@[^:]*:|[^:@\[]*+:)*+")  # a route (RFC 5322, 4.4), a group's name, mailto:
# The second alternative matches other words, so that the search does not restart within them.
_DOTTED_WORDS = re.compile(
    r"(?<![^\s@<:,;])(?:(?P<found>(?:\.*+[^\s@.]++|\.++)(?:\s*+[.@]++\s*+[^\s@.]*+)++)|\.*+[^\s@.]++)"
)
_SPECIALS = re.compile(r'[()<>\[\]:;@\\,."]')
_LINE_BREAKS = re.compile(r"[\r\n\0]+")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)


class _HeaderMailbox(NamedTuple):
    name_slice: slice
    """The position of the name in the raw value."""
    address: str


def unfold(value: str) -> str:
    """Return a header value in one line. 8-bit bytes, given as surrogates, are decoded as UTF-8."""
    if not value.isascii():
        value = value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return value.replace("\r", "").replace("\n", "").strip()


def decode_header(name: str, raw: str) -> str:
    """Decode the encoded words of a raw value.

    In an address header, a decoded name that contains special characters such as commas is quoted.
    """
    if "=?" not in raw:
        return raw
    if name.lower() not in _ADDRESS_HEADERS:
        return decode_words(raw)
    return _OPAQUE.sub(_decode_phrase, raw)


def decode_words(raw: str) -> str:
    """Decode all encoded words in a text. Those that are not valid base64 remain unchanged."""
    return _WORDS.sub(lambda words: _decode_word_run(words[0]), raw)


def parse_mailboxes(raw: str) -> Iterator[_HeaderMailbox]:
    """Yield the mailboxes of an address header's raw value, also of groups. Skip those without exactly one `@`."""
    structure = _mask_structure(raw)
    name_start = 0
    for piece in _MAILBOX.finditer(structure):
        start, end = piece.span()
        name_end = name_start
        for angle in _ANGLE.finditer(structure, start, end):
            name_end = angle.start()
            start, end = angle.span(1)
        before = _ADDRESS_PREFIX.match(structure, start, end)
        addresses = list(_DOTTED_WORDS.finditer(structure, before.end() if before else start, end))
        at = next((dotted for dotted in reversed(addresses) if dotted["found"] and "@" in dotted[0]), None)
        if at is None:
            continue  # a name with an unquoted comma continues in the next piece
        if at[0].count("@") == 1:
            places = range(*at.span())
            address = "".join(raw[place] for place in places if not structure[place].isspace())
            yield _HeaderMailbox(slice(name_start, name_end), address)
        name_start = piece.end() + 1


def decode_text(octets: bytes | bytearray, charset: str) -> str:
    """Decode bytes in any charset. An unknown charset is read as Latin-1, and undecodable bytes are replaced."""
    try:
        codec = codecs.lookup(charset).name
        text = octets.decode(
            "latin-1" if codec in _NON_MAIL_CODECS else _CHARSET_SUPERSETS.get(codec, codec), "replace"
        )
    except (LookupError, ValueError):
        text = octets.decode("latin-1")
    # Neither JSON nor SQLite accept unpaired surrogates.
    return text.encode("utf-8", "replace").decode("utf-8")


def fold(text: str) -> str:
    """Return text in NFC and case-folded, for comparisons."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())


def format_header(name: str, value: str) -> str:
    """Return a header line that decodes to exactly this value, encoded and folded if necessary.

    In address headers, only names are encoded, unless the rest is not printable ASCII.
    """
    if name.lower() in _ADDRESS_HEADERS:
        value = _encode_names(value)
        if value.isascii() and value.isprintable():
            return f"{name}: " + value.replace(", ", ",\r\n ")
    plain = value.isascii() and value.isprintable() and value == value.strip() and "=?" not in value
    if plain and len(value) <= MAX_PLAIN_VALUE_CHARS:
        return f"{name}: {value}"
    return f"{name}: " + "\r\n ".join(_encode_words(value))


def _mask_structure(raw: str) -> str:
    """Replace quoted strings and encoded words by letters, and comments by spaces, without changing the length."""
    pieces: list[str] = []
    position = 0
    while opaque := _OPAQUE_OR_COMMENT.search(raw, position):
        start, end = opaque.span()
        pieces.append(raw[position:start])
        if opaque["misplaced"] is not None:
            pieces.append(raw[start:end])
            position = end
            continue
        if opaque["quoted"] and not opaque["end"]:
            return "".join(pieces) + " " + _mask_structure(raw[start + 1 :].replace('"', "x"))
        if opaque[0] == "(":  # a quotation mark in a comment is text
            end = _find_comment_end(raw, end)
        pieces.append((" " if opaque[0] == "(" else "x") * (end - start))
        position = end
    return "".join(pieces) + raw[position:]


def _find_comment_end(raw: str, position: int) -> int:
    depth = 1
    for mark in _COMMENT_TOKEN.finditer(raw, position):
        depth += {"(": 1, ")": -1}.get(mark[0], 0)
        if depth == 0:
            return mark.end()
    return len(raw)


def _decode_phrase(opaque: re.Match[str]) -> str:
    quoted = opaque["quoted"]
    if opaque["misplaced"] is not None:
        return opaque[0]
    if quoted is None:
        text = _decode_word_run(opaque[0])
        return _quote(text) if _SPECIALS.search(text) else text
    return _quote(decode_words(_unquote(quoted))) if opaque["end"] and "=?" in quoted else quoted


def _quote(text: str) -> str:
    return '"' + re.sub(r'(["\\])', r"\\\1", text) + '"'


def _unquote(phrase: str) -> str:
    return _ESCAPE.sub(r"\1", phrase[1:-1])


def _decode_word_run(words: str) -> str:
    """Decode adjacent encoded words, or return them unchanged if one is not valid base64.

    Words of one charset are joined first, because some senders split characters.
    """
    runs: list[tuple[str, bytearray]] = []
    for charset, encoding, content in _WORD_PARTS.findall(words):
        try:
            if encoding in "qQ":
                octets = binascii.a2b_qp(content.encode("utf-8", "replace"), header=True)
            else:
                octets = binascii.a2b_base64(content.encode("utf-8", "replace") + b"==")
        except binascii.Error:
            return words
        if not runs or runs[-1][0] != charset.lower():
            runs.append((charset.lower(), bytearray()))
        runs[-1][1].extend(octets)
    return _LINE_BREAKS.sub(" ", "".join(decode_text(octets, charset) for charset, octets in runs))


def _encode_names(value: str) -> str:
    pieces: list[str] = []
    copied = 0
    for mailbox in parse_mailboxes(value):
        written = value[mailbox.name_slice]
        name = written.strip()
        if not name or (name.isascii() and "=?" not in name):
            continue
        start = mailbox.name_slice.start + written.index(name)
        text = _unquote(name) if name[0] == name[-1] == '"' else name
        pieces += [value[copied:start], " ".join(_encode_words(text)), " "]
        copied = mailbox.name_slice.stop
    return "".join([*pieces, value[copied:]])


def _encode_words(value: str) -> Iterable[str]:
    word = b""
    for character in value:
        octets = character.encode("utf-8")
        if len(word) + len(octets) > _ENCODED_WORD_BYTES:
            yield f"=?utf-8?B?{pybase64.b64encode(word).decode('ascii')}?="
            word = b""
        word += octets
    yield f"=?utf-8?B?{pybase64.b64encode(word).decode('ascii')}?="
