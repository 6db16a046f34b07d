"""A received message as RFC 5322 bytes: the same ones for the same message, on every version of Python.

Written piece by piece, for the standard library's generator folds differently from version to version, and refuses what
a hostile sender may write. Whatever stands in a message, a header line stays one: line breaks become spaces, and
what is not ASCII becomes encoded words (RFC 2047). The text is quoted-printable and files are base64: neither can
contain the boundary.
"""

from __future__ import annotations

import binascii
import contextlib
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from email.header import Header
from email.utils import encode_rfc2231, format_datetime, quote, unquote

import pybase64

from directsuite.messaging.models import Attachment, MessageDetail

_LINE = 76  # characters, aimed at
_LONGEST_WORD = 900  # characters that may stand in one line, which holds 998 (RFC 5322, 2.1.1)
_LONGEST_VALUE = 16_384  # characters kept of one value: nobody reads more of a subject
_LONGEST_FILENAME = 255  # bytes
_PIECE = 57 * 4096  # bytes of a file encoded at a time: whole lines of base64

_BREAKS = re.compile("[\x00-\x20\x7f-\x9f\u2028\u2029]+")
_NAME = re.compile(r"[!-9;-~]{1,100}", re.ASCII)
_ADDRESS = re.compile(r"[^\s<>()\[\],;:\"\\@]{1,400}@[^\s<>()\[\],;:\"\\@]{1,400}")
_ATOMS = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~ -]*")
_MEDIA_TYPE = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,100}/[a-z0-9][a-z0-9!#$&^_.+-]{0,100}")
_CHARSET = re.compile(r";\s*charset\s*=\s*\"?([A-Za-z0-9_.:-]{1,40})", re.IGNORECASE | re.ASCII)
_BOUNDARY = "=_directsuite"


def eml_of(message: MessageDetail) -> Iterator[bytes]:
    """The message in pieces. Lines end in a line feed, as in a Maildir.

    From, To, Cc, Bcc, Reply-To, Subject, Date and Message-ID are the message's own; of the header lines given, all
    that say nothing of these or of how the parts are encoded.
    """
    yield _header(message)
    text = _part("text/html" if message.html_body else "text/plain", "utf-8")
    if not message.attachments:
        yield text + b"Content-Transfer-Encoding: quoted-printable\n\n" + _text(message.body)
        return
    yield _lines("Content-Type", ["multipart/mixed;", f'boundary="{_BOUNDARY}"'])
    yield f"\n--{_BOUNDARY}\n".encode()
    yield text + b"Content-Transfer-Encoding: quoted-printable\n\n" + _text(message.body)
    for attachment in message.attachments:
        yield f"\n--{_BOUNDARY}\n".encode() + _described(attachment)
        content = memoryview(attachment.content)
        for start in range(0, len(content), _PIECE):
            yield pybase64.encodebytes(content[start : start + _PIECE])
    yield f"\n--{_BOUNDARY}--\n".encode()


def _header(message: MessageDetail) -> bytes:
    own: dict[str, list[str]] = {}
    if message.sender:
        own["From"] = _address(message.sender)
    for recipient in message.recipients:
        name = {"CC": "Cc", "BCC": "Bcc"}.get(str(recipient.type).upper(), "To")
        if name in own:
            own[name][-1] += ","
        own.setdefault(name, []).extend(_address(recipient.email))
    if message.reply_to:
        own["Reply-To"] = _address(message.reply_to)
    if message.subject is not None:
        own["Subject"] = _words(message.subject)
    date = message.sent_date or message.received_date
    if date is not None:
        own["Date"] = [_date(date)]
    if message.msg_id:
        own["Message-ID"] = _words(message.msg_id if message.msg_id.startswith("<") else f"<{message.msg_id}>")
    lines = [_lines(name, words) for name, words in own.items()]
    reserved = {*map(str.lower, own), "mime-version"}
    for header in message.headers:
        name = header.name or ""
        if _NAME.fullmatch(name) and name.lower() not in reserved and not name.lower().startswith("content-"):
            lines.append(_lines(name, _words(header.value or "")))
    return b"".join([*lines, b"MIME-Version: 1.0\n"])


def _lines(name: str, words: Iterable[str]) -> bytes:
    """One header, folded between words."""
    pieces, width = [f"{name}:"], len(name) + 1
    for number, word in enumerate(words):
        fits = number == 0 or width + 1 + len(word) <= _LINE
        pieces.append(f" {word}" if fits else f"\n {word}")
        width = (width if fits else 0) + 1 + len(word)
    return "".join([*pieces, "\n"]).encode("ascii")


def _one_line(value: str) -> str:
    return _BREAKS.sub(" ", whole_text(value)).strip()


def _words(value: str) -> list[str]:
    text = _one_line(value[:_LONGEST_VALUE])
    plain = text.isascii() and all(len(word) <= _LONGEST_WORD for word in text.split(" "))
    return text.split() if plain else _encoded(text)


def _encoded(text: str) -> list[str]:
    return Header(text, "utf-8").encode().split()


def _address(value: str) -> list[str]:
    """An address, with its name or without. What is none, or can't be in ASCII, is the name of an empty group.

    So RFC 6857, 3.1.8, has it for addresses beyond ASCII, whose local part no encoded word may hold.
    """
    text = _one_line(value[:_LONGEST_VALUE])
    if address := _ascii_address(text):
        return [address]
    name, _, address = text.rpartition("<")
    if address.endswith(">") and (address := _ascii_address(address[:-1])):
        name = unquote(name.strip())
        return [*_words(name if _ATOMS.fullmatch(name) or not name.isascii() else f'"{quote(name)}"'), f"<{address}>"]
    return [*_encoded(text), ":;"]


def _ascii_address(text: str) -> str:
    """The address with its domain as DNS has it; empty where it is none, or has no such form."""
    local, at, domain = text.rpartition("@")
    with contextlib.suppress(UnicodeError):
        text = local + at + (domain if domain.isascii() else domain.encode("idna").decode("ascii"))
    return text if text.isascii() and _ADDRESS.fullmatch(text) and "=?" not in text else ""


def _date(date: datetime) -> str:
    with contextlib.suppress(OverflowError):  # on the first and the last day of the calendar
        return format_datetime((date if date.tzinfo else date.replace(tzinfo=UTC)).astimezone(UTC))
    return format_datetime(date.replace(tzinfo=UTC))


def _part(media_type: str, charset: str | None) -> bytes:
    return _lines("Content-Type", [f"{media_type};", f'charset="{charset}"'] if charset else [media_type])


def _text(body: str | None) -> bytes:
    text = whole_text(body or "").replace("\r\n", "\n").replace("\r", "\n")
    return binascii.b2a_qp(text.encode(), istext=True) + (b"" if text.endswith("\n") else b"\n")


def _described(attachment: Attachment) -> bytes:
    media_type, charset = attachment.media_type, _CHARSET.search(attachment.content_type or "")
    if not _MEDIA_TYPE.fullmatch(media_type) or media_type.startswith(("message/", "multipart/")):
        media_type = "application/octet-stream"  # of those two base64 may not be (RFC 2045, 6.4)
    lines = _part(media_type, charset[1] if charset and media_type.startswith("text/") else None)
    disposition = ["attachment"]
    if attachment.filename:
        disposition = ["attachment;", _filename(attachment.filename)]
    return lines + b"Content-Transfer-Encoding: base64\n" + _lines("Content-Disposition", disposition) + b"\n"


def _filename(filename: str) -> str:
    name = _one_line(filename)
    if len(name.encode()) > _LONGEST_FILENAME:
        stem, dot, extension = name.rpartition(".")
        ending = dot + extension[:20] if dot else ""
        room = _LONGEST_FILENAME - len(ending.encode())
        name = (stem or extension).encode()[:room].decode("utf-8", "ignore") + ending
    return f'filename="{quote(name)}"' if name.isascii() else f"filename*={encode_rfc2231(name, 'utf-8')}"


def whole_text(text: str) -> str:
    """The text with each half of a surrogate pair that stands alone replaced by U+FFFD."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
