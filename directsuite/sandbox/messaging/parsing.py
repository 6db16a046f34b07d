"""From RFC 5322 bytes to the members of a MessageDetail, once per message, when it enters the store.

A mail store takes what it is given: whatever is malformed is read as well as it goes, never refused. A message is
divided into its parts here: the standard library's parser loses what follows a part with its outer one's boundary, ends
the headers at the first line that is none, and takes apart what is forwarded, which has to come back byte for byte. The
parameters of a part, and how its content is encoded, are read by the standard library.

A message in a file is read as one in memory is, mapped. Its attachments stay in the file, as ranges of it, where they
are in base64 or not encoded; what else it holds is taken into memory, and refused where that is too much.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import re
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
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

from directsuite.sandbox.files import FileRange
from directsuite.sandbox.messaging.headers import (
    decoded_text,
    decoded_words,
    fold,
    header_text,
    mailboxes,
    unfolded,
)
from directsuite.sandbox.refusals import MessagingCode, MessagingError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_OTHER_ENCODINGS = ("quoted-printable", "x-uuencode", "uuencode", "uue", "x-uue")  # that get_payload decodes
_RECIPIENT_TYPES = {"to": "TO", "cc": "CC", "bcc": "BCC"}

LARGE = 4096
"""Octets; an attachment of more is left in the file of its message."""
_LARGEST_READ = 96 * 2**20  # a text of 64 MiB, which a request may have, in base64
_TOO_LARGE = (
    f"The message has more than {_LARGEST_READ:,} bytes beside attachments that are in base64 or not encoded: headers,"
    " texts, and attachments in other encodings"
)

MAX_PARTS = 1000
"""The parts that a message is divided into. What follows them belongs to the last one."""
MAX_HEADER_LINES = 10_000
"""The lines that are read of the headers of a message or part. A header takes a hundred times its size in memory."""
MAX_RECIPIENTS = 10_000
"""The recipients that are read from a message's headers."""
_WINDOW = 2**16  # octets that are searched at once, so that others run meanwhile
_HYPHENS = re.compile(rb"(?:\A|(?<=[\r\n]))--")
_DELIMITER_LINE = re.compile(rb"(?:\A|(?<=[\r\n]))--([^\r\n]{0,65536})(?:\r\n|\r|\n|\Z)")
_LINE = re.compile(rb"[^\r\n]{1,134217728}(?:\r\n|\r|\n)?|\r\n|\r|\n")
_MBOX_LINE = re.compile(rb">?From ")
_HEADER_NAME = re.compile(rb"([!-9;-~]+)[ \t]*:")
_LONGEST_READ = 4096  # characters of a part's header; the time to read parameters grows with the square of their length


class _RawValues(Compat32):
    """Gives values with their 8-bit octets as surrogates, since boundaries and filenames have some; cuts long ones."""

    def header_fetch_parse(self, name: str, value: str) -> str:
        return value[:_LONGEST_READ]


_POLICY = _RawValues()


class Content(NamedTuple):
    """A message as the mailboxes keep it: the bytes, and what was read from them."""

    raw: bytes
    """Empty where they are in a file."""
    file: Path | None
    size: int
    """How many octets there are."""
    digest: str
    message_id: str | None
    sender: str
    """The From header, case-folded to search in."""
    subject: str
    """The Subject header, case-folded to search in."""
    sent_ms: int | None
    """The Date header in milliseconds since 1970."""
    metadata: bytes
    """What MessageDetail has of the bytes, as a JSON object, without the body and the attachments' content."""
    detail: bytes
    """The same with the body and the attachments' content: base64, or its place in the file (FileRange.place)."""


class Attachment(NamedTuple):
    """A part of a message that is not its body."""

    filename: str
    content_type: str
    content: bytes | FileRange

    @property
    def size(self) -> int:
        """How many octets its content has."""
        return len(self.content) if isinstance(self.content, bytes) else self.content.size


class Header(NamedTuple):
    """A header of a message."""

    name: str
    raw: str
    """The value, unfolded."""

    @property
    def text(self) -> str:
        """The value with its encoded words decoded."""
        return header_text(self.name, self.raw)


class Reading(NamedTuple):
    """What a message says: its headers, its body and its attachments."""

    headers: list[Header]
    body: str
    html_body: bool
    attachments: list[Attachment]

    def header(self, name: str) -> Header | None:
        """The first header of this name."""
        return next((header for header in self.headers if header.name.lower() == name), None)

    def text(self, name: str) -> str | None:
        """What the first header of this name says."""
        header = self.header(name)
        return None if header is None else header.text


