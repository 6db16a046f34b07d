"""Identities and digests, by which a message is recognised wherever it is.

identity   of the Message-ID, date and size: strong. Without a Message-ID: of date, size, sender and subject: weak,
           because two messages may have the same
digest     of the complete content

A row records the identity, date and size of the complete message. Some services return other values in a message's
metadata: no size (-1), a date without milliseconds, no Message-ID. Metadata therefore can prove that a message is the
recorded one (`find_match`). If they do not, the content decides (`has_content`).
"""

from __future__ import annotations

import enum
import hashlib
from typing import Any, Self

import attrs
import msgspec

from directsuite.messaging.models import MessageDetail
from directsuite.sync.model import Row

IDENTITY, DIGEST = 12, 16
"""Bytes."""
_DATE_PRECISION_MS = 1000


class Match(enum.Enum):
    """The result of comparing a message's metadata with the row that was recorded under the same uid."""

    SAME = enum.auto()
    """It is the same message: the Message-ID is the same, and the date is not another one."""
    LIKELY = enum.auto()
    """It has the same date, size, sender and subject, and no Message-ID. Another message may have them as well."""
    UNPROVEN = enum.auto()
    """The metadata lack the Message-ID, or what identifies a message without one."""
    DIFFERENT = enum.auto()
    """The Message-ID or date is another one: of another message, or the service's metadata differ from its messages."""


@attrs.frozen
class Metadata:
    """The part of a message's metadata that a full resync needs. size: -1 if it is not known."""

    identity: bytes
    strong: bool
    size: int
    received_ms: int | None
    match: Match = Match.UNPROVEN
    """Compared with the row of the same uid, if it has an identity."""

    @classmethod
    def of(cls, message: MessageDetail, row: Row | None = None) -> Self:
        """Read a message or its metadata. row: the row of the same uid."""
        return cls(
            identity=identity_of(message),
            strong=is_strong(message),
            size=size_of(message),
            received_ms=received_ms(message),
            match=Match.UNPROVEN if row is None else find_match(message, row),
        )


def is_strong(message: MessageDetail) -> bool:
    """Return True if no other message has the same identity."""
    return bool(message.msg_id)


def identity_of(message: MessageDetail) -> bytes:
    """Return the identity of a message or of its metadata."""
    return _identity(message, received_ms(message), size_of(message))


def _identity(message: MessageDetail, received: int | None, size: int) -> bytes:
    if message.msg_id:
        return _hashed((message.msg_id, received, size), IDENTITY)
    return _hashed((received, size, message.sender, message.subject), IDENTITY)


def find_match(message: MessageDetail, row: Row) -> Match:
    """Compare metadata with a row. A size is not compared, nor a date that one of the two lacks."""
    if row.identity == identity_of(message):
        return Match.SAME if is_strong(message) else Match.LIKELY
    if not _may_be_equal(received_ms(message), row.received_ms):
        return Match.DIFFERENT
    if not is_strong(message):
        return Match.UNPROVEN
    # With the row's own date and size, only another Message-ID makes another identity.
    return Match.SAME if row.identity == _identity(message, row.received_ms, row.size) else Match.DIFFERENT


def _may_be_equal(one: int | None, other: int | None) -> bool:
    """Return True if two dates are equal to the second, or one is not known."""
    return one is None or other is None or abs(one - other) < _DATE_PRECISION_MS


def digest_of(message: MessageDetail) -> bytes:
    """Return the digest of a complete message."""
    return _digest(message, received_ms(message), size_of(message))


def _digest(message: MessageDetail, received: int | None, size: int) -> bytes:
    attachments = [(each.filename, each.content_type, hashed(each.content, DIGEST)) for each in message.attachments]
    recipients = [(each.email, each.type) for each in message.recipients]
    content = (message.msg_id, received, size, message.sender, message.subject, recipients)
    return _hashed((*content, message.body, message.html_body, attachments), DIGEST)


def has_content(message: MessageDetail, row: Row) -> bool:
    """Return True if a complete message has the content of a row. A date or size that either lacks is not compared."""
    received, size = received_ms(message), size_of(message)
    if row.digest == _digest(message, received, size):
        return True
    if None not in (received, row.received_ms) and -1 not in (size, row.size):
        return False
    if None in (received, row.received_ms):
        received = row.received_ms
    return row.digest == _digest(message, received, row.size if -1 in (size, row.size) else size)


def size_of(message: MessageDetail) -> int:
    """Return the size of a message; -1 if it has no size that a database can store."""
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
