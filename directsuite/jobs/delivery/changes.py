"""What is new about a message: a change for each recipient whose status is another than when it was last looked at."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import datetime

import attrs

from directsuite.messaging.models import DirectMessageLog, MessageStatus
from directsuite.messaging.tracking import bare, by_recipient, is_delivered, is_end, is_over

_KEY = 32  # hex digits


@attrs.frozen(kw_only=True, repr=False)
class DeliveryChange:
    """A recipient's new status. recipient: None where a message is given up of which nothing was ever seen.

    key: the same each time this change is told, and of no other change. step: counts the changes of the recipient, from
    1. details: where the service tells them; its CSV form has none. sent_at: by the service. is_end: the recipient's
    last change, Delivered or not. given_up: it is the last for no end came in time; status is the last one seen.
    ends_message: it is the last change of the whole message.
    """

    key: str
    smtp_id: str
    recipient: str | None
    status: MessageStatus | None
    step: int
    details: str | None = None
    sent_at: datetime | None = None
    is_end: bool = False
    given_up: bool = False
    ends_message: bool = False

    @property
    def delivered(self) -> bool:
        """Whether the recipient has it."""
        return is_delivered(self.status)

    def __repr__(self) -> str:
        return (
            f"DeliveryChange(key={self.key!r}, status={self.status!r}, is_end={self.is_end}, given_up={self.given_up})"
        )


@attrs.frozen(repr=False)
class Seen:
    """How a recipient stands. step: of the latest change; 0 before the first."""

    recipient: str | None
    status: MessageStatus | None
    step: int
    is_end: bool


@attrs.define(kw_only=True, repr=False, eq=False)
class Followed:
    """A message on its way. mailbox: whose it is, as the journal names it. added_at: Unix time.

    recipients: how many it has at least. give_up_after: seconds of its age. seen: by case-blind address.
    began: from when on its age counts, by the clock of waits, as do earliest and latest: when to look next.
    apart: a request that names it is refused, so it has its own until that is answered. refusals: how many in a row.
    """

    number: int
    mailbox: str
    smtp_id: str
    added_at: float
    recipients: int
    give_up_after: float
    seen: dict[str, Seen] = attrs.field(factory=dict[str, Seen])
    began: float = 0.0
    earliest: float = 0.0
    latest: float = 0.0
    apart: bool = False
    refusals: int = 0


def changes_of(
    message: Followed, records: Sequence[DirectMessageLog], *, give_up: bool
) -> list[tuple[str, DeliveryChange]]:
    """What is new, by case-blind address. A recipient's end stays what it is, whatever is said later."""
    found = by_recipient(records)
    changes = dict[str, DeliveryChange]()
    for address, record in found.items():
        before = message.seen.get(address)
        if record.status is None or (before is not None and (before.is_end or before.status == record.status)):
            continue
        changes[address] = _change(message, address, record, 1 if before is None else before.step + 1)
    statuses = {address: seen.status for address, seen in message.seen.items()}
    statuses |= {address: record.status for address, record in found.items() if not _ended(message, address)}
    over = is_over(list(statuses.values()), message.recipients)
    if give_up and not over:
        changes |= _given_up(message, found, changes, statuses)
    if (over or give_up) and changes:
        last = next(reversed(changes))
        changes[last] = attrs.evolve(changes[last], ends_message=True)
    return list(changes.items())


def _ended(message: Followed, address: str) -> bool:
    seen = message.seen.get(address)
    return seen is not None and seen.is_end


def _given_up(
    message: Followed,
    found: dict[str, DirectMessageLog],
    changes: dict[str, DeliveryChange],
    statuses: dict[str, MessageStatus | None],
) -> dict[str, DeliveryChange]:
    """The last change of each recipient who came to no end, and one of the message where some never showed."""
    last = dict[str, DeliveryChange]()
    for address, status in statuses.items():
        if is_end(status):
            continue
        before, record = message.seen.get(address), found.get(address)
        recipient = record.to if record is not None else before.recipient if before is not None else None
        told = changes.get(address)
        step = told.step if told is not None else (0 if before is None else before.step) + 1
        last[address] = DeliveryChange(
            key=_key(message, address, "given up"),
            smtp_id=message.smtp_id,
            recipient=recipient,
            status=status,
            step=step,
            details=None if record is None else record.status_details,
            sent_at=None if record is None else record.ts,
            is_end=True,
            given_up=True,
        )
    if len(statuses) < message.recipients:
        key = _key(message, "", "given up")
        last[""] = DeliveryChange(
            key=key, smtp_id=message.smtp_id, recipient=None, status=None, step=1, is_end=True, given_up=True
        )
    return last


def _change(message: Followed, address: str, record: DirectMessageLog, step: int) -> DeliveryChange:
    ends = is_end(record.status)
    return DeliveryChange(
        key=_key(message, address, "end" if ends else str(step)),
        smtp_id=message.smtp_id,
        recipient=record.to,
        status=record.status,
        step=step,
        details=record.status_details,
        sent_at=record.ts,
        is_end=ends,
    )


def _key(message: Followed, address: str, which: str) -> str:
    text = "\0".join(("directsuite", message.mailbox, bare(message.smtp_id), address, which))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_KEY]
