"""The state of tracked messages, and how changes are found: one for each recipient with a new status."""

from __future__ import annotations

import asyncio
import hashlib
import math
import weakref
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime

import attrs

from directsuite.errors import DirectSuiteError
from directsuite.messaging.models import DirectMessageLog, MessageStatus
from directsuite.messaging.tracking import (
    has_only_final_statuses,
    is_delivered,
    is_final,
    normalize_smtp_id,
    select_latest_by_recipient,
)

_ID_HEX_DIGITS = 32


@attrs.frozen(kw_only=True, repr=False)
class DeliveryChange:
    """A recipient's new status."""

    id: str
    """Unique ID, the same each time this change is reported."""
    smtp_id: str
    recipient: str | None
    """None if the service names none, or for unreported recipients of a message that was given up."""
    status: MessageStatus | None
    step: int
    """The number of the recipient's change, from 1."""
    details: str | None = None
    """None if the service reports none."""
    sent_at: datetime | None = None
    is_end: bool = False
    """True if this is the recipient's last change."""
    given_up: bool = False
    """True if the recipient had no final status in time. `status` is the last one."""
    ends_message: bool = False
    """True if this is the message's last change."""

    @property
    def delivered(self) -> bool:
        """True if the message was delivered to the recipient."""
        return is_delivered(self.status)

    def __repr__(self) -> str:
        return f"DeliveryChange(id={self.id!r}, status={self.status!r}, is_end={self.is_end}, given_up={self.given_up})"


@attrs.frozen(repr=False)
class RecipientStatus:
    """A recipient's latest status."""

    recipient: str | None
    status: MessageStatus | None
    step: int
    """0 before the first change."""
    is_end: bool


_UNSEEN_STATUS = RecipientStatus(None, None, 0, is_end=False)


@attrs.define(kw_only=True, repr=False, eq=False)
class TrackedMessage:
    """A message that is not over. Times are monotonic, except as noted."""

    number: int
    mailbox: str
    """A hash."""
    smtp_id: str
    added_at: float
    """Unix time."""
    recipients: int
    """The minimum number of recipients."""
    give_up_after: float
    """The age in seconds at which it is given up."""
    seen: dict[str, RecipientStatus] = attrs.field(factory=dict[str, RecipientStatus])
    """By casefolded address."""
    began_at: float = 0.0
    """When its age starts."""
    earliest_poll_at: float = 0.0
    """From when it can be polled together with due messages."""
    latest_poll_at: float = 0.0
    """From when it is due."""
    isolated: bool = attrs.field(default=False, converter=bool)
    """True while it is polled alone, because requests that named it were rejected."""
    rejections: int = 0  # consecutive


class AnotherLoopError(DirectSuiteError):
    """Another loop is reading the changes of this mailbox and journal."""


@attrs.define(kw_only=True, repr=False, eq=False)
class TrackingState:
    """The state shared by a mailbox's trackers on an open journal."""

    messages: dict[str, TrackedMessage] = attrs.field(factory=dict[str, TrackedMessage])
    """By normalized Message-ID."""
    added: asyncio.Event = attrs.field(factory=asyncio.Event)
    """Set when a message is due before the loop wakes up."""
    is_loaded: bool = False
    """False if the journal may have newer data."""
    reader: weakref.ref[object] | None = None
    wakes_at: float = -math.inf
    """When the waiting loop wakes up."""
    send_locks: weakref.WeakValueDictionary[str, asyncio.Lock] = attrs.field(
        factory=weakref.WeakValueDictionary[str, asyncio.Lock]
    )
    """By request ID: one attempt at a time to send a message."""

    def begin(self, reader: weakref.ref[object]) -> None:
        """Register the loop that reads changes. Raises AnotherLoopError while another one exists."""
        if self.reader is not None and self.reader() is not None:
            raise AnotherLoopError(
                "another `async for` loop is reading the changes of this mailbox: wait until it ends, or call "
                "`aclose` on it, then try again"
            )
        self.reader = reader

    def end(self, reader: weakref.ref[object]) -> None:
        """Allow other loops to read, if this loop is the registered one."""
        if self.reader is reader:
            self.reader = None

    def add(self, message: TrackedMessage) -> None:
        """Add a message. Wake the loop if it would wake up too late."""
        self.messages[normalize_smtp_id(message.smtp_id)] = message
        if message.latest_poll_at < self.wakes_at:
            self.added.set()

    def invalidate(self) -> None:
        """Require a reload from the journal, and wake the loop."""
        self.is_loaded = False
        self.added.set()

    async def load(self, read: Callable[[], Awaitable[Sequence[TrackedMessage]]]) -> None:
        """Replace the messages by those in the journal. Known messages retain their schedule."""
        self.is_loaded = True  # before the await: `invalidate` may be called during it
        before, self.messages = self.messages, {}
        for message in await read():
            existing = before.get(normalize_smtp_id(message.smtp_id))
            if existing is not None and existing.number == message.number:
                message = attrs.evolve(existing, seen=message.seen)
            self.messages.setdefault(normalize_smtp_id(message.smtp_id), message)


