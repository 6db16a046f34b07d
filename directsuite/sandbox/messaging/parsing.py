"""Parses RFC 5322 messages into the members of a MessageDetail, once per message, before it is stored.

Malformed messages are read as far as possible and never rejected. The standard library's parser is not used to divide
a message into its parts: it loses what follows a part that reuses the outer boundary, ends the headers at the first
line that is not a header, and parses forwarded messages, which must be returned byte for byte.

A message in a file is mapped into memory. Its attachments in base64 or without encoding stay in the file, as ranges of
it. All other content is read into memory, and rejected if it is too large.
"""

from __future__ import annotations

import mmap
import os
import re
from datetime import UTC
from email.errors import MessageError
from email.message import Message
from email.parser import BytesHeaderParser
from email.policy import Compat32
from email.utils import parsedate_to_datetime
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pybase64

from directsuite.sandbox.clock import to_milliseconds
from directsuite.sandbox.files import FileRange, compute_digest
from directsuite.sandbox.messaging.headers import (
    decode_header,
    decode_text,
    decode_words,
    fold,
    parse_mailboxes,
    unfold,
)
from directsuite.sandbox.rejections import MessagingError

_OTHER_ENCODINGS = ("quoted-printable", "x-uuencode", "uuencode", "uue", "x-uue")  # get_payload decodes them
_RECIPIENT_TYPES = {"to": "TO", "cc": "CC", "bcc": "BCC"}

MAX_INLINE_BYTES = 4096
"""Larger attachments stay in the file of the message."""
_MAX_READ_BYTES = 96 * 2**20  # 64 MiB, the limit of a request, in base64
_TOO_LARGE_TEXT = (
    f"The message has more than {_MAX_READ_BYTES:,} bytes of headers, texts, and attachments that are encoded, but not"
    " in base64"
)

MAX_PARTS = 1000
"""The maximum number of parts. The last one contains the rest of the message."""
MAX_HEADER_LINES = 10_000
"""The maximum per part, because a header takes a hundred times its size in memory."""
MAX_RECIPIENTS = 10_000
"""The maximum number that is read from a message's headers."""
_SEARCH_WINDOW_BYTES = 2**16  # per search, which holds the GIL
_HYPHENS = re.compile(rb"(?:\A|(?<=[\r\n]))--")
_DELIMITER_LINE = re.compile(rb"(?:\A|(?<=[\r\n]))--([^\r\n]{0,65536})(?:\r\n|\r|\n|\Z)")
_LINE = re.compile(rb"[^\r\n]{1,134217728}(?:\r\n|\r|\n)?|\r\n|\r|\n")
_MBOX_LINE = re.compile(rb">?From ")
_HEADER_NAME = re.compile(rb"([!-9;-~]+)[ \t]*:")
_MAX_HEADER_CHARS = 4096  # because parsing of parameters takes quadratic time


class _RawHeaderPolicy(Compat32):
    def header_fetch_parse(self, name: str, value: str) -> str:
        return value[:_MAX_HEADER_CHARS]


_POLICY = _RawHeaderPolicy()


class StoredContent(NamedTuple):
    """A message in its stored form."""

    raw: bytes
    """The bytes of the message, empty if it is in a file."""
    file: Path | None
    size: int
    digest: str
    message_id: str | None
    sender: str
    """The From header, folded for searches."""
    subject: str
    sent_ms: int | None
    """The Date header in milliseconds since 1970."""
    metadata: bytes
    """The JSON of MessageDetail without body and attachments' content."""
    detail: bytes
    """`metadata` with body and attachments' content: base64, or its range of the file (FileRange.to_list)."""


class MessageAttachment(NamedTuple):
    """A part of a message other than its body."""

    filename: str
    content_type: str
    content: bytes | FileRange

    @property
    def size(self) -> int:
        """The size of the content in bytes."""
        return len(self.content) if isinstance(self.content, bytes) else self.content.size


class Header(NamedTuple):
    """A header of a message."""

    name: str
    raw: str
    """The value, unfolded."""

    @property
    def text(self) -> str:
        """The value with encoded words decoded."""
        return decode_header(self.name, self.raw)


