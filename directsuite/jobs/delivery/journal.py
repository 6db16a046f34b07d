"""Tracked messages, the changes of their statuses, and the journal that records both, an SQLite file."""

from __future__ import annotations

import asyncio
import hashlib
import math
import os
import weakref
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import attrs

from directsuite.core.privacy import scrub_class
from directsuite.durable.database import Tables, Transaction, load_statements
from directsuite.durable.sqlite import DatabaseContext, SqliteDatabase, SqliteFile
from directsuite.errors import DirectSuiteError
from directsuite.messaging import arguments
from directsuite.messaging.models import DirectMessageLog, MessageStatus
from directsuite.messaging.sending import (
    has_only_final_statuses,
    is_delivered,
    is_final,
    normalize_smtp_id,
    select_latest_by_recipient,
)

_ID_HEX_DIGITS = 32


class DeliveryJournalError(DirectSuiteError):
    """The journal could not be read or written. Nothing was written."""


@attrs.frozen(kw_only=True, repr=False)
class DeliveryChange:
    """A recipient's new status."""

    id: str
    """Unique ID, the same each time this change is reported."""
    smtp_id: str
    recipient: str | None
    """The address. None if the service names none, or for unreported recipients of a message that was given up."""
    status: MessageStatus | None
    step: int
    """The number of the recipient's change, from 1."""
    details: str | None = None
    """The service's details of the status, or None."""
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
    """The number of the latest change, 0 before the first."""
    is_end: bool


_UNSEEN_STATUS = RecipientStatus(None, None, 0, is_end=False)


@attrs.define(kw_only=True, repr=False, eq=False)
class TrackedMessage:
    """A message that is not over. Times are monotonic, except as noted."""

    number: int
    mailbox: str
    """The hash of its address."""
    smtp_id: str
    added_at: float
    """The Unix time of `add`."""
    recipients: int
    """The minimum number of recipients."""
    give_up_after: float
    """The age in seconds at which it is given up."""
    seen: dict[str, RecipientStatus] = attrs.field(factory=dict[str, RecipientStatus])
    """The latest statuses, by casefolded address."""
    began_at: float = 0.0
    """The time from which its age is counted."""
    earliest_poll_at: float = 0.0
    """The time from which it can be polled together with due messages."""
    latest_poll_at: float = 0.0
    """The time from which it is due."""
    isolated: bool = attrs.field(default=False, converter=bool)
    """True while it is polled alone, because requests that named it were rejected."""
    rejections: int = 0  # consecutive


class AnotherLoopError(DirectSuiteError):
    """Another loop is reading the changes of this mailbox and journal."""


@attrs.define(kw_only=True, repr=False, eq=False)
class TrackingState:
    """The state shared by a mailbox's trackers on an open journal."""

    messages: dict[str, TrackedMessage] = attrs.field(factory=dict[str, TrackedMessage])
    """The messages that are not over, by normalized Message-ID."""
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
    """The locks by request ID, which allow one attempt at a time to send a message."""

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


_FILE = SqliteFile(
    noun="journal",
    error=DeliveryJournalError,
    application_id=0x64734476,
    version=6,
    new_file_warning=" With a new file, messages that were sent with keys of the old one would be sent again.",
)
_SQL = load_statements("directsuite.jobs.delivery", "journal")
_TABLES = Tables("delivery", _SQL["tables"])
_MESSAGE_FIELDS = ("number", "mailbox", "smtp_id", "added_at", "recipients", "give_up_after", "isolated")
_CHANGE_FIELDS = tuple(field.name for field in attrs.fields(DeliveryChange))


@attrs.frozen
class SendRecord:
    """A message sent by key."""

    began_at: float
    """Unix time of the first attempt."""
    content_digest: str
    smtp_id: str | None
    """The ID of the sent message. None if it may not have been sent."""
    is_new: bool


