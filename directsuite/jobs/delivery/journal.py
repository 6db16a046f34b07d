"""The journal of tracked messages, an SQLite file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import attrs

from directsuite.core.privacy import scrub_class
from directsuite.durable.database import Tables, Transaction, load_statements
from directsuite.durable.sqlite import DatabaseContext, SqliteDatabase, SqliteFile
from directsuite.errors import DirectSuiteError
from directsuite.jobs.delivery.changes import DeliveryChange, RecipientStatus, TrackedMessage, TrackingState
from directsuite.messaging import arguments
from directsuite.messaging.models import MessageStatus
from directsuite.messaging.tracking import normalize_smtp_id


class DeliveryJournalError(DirectSuiteError):
    """The journal could not be read or written. Nothing was written."""


_FILE = SqliteFile(noun="journal", error=DeliveryJournalError, application_id=0x64734476, version=5)
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
    """None if the message may not have been sent."""
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

    async def correct_times(self, mailbox: str, now: float) -> None:
        """If the clock was ahead, set each `added_at` in the future to `now`, Unix time."""
        await self._database.execute(_SQL["correct_times"], {"mailbox": mailbox, "now": now})

    async def load(self, mailbox: str) -> list[TrackedMessage]:
        """Return messages that are not over, oldest first."""
        values = {"mailbox": mailbox}

        async def load(transaction: Transaction) -> list[TrackedMessage]:
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
        return await self._database.fetch(_SQL["select_pending"], {"mailbox": mailbox, "most": limit}, _make_change)

    async def acknowledge(self, change: DeliveryChange) -> None:
        """Delete a change that was processed. If it is the message's last one, also delete the message's recipients."""

        async def acknowledge(transaction: Transaction) -> None:
            for message, ends_message in await transaction.execute(_SQL["delete_change"], {"id": change.id}):
                if ends_message:
                    await transaction.execute(_SQL["drop_recipients"], {"message": message})

        await self._database.transaction(acknowledge)

    async def _prepare(self, transaction: Transaction) -> None:
        await transaction.ensure(_TABLES)


def _parse_status(text: str | None) -> MessageStatus | None:
    return None if text is None else MessageStatus(text)


def _make_change(values: Sequence[Any]) -> DeliveryChange:
    change = dict(zip(_CHANGE_FIELDS, values, strict=True))
    sent_at = change["sent_at"]
    change |= {name: bool(change[name]) for name in ("is_end", "given_up", "ends_message")}
    change |= {"status": _parse_status(change["status"])}
    change |= {"sent_at": None if sent_at is None else datetime.fromisoformat(sent_at)}
    return DeliveryChange(**change)
