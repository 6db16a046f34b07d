"""By what a message is known again, wherever it is.

identity   of its metadata: Message-ID, date and size; strong. Without a Message-ID: date, size, sender, subject; weak,
           for two messages may have the same
digest     of its content, which tells even those apart
"""

from __future__ import annotations

import hashlib
from typing import Any, Self

import attrs
import msgspec

from directsuite.messaging.models import MessageDetail

IDENTITY, DIGEST = 12, 16
"""Bytes."""


@attrs.frozen
class Metadata:
    """What is kept of a message's metadata. size: -1 where it doesn't say."""

    identity: bytes
    strong: bool
    size: int
    received_ms: int | None

    @classmethod
    def of(cls, message: MessageDetail) -> Self:
        """That of a message, or of its metadata."""
        return cls(
            identity=identity_of(message),
            strong=is_strong(message),
            size=size_of(message),
            received_ms=received_ms(message),
        )


def is_strong(message: MessageDetail) -> bool:
    """Whether no other message has the same identity."""
    return bool(message.msg_id)


def identity_of(message: MessageDetail) -> bytes:
    """The identity of a message or of its metadata, which agree."""
    if message.msg_id:
        return _hashed((message.msg_id, received_ms(message), size_of(message)), IDENTITY)
    return _hashed((received_ms(message), size_of(message), message.sender, message.subject), IDENTITY)


def digest_of(message: MessageDetail) -> bytes:
    """The digest of a whole message."""
    attachments = [(each.filename, each.content_type, hashed(each.content, DIGEST)) for each in message.attachments]
    recipients = [(each.email, each.type) for each in message.recipients]
    content = (message.msg_id, received_ms(message), size_of(message), message.sender, message.subject, recipients)
    return _hashed((*content, message.body, message.html_body, attachments), DIGEST)


def size_of(message: MessageDetail) -> int:
    """Its size; -1 where it doesn't say, or says what no database takes."""
    return message.size if message.size is not None and is_storable(message.size) else -1


def is_storable(number: int) -> bool:
    """Whether a number has a place in an integer column of SQLite and PostgreSQL: 64 bits."""
    return -(2**63) <= number < 2**63


def received_ms(message: MessageDetail) -> int | None:
    """When it was received, in milliseconds since 1970; None where it doesn't say."""
    return None if message.received_date is None else round(message.received_date.timestamp() * 1000)


def hex_of(digest: bytes | None) -> str | None:
    """A digest as sinks are told of it."""
    return None if digest is None else digest.hex()


def hashed(content: bytes, size: int) -> bytes:
    """So many bytes of a content's SHA-256, which is faster than BLAKE2 on processors with instructions for it."""
    return hashlib.sha256(content).digest()[:size]


def _hashed(values: tuple[Any, ...], size: int) -> bytes:
    return hashed(msgspec.msgpack.encode(values), size)
