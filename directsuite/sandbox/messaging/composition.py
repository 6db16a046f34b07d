"""From a send request to the RFC 5322 bytes that are stored and delivered.

The message is put together from bytes, part by part, so that a large attachment is encoded once and copied once.
What cannot stand in a message without changing its structure (line breaks in a header, say) is refused.
"""

from __future__ import annotations

import os
import re
from email.utils import format_datetime
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

import pybase64

from directsuite.sandbox.messaging import Code, Refusal
from directsuite.sandbox.messaging.headers import LONGEST_PLAIN_VALUE, header_line
from directsuite.sandbox.messaging.parsing import Reading, content_of, read_headers

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from directsuite.sandbox.messaging.parsing import Attachment, Content
    from directsuite.sandbox.messaging.requests import Recipient

_ATOM = r"[\w!#$%&'*+/=?^`{|}~-]+"  # RFC 5322 section 3.2.3
_ADDRESS = re.compile(rf"{_ATOM}(?:\.{_ATOM})*@[a-z0-9-]+(?:\.[a-z0-9-]+)*", re.ASCII | re.IGNORECASE)
_LONGEST_ADDRESS = 254
_HEADER_NAME = re.compile(r"[!-9;-~]{1,76}")
_MEDIA_TYPE = re.compile(r"[\w!#$&^.+-]+/[\w!#$&^.+-]+ *(?:;[\t -~]*)?", re.ASCII)
_PLAIN_FILENAME = re.compile(r"[\w(),+.=@-]+(?: +[\w(),+.=@-]+)*", re.ASCII)
_LINE_BREAK = re.compile(r"\r\n|\r|\n")
_BREAKS_A_HEADER = re.compile(r"[\r\n\0]")

_OWN_HEADERS = frozenset(
    ("from", "sender", "to", "cc", "bcc", "subject", "date", "message-id", "mime-version", "received", "return-path")
)
_LONGEST_TEXT_LINE = 998
_LONGEST_FILENAME = 255
_LONGEST_PLAIN_FILENAME = 60
_FILENAME_SEGMENT = 60


class Draft(NamedTuple):
    """A message to compose."""

    sender: str
    recipients: Sequence[Recipient]
    subject: str | None
    body: str
    html_body: bool = False
    attachments: Sequence[Attachment] = ()
    headers: Sequence[tuple[str, str]] = ()


class Composed(NamedTuple):
    """A message in its two forms: the sender's copy, which names the BCC recipients, and everyone else's."""

    own_copy: Content
    delivered: Content


def require_address(address: str) -> None:
    """Refuse, with code 2, what is not a bare `local-part@domain`."""
    if len(address) > _LONGEST_ADDRESS or _ADDRESS.fullmatch(address) is None:
        raise Refusal(Code.ADDRESS, "An address is not of the form local-part@domain")


def require_recipients(recipients: Sequence[Recipient]) -> None:
    """Refuse, with code 2, to send to nobody, and to what is no address."""
    if not recipients:
        raise Refusal(Code.ADDRESS, "The message has no recipients")
    for recipient in recipients:
        require_address(recipient.email)


def compose(draft: Draft, *, message_id: str, at: datetime) -> Composed:
    """Build the message. Refuses addresses with code 2; headers and attachments that it cannot carry with code 4."""
    require_recipients(draft.recipients)
    require_address(draft.sender)
    named = {kind: [r.email for r in draft.recipients if r.type == kind] for kind in ("TO", "CC", "BCC")}
    lines = [_address_header("From", [draft.sender])]
    lines += [_address_header(name, named[name.upper()]) for name in ("To", "Cc") if named[name.upper()]]
    if draft.subject is not None:
        lines.append(_header("Subject", draft.subject))
    lines += [f"Date: {format_datetime(at)}", f"Message-ID: {message_id}"]
    lines += [_custom_header(name, value) for name, value in draft.headers]
    lines.append("MIME-Version: 1.0")
    body = _LINE_BREAK.sub("\r\n", draft.body)
    entity_lines, pieces = _entity(draft, body)

    def finished(head_lines: Sequence[str]) -> Content:
        head = "\r\n".join((*head_lines, *entity_lines, "", "")).encode("ascii")
        # The text and the attachments are known: only the headers are read back, as everyone else reads them.
        reading = Reading(read_headers(head), body, draft.html_body, list(draft.attachments))
        return content_of(b"".join((head, *pieces)), reading)

    delivered = finished(lines)
    blind = named["BCC"]
    return Composed(finished([*lines, _address_header("Bcc", blind)]) if blind else delivered, delivered)