class ParsedMessage(NamedTuple):
    """A parsed message."""

    headers: list[Header]
    body: str
    html_body: bool
    attachments: list[MessageAttachment]

    def find_header(self, name: str) -> Header | None:
        """Return the first header of this name (given in lower case), or None."""
        return next((header for header in self.headers if header.name.lower() == name), None)

    def find_header_text(self, name: str) -> str | None:
        """Return the decoded value of the first header of this name (given in lower case), or None."""
        header = self.find_header(name)
        return None if header is None else header.text


class _Multipart(NamedTuple):
    boundary: bytes
    is_alternative: bool
    """True if this part, or one that contains it, is multipart/alternative."""
    content_type: str


class _Delimiter(NamedTuple):
    """A line that ends a part. Unless it is closing, the next part follows."""

    start: int
    end: int
    boundary: bytes
    is_closing: bool


class _ContentPart(NamedTuple):
    part: Message
    start: int
    end: int
    is_alternative: bool


class _MessageOctets:
    def __init__(self, raw: bytes | Path) -> None:
        self.file = raw if isinstance(raw, Path) else None
        self.octets: bytes | mmap.mmap = _map_file(raw) if isinstance(raw, Path) else raw
        self._octets_read = 0

    def read_octets(self, start: int, end: int) -> bytes:
        self.count_octets(end - start)
        return self.octets[start:end]

    def count_octets(self, octets: int) -> None:
        self._octets_read += octets
        if self.file is not None and self._octets_read > _MAX_READ_BYTES:
            raise MessagingError(_TOO_LARGE_TEXT)


def build_content(raw: bytes | Path) -> StoredContent:
    """Return the stored form of a message."""
    reading = read_message(raw)
    message_id, date = reading.find_header("message-id"), reading.find_header("date")
    subject = reading.find_header_text("subject")
    digest, size = compute_digest(raw)
    members: dict[str, Any] = {
        "sender": _find_first_address(reading.find_header("from")) or "",
        "subject": subject,
        "body": None,
        "htmlBody": reading.html_body,
        "recipients": _list_recipients(reading),
        "attachments": [{"filename": part.filename, "contentType": part.content_type} for part in reading.attachments],
        "msgID": None if message_id is None else message_id.raw,
        "size": size,
        "replyTo": _find_first_address(reading.find_header("reply-to")),
        "headers": [{"name": header.name, "value": header.text} for header in reading.headers],
    }
    metadata = msgspec.json.encode(members)
    members["body"] = reading.body
    for attachment, part in zip(members["attachments"], reading.attachments, strict=True):
        content = part.content
        attachment["content"] = (
            pybase64.b64encode(content).decode("ascii") if isinstance(content, bytes) else content.to_list()
        )
    return StoredContent(
        raw=raw if isinstance(raw, bytes) else b"",
        file=raw if isinstance(raw, Path) else None,
        size=size,
        digest=digest,
        message_id=members["msgID"],
        sender=fold(reading.find_header_text("from") or ""),
        subject=fold(subject or ""),
        sent_ms=None if date is None else _parse_date(date.raw),
        metadata=metadata,
        detail=msgspec.json.encode(members),
    )


def read_message(raw: bytes | Path) -> ParsedMessage:
    """Parse a message. If parsing fails, return it as plain text without headers."""
    message = _MessageOctets(raw)
    try:
        return _read_parts(message)
    except (MessageError, ValueError, TypeError, LookupError, AttributeError):
        # raised for malformed parameters and encodings
        return ParsedMessage(
            [], decode_text(message.read_octets(0, len(message.octets)), "utf-8"), html_body=False, attachments=[]
        )


def _read_parts(message: _MessageOctets) -> ParsedMessage:
    body: _ContentPart | None = None
    attachments: list[MessageAttachment] = []
    head, leaves = _divide(message)
    for leaf in leaves:
        is_text = _is_text(leaf.part, "text/plain", "text/html")
        if is_text and body is None:
            body = leaf
        elif is_text and leaf.is_alternative and leaf.part.get_content_type() == "text/html":
            body = leaf  # the last is the preferred one (RFC 2046 section 5.1.4)
        elif not (is_text and leaf.is_alternative):
            attachments.append(_read_attachment(message, leaf, len(attachments) + 1))
    return ParsedMessage(
        headers=[Header(name, unfold(str(value))) for name, value in head.raw_items()],
        body="" if body is None else decode_text(_read_payload(message, body), body.part.get_content_charset("utf-8")),
        html_body=body is not None and body.part.get_content_type() == "text/html",
        attachments=attachments,
    )


