"""From RFC 5322 bytes to the members of a MessageDetail, once per message, when it enters the store.

A mail store takes what it is given: whatever is malformed is read as well as it goes, never refused. The standard
library's older message class is used because it keeps the text of headers as it came; every part but multipart ones is
a leaf to it here, so that a forwarded message/rfc822 comes back byte for byte.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from email.errors import MessageError
from email.header import decode_header
from email.message import Message
from email.parser import BytesParser
from email.utils import collapse_rfc2231_value, getaddresses, parsedate_to_datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pybase64

if TYPE_CHECKING:
    from collections.abc import Iterator

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_RECIPIENT_TYPES = {"to": "TO", "cc": "CC", "bcc": "BCC"}


class Content(NamedTuple):
    """A message as the store keeps it: the bytes, and what was read from them.

    sender, subject: case-folded, to search in. sent_ms: the Date header in milliseconds since 1970.
    metadata, detail: members of MessageDetail that depend on the bytes alone, as a JSON object without and with
    the body and the attachments' content.
    """

    raw: bytes
    digest: str
    message_id: str | None
    sender: str
    subject: str
    sent_ms: int | None
    metadata: bytes
    detail: bytes


class Attachment(NamedTuple):
    """A part of a message that is not its body."""

    filename: str
    content_type: str
    content: bytes


class Reading(NamedTuple):
    """What a message says: its headers, decoded and unfolded, its body and its attachments."""

    headers: list[tuple[str, str]]
    body: str
    html_body: bool
    attachments: list[Attachment]

    def header(self, name: str) -> str | None:
        """The first header of this name."""
        return next((value for key, value in self.headers if key.lower() == name), None)


def content_of(raw: bytes, known: Reading | None = None) -> Content:
    """Read a message for the store; whoever composed it knows what it says, and spares the reading."""
    reading = read_message(raw) if known is None else known
    message_id, sender, subject = (reading.header(name) for name in ("message-id", "from", "subject"))
    members: dict[str, Any] = {
        "sender": _first_address(sender),
        "subject": subject,
        "body": None,
        "htmlBody": reading.html_body,
        "recipients": _recipients(reading),
        "attachments": [{"filename": part.filename, "contentType": part.content_type} for part in reading.attachments],
        "msgID": message_id,
        "size": len(raw),
        "replyTo": _first_address(reading.header("reply-to")),
        "headers": [{"name": name, "value": value} for name, value in reading.headers],
    }
    metadata = msgspec.json.encode(members)
    members["body"] = reading.body
    for attachment, part in zip(members["attachments"], reading.attachments, strict=True):
        attachment["content"] = pybase64.b64encode(part.content).decode("ascii")
    return Content(
        raw=raw,
        digest=hashlib.sha256(raw).hexdigest(),
        message_id=message_id,
        sender=(sender or "").casefold(),
        subject=(subject or "").casefold(),
        sent_ms=_milliseconds(reading.header("date")),
        metadata=metadata,
        detail=msgspec.json.encode(members),
    )


def read_message(raw: bytes) -> Reading:
    """Read headers, body and attachments; bytes that defeat the parser are one plain text."""
    try:
        message = BytesParser(_class=_Part).parsebytes(raw)
        return _read(message)
    except (MessageError, ValueError, TypeError, LookupError, AttributeError, RecursionError):
        # RecursionError: parts nested too deeply. The others guard against the parser's trouble with malformed input.
        return Reading([], _text(raw, "utf-8"), html_body=False, attachments=[])


def read_headers(head: bytes) -> list[tuple[str, str]]:
    """The headers of a message, decoded and unfolded, from the bytes before its content."""
    return _headers(BytesParser(_class=_Part).parsebytes(head, headersonly=True))


class _Part(Message):
    """A message of which only multipart ones are taken apart."""

    def get_content_maintype(self) -> str:
        """The main type, where `message` is a leaf's."""
        maintype = super().get_content_maintype()
        return "application" if maintype == "message" else maintype

    def get_content_type(self) -> str:
        """The type, where a delivery status is a leaf's."""
        content_type = super().get_content_type()
        # The parser has a rule of its own for this one type, which would split it.
        return "application/delivery-status" if content_type == "message/delivery-status" else content_type


