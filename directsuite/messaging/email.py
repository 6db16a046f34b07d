"""Between the service's messages and the standard library's `EmailMessage`."""

from __future__ import annotations

import email.message
import email.policy
from email.headerregistry import Address
from email.message import EmailMessage
from typing import Any, cast

import attrs


@attrs.frozen
class EmailParts:
    """What a message to send takes from an EmailMessage. recipients: (TO, CC or BCC; address)."""

    sender: str | None
    subject: str | None
    body: str | None
    html: bool
    recipients: list[tuple[str, str]]
    attachments: list[tuple[bytes, str, str]]


def from_bytes(raw: bytes) -> EmailMessage:
    """An EmailMessage from RFC 5322 bytes, well-formed or not."""
    return email.message_from_bytes(raw, policy=email.policy.default)


def parse(message: EmailMessage) -> EmailParts:
    """Sender, recipients, subject, body (HTML where there is no plain text) and attachments."""
    body = message.get_body(("plain", "html"))
    senders = _addresses(message, "From")
    subject = message["Subject"]
    return EmailParts(
        sender=senders[0] if senders else None,
        subject=None if subject is None else str(subject),
        body=None if body is None else str(body.get_content()),
        html=body is not None and body.get_content_subtype() == "html",
        recipients=[(kind, address) for kind in ("TO", "CC", "BCC") for address in _addresses(message, kind)],
        attachments=[_attachment(part, i) for i, part in enumerate(message.iter_attachments(), start=1)],
    )


def _addresses(message: EmailMessage, header: str) -> list[str]:
    found: list[str] = []
    values: list[Any] = message.get_all(header, [])
    for value in values:
        found += [address.addr_spec for address in cast("tuple[Address, ...]", getattr(value, "addresses", ()))]
    return found


def _attachment(part: email.message.Message[Any, Any], number: int) -> tuple[bytes, str, str]:
    if part.get_content_type() == "message/rfc822":
        nested = cast("list[EmailMessage]", part.get_payload())
        content, fallback = nested[0].as_bytes(policy=email.policy.SMTP), f"message-{number}.eml"
    else:
        content, fallback = cast("bytes", part.get_payload(decode=True) or b""), f"attachment-{number}"
    return content, part.get_content_type(), part.get_filename() or fallback