class _Multipart(NamedTuple):
    """A multipart part."""

    boundary: bytes
    alternatives: bool
    """Whether it, or one around it, has the same in several forms."""
    content_type: str

    def after_its_first(self) -> _Multipart:
        """The same for its later parts, which are in no alternative's place unless they are alternatives themselves."""
        return self._replace(alternatives=self.content_type == "multipart/alternative")


class _Delimiter(NamedTuple):
    """A line that ends a part, and begins the next unless it closes the multipart part of its boundary."""

    start: int
    end: int
    boundary: bytes
    closes: bool


class _OpenParts:
    """The multipart parts around a place in a message, from the outside in.

    A delimiter means the innermost that has its boundary, for one may have the boundary of the one around it; those
    inside end with it.
    """

    def __init__(self, raw: bytes | mmap.mmap) -> None:
        self._raw = raw
        self._parts: list[_Multipart] = []
        self._boundaries: Counter[bytes] = Counter()

    @property
    def alternatives(self) -> bool:
        return bool(self._parts) and self._parts[-1].alternatives

    def open(self, part: _Multipart) -> None:
        self._parts.append(part)
        self._boundaries[part.boundary] += 1

    def close(self, boundary: bytes) -> None:
        self.back_to(boundary)
        self._boundaries[self._parts.pop().boundary] -= 1

    def next_part(self, boundary: bytes, *, first: bool) -> _Multipart:
        """Go on to a part of the multipart part that the boundary means, and give that one."""
        around = self.back_to(boundary)
        if not first:
            self._parts[-1] = around.after_its_first()
        return around

    def back_to(self, boundary: bytes) -> _Multipart:
        """End the parts inside the one that the boundary means, and give that one."""
        while self._parts[-1].boundary != boundary:
            self._boundaries[self._parts.pop().boundary] -= 1
        return self._parts[-1]

    def delimiter_after(self, position: int) -> _Delimiter | None:
        """The next delimiter of an open part."""
        if not self._parts:
            return None
        lines = _lines_with_hyphens(self._raw, position)
        return next((delimiter for line in lines if (delimiter := self.delimiter(line))), None)

    def delimiter(self, line: re.Match[bytes]) -> _Delimiter | None:
        """What a line that begins with two hyphens means to the open parts."""
        written = line[1].rstrip(b" \t")
        if self._boundaries[written]:
            return _Delimiter(*line.span(), written, closes=False)
        if written.endswith(b"--") and self._boundaries[written[:-2]]:
            return _Delimiter(*line.span(), written[:-2], closes=True)
        return None


class _Leaf(NamedTuple):
    """A part that is not multipart, and where its content is."""

    part: Message
    start: int
    end: int
    rival: bool
    """Whether it is one of several alternatives."""


class _Message:
    """The octets of a message, in memory or mapped, and how many of a mapped one were taken into memory."""

    def __init__(self, raw: bytes | Path) -> None:
        self.file = raw if isinstance(raw, Path) else None
        self.octets: bytes | mmap.mmap = _mapped(raw) if isinstance(raw, Path) else raw
        self._taken = 0

    def take(self, start: int, end: int) -> bytes:
        """Octets of it. Raises MessagingError where these are too many together."""
        self.count(end - start)
        return self.octets[start:end]

    def count(self, octets: int) -> None:
        """Count what is taken into memory. Raises MessagingError where that is too much."""
        self._taken += octets
        if self.file is not None and self._taken > _LARGEST_READ:
            raise MessagingError(MessagingCode.OTHER, _TOO_LARGE)


def content_of(raw: bytes | Path, composed: Reading | None = None) -> Content:
    """Read a message for the store; whoever composed it knows what it says, and spares the reading.

    Raises MessagingError for a file of which too much would have to be in memory.
    """
    reading = read_message(raw) if composed is None else composed
    message_id, date = reading.header("message-id"), reading.header("date")
    subject = reading.text("subject")
    digest, size = _digest(raw)
    members: dict[str, Any] = {
        "sender": _first_address(reading.header("from")),
        "subject": subject,
        "body": None,
        "htmlBody": reading.html_body,
        "recipients": _recipients(reading),
        "attachments": [{"filename": part.filename, "contentType": part.content_type} for part in reading.attachments],
        "msgID": None if message_id is None else message_id.raw,
        "size": size,
        "replyTo": _first_address(reading.header("reply-to")),
        "headers": [{"name": header.name, "value": header.text} for header in reading.headers],
    }
    metadata = msgspec.json.encode(members)
    members["body"] = reading.body
    for attachment, part in zip(members["attachments"], reading.attachments, strict=True):
        content = part.content
        attachment["content"] = (
            pybase64.b64encode(content).decode("ascii") if isinstance(content, bytes) else content.place()
        )
    return Content(
        raw=raw if isinstance(raw, bytes) else b"",
        file=raw if isinstance(raw, Path) else None,
        size=size,
        digest=digest,
        message_id=members["msgID"],
        sender=fold(reading.text("from") or ""),
        subject=fold(subject or ""),
        sent_ms=None if date is None else _milliseconds(date.raw),
        metadata=metadata,
        detail=msgspec.json.encode(members),
    )