def find_changes(
    message: TrackedMessage, records: Sequence[DirectMessageLog], *, give_up: bool
) -> list[tuple[str, DeliveryChange]]:
    """Return the changes, each with the recipient's casefolded address. A final status never changes.

    The last change has `ends_message` if the message is then over. give_up: also end recipients without final status.
    """
    reported = select_latest_by_recipient(records)
    changes = dict[str, DeliveryChange]()
    for address, record in reported.items():
        before = message.seen.get(address, _UNSEEN_STATUS)
        if record.status is not None and not before.is_end and before.status != record.status:
            changes[address] = _make_change(message, address, record.to, record.status, before.step + 1, record)
    statuses = {address: seen.status for address, seen in message.seen.items()}
    for address, record in reported.items():
        if not message.seen.get(address, _UNSEEN_STATUS).is_end:
            statuses[address] = record.status
    over = has_only_final_statuses(list(statuses.values()), message.recipients)
    if give_up and not over:
        changes |= _make_final_changes(message, reported, changes, statuses)
    if (over or give_up) and changes:
        last = next(reversed(changes))
        changes[last] = attrs.evolve(changes[last], ends_message=True)
    return list(changes.items())


def _make_final_changes(
    message: TrackedMessage,
    reported: Mapping[str, DirectMessageLog],
    changes: Mapping[str, DeliveryChange],
    statuses: Mapping[str, MessageStatus | None],
) -> dict[str, DeliveryChange]:
    last = dict[str, DeliveryChange]()
    for address, status in statuses.items():
        if not is_final(status):
            before, record = message.seen.get(address, _UNSEEN_STATUS), reported.get(address)
            recipient = before.recipient if record is None else record.to
            step = changes[address].step if address in changes else before.step + 1
            last[address] = _make_change(message, address, recipient, status, step, record, given_up=True)
    if len(statuses) < message.recipients:
        last[""] = _make_change(message, "", None, None, 1, None, given_up=True)
    return last


def _make_change(
    message: TrackedMessage,
    address: str,
    recipient: str | None,
    status: MessageStatus | None,
    step: int,
    record: DirectMessageLog | None,
    *,
    given_up: bool = False,
) -> DeliveryChange:
    ends = given_up or is_final(status)
    return DeliveryChange(
        id=_make_id(message, address, "given up" if given_up else "end" if ends else str(step)),
        smtp_id=message.smtp_id,
        recipient=recipient,
        status=status,
        step=step,
        details=None if record is None else record.status_details,
        sent_at=None if record is None else record.ts,
        is_end=ends,
        given_up=given_up,
    )


def _make_id(message: TrackedMessage, address: str, which: str) -> str:
    text = "\0".join(("directsuite", message.mailbox, normalize_smtp_id(message.smtp_id), address, which))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_ID_HEX_DIGITS]