def _divide(message: _MessageOctets) -> tuple[Message, list[_ContentPart]]:
    """Return the headers of a message, and its parts that are not multiparts.

    `around` are the multiparts that contain a position, outermost first. If they share a boundary, a delimiter belongs
    to the innermost one, and ends those inside it.
    """
    raw = message.octets
    leaves: list[_ContentPart] = []
    around: list[_Multipart] = []
    top, start = _read_head(message, 0, around)
    part = top
    for _ in range(MAX_PARTS - 1):
        content_type, boundary = part.get_content_type(), b""
        is_alternative = bool(around) and around[-1].is_alternative
        if part.get_content_maintype() == "multipart":
            boundary = part.get_boundary("").encode("utf-8", "surrogateescape")
        if boundary:
            contains_choices = is_alternative or content_type == "multipart/alternative"
            around.append(_Multipart(boundary, contains_choices, content_type))
        delimiter = _find_delimiter(raw, start, around)
        if boundary and (delimiter is None or delimiter.boundary != boundary):
            around.pop()
            boundary = b""  # a multipart without parts: treat it as one part
        if not boundary:
            end = len(raw) if delimiter is None else _strip_line_break(raw, start, delimiter.start)
            leaves.append(_ContentPart(part, start, end, is_alternative))
        while delimiter is not None and delimiter.is_closing:
            _close_inner_parts(around, delimiter.boundary)
            around.pop()
            delimiter = _find_delimiter(raw, delimiter.end, around)
            boundary = b""
        if delimiter is None:
            return top, leaves
        outer = _close_inner_parts(around, delimiter.boundary)
        if not boundary:  # for its second and later parts, `is_alternative` ignores the parts that contain it
            around[-1] = outer._replace(is_alternative=outer.content_type == "multipart/alternative")
        part, start = _read_head(message, delimiter.end, around)
        part.set_default_type("message/rfc822" if outer.content_type == "multipart/digest" else "text/plain")
    leaves.append(_ContentPart(part, start, len(raw), bool(around) and around[-1].is_alternative))
    return top, leaves


def _close_inner_parts(around: list[_Multipart], boundary: bytes) -> _Multipart:
    while around[-1].boundary != boundary:
        around.pop()
    return around[-1]


def _find_delimiter(raw: bytes | mmap.mmap, position: int, around: list[_Multipart]) -> _Delimiter | None:
    boundaries = {part.boundary for part in around}
    while boundaries and position < len(raw):
        end = position + _SEARCH_WINDOW_BYTES
        if b"--" in raw[position : end + 1]:  # skips base64 quickly
            for hyphens in _HYPHENS.finditer(raw, position, end + 1):
                if found := _match_delimiter(raw, hyphens.start(), boundaries):
                    return found
        position = end
    return None


def _match_delimiter(raw: bytes | mmap.mmap, position: int, boundaries: set[bytes]) -> _Delimiter | None:
    line = _DELIMITER_LINE.match(raw, position)
    if line is None:
        return None
    written = line[1].rstrip(b" \t")
    closed = written.removesuffix(b"--")
    boundary = written if written in boundaries else closed
    return _Delimiter(*line.span(), boundary, boundary != written) if boundary in boundaries else None