def _entity(draft: Draft, body: str) -> tuple[list[str], list[bytes]]:
    """The content headers and the content, as one part or as multipart/mixed."""
    text_lines, text = _text_part(body, "html" if draft.html_body else "plain")
    if not draft.attachments:
        return text_lines, [text]
    boundary = f"=_{os.urandom(16).hex()}"  # base64 cannot hold "=_"
    delimiter = f"--{boundary}\r\n".encode("ascii")
    pieces = [delimiter, "\r\n".join((*text_lines, "", "")).encode("ascii"), text]
    for attachment in draft.attachments:
        pieces += [b"\r\n", delimiter, *_attachment_part(attachment)]
    pieces.append(f"\r\n--{boundary}--\r\n".encode("ascii"))
    return [f'Content-Type: multipart/mixed; boundary="{boundary}"'], pieces


def _text_part(body: str, subtype: str) -> tuple[list[str], bytes]:
    plain = body.isascii() and "\0" not in body and all(len(line) <= _LONGEST_TEXT_LINE for line in body.split("\r\n"))
    encoding, content = ("7bit", body.encode("ascii")) if plain else ("base64", _base64_lines(body.encode("utf-8")))
    return [f"Content-Type: text/{subtype}; charset=utf-8", f"Content-Transfer-Encoding: {encoding}"], content


def _attachment_part(attachment: Attachment) -> Iterable[bytes]:
    content_type, content = attachment.content_type, attachment.content
    media_type = content_type.partition(";")[0].strip().lower()
    if _MEDIA_TYPE.fullmatch(content_type) is None or len(content_type) > LONGEST_PLAIN_VALUE:
        raise Refusal(Code.OTHER, "The contentType of an attachment is not a media type")
    if media_type.startswith("multipart/"):
        raise Refusal(Code.OTHER, "An attachment cannot be of a multipart type")
    # RFC 2046 section 5.2.1: a message inside a message is not encoded.
    verbatim = media_type == "message/rfc822"
    yield (
        f"Content-Type: {content_type}\r\n"
        f"Content-Disposition: attachment{_filename_parameter(attachment.filename)}\r\n"
        f"Content-Transfer-Encoding: {'8bit' if verbatim else 'base64'}\r\n\r\n"
    ).encode("ascii")
    yield content if verbatim else _base64_lines(content)


def _base64_lines(octets: bytes) -> bytes:
    # encodebytes ends its lines as Unix does; mail has CRLF, and none after the last line of a part.
    return pybase64.encodebytes(octets).rstrip(b"\n").replace(b"\n", b"\r\n")


def _filename_parameter(filename: str) -> str:
    if len(filename) > _LONGEST_FILENAME or _BREAKS_A_HEADER.search(filename):
        raise Refusal(Code.OTHER, f"A filename has at most {_LONGEST_FILENAME} characters and no line breaks")
    if _PLAIN_FILENAME.fullmatch(filename) and len(filename) <= _LONGEST_PLAIN_FILENAME:
        return f'; filename="{filename}"'
    segments = ["utf-8''"]
    for character in filename:  # some readers decode each segment by itself
        octets = quote(character, safe="")
        if len(segments[-1]) + len(octets) > _FILENAME_SEGMENT:
            segments.append("")
        segments[-1] += octets
    return "".join(f";\r\n filename*{i}*={segment}" for i, segment in enumerate(segments))  # RFC 2231 section 3


def _custom_header(name: str, value: str) -> str:
    lowered = name.lower()
    if _HEADER_NAME.fullmatch(name) is None:
        raise Refusal(Code.OTHER, "The name of a header has printable ASCII characters only, and no colon")
    if lowered in _OWN_HEADERS or lowered.startswith("content-"):
        raise Refusal(Code.OTHER, f"The header {name} is set by the service")
    return _header(name, value)


def _header(name: str, value: str) -> str:
    if _BREAKS_A_HEADER.search(value):
        raise Refusal(Code.OTHER, f"The header {name} has a line break in its value")
    return header_line(name, value)


def _address_header(name: str, addresses: Sequence[str]) -> str:
    return f"{name}: " + ",\r\n ".join(addresses)