def read_message(raw: bytes | Path) -> Reading:
    """Read headers, body and attachments; bytes that defeat the parser are one plain text.

    Raises MessagingError for a file of which too much would have to be in memory.
    """
    message = _Message(raw)
    try:
        return _read(message)
    except (MessageError, ValueError, TypeError, LookupError, AttributeError):
        # They guard against the standard library's trouble with malformed parameters and encodings.
        return Reading([], decoded_text(message.take(0, len(message.octets)), "utf-8"), html_body=False, attachments=[])


def plain_alternative(raw: bytes | Path) -> str | None:
    """The plain text that a message has as an alternative, to HTML for instance; None where it has none."""
    message = _Message(raw)
    try:
        leaves = _divided(message)[1]
        return next((_text(message, leaf) for leaf in leaves if leaf.rival and _is_text(leaf.part, "text/plain")), None)
    except (MessageError, ValueError, TypeError, LookupError, AttributeError):  # as in read_message
        return None


def read_headers(head: bytes) -> list[Header]:
    """The headers of a message from the bytes before its content."""
    return _headers(_head(_Message(head), 0, _OpenParts(head))[0])


def _read(message: _Message) -> Reading:
    body: _Leaf | None = None
    attachments: list[Attachment] = []
    head, leaves = _divided(message)
    for leaf in leaves:
        is_text = _is_text(leaf.part, "text/plain", "text/html")
        if is_text and body is None:
            body = leaf
        elif is_text and leaf.rival and leaf.part.get_content_type() == "text/html":
            body = leaf  # of alternatives the last is the best (RFC 2046 section 5.1.4)
        elif not (is_text and leaf.rival):
            attachments.append(_attachment(message, leaf, len(attachments) + 1))
    return Reading(
        headers=_headers(head),
        body="" if body is None else _text(message, body),
        html_body=body is not None and body.part.get_content_type() == "text/html",
        attachments=attachments,
    )


def _divided(message: _Message) -> tuple[Message, list[_Leaf]]:
    """The message's headers, and the parts that hold something, in order."""
    raw = message.octets
    leaves: list[_Leaf] = []
    around = _OpenParts(raw)
    top, start = _head(message, 0, around)
    part = top
    for _ in range(MAX_PARTS - 1):
        boundary = _boundary(part)
        if boundary:
            around.open(_multipart(part, boundary, around))
        delimiter = around.delimiter_after(start)
        if boundary and (delimiter is None or delimiter.boundary != boundary):
            around.close(boundary)
            boundary = b""  # none of its parts is there
        if not boundary:
            end = len(raw) if delimiter is None else _before_line_break(raw, start, delimiter.start)
            leaves.append(_Leaf(part, start, end, around.alternatives))
        while delimiter is not None and delimiter.closes:
            around.close(delimiter.boundary)
            delimiter = around.delimiter_after(delimiter.end)
            boundary = b""
        if delimiter is None:
            return top, leaves
        outer = around.next_part(delimiter.boundary, first=bool(boundary))
        part, start = _head(message, delimiter.end, around)
        part.set_default_type("message/rfc822" if outer.content_type == "multipart/digest" else "text/plain")
    leaves.append(_Leaf(part, start, len(raw), around.alternatives))
    return top, leaves


def _lines_with_hyphens(raw: bytes | mmap.mmap, position: int) -> Iterator[re.Match[bytes]]:
    """The lines from a position on that begin with two hyphens; base64, which has none, is passed over quickly."""
    while position < len(raw):
        end = position + _WINDOW
        if b"--" in raw[position : end + 1]:
            for hyphens in _HYPHENS.finditer(raw, position, end + 1):
                if line := _DELIMITER_LINE.match(raw, hyphens.start()):
                    yield line
        position = end


def _multipart(part: Message, boundary: bytes, around: _OpenParts) -> _Multipart:
    content_type = part.get_content_type()
    return _Multipart(
        boundary,
        alternatives=around.alternatives or content_type == "multipart/alternative",
        content_type=content_type,
    )