def _read(message: _Part) -> Reading:
    body: _Part | None = None
    attachments: list[Attachment] = []
    for part, rival in _leaves(message):
        is_text = part.get_content_type() in ("text/plain", "text/html") and not _is_attachment(part)
        if is_text and body is None:
            body = part
        elif is_text and rival and part.get_content_type() == "text/html":
            body = part  # of alternatives the last is the best (RFC 2046 section 5.1.4)
        elif not (is_text and rival):
            attachments.append(_attachment(part, len(attachments) + 1))
    return Reading(
        headers=_headers(message),
        body="" if body is None else _text(_payload(body), body.get_content_charset("utf-8")),
        html_body=body is not None and body.get_content_type() == "text/html",
        attachments=attachments,
    )


def _headers(message: _Part) -> list[tuple[str, str]]:
    return [(name, header_text(str(value))) for name, value in message.raw_items()]


def _leaves(part: _Part, rival: bool = False) -> Iterator[tuple[_Part, bool]]:
    """The parts that hold something, in order, and whether each is one of several alternatives."""
    if not part.is_multipart():
        yield part, rival
        return
    alternatives = rival or part.get_content_type() == "multipart/alternative"
    for child in part.get_payload():
        if isinstance(child, _Part):
            yield from _leaves(child, alternatives)


def _is_attachment(part: _Part) -> bool:
    return part.get_content_disposition() == "attachment" or _filename(part) is not None


def _attachment(part: _Part, number: int) -> Attachment:
    filename = _filename(part)
    return Attachment(
        filename=f"attachment-{number}" if filename is None else filename,
        content_type=header_text(str(part.get("Content-Type", "text/plain"))),
        content=_payload(part),
    )


def _filename(part: _Part) -> str | None:
    for header, parameter in (("content-disposition", "filename"), ("content-type", "name")):
        value = part.get_param(parameter, header=header)
        if isinstance(value, tuple):
            return _storable(collapse_rfc2231_value(value))
        if value is not None:
            return header_text(value)
    return None


def _payload(part: _Part) -> bytes:
    payload = part.get_payload(decode=True)
    return payload if isinstance(payload, bytes) else b""


def _text(octets: bytes, charset: str) -> str:
    try:
        text = octets.decode(charset, "replace")
    except (LookupError, ValueError):
        text = octets.decode("latin-1")
    return _storable(text)


def header_text(value: str) -> str:
    """A header value unfolded, with its encoded words (RFC 2047) and raw 8-bit text decoded."""
    if not value.isascii():
        value = value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    unfolded = value.replace("\r", "").replace("\n", "").strip()
    if "=?" not in unfolded:
        return unfolded
    try:
        pieces = decode_header(unfolded)
        return _storable("".join(p if isinstance(p, str) else p.decode(c or "ascii", "replace") for p, c in pieces))
    except (MessageError, LookupError, ValueError):
        return unfolded


def _storable(text: str) -> str:
    """Text without unpaired surrogates, which some charsets can yield and neither JSON nor SQLite can hold."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _first_address(header: str | None) -> str | None:
    addresses = [] if header is None else getaddresses([header])
    return next((address for _, address in addresses if address), header)


def _recipients(reading: Reading) -> list[dict[str, str]]:
    return [
        {"email": address, "type": kind}
        for header, kind in _RECIPIENT_TYPES.items()
        for name, value in reading.headers
        if name.lower() == header
        for _, address in getaddresses([value])
        if address
    ]


def _milliseconds(date: str | None) -> int | None:
    try:
        moment = parsedate_to_datetime(date or "")
        if moment.year < 1900:  # RFC 5322 section 3.3
            return None
        aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        return (aware.astimezone(UTC) - _EPOCH) // timedelta(milliseconds=1)
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