def _read_head(message: _MessageOctets, start: int, around: list[_Multipart]) -> tuple[Message, int]:
    """Return the headers of the part at this position, and the position of its content.

    Spaces before a colon are allowed (RFC 822). A single line that is not a header is ignored if headers follow it.
    An mbox line `From ` and lines of spaces before the first header are also ignored.
    """
    raw, boundaries = message.octets, {part.boundary for part in around}
    lines: list[bytes] = []
    stray: int | None = None
    position = start
    for line in _LINE.finditer(raw, start):
        message.count_octets(line.end() - position)
        written, folded = line[0], line[0][:1] in (b" ", b"\t")
        if _match_delimiter(raw, position, boundaries):
            break
        if not written.strip(b"\r\n"):
            position = line.end()
            break
        is_read = len(lines) < MAX_HEADER_LINES
        if name := _HEADER_NAME.match(written):
            if is_read:
                lines.append(name[1] + b":" + written[name.end() :])
            stray = None
        elif folded and lines and stray is None:
            if is_read:
                lines.append(written)
        elif stray is None and (lines or folded or _MBOX_LINE.match(written)):
            stray = position
        elif stray is None or not folded:
            break
        position = line.end()
    return BytesHeaderParser(policy=_POLICY).parsebytes(b"".join(lines)), position if stray is None else stray


def _strip_line_break(raw: bytes | mmap.mmap, start: int, end: int) -> int:
    for character in (b"\n", b"\r"):  # RFC 2046 section 5.1.1
        if end > start and raw[end - 1 : end] == character:
            end -= 1
    return end


def _is_text(part: Message, *content_types: str) -> bool:
    is_attachment = part.get_content_disposition() == "attachment" or _find_filename(part) is not None
    return part.get_content_type() in content_types and not is_attachment


def _read_attachment(message: _MessageOctets, leaf: _ContentPart, number: int) -> MessageAttachment:
    part, filename = leaf.part, _find_filename(leaf.part)
    return MessageAttachment(
        filename=f"attachment-{number}" if filename is None else filename,
        content_type=_decode_parameter(str(part.get("Content-Type", part.get_default_type()))),
        content=_locate_in_file(message, leaf) or _read_payload(message, leaf),
    )


def _find_filename(part: Message) -> str | None:
    for header, parameter in (("content-disposition", "filename"), ("content-type", "name")):
        value = part.get_param(parameter, header=header)
        if isinstance(value, tuple):
            charset, _, text = value
            return decode_text(text.encode("raw-unicode-escape"), charset or "utf-8")
        if value is not None:
            return _decode_parameter(value)
    return None


def _decode_parameter(value: str) -> str:
    """Decode encoded words. RFC 2047 section 5 forbids them in parameters, but many senders use them."""
    return decode_words(unfold(value))


def _read_payload(message: _MessageOctets, leaf: _ContentPart) -> bytes:
    leaf.part.set_payload(message.read_octets(leaf.start, leaf.end).decode("ascii", "surrogateescape"))
    payload = leaf.part.get_payload(decode=True)
    leaf.part.set_payload("")  # free the memory
    return payload if isinstance(payload, bytes) else b""


def _locate_in_file(message: _MessageOctets, leaf: _ContentPart) -> FileRange | None:
    if message.file is None or leaf.end - leaf.start <= MAX_INLINE_BYTES:
        return None
    written = FileRange(message.file, leaf.start, leaf.end)
    encoding = str(leaf.part.get("content-transfer-encoding", "")).lower()  # as in Message.get_payload
    if encoding == "base64":
        return written.read_as_base64()
    return None if encoding in _OTHER_ENCODINGS else written


def _map_file(file: Path) -> bytes | mmap.mmap:
    with file.open("rb") as opened:
        empty = not opened.seek(0, os.SEEK_END)  # an empty file can't be mapped
        return b"" if empty else mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)


def _find_first_address(header: Header | None) -> str | None:
    if header is None:
        return None
    return next((mailbox.address for mailbox in parse_mailboxes(header.raw)), header.text)


def _list_recipients(reading: ParsedMessage) -> list[dict[str, str]]:
    every = (
        {"email": mailbox.address, "type": kind}
        for name, kind in _RECIPIENT_TYPES.items()
        for header in reading.headers
        if header.name.lower() == name
        for mailbox in parse_mailboxes(header.raw)
    )
    return list(islice(every, MAX_RECIPIENTS))


def _parse_date(date: str) -> int | None:
    try:
        moment = parsedate_to_datetime(date)
        if moment.year < 1900:  # RFC 5322 section 3.3
            return None
        return to_milliseconds(moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC))
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
