"""Serialisation of a received message to RFC 5322, with the same bytes on every version of Python.

The standard library's generator folds differently in each version, and rejects malformed values, which a sender may
have written. Here, line breaks in a header become spaces. Text that is not ASCII becomes encoded words (RFC 2047), or
UTF-8 in an address without an ASCII form (RFC 6532).

The text is quoted-printable and files are base64, so neither can contain the boundary. RFC 2045 forbids both for types
such as message/rfc822. Such content is written unchanged, or becomes a file of type application/octet-stream.
"""

from __future__ import annotations

import binascii
import contextlib
import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from email.header import Header
from email.message import Message
from email.parser import BytesHeaderParser
from email.utils import collapse_rfc2231_value, encode_rfc2231, format_datetime, quote, unquote

import attrs
import pybase64

from directsuite.messaging.models import Attachment, MessageDetail

_TARGET_LINE_CHARS = 76
_MAX_WORD_CHARS = 900  # a line has at most 998 (RFC 5322, 2.1.1)
_MAX_VALUE_CHARS = 16_384  # the rest of a header value is dropped
_MAX_FILENAME_BYTES = 255
_PIECE_BYTES = 57 * 4096  # a multiple of 57, so that pieces end with a line of base64

_BREAKS = re.compile("[\x00-\x20\x7f-\x9f\u2028\u2029]+")
_NAME = re.compile(r"[!-9;-~]{1,100}", re.ASCII)
_ADDRESS = re.compile(
    r"""(?:[^\s<>()\[\],;:"\\@]{1,400}|"(?:[^"\\]|\\.){0,400}")@(?:[^\s<>()\[\],;:"\\@]{1,400}|\[[^\s\[\]\\]{1,100}\])"""
)
_ADDRESS_HEADERS = frozenset(
    {"from", "to", "cc", "bcc", "reply-to", "sender", "return-path", "delivered-to", "disposition-notification-to"}
    | {f"resent-{name}" for name in ("from", "sender", "to", "cc", "bcc", "reply-to")}
)
_ATOMS = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~ -]*")
_MEDIA_TYPE = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,100}/[a-z0-9][a-z0-9!#$&^_.+-]{0,100}")
_PARAMETER = re.compile(r"[A-Za-z0-9!#$&+.^_`{|}~-]{1,60}", re.ASCII)
_MAX_CONTENT_TYPE_CHARS = 2048
_MAX_PARAMETER_BYTES = 255
_BOUNDARY = "=_directsuite"
_MAX_HEADER_BYTES = 262_144  # of a message part; parsing more takes seconds
_MAX_LINE_BYTES = 998  # RFC 5322, 2.1.1
_MAY_BE_8BIT = re.compile(r"message/(?:rfc822|news|global.*)")
"""Types that may contain non-ASCII bytes."""


@attrs.frozen
class _Part:
    media_type: str
    content: bytes
    encoding: str
    """The Content-Transfer-Encoding: base64, or for unchanged content 7bit, 8bit or binary."""
    attachment: Attachment

    def format_header(self) -> bytes:
        is_original = self.media_type == self.attachment.media_type
        words = _format_parameters(self.attachment.content_type or "") if is_original else []
        disposition = (
            [f"filename{_format_parameter(_shorten_filename(name))}"] if (name := self.attachment.filename) else []
        )
        return b"".join(
            [
                _fold_header("Content-Type", _add_semicolons([self.media_type, *words])),
                _fold_header("Content-Transfer-Encoding", [self.encoding]),
                _fold_header("Content-Disposition", _add_semicolons(["attachment", *disposition])),
                b"\n",
            ]
        )

    def iter_body(self) -> Iterator[bytes]:
        if self.encoding != "base64":
            yield self.content
            return
        content = memoryview(self.content)
        for start in range(0, len(content), _PIECE_BYTES):
            yield pybase64.encodebytes(content[start : start + _PIECE_BYTES])


def iter_eml(message: MessageDetail) -> Iterator[bytes]:
    """Yield the message in pieces. Lines end with a line feed, as in a Maildir.

    From, To, Cc, Bcc, Reply-To, Subject, Date and Message-ID are made from the message's fields. Other headers are
    copied, except Content-* and MIME-Version.
    """
    yield _format_header(message)
    text = _fold_header("Content-Type", ["text/html;" if message.html_body else "text/plain;", 'charset="utf-8"'])
    text += b"Content-Transfer-Encoding: quoted-printable\n\n" + _encode_text(message.body)
    if not message.attachments:
        yield text
        return
    parts = [_make_part(attachment) for attachment in message.attachments]
    boundary = _find_boundary(parts)
    yield _fold_header("Content-Type", ["multipart/mixed;", f'boundary="{boundary}"'])
    for encoding in ("binary", "8bit"):
        if any(part.encoding == encoding for part in parts):
            yield _fold_header("Content-Transfer-Encoding", [encoding])
            break
    yield f"\n--{boundary}\n".encode() + text
    for part in parts:
        yield f"\n--{boundary}\n".encode() + part.format_header()
        yield from part.iter_body()
    yield f"\n--{boundary}--\n".encode()


def _make_part(attachment: Attachment) -> _Part:
    media_type, content = attachment.media_type, attachment.content
    if media_type.startswith("message/") and _MEDIA_TYPE.fullmatch(media_type):
        text = content.replace(b"\r\n", b"\n")
        if encoding := _find_identity_encoding(media_type, content, text):
            return _Part(media_type, text, encoding, attachment)
    if not _MEDIA_TYPE.fullmatch(media_type) or media_type.startswith(("message/", "multipart/")):
        media_type = "application/octet-stream"
    return _Part(media_type, content, "base64", attachment)


def _find_identity_encoding(media_type: str, content: bytes, text: bytes) -> str | None:
    """Return 7bit, 8bit or binary; None if the content can't be written unchanged.

    text: `content` with LF line ends.
    """
    has_mixed_line_ends = text != content and content.count(b"\n") != content.count(b"\r\n")
    if has_mixed_line_ends or b"\r" in text or b"\0" in text:
        return None
    header = text.partition(b"\n\n")[0]
    if len(header) > _MAX_HEADER_BYTES:
        return None
    fields = BytesHeaderParser().parsebytes(header)
    if not fields.keys() or fields.defects:
        return None
    is_long = max(map(len, text.split(b"\n"))) > _MAX_LINE_BYTES
    if text.isascii() and not is_long:
        return "7bit"
    if not _MAY_BE_8BIT.fullmatch(media_type):
        return None
    return "binary" if is_long else "8bit"


def _find_boundary(parts: Sequence[_Part]) -> str:
    contents = [part.content for part in parts if part.encoding != "base64"]
    if not any(_BOUNDARY.encode() in content for content in contents):
        return _BOUNDARY
    hashed = hashlib.sha256()
    for content in contents:
        hashed.update(content)
    return f"=_{hashed.hexdigest()[:32]}"  # no sender can write it into the content


def _format_parameters(content_type: str) -> list[str]:
    header = Message()
    header["Content-Type"] = _to_one_line(content_type[:_MAX_CONTENT_TYPE_CHARS])
    parameters = dict[str, str]()
    for name, value in header.get_params([])[1:]:
        text = _to_one_line(collapse_rfc2231_value(value))
        if _PARAMETER.fullmatch(name) and name.lower() != "name" and len(text.encode()) <= _MAX_PARAMETER_BYTES:
            parameters.setdefault(name.lower(), text)
    return [f"{name}{_format_parameter(value)}" for name, value in parameters.items() if value]


def _format_parameter(value: str) -> str:
    return f'="{quote(value)}"' if value.isascii() else f"*={encode_rfc2231(value, 'utf-8')}"


def _add_semicolons(words: Sequence[str]) -> list[str]:
    return [f"{word};" for word in words[:-1]] + [words[-1]]


def _format_header(message: MessageDetail) -> bytes:
    own: dict[str, list[str]] = {}
    if message.sender:
        own["From"] = _format_address(message.sender)
    for recipient in message.recipients:
        name = {"CC": "Cc", "BCC": "Bcc"}.get(str(recipient.type).upper(), "To")
        if name in own:
            own[name][-1] += ","
        own.setdefault(name, []).extend(_format_address(recipient.email))
    if message.reply_to:
        own["Reply-To"] = _format_address(message.reply_to)
    if message.subject is not None:
        own["Subject"] = _format_subject(message.subject)
    date = message.sent_date or message.received_date
    if date is not None:
        own["Date"] = [format_datetime(to_utc(date))]
    if message.msg_id:
        own["Message-ID"] = _format_words(message.msg_id if message.msg_id.startswith("<") else f"<{message.msg_id}>")
    lines = [_fold_header(name, words) for name, words in own.items()]
    reserved = {*map(str.lower, own), "mime-version"}
    for header in message.headers:
        name = header.name or ""
        if _NAME.fullmatch(name) and name.lower() not in reserved and not name.lower().startswith("content-"):
            value = header.value or ""
            is_list = name.lower() in _ADDRESS_HEADERS and not value.isascii()
            lines.append(_fold_header(name, _format_address(value) if is_list else _format_words(value)))
    return b"".join([*lines, b"MIME-Version: 1.0\n"])


def _fold_header(name: str, words: Iterable[str]) -> bytes:
    pieces, width = [f"{name}:"], len(name) + 1
    for number, word in enumerate(words):
        fits = number == 0 or width + 1 + len(word) <= _TARGET_LINE_CHARS
        pieces.append(f" {word}" if fits else f"\n {word}")
        width = (width if fits else 0) + 1 + len(word)
    return "".join([*pieces, "\n"]).encode()


def _to_one_line(value: str) -> str:
    return _BREAKS.sub(" ", replace_lone_surrogates(value)).strip()


def _format_subject(value: str) -> list[str]:
    # Encoded if folding would change its spaces.
    text = _BREAKS.sub(
        lambda found: " " if found[0].strip(" ") else found[0], replace_lone_surrogates(value[:_MAX_VALUE_CHARS])
    )
    return _format_words(text) if text == _to_one_line(text) else _encode_words(text)


def _format_words(value: str) -> list[str]:
    text = _to_one_line(value[:_MAX_VALUE_CHARS])
    plain = text.isascii() and all(len(word) <= _MAX_WORD_CHARS for word in text.split(" "))
    return text.split() if plain else _encode_words(text)


def _encode_words(text: str) -> list[str]:
    return Header(text, "utf-8").encode().split()


def _format_address(value: str) -> list[str]:
    """Return an address with an optional name, or several without; anything else as the name of an empty group."""
    text = _to_one_line(value[:_MAX_VALUE_CHARS])
    if all(addresses := [_parse_addr_spec(each.strip(" ")) for each in text.split(",")]):
        return [f"{address}," for address in addresses[:-1]] + addresses[-1:]
    if address := _parse_addr_spec(text):  # contains a quoted comma
        return [address]
    name, _, address = text.rpartition("<")
    if address.endswith(">") and (address := _parse_addr_spec(address[:-1])):
        name = unquote(name.strip())
        return [
            *_format_words(name if _ATOMS.fullmatch(name) or not name.isascii() else f'"{quote(name)}"'),
            f"<{address}>",
        ]
    return [*_encode_words(text), ":;"]


def _parse_addr_spec(text: str) -> str:
    """Return the address, with its domain in ASCII form if that is equivalent; "" if the text is not one."""
    if not _ADDRESS.fullmatch(text) or "=?" in text or len(text.encode()) > _MAX_WORD_CHARS:
        return ""
    local, at, domain = text.rpartition("@")
    if not domain.isascii():
        with contextlib.suppress(UnicodeError):
            encoded = domain.encode("idna")
            if encoded.decode("idna") == domain.lower():  # the codec maps `ß` to `ss`, a different domain
                return local + at + encoded.decode("ascii")
    return text


def _encode_text(body: str | None) -> bytes:
    text = replace_lone_surrogates(body or "").replace("\r\n", "\n").replace("\r", "\n")
    return binascii.b2a_qp(text.encode(), istext=True) + (b"" if text.endswith("\n") else b"\n")


def _shorten_filename(filename: str) -> str:
    name = _to_one_line(filename)
    if len(name.encode()) <= _MAX_FILENAME_BYTES:
        return name
    stem, dot, extension = name.rpartition(".")
    ending = dot + extension[:20] if dot else ""
    room = _MAX_FILENAME_BYTES - len(ending.encode())
    return (stem or extension).encode()[:room].decode("utf-8", "ignore") + ending


def to_utc(date: datetime) -> datetime:
    """Return the date in UTC, or near datetime.min or datetime.max with UTC instead of its time zone."""
    with contextlib.suppress(OverflowError):
        return (date if date.tzinfo else date.replace(tzinfo=UTC)).astimezone(UTC)
    return date.replace(tzinfo=UTC)


def replace_lone_surrogates(text: str) -> str:
    """Return the text with each lone surrogate replaced by U+FFFD."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
