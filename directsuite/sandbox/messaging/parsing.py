"""From RFC 5322 bytes to the members of a MessageDetail, once per message, when it enters the store.

A mail store takes what it is given: whatever is malformed is read as well as it goes, never refused. A message is
divided into its parts here: the standard library's parser loses what follows a part with its outer one's boundary, ends
the headers at the first line that is none, and takes apart what is forwarded, which has to come back byte for byte. The
parameters of a part, and how its content is encoded, are read by the standard library.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from datetime import UTC, datetime, timedelta
from email.errors import MessageError
from email.message import Message
from email.parser import BytesHeaderParser
from email.policy import Compat32
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple

import msgspec
import pybase64

from directsuite.sandbox.messaging.headers import (
    decoded_text,
    decoded_words,
    header_text,
    mailboxes,
    unfolded,
)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_RECIPIENT_TYPES = {"to": "TO", "cc": "CC", "bcc": "BCC"}

_DELIMITER_LINE = re.compile(rb"(?:\A|(?<=[\r\n]))--([^\r\n]*)(?:\r\n|\r|\n|\Z)")
_LINE = re.compile(rb"[^\r\n]+(?:\r\n|\r|\n|\Z)|\r\n|\r|\n")
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
    """The same with the body and the attachments' content."""


class Attachment(NamedTuple):
    """A part of a message that is not its body."""

    filename: str
    content_type: str
    content: bytes


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

    def __init__(self, raw: bytes) -> None:
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
        lines = _DELIMITER_LINE.finditer(self._raw, position)
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
    """A part that is not multipart."""

    part: Message
    rival: bool
    """Whether it is one of several alternatives."""


def content_of(raw: bytes, composed: Reading | None = None) -> Content:
    """Read a message for the store; whoever composed it knows what it says, and spares the reading."""
    reading = read_message(raw) if composed is None else composed
    message_id, date = reading.header("message-id"), reading.header("date")
    subject = reading.text("subject")
    members: dict[str, Any] = {
        "sender": _first_address(reading.header("from")),
        "subject": subject,
        "body": None,
        "htmlBody": reading.html_body,
        "recipients": _recipients(reading),
        "attachments": [{"filename": part.filename, "contentType": part.content_type} for part in reading.attachments],
        "msgID": None if message_id is None else message_id.raw,
        "size": len(raw),
        "replyTo": _first_address(reading.header("reply-to")),
        "headers": [{"name": header.name, "value": header.text} for header in reading.headers],
    }
    metadata = msgspec.json.encode(members)
    members["body"] = reading.body
    for attachment, part in zip(members["attachments"], reading.attachments, strict=True):
        attachment["content"] = pybase64.b64encode(part.content).decode("ascii")
    return Content(
        raw=raw,
        digest=hashlib.sha256(raw).hexdigest(),
        message_id=members["msgID"],
        sender=(reading.text("from") or "").casefold(),
        subject=(subject or "").casefold(),
        sent_ms=None if date is None else _milliseconds(date.raw),
        metadata=metadata,
        detail=msgspec.json.encode(members),
    )


def read_message(raw: bytes) -> Reading:
    """Read headers, body and attachments; bytes that defeat the parser are one plain text."""
    try:
        return _read(raw)
    except (MessageError, ValueError, TypeError, LookupError, AttributeError):
        # They guard against the standard library's trouble with malformed parameters and encodings.
        return Reading([], decoded_text(raw, "utf-8"), html_body=False, attachments=[])


def plain_alternative(raw: bytes) -> str | None:
    """The plain text that a message has as an alternative, to HTML for instance; None where it has none."""
    try:
        leaves = _divided(raw)[1]
        return next((_text(part) for part, rival in leaves if rival and _is_text(part, "text/plain")), None)
    except (MessageError, ValueError, TypeError, LookupError, AttributeError):  # as in read_message
        return None


def read_headers(head: bytes) -> list[Header]:
    """The headers of a message from the bytes before its content."""
    return _headers(_head(head, 0, _OpenParts(head))[0])


def _read(raw: bytes) -> Reading:
    body: Message | None = None
    attachments: list[Attachment] = []
    head, leaves = _divided(raw)
    for part, rival in leaves:
        is_text = _is_text(part, "text/plain", "text/html")
        if is_text and body is None:
            body = part
        elif is_text and rival and part.get_content_type() == "text/html":
            body = part  # of alternatives the last is the best (RFC 2046 section 5.1.4)
        elif not (is_text and rival):
            attachments.append(_attachment(part, len(attachments) + 1))
    return Reading(
        headers=_headers(head),
        body="" if body is None else _text(body),
        html_body=body is not None and body.get_content_type() == "text/html",
        attachments=attachments,
    )


