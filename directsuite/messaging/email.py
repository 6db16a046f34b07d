"""Between the service's messages and the standard library's `EmailMessage`."""

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

import attrs

from directsuite.errors import InvalidArgumentError

Part: TypeAlias = "email.message.Message[Any, Any]"

_BODIES = ("text/plain", "text/html")
_ENCLOSED_MESSAGES = frozenset({"message/rfc822", "message/global", "message/news"})
"""Types whose content is a complete message. The content of other message types is a list of fields."""
_DROPPED_PARAMETERS = frozenset({"name", "boundary", "format", "delsp"})
"""Parameters of a content type that are wrong or of no use once the part is a file with a name."""
_MEDIA_TYPE = re.compile(r"[a-z0-9!#$&^_.+-]{1,100}/[a-z0-9!#$&^_.+-]{1,100}")
_PARAMETER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`{|}~-]{1,60}=[ -~]{0,200}")
_LINE_BREAK = re.compile(r"\r\n|\r|\n")
_UNENCODED = re.compile("[^\x00-\x7f\udc80-\udcff]")
_NAMES = re.compile(
    r'(?P<quoted>"(?:[^"\\]|\\.)*+"?)|(?<![^\s,;:(])=\?[^?\s]+\?[bBqQ]\?[^?]*\?=(?![^\s,;:()<])'
    r'|(?<![^",;:<>()])[^",;:<>()]++(?=<)',
    re.DOTALL,
)
"""What stands before an address in angle brackets, encoded words, and quoted strings, which may be of an address."""


@attrs.frozen
class EmailParts:
    """What a message to send takes from an EmailMessage."""

    sender: str | None
    subject: str | None
    body: str | None
    html: bool
    recipients: list[tuple[str, str]]
    """TO, CC or BCC; address."""
    attachments: list[tuple[bytes, str, str]]
    """Content, content type, file name."""


def from_bytes(raw: bytes) -> EmailMessage:
    """An EmailMessage from RFC 5322 bytes, well-formed or not."""
    return email.message_from_bytes(raw, policy=email.policy.default)


def message_id(raw: bytes) -> str | None:
    """The Message-ID of RFC 5322 bytes, read without the policy whose parser breaks on malformed ones."""
    value = email.message_from_bytes(raw, policy=email.policy.compat32)["Message-ID"]
    return None if value is None else str(value)


def parse(message: Part) -> EmailParts:
    """Return sender, recipients, subject, body (plain text before HTML) and attachments.

    Raises InvalidArgumentError if it is not an email, or the standard library cannot read it.
    """
    given: Any = message
    if not isinstance(given, email.message.Message):
        raise InvalidArgumentError(
            "give an EmailMessage, such as email.message_from_bytes(data, policy=email.policy.default) returns",
            parameter="message",
        )
    with contextlib.suppress(Exception):  # its parser's bugs have many names, and texts that quote the email
        part = _with_encoded_text(message)
        return _parse(part if _has_modern_api(part) else from_bytes(_flatten(part)))
    raise InvalidArgumentError("its headers are too malformed to be read", parameter="message")


def _with_encoded_text(message: Part) -> Part:
    """Return a copy with UTF-8 bytes for text of an email that was parsed from a str, or the message without any.

    The standard library would give its characters beyond ASCII as escape sequences.
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
    """Return True if the payload has characters beyond ASCII that do not stand for bytes."""
    payload = vars(part).get("_payload")  # `get_payload` decodes characters that stand for bytes
    return isinstance(payload, str) and _UNENCODED.search(payload) is not None


def _has_modern_api(message: Part) -> TypeGuard[EmailMessage]:
    """Return False if a part lacks the methods of EmailMessage, as those of policy compat32 do."""
    return all(
        isinstance(part, MIMEPart) and isinstance(part.policy, email.policy.EmailPolicy) for part in message.walk()
    )


def _parse(message: EmailMessage) -> EmailParts:
    body = cast("Part | None", message.get_body(("plain", "html")))
    senders = _addresses(message, "From")
    subject = message["Subject"]
    return EmailParts(
        sender=senders[0] if senders else None,
        subject=None if subject is None else str(subject),
        body=None if body is None or body.get_payload() is None else _text(body),
        html=body is not None and body.get_content_subtype() == "html",
        recipients=[(kind, address) for kind in ("TO", "CC", "BCC") for address in _addresses(message, kind)],
        attachments=list(_attachments(message, body)),
    )


def _text(body: Part) -> str:
    """Decode the content of a text part. A charset that is missing, unknown or wrong does not lose the text."""
    content, declared = _content(body), body.get_content_charset("us-ascii")
    charsets = [(declared, "strict"), ("utf-8", "strict")]
    with contextlib.suppress(LookupError, ValueError):
        if codecs.lookup(declared).name != "ascii":
            charsets.append((declared, "replace"))
    for charset, errors in (*charsets, ("windows-1252", "strict")):
        with contextlib.suppress(LookupError, ValueError):
            return content.decode(charset, errors)
    return content.decode("latin-1")


def _attachments(message: Part, body: Part | None) -> Iterator[tuple[bytes, str, str]]:
    """Yield content, content type and file name of every part that is neither the body nor the body in another form."""
    for number, part in enumerate(_attached(message, body), start=1):
        is_message = part.get_content_type() in _ENCLOSED_MESSAGES
        fallback = f"message-{number}.eml" if is_message else f"attachment-{number}"
        yield _content(part), _content_type(part), _filename(part) or fallback


def _attached(part: Part, body: Part | None, *, alternative: bool = False) -> Iterator[Part]:
    """Yield each part to attach."""
    if part is body:
        return
    if part.get_content_maintype() == "multipart" and part.is_multipart():
        if part.get_content_subtype() == "alternative":  # another one than the body's is not the body in another form
            alternative = alternative or any(each is body for each in part.walk())
        for each in cast("list[Part]", part.get_payload()):
            yield from _attached(each, body, alternative=alternative)
    elif not (alternative and _is_plain_form(part)):
        yield part


def _is_plain_form(part: Part) -> bool:
    """Return True if a part of multipart/alternative is a text to read, not a file."""
    is_file = part.get_content_disposition() == "attachment" or _filename(part)
    return part.get_content_type() in _BODIES and not is_file


def _content_type(part: Part) -> str:
    """Return the content type with the parameters that a file needs, such as `method` of a calendar."""
    content_type = part.get_content_type()
    if content_type.startswith("multipart/") or not _MEDIA_TYPE.fullmatch(content_type):  # a multipart without parts
        return "application/octet-stream"
    for name, value in part.get_params([])[1:]:
        is_default = name.lower() == "charset" and str(value).lower() in ("utf-8", "us-ascii")
        if name.lower() not in _DROPPED_PARAMETERS and not is_default and _PARAMETER.fullmatch(f"{name}={value}"):
            content_type += f'; {name}="{quote(value)}"'
    return content_type


def _filename(part: Part) -> str | None:
    with contextlib.suppress(Exception):  # bugs of the parser cost the name, not the part
        return _decode_escaped(part.get_filename() or "")
    return None


def _content(part: Part) -> bytes:
    """Return the bytes of a part. The standard library parses the content of a message type, which is undone here."""
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
    """Writes a parsed header unchanged, and any other in UTF-8."""

    def fold_binary(self, name: str, value: Any) -> bytes:
        """Return the lines of a header."""
        if hasattr(value, "fold"):
            return super().fold_binary(name, value)
        text = value.encode() if isinstance(value, Header) else str(value)
        return f"{name}: {_LINE_BREAK.sub(self.linesep, text)}{self.linesep}".encode("utf-8", "surrogateescape")


class _SourceGenerator(BytesGenerator):
    """Writes a message without folding its headers or encoding its parts differently."""

    def write(self, s: str) -> None:
        """Write text. Characters beyond ASCII occur in messages that were parsed from text."""
        super().write(s.encode("utf-8", "surrogateescape").decode("ascii", "surrogateescape"))


_SOURCE_POLICY = _SourcePolicy(utf8=True, linesep="\r\n", max_line_length=None, cte_type="8bit")


def _flatten(message: Part) -> bytes:
    """Return the bytes that the message was parsed from, with CRLF line ends."""
    buffer = io.BytesIO()
    _SourceGenerator(buffer, mangle_from_=False, policy=_SOURCE_POLICY).flatten(message)
    return buffer.getvalue()


def _decode_escaped(text: str) -> str:
    """Decode bytes that the parser left as surrogates, as UTF-8 if they are."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _addresses(message: EmailMessage, header: str) -> list[str]:
    addresses: list[str] = []
    for name, raw in message.raw_items():
        if name.lower() != header.lower():
            continue
        try:
            # The parser decodes encoded words first, and of `a@x.test <b@x.test>` it takes the name.
            source = raw if hasattr(raw, "addresses") else _NAMES.sub(_without_name, _decode_escaped(str(raw)))
            value: Any = message.policy.header_fetch_parse(name, source)
            addresses += [address.addr_spec for address in cast("tuple[Address, ...]", getattr(value, "addresses", ()))]
        except (AttributeError, IndexError, ValueError):  # bugs of the parser; what is readable is still taken
            written = _NAMES.sub(_without_name, _decode_escaped(str(raw)))
            addresses += [spec for _, spec in getaddresses([written]) if "@" in spec]
    return addresses


def _without_name(written: re.Match[str]) -> str:
    return written["quoted"] or " name "
