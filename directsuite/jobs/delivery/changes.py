"""What is known of the messages that are followed, and what is new: a change for each recipient with another status."""

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

_ID_HEX_DIGITS = 32  # hex digits


@attrs.frozen(kw_only=True, repr=False)
class DeliveryChange:
    """A recipient's new status."""

    id: str
    """The same each time this change is reported, and of no other change."""
    smtp_id: str
    recipient: str | None
    """None where a message is given up of which nothing was ever seen."""
    status: MessageStatus | None
    step: int
    """Counts the changes of the recipient, from 1."""
    details: str | None = None
    """Where the service gives them; its CSV form has none."""
    sent_at: datetime | None = None
    """By the service."""
    is_end: bool = False
    """Whether it is the recipient's last change, Delivered or not."""
    given_up: bool = False
    """Whether it is the last because no end came in time; status is the last one seen."""
    ends_message: bool = False
    """Whether it is the last change of the whole message."""

    @property
    def delivered(self) -> bool:
        """Whether the recipient has it."""
        return is_delivered(self.status)

    def __repr__(self) -> str:
        return f"DeliveryChange(id={self.id!r}, status={self.status!r}, is_end={self.is_end}, given_up={self.given_up})"


@attrs.frozen(repr=False)
class RecipientStatus:
    """How a recipient stands."""

    recipient: str | None
    status: MessageStatus | None
    step: int
    """Of the latest change; 0 before the first."""
    is_end: bool


_UNSEEN_STATUS = RecipientStatus(None, None, 0, is_end=False)


@attrs.define(kw_only=True, repr=False, eq=False)
class TrackedMessage:
    """A message that is followed. Times are of the clock of waits, unless they say otherwise."""

    number: int
    """Of its row in the journal."""
    mailbox: str
    """Whose it is, as the journal names it."""
    smtp_id: str
    added_at: float
    """Unix time."""
    recipients: int
    """How many it has at least."""
    give_up_after: float
    """Seconds of its age."""
    seen: dict[str, RecipientStatus] = attrs.field(factory=dict[str, RecipientStatus])
    """By case-blind address."""
    began_at: float = 0.0
    """From when on its age counts."""
    earliest_poll_at: float = 0.0
    """From when on it joins a request for others."""
    latest_poll_at: float = 0.0
    """When it is due."""
    isolated: bool = False
    """Whether it is asked for alone, until that is answered, because a request that names it is rejected."""
    rejections: int = 0
    """In a row."""


class AnotherLoopError(DirectSuiteError):
    """Another loop reads the changes of this mailbox from this journal: there is one at a time."""


@attrs.define(kw_only=True, repr=False, eq=False)
class TrackingState:
    """What all trackers of a mailbox on one open journal share, so that each sees what another adds."""

    messages: dict[str, TrackedMessage] = attrs.field(factory=dict[str, TrackedMessage])
    """By bare Message-ID."""
    added: asyncio.Event = attrs.field(factory=asyncio.Event)
    """Set when a message is due earlier than the loop waits."""
    is_loaded: bool = False
    """False where the journal may know better."""
    reader: weakref.ref[object] | None = None
    """The loop that reads the changes, while there is one."""
    wakes_at: float = -math.inf
    """When a waiting loop goes on."""
    send_locks: weakref.WeakValueDictionary[str, asyncio.Lock] = attrs.field(
        factory=weakref.WeakValueDictionary[str, asyncio.Lock]
    )
    """Held while a message is sent, by its mark: the same one is sent by one task at a time."""

    def begin(self, reader: weakref.ref[object]) -> None:
        """Have this loop read. A loop that nobody refers to any more is no obstacle, though it wasn't closed yet."""
        if self.reader is not None and self.reader() is not None:
            raise AnotherLoopError(
                "Another loop reads these changes: let it end, or leave it (`async with`, `aclose`), and begin again."
            )
        self.reader = reader

    def end(self, reader: weakref.ref[object]) -> None:
        """Let others read."""
        if self.reader is reader:
            self.reader = None

    def add(self, message: TrackedMessage) -> None:
        """Follow another message; wakes a loop that would find it due too late."""
        self.messages[normalize_smtp_id(message.smtp_id)] = message
        if message.latest_poll_at < self.wakes_at:
            self.added.set()

    def invalidate(self) -> None:
        """Have what the journal has read again."""
        self.is_loaded = False
        self.added.set()

    async def load(self, read: Callable[[], Awaitable[Sequence[TrackedMessage]]]) -> None:
        """Take over what the journal has. It is right about everything but when messages are asked for."""
        self.is_loaded = True  # what is added meanwhile may undo it
        before, self.messages = self.messages, {}
        for message in await read():
            existing = before.get(normalize_smtp_id(message.smtp_id))
            if existing is not None and existing.number == message.number:
                message = attrs.evolve(existing, seen=message.seen)
            self.messages.setdefault(normalize_smtp_id(message.smtp_id), message)


def find_changes(
    message: TrackedMessage, records: Sequence[DirectMessageLog], *, give_up: bool
) -> list[tuple[str, DeliveryChange]]:
    """What is new, by case-blind address. A recipient's end stays what it is, whatever is said later."""
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
    """The last change of each recipient who came to no end, and one of the message where some never showed."""
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