def _divided(raw: bytes) -> tuple[Message, list[_Leaf]]:
    """The message's headers, and the parts that hold something, in order."""
    leaves: list[_Leaf] = []
    around = _OpenParts(raw)
    top, start = _head(raw, 0, around)
    part = top
    while True:
        boundary = _boundary(part)
        if boundary:
            around.open(_multipart(part, boundary, around))
        delimiter = around.delimiter_after(start)
        if boundary and (delimiter is None or delimiter.boundary != boundary):
            around.close(boundary)
            boundary = b""  # none of its parts is there
        if not boundary:
            content = raw[start:] if delimiter is None else _without_line_break(raw[start : delimiter.start])
            part.set_payload(content.decode("ascii", "surrogateescape"))
            leaves.append(_Leaf(part, around.alternatives))
        while delimiter is not None and delimiter.closes:
            around.close(delimiter.boundary)
            delimiter = around.delimiter_after(delimiter.end)
            boundary = b""
        if delimiter is None:
            return top, leaves
        outer = around.next_part(delimiter.boundary, first=bool(boundary))
        part, start = _head(raw, delimiter.end, around)
        part.set_default_type("message/rfc822" if outer.content_type == "multipart/digest" else "text/plain")


def _multipart(part: Message, boundary: bytes, around: _OpenParts) -> _Multipart:
    content_type = part.get_content_type()
    return _Multipart(
        boundary,
        alternatives=around.alternatives or content_type == "multipart/alternative",
        content_type=content_type,
    )


def _head(raw: bytes, start: int, around: _OpenParts) -> tuple[Message, int]:
    """The headers of the part at this place, and where its content begins.

    There may be blanks before a colon, as in RFC 822. One line that is no header is passed over where headers go on
    after it, and so is the line that an mbox begins a message with.
    """
    lines: list[bytes] = []
    stray: int | None = None
    position = start
    for line in _LINE.finditer(raw, start):
        written, folded = line[0], line[0][:1] in (b" ", b"\t")
        if (delimiter := _DELIMITER_LINE.match(raw, position)) and around.delimiter(delimiter):
            break
        if not written.strip(b"\r\n"):
            position = line.end()
            break
        if name := _HEADER_NAME.match(written):
            lines.append(name[1] + b":" + written[name.end() :])
            stray = None
        elif folded and lines and stray is None:
            lines.append(written)
        elif stray is None and (lines or _MBOX_LINE.match(written)):
            stray = position
        elif stray is None or not folded:
            break
        position = line.end()
    return BytesHeaderParser(policy=_POLICY).parsebytes(b"".join(lines)), position if stray is None else stray


def _boundary(part: Message) -> bytes:
    boundary = part.get_boundary("") if part.get_content_maintype() == "multipart" else ""
    return boundary.encode("utf-8", "surrogateescape")


def _without_line_break(content: bytes) -> bytes:
    """The content without the line break that belongs to the delimiter after it (RFC 2046 section 5.1.1)."""
    return content.removesuffix(b"\n").removesuffix(b"\r")


def _headers(part: Message) -> list[Header]:
    return [Header(name, unfolded(str(value))) for name, value in part.raw_items()]


def _is_text(part: Message, *content_types: str) -> bool:
    return part.get_content_type() in content_types and not _is_attachment(part)


def _text(part: Message) -> str:
    return decoded_text(_payload(part), part.get_content_charset("utf-8"))


def _is_attachment(part: Message) -> bool:
    return part.get_content_disposition() == "attachment" or _filename(part) is not None


def _attachment(part: Message, number: int) -> Attachment:
    filename = _filename(part)
    return Attachment(
        filename=f"attachment-{number}" if filename is None else filename,
        content_type=_parameter_text(str(part.get("Content-Type", part.get_default_type()))),
        content=_payload(part),
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


def _payload(part: Message) -> bytes:
    payload = part.get_payload(decode=True)
    return payload if isinstance(payload, bytes) else b""


def _first_address(header: Header | None) -> str | None:
    """The first address; where there is none, what the header says."""
    if header is None:
        return None
    return next((mailbox.address for mailbox in mailboxes(header.raw)), header.text)


def _recipients(reading: Reading) -> list[dict[str, str]]:
    return [
        {"email": mailbox.address, "type": kind}
        for name, kind in _RECIPIENT_TYPES.items()
        for header in reading.headers
        if header.name.lower() == name
        for mailbox in mailboxes(header.raw)
    ]


def _milliseconds(date: str) -> int | None:
    try:
        moment = parsedate_to_datetime(date)
        if moment.year < 1900:  # RFC 5322 section 3.3
            return None
        aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        return (aware.astimezone(UTC) - _EPOCH) // timedelta(milliseconds=1)
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
