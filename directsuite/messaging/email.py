"""Convert between the service's messages and the standard library's `EmailMessage`."""

from __future__ import annotations

import codecs
import contextlib
import copy
import email.message
import email.policy
import io
import re
from collections.abc import Iterator
from email.generator import BytesGenerator
from email.header import Header
from email.headerregistry import Address
from email.message import EmailMessage, MIMEPart
from email.utils import getaddresses, quote
from typing import Any, TypeAlias, TypeGuard, cast

from directsuite.errors import InvalidArgumentError

Part: TypeAlias = "email.message.Message[Any, Any]"

_BODY_TYPES = ("text/plain", "text/html")
_ENCLOSED_MESSAGES = frozenset({"message/rfc822", "message/global", "message/news"})
"""Types whose content is a complete message. Other message types contain a list of fields."""
_DROPPED_PARAMETERS = frozenset({"name", "boundary", "format", "delsp"})
"""Parameters of a content type that are wrong or useless for an attached file."""
_MEDIA_TYPE = re.compile(r"[a-z0-9!#$&^_.+-]{1,100}/[a-z0-9!#$&^_.+-]{1,100}")
_PARAMETER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`{|}~-]{1,60}=[ -~]{0,200}")
_LINE_BREAK = re.compile(r"\r\n|\r|\n")
_UNENCODED_CHAR = re.compile("[^\x00-\x7f\udc80-\udcff]")
_DISPLAY_NAMES = re.compile(
    r'(?P<quoted>"(?:[^"\\]|\\.)*+"?)|(?<![^\s,;:(])=\?[^?\s]+\?[bBqQ]\?[^?]*\?=(?![^\s,;:()<])'
    r'|(?<![^",;:<>()])[^",;:<>()]++(?=<)',
    re.DOTALL,
)
"""Matches display names before an address in angle brackets, encoded words, and quoted strings.

A quoted string is in the group `quoted`, because it may be part of an address.
"""


def from_bytes(raw: bytes) -> EmailMessage:
    """Parse RFC 5322 bytes, which may be malformed, into an EmailMessage."""
    return email.message_from_bytes(raw, policy=email.policy.default)


def read_message_id(raw: bytes) -> str | None:
    """Return the Message-ID of RFC 5322 bytes, or None if there is none."""
    # The parser of the default policy fails on malformed Message-IDs.
    value = email.message_from_bytes(raw, policy=email.policy.compat32)["Message-ID"]
    return None if value is None else str(value)


def parse(message: Part) -> dict[str, Any]:
    """Return the arguments for a Message with the parts of an email. A plain text body is preferred to HTML.

    The recipients are pairs of an address and TO, CC or BCC, the attachments are arguments for Attachment.
    Raises InvalidArgumentError if `message` is not an email, or the standard library cannot read it.
    """
    given: Any = message
    if not isinstance(given, email.message.Message):
        raise InvalidArgumentError(
            "must be an EmailMessage, such as email.message_from_bytes(data, policy=email.policy.default) returns",
            parameter="message",
        )
    # Bugs of the standard library's parser raise many types of exceptions, with messages that quote the email.
    with contextlib.suppress(Exception):
        part = _encode_text(message)
        return _parse(part if _has_modern_api(part) else from_bytes(_flatten(part)))
    raise InvalidArgumentError(
        "Python's email package cannot parse it: check its headers and MIME structure", parameter="message"
    )


def _encode_text(message: Part) -> Part:
    """Return the email, or a copy whose non-ASCII characters are encoded as UTF-8.

    Otherwise, in an email parsed from a str, they would be returned as escape sequences.
    """
    if any(map(_has_unencoded_text, message.walk())):
        message = copy.deepcopy(message)
        for part in filter(_has_unencoded_text, message.walk()):
            content = vars(part)["_payload"].encode("utf-8", "surrogateescape")
            part.set_payload(content.decode("ascii", "surrogateescape"))
            if part.get_content_maintype() == "text" and part.get_content_charset() != "utf-8":
                part.set_param("charset", "utf-8")
    return message


def _has_unencoded_text(part: Part) -> bool:
    payload = vars(part).get("_payload")  # not `get_payload`, which decodes the surrogates
    return isinstance(payload, str) and _UNENCODED_CHAR.search(payload) is not None


def _has_modern_api(message: Part) -> TypeGuard[EmailMessage]:
    return all(
        isinstance(part, MIMEPart) and isinstance(part.policy, email.policy.EmailPolicy) for part in message.walk()
    )


def _parse(message: EmailMessage) -> dict[str, Any]:
    body = cast("Part | None", message.get_body(("plain", "html")))
    senders = _read_addresses(message, "From")
    subject = message["Subject"]
    return {
        "sender": senders[0] if senders else None,
        "subject": None if subject is None else str(subject),
        "body": None if body is None or body.get_payload() is None else _decode_text(body),
        "html_body": body is not None and body.get_content_subtype() == "html",
        "recipients": [(address, kind) for kind in ("TO", "CC", "BCC") for address in _read_addresses(message, kind)],
        "attachment_list": list(_iter_attachments(message, body)),
    }


def _decode_text(body: Part) -> str:
    content, declared = _read_content(body), body.get_content_charset("us-ascii")
    charsets = [(declared, "strict"), ("utf-8", "strict")]
    with contextlib.suppress(LookupError, ValueError):
        if codecs.lookup(declared).name != "ascii":
            charsets.append((declared, "replace"))
    for charset, errors in (*charsets, ("windows-1252", "strict")):
        with contextlib.suppress(LookupError, ValueError):
            return content.decode(charset, errors)
    return content.decode("latin-1")


def _iter_attachments(message: Part, body: Part | None) -> Iterator[dict[str, bytes | str]]:
    for number, part in enumerate(_iter_attached_parts(message, body), start=1):
        is_message = part.get_content_type() in _ENCLOSED_MESSAGES
        fallback = f"message-{number}.eml" if is_message else f"attachment-{number}"
        filename = _read_filename(part) or fallback
        yield {"content": _read_content(part), "content_type": _build_content_type(part), "filename": filename}


def _iter_attached_parts(part: Part, body: Part | None, *, alternative: bool = False) -> Iterator[Part]:
    """Yield the parts that become attachments: all except the body and alternatives to it.

    alternative: True if `part` is in the multipart/alternative that contains the body. Plain text and HTML in it are
        alternatives to the body unless they are files.
    """
    if part is body:
        return
    if part.get_content_maintype() == "multipart" and part.is_multipart():
        if part.get_content_subtype() == "alternative":
            alternative = alternative or any(each is body for each in part.walk())
        for each in cast("list[Part]", part.get_payload()):
            yield from _iter_attached_parts(each, body, alternative=alternative)
    else:
        is_file = part.get_content_disposition() == "attachment" or _read_filename(part)
        if not alternative or is_file or part.get_content_type() not in _BODY_TYPES:
            yield part


def _build_content_type(part: Part) -> str:
    """Return the content type of an attachment, with necessary parameters, such as `method` of a calendar."""
    content_type = part.get_content_type()
    # A multipart is an attachment only if it has no parts.
    if content_type.startswith("multipart/") or not _MEDIA_TYPE.fullmatch(content_type):
        return "application/octet-stream"
    for name, value in part.get_params([])[1:]:
        is_default = name.lower() == "charset" and str(value).lower() in ("utf-8", "us-ascii")
        if name.lower() not in _DROPPED_PARAMETERS and not is_default and _PARAMETER.fullmatch(f"{name}={value}"):
            content_type += f'; {name}="{quote(value)}"'
    return content_type


def _read_filename(part: Part) -> str | None:
    with contextlib.suppress(Exception):  # if the parser has a bug, the part is attached without its name
        return _decode_escaped(part.get_filename() or "")
    return None


def _read_content(part: Part) -> bytes:
    """Return the bytes of a part. Enclosed messages, which the parser has also parsed, are converted back to bytes."""
    enclosed = part.get_payload()
    if not isinstance(enclosed, list):
        return cast("bytes", part.get_payload(decode=True) or b"")
    blocks = cast("list[Part]", enclosed) or [email.message.Message()]
    content = b"".join(_flatten(block).removeprefix(b"" if block.keys() else b"\r\n") for block in blocks)
    if part.get_content_type() not in _ENCLOSED_MESSAGES and not blocks[-1].get_payload():
        content = content.removesuffix(b"\r\n")  # the last block of fields needs no empty line at its end
    encoded = email.message.Message()
    encoded["Content-Transfer-Encoding"] = str(part.get("Content-Transfer-Encoding", ""))
    encoded.set_payload(content.decode("ascii", "surrogateescape"))
    return cast("bytes", encoded.get_payload(decode=True))


class _SourcePolicy(email.policy.EmailPolicy):
    """Writes parsed headers unchanged, others in UTF-8."""

    def fold_binary(self, name: str, value: Any) -> bytes:
        if hasattr(value, "fold"):
            return super().fold_binary(name, value)
        text = value.encode() if isinstance(value, Header) else str(value)
        return f"{name}: {_LINE_BREAK.sub(self.linesep, text)}{self.linesep}".encode("utf-8", "surrogateescape")


class _SourceGenerator(BytesGenerator):
    """Writes a message without changing the line breaks of its headers or the encoding of its parts."""

    def write(self, s: str) -> None:
        super().write(s.encode("utf-8", "surrogateescape").decode("ascii", "surrogateescape"))


_SOURCE_POLICY = _SourcePolicy(utf8=True, linesep="\r\n", max_line_length=None, cte_type="8bit")


def _flatten(message: Part) -> bytes:
    """Return the bytes from which the message was parsed, with CRLF line ends."""
    buffer = io.BytesIO()
    _SourceGenerator(buffer, mangle_from_=False, policy=_SOURCE_POLICY).flatten(message)
    return buffer.getvalue()


def _decode_escaped(text: str) -> str:
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _read_addresses(message: EmailMessage, header: str) -> list[str]:
    addresses: list[str] = []
    for name, raw in message.raw_items():
        if name.lower() != header.lower():
            continue
        try:
            # Remove names, because the parser takes the name of `a@x.test <b@x.test>` for an address, and decodes
            # encoded words before it splits the header into addresses.
            source = raw if hasattr(raw, "addresses") else _DISPLAY_NAMES.sub(_replace_name, _decode_escaped(str(raw)))
            value: Any = message.policy.header_fetch_parse(name, source)
            addresses += [address.addr_spec for address in cast("tuple[Address, ...]", getattr(value, "addresses", ()))]
        except (AttributeError, IndexError, ValueError):  # bugs of the parser
            written = _DISPLAY_NAMES.sub(_replace_name, _decode_escaped(str(raw)))
            addresses += [spec for _, spec in getaddresses([written]) if "@" in spec]
    return addresses


def _replace_name(written: re.Match[str]) -> str:
    return written["quoted"] or " name "
