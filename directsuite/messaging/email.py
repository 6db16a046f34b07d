"""Between the service's messages and the standard library's `EmailMessage`."""

from __future__ import annotations

import contextlib
import email.message
import email.policy
import re
from collections.abc import Iterator
from email.headerregistry import Address
from email.message import EmailMessage
from email.utils import getaddresses
from typing import Any, TypeAlias, cast

import attrs

from directsuite.errors import InvalidArgumentError

Part: TypeAlias = "email.message.Message[Any, Any]"

_BODIES = ("text/plain", "text/html")
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


def parse(message: EmailMessage) -> EmailParts:
    """Sender, recipients, subject, body (HTML where there is no plain text) and attachments.

    Raises InvalidArgumentError where the standard library can't read the email at all.
    """
    with contextlib.suppress(Exception):  # its parser's bugs have many names, and texts that quote the email
        return _parse(message)
    raise InvalidArgumentError("its headers are too malformed to be read", parameter="message")


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
        attachments=[_attachment(part, i) for i, part in enumerate(_attached(message, body), start=1)],
    )


def _text(body: Part) -> str:
    """A text part's content, whatever it says of its charset."""
    try:
        return str(cast("EmailMessage", body).get_content())
    except LookupError:  # a charset that nobody knows
        return _content(body).decode("utf-8", "replace")


def _attached(part: Part, body: Part | None, *, alternative: bool = False) -> Iterator[Part]:
    """Every part that is neither the body nor the same text in another form: inline images and bare files too."""
    if part is body:
        return
    if part.get_content_maintype() == "multipart" and part.is_multipart():
        alternative = alternative or part.get_content_subtype() == "alternative"
        for inner in cast("list[Part]", part.get_payload()):
            yield from _attached(inner, body, alternative=alternative)
    elif part.get_content_disposition() == "attachment" or not (alternative and part.get_content_type() in _BODIES):
        yield part


def _content(part: Part) -> bytes:
    return cast("bytes", part.get_payload(decode=True) or b"")


def _addresses(message: EmailMessage, header: str) -> list[str]:
    addresses: list[str] = []
    for name, raw in message.raw_items():
        if name.lower() != header.lower():
            continue
        try:
            # The parser decodes encoded words first, and of `a@x.test <b@x.test>` it takes the name.
            source = raw if hasattr(raw, "addresses") else _NAMES.sub(_without_name, str(raw))
            value: Any = message.policy.header_fetch_parse(name, source)
            addresses += [address.addr_spec for address in cast("tuple[Address, ...]", getattr(value, "addresses", ()))]
        except (AttributeError, IndexError, ValueError):  # bugs of the parser; what is readable is still taken
            addresses += [spec for _, spec in getaddresses([_NAMES.sub(_without_name, str(raw))]) if "@" in spec]
    return addresses


def _without_name(written: re.Match[str]) -> str:
    return written["quoted"] or " name "


def _attachment(part: Part, number: int) -> tuple[bytes, str, str]:
    if part.get_content_type() == "message/rfc822":
        nested = cast("list[EmailMessage]", part.get_payload())
        content, fallback = nested[0].as_bytes(policy=email.policy.SMTP), f"message-{number}.eml"
    else:
        content, fallback = _content(part), f"attachment-{number}"
    return content, part.get_content_type(), part.get_filename() or fallback
