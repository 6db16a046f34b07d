"""Identities and digests, which recognise a message wherever it is.

identity   hash of Message-ID, date and size: strong; or of date, size, sender and subject, without a Message-ID: weak
digest     hash of the complete content

A row records the identity of the complete message. Some services return other values in metadata: no size (-1), a date
without milliseconds, no Message-ID. If the metadata do not prove that a message is the recorded one (`find_match`), the
content decides (`has_content`).
"""

from __future__ import annotations

import enum
import hashlib
from typing import Any, Self

import attrs
import msgspec

from directsuite.messaging.models import MessageDetail
from directsuite.sync.model import MessageRow

IDENTITY_BYTES, DIGEST_BYTES = 12, 16
_DATE_PRECISION_MS = 1000


class Match(enum.Enum):
    """The result of comparing a message's metadata with the row of the same uid."""

    SAME = enum.auto()
    """The Message-ID is equal, and the dates do not differ."""
    LIKELY = enum.auto()
    """There is no Message-ID; date, size, sender and subject are equal. Another message may have the same."""
    UNPROVEN = enum.auto()
    """The metadata lack values of the identity."""
    DIFFERENT = enum.auto()
    """The Message-ID or date differs: another message, or metadata that differ from the message."""


@attrs.frozen
class Metadata:
    """The metadata that a full resync needs. size: -1 if unknown. match: with the row of the same uid."""

    identity: bytes
    strong: bool
    size: int
    received_ms: int | None
    match: Match = Match.UNPROVEN

    @classmethod
    def from_message(cls, message: MessageDetail, row: MessageRow | None = None) -> Self:
        """Read a message or its metadata. row: of the same uid."""
        return cls(
            identity=compute_identity(message),
            strong=is_strong(message),
            size=read_size(message),
            received_ms=read_received_ms(message),
            match=Match.UNPROVEN if row is None else find_match(message, row),
        )


def is_strong(message: MessageDetail) -> bool:
    """Return True if no other message has the same identity."""
    return bool(message.msg_id)


def compute_identity(message: MessageDetail) -> bytes:
    """Return the identity of a message or of its metadata."""
    return _compute_identity(message, read_received_ms(message), read_size(message))


def _compute_identity(message: MessageDetail, received: int | None, size: int) -> bytes:
    if message.msg_id:
        return _hash_values((message.msg_id, received, size), IDENTITY_BYTES)
    return _hash_values((received, size, message.sender, message.subject), IDENTITY_BYTES)


def find_match(message: MessageDetail, row: MessageRow) -> Match:
    """Compare metadata with a row, but not the size or an unknown date."""
    if row.identity == compute_identity(message):
        return Match.SAME if is_strong(message) else Match.LIKELY
    if not _may_be_equal(read_received_ms(message), row.received_ms):
        return Match.DIFFERENT
    if not is_strong(message):
        return Match.UNPROVEN
    # With the row's date and size, the identities differ only if the Message-IDs differ.
    return Match.SAME if row.identity == _compute_identity(message, row.received_ms, row.size) else Match.DIFFERENT


def _may_be_equal(one: int | None, other: int | None) -> bool:
    return one is None or other is None or abs(one - other) < _DATE_PRECISION_MS


def compute_digest(message: MessageDetail) -> bytes:
    """Return the digest of a complete message."""
    return _compute_content_digest(message, read_received_ms(message), read_size(message))


def _compute_content_digest(message: MessageDetail, received: int | None, size: int) -> bytes:
    attachments = [
        (each.filename, each.content_type, compute_sha256(each.content, DIGEST_BYTES)) for each in message.attachments
    ]
    recipients = [(each.email, each.type) for each in message.recipients]
    content = (message.msg_id, received, size, message.sender, message.subject, recipients)
    return _hash_values((*content, message.body, message.html_body, attachments), DIGEST_BYTES)


def has_content(message: MessageDetail, row: MessageRow) -> bool:
    """Return True if a complete message has the content of a row. An unknown date or size is not compared."""
    received, size = read_received_ms(message), read_size(message)
    if row.digest == _compute_content_digest(message, received, size):
        return True
    if None not in (received, row.received_ms) and -1 not in (size, row.size):
        return False
    if None in (received, row.received_ms):
        received = row.received_ms
    return row.digest == _compute_content_digest(message, received, row.size if -1 in (size, row.size) else size)


def read_size(message: MessageDetail) -> int:
    """Return the size in bytes; -1 if it is missing, or too large for a database."""
    return message.size if message.size is not None and is_storable(message.size) else -1


def is_storable(number: int) -> bool:
    """Return True if a number fits into a 64-bit column."""
    return -(2**63) <= number < 2**63


def read_received_ms(message: MessageDetail) -> int | None:
    """Return the received date, or None."""
    return None if message.received_date is None else round(message.received_date.timestamp() * 1000)


def to_hex(digest: bytes | None) -> str | None:
    """Return a digest as sinks receive it."""
    return None if digest is None else digest.hex()


def compute_sha256(content: bytes, size: int) -> bytes:
    """Return the first `size` bytes of the SHA-256 hash, which SHA instructions make faster than BLAKE2."""
    return hashlib.sha256(content).digest()[:size]


def _hash_values(values: tuple[Any, ...], size: int) -> bytes:
    return compute_sha256(msgspec.msgpack.encode(values), size)