def _head(message: _Message, start: int, around: _OpenParts) -> tuple[Message, int]:
    """The headers of the part at this place, and where its content begins.

    There may be blanks before a colon, as in RFC 822. One line that is no header is passed over if headers go on after
    it, and so are the line that an mbox begins a message with, and lines of blanks before the first header.
    """
    raw = message.octets
    lines: list[bytes] = []
    stray: int | None = None
    position = start
    for line in _LINE.finditer(raw, start):
        message.count(line.end() - position)
        written, folded = line[0], line[0][:1] in (b" ", b"\t")
        if (delimiter := _DELIMITER_LINE.match(raw, position)) and around.delimiter(delimiter):
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


def _boundary(part: Message) -> bytes:
    boundary = part.get_boundary("") if part.get_content_maintype() == "multipart" else ""
    return boundary.encode("utf-8", "surrogateescape")


def _before_line_break(raw: bytes | mmap.mmap, start: int, end: int) -> int:
    """Where content ends without the line break that belongs to the delimiter after it (RFC 2046 section 5.1.1)."""
    for character in (b"\n", b"\r"):
        if end > start and raw[end - 1 : end] == character:
            end -= 1
    return end


def _headers(part: Message) -> list[Header]:
    return [Header(name, unfolded(str(value))) for name, value in part.raw_items()]


def _is_text(part: Message, *content_types: str) -> bool:
    return part.get_content_type() in content_types and not _is_attachment(part)


def _text(message: _Message, leaf: _Leaf) -> str:
    return decoded_text(_payload(message, leaf), leaf.part.get_content_charset("utf-8"))


def _is_attachment(part: Message) -> bool:
    return part.get_content_disposition() == "attachment" or _filename(part) is not None


def _attachment(message: _Message, leaf: _Leaf, number: int) -> Attachment:
    part, filename = leaf.part, _filename(leaf.part)
    return Attachment(
        filename=f"attachment-{number}" if filename is None else filename,
        content_type=_parameter_text(str(part.get("Content-Type", part.get_default_type()))),
        content=_in_file(message, leaf) or _payload(message, leaf),
    )


def _filename(part: Message) -> str | None:
    for header, parameter in (("content-disposition", "filename"), ("content-type", "name")):
        value = part.get_param(parameter, header=header)
        if isinstance(value, tuple):
            charset, _, text = value
            return decoded_text(text.encode("raw-unicode-escape"), charset or "utf-8")
        if value is not None:
            return _parameter_text(value)
    return None


def _parameter_text(value: str) -> str:
    """Parameters have no encoded words (RFC 2047 section 5), but many senders write some."""
    return decoded_words(unfolded(value))


def _payload(message: _Message, leaf: _Leaf) -> bytes:
    leaf.part.set_payload(message.take(leaf.start, leaf.end).decode("ascii", "surrogateescape"))
    payload = leaf.part.get_payload(decode=True)
    leaf.part.set_payload("")  # it is not needed twice
    return payload if isinstance(payload, bytes) else b""


def _in_file(message: _Message, leaf: _Leaf) -> FileRange | None:
    """The content of a part where it can stay in the message's file."""
    if message.file is None or leaf.end - leaf.start <= LARGE:
        return None
    written = FileRange(message.file, leaf.start, leaf.end)
    encoding = str(leaf.part.get("content-transfer-encoding", "")).lower()  # as Message.get_payload has it
    if encoding == "base64":
        return written.in_base64()
    return None if encoding in _OTHER_ENCODINGS else written


def _mapped(file: Path) -> bytes | mmap.mmap:
    with file.open("rb") as opened:
        empty = not opened.seek(0, os.SEEK_END)  # which can't be mapped
        return b"" if empty else mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)


def _digest(raw: bytes | Path) -> tuple[str, int]:
    """SHA-256 in hex, and how many octets there are."""
    if isinstance(raw, bytes):
        return hashlib.sha256(raw).hexdigest(), len(raw)
    with raw.open("rb") as read:
        return hashlib.file_digest(read, "sha256").hexdigest(), read.tell()


def _first_address(header: Header | None) -> str | None:
    """The first address; where there is none, what the header says."""
    if header is None:
        return None
    return next((mailbox.address for mailbox in mailboxes(header.raw)), header.text)


def _recipients(reading: Reading) -> list[dict[str, str]]:
    every = (
        {"email": mailbox.address, "type": kind}
        for name, kind in _RECIPIENT_TYPES.items()
        for header in reading.headers
        if header.name.lower() == name
        for mailbox in mailboxes(header.raw)
    )
    return list(islice(every, MAX_RECIPIENTS))


def _milliseconds(date: str) -> int | None:
    try:
        moment = parsedate_to_datetime(date)
        if moment.year < 1900:  # RFC 5322 section 3.3
            return None
        aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        return (aware.astimezone(UTC) - _EPOCH) // timedelta(milliseconds=1)
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