@scrub_class
class DeliveryJournal(DatabaseContext):
    """A journal file, which is created if necessary. Only one process can open it at a time.

    Trackers of any mailboxes can share it. They use the methods other than `forget`. Each method raises
    DeliveryJournalError if the file cannot be read or written.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._database = SqliteDatabase(path, _FILE)
        self._by_mailbox = dict[str, TrackingState]()

    async def forget(self, before: datetime) -> int:
        """Delete messages that are over, were added before this time, and have no pending changes. Return their number.

        A deleted message that is added again is tracked again. If it is sent again with its key, it is sent a second
        time.

        before: an aware datetime. Raises InvalidArgumentError if it is not.
        """
        moment = arguments.validate_aware(before, "before").timestamp()
        return len(await self._database.execute(_SQL["forget"], {"before": moment}))

    def get_state(self, mailbox: str) -> TrackingState:
        """Return the state that a mailbox's trackers share."""
        return self._by_mailbox.setdefault(mailbox, TrackingState())

    async def add(
        self, mailbox: str, smtp_id: str, *, at: float, recipients: int, give_up_after: float
    ) -> TrackedMessage | None:
        """Add a message. Return None if it was added before. at: Unix time."""
        message = TrackedMessage(
            number=0,
            mailbox=mailbox,
            smtp_id=smtp_id,
            added_at=at,
            recipients=recipients,
            give_up_after=give_up_after,
        )
        values = attrs.asdict(message, filter=attrs.filters.exclude("seen")) | {"bare_id": normalize_smtp_id(smtp_id)}
        made = await self._database.execute(_SQL["add"], values)
        return attrs.evolve(message, number=made[0][0]) if made else None

    async def begin_send(self, mailbox: str, request_id: str, *, at: float, content: str) -> SendRecord:
        """Return the record of a sent message, inserted if it is new. at: Unix time. content: digest of the message."""
        values = {"mailbox": mailbox, "mark": request_id, "began_at": at, "content": content}

        async def begin(transaction: Transaction) -> SendRecord:
            is_new = bool(await transaction.execute(_SQL["begin_send"], values))
            ((began_at, content, smtp_id),) = await transaction.execute(_SQL["select_send"], values)
            return SendRecord(began_at, content, smtp_id, is_new)

        return await self._database.transaction(begin)

    async def forget_begin(self, mailbox: str, request_id: str) -> None:
        """Replace a wrong time of the first attempt by 1970, so that searches cover all times."""
        await self._database.execute(_SQL["forget_begin"], {"mailbox": mailbox, "mark": request_id})

    async def find_send(self, mailbox: str, request_id: str) -> SendRecord | None:
        """Return the record of a sent message; None if there is none."""
        values = {"mailbox": mailbox, "mark": request_id}
        rows = await self._database.fetch(
            _SQL["select_send"], values, lambda row: SendRecord(row[0], row[1], row[2], False)
        )
        return rows[0] if rows else None

    async def withdraw_send(self, mailbox: str, request_id: str) -> None:
        """Delete the record of a message that was certainly not sent."""
        await self._database.execute(_SQL["withdraw_send"], {"mailbox": mailbox, "mark": request_id})

    async def end_send(self, mailbox: str, request_id: str, smtp_id: str) -> None:
        """Record that a message was sent, and link the record to the tracked message with this id.

        Add that message first: an unlinked record is never deleted.
        """
        smtp_id = smtp_id.encode("utf-8", "replace").decode()  # SQLite cannot store lone surrogates
        values = {"mailbox": mailbox, "mark": request_id, "smtp_id": smtp_id, "bare_id": normalize_smtp_id(smtp_id)}
        await self._database.execute(_SQL["end_send"], values)

    async def load(self, mailbox: str, now: float) -> list[TrackedMessage]:
        """Return messages that are not over, oldest first. now: Unix time, a limit of their `added_at`."""
        values = {"mailbox": mailbox, "now": now}

        async def load(transaction: Transaction) -> list[TrackedMessage]:
            await transaction.execute(_SQL["correct_times"], values)  # the clock may have been ahead
            messages = dict[int, TrackedMessage]()
            for row in await transaction.execute(_SQL["select_followed"], values):
                messages[row[0]] = TrackedMessage(**dict(zip(_MESSAGE_FIELDS, row, strict=True)))
            recipients = await transaction.execute(_SQL["select_recipients"], values)
            for number, address, recipient, status, step, is_end in recipients:
                messages[number].seen[address] = RecipientStatus(recipient, _parse_status(status), step, bool(is_end))
            return list(messages.values())

        return await self._database.transaction(load)

    async def record(self, changed: Iterable[tuple[TrackedMessage, Sequence[tuple[str, DeliveryChange]]]]) -> None:
        """Write changes. Mark a message as over if one of its changes has `ends_message`.

        changed: messages, and their changes with the recipient's address.
        """
        rows = [
            attrs.asdict(change)
            | {"message": message.number, "address": address}
            | {"sent_at": None if change.sent_at is None else change.sent_at.isoformat()}
            for message, changes in changed
            for address, change in changes
        ]

        async def record(transaction: Transaction) -> None:
            for row in rows:
                await transaction.execute(_SQL["set_recipient"], row)
                await transaction.execute(_SQL["add_change"], row)
                if row["ends_message"]:
                    await transaction.execute(_SQL["end_message"], row)

        await self._database.transaction(record)

    async def set_isolated(self, messages: Iterable[TrackedMessage], *, isolated: bool) -> None:
        """Record whether these messages must be polled alone."""

        async def isolate(transaction: Transaction) -> None:
            for message in messages:
                await transaction.execute(_SQL["isolate"], {"message": message.number, "isolated": isolated})

        await self._database.transaction(isolate)

    async def list_pending(self, mailbox: str, limit: int) -> list[DeliveryChange]:
        """Return the mailbox's oldest changes that are not acknowledged, at most `limit`."""
        return await self._database.fetch(_SQL["select_pending"], {"mailbox": mailbox, "most": limit}, _read_change)

    async def acknowledge(self, change: DeliveryChange) -> None:
        """Delete a change that was processed. If it is the message's last one, also delete the message's recipients."""

        async def acknowledge(transaction: Transaction) -> None:
            for message, ends_message in await transaction.execute(_SQL["delete_change"], {"id": change.id}):
                if ends_message:
                    await transaction.execute(_SQL["drop_recipients"], {"message": message})

        await self._database.transaction(acknowledge)

    async def _prepare(self, transaction: Transaction) -> None:
        await transaction.ensure(_TABLES)


def hash_mailbox(address: str) -> str:
    """Return the name by which a journal identifies a mailbox."""
    return hashlib.sha256(f"directsuite\0{address.casefold()}".encode()).hexdigest()


def _parse_status(text: str | None) -> MessageStatus | None:
    return None if text is None else MessageStatus(text)


def _read_change(values: Sequence[Any]) -> DeliveryChange:
    change = dict(zip(_CHANGE_FIELDS, values, strict=True))
    sent_at = change["sent_at"]
    change |= {name: bool(change[name]) for name in ("is_end", "given_up", "ends_message")}
    change |= {"status": _parse_status(change["status"])}
    change |= {"sent_at": None if sent_at is None else datetime.fromisoformat(sent_at)}
    return DeliveryChange(**change)


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
    which = "given up" if given_up else "end" if ends else str(step)
    text = "\0".join(("directsuite", message.mailbox, normalize_smtp_id(message.smtp_id), address, which))
    return DeliveryChange(
        id=hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_ID_HEX_DIGITS],
        smtp_id=message.smtp_id,
        recipient=recipient,
        status=status,
        step=step,
        details=None if record is None else record.status_details,
        sent_at=None if record is None else record.ts,
        is_end=ends,
        given_up=given_up,
    )
