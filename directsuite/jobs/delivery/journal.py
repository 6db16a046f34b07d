"""The journal of tracked messages, an SQLite file.

message      one row each. Messages that are over remain until `forget`, so that none is tracked twice
send         messages sent by `DeliveryTracker.send`; mark: hash of the key; smtp_id: set when certainly sent
recipient    the latest status, deleted when the message's last change is acknowledged
change       changes that are not acknowledged

It stores recipients' addresses, but no credentials. A mailbox is stored as a hash.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import attrs

from directsuite.core.privacy import scrub_class
from directsuite.durable.database import DatabaseContext, Tables, Transaction, sql
from directsuite.durable.sqlite import SqliteDatabase, SqliteFile
from directsuite.errors import DirectSuiteError
from directsuite.jobs.delivery.changes import DeliveryChange, RecipientStatus, TrackedMessage, TrackingState
from directsuite.messaging import arguments
from directsuite.messaging.models import MessageStatus
from directsuite.messaging.tracking import normalize_smtp_id


class DeliveryJournalError(DirectSuiteError):
    """The journal could not be read or written. Nothing was written."""


_FILE = SqliteFile(noun="journal", error=DeliveryJournalError, application_id=0x64734476, version=5)
_TABLES = Tables(
    "delivery",
    (
        sql("""
            CREATE TABLE message (
                number INTEGER PRIMARY KEY, mailbox TEXT NOT NULL, bare_id TEXT NOT NULL, smtp_id TEXT NOT NULL,
                added_at REAL NOT NULL, recipients INTEGER NOT NULL, give_up_after REAL NOT NULL,
                isolated INTEGER NOT NULL DEFAULT 0, is_over INTEGER NOT NULL DEFAULT 0, UNIQUE (mailbox, bare_id)
            )
        """),
        sql("CREATE INDEX message_followed ON message (mailbox) WHERE NOT is_over"),
        sql("""
            CREATE TABLE send (
                mailbox TEXT NOT NULL, mark TEXT NOT NULL, began_at REAL NOT NULL, content TEXT NOT NULL, smtp_id TEXT,
                message INTEGER REFERENCES message ON DELETE CASCADE, PRIMARY KEY (mailbox, mark)
            ) WITHOUT ROWID
        """),
        sql("CREATE INDEX send_message ON send (message)"),
        sql("""
            CREATE TABLE recipient (
                message INTEGER NOT NULL REFERENCES message ON DELETE CASCADE, address TEXT NOT NULL, recipient TEXT,
                status TEXT, step INTEGER NOT NULL, is_end INTEGER NOT NULL, PRIMARY KEY (message, address)
            ) WITHOUT ROWID
        """),
        sql("""
            CREATE TABLE change (
                number INTEGER PRIMARY KEY, message INTEGER NOT NULL REFERENCES message ON DELETE CASCADE,
                id TEXT NOT NULL UNIQUE, recipient TEXT, status TEXT, step INTEGER NOT NULL, details TEXT,
                sent_at TEXT, is_end INTEGER NOT NULL, given_up INTEGER NOT NULL, ends_message INTEGER NOT NULL
            )
        """),
        sql("CREATE INDEX change_message ON change (message)"),
    ),
)

_ADD = sql("""
    INSERT INTO message (mailbox, bare_id, smtp_id, added_at, recipients, give_up_after)
    VALUES (:mailbox, :bare_id, :smtp_id, :added_at, :recipients, :give_up_after)
    ON CONFLICT DO NOTHING RETURNING number
""")
_BEGIN_SEND = sql("""
    INSERT INTO send (mailbox, mark, began_at, content) VALUES (:mailbox, :mark, :began_at, :content)
    ON CONFLICT DO NOTHING RETURNING mark
""")
_SELECT_SEND = sql("SELECT began_at, content, smtp_id FROM send WHERE mailbox = :mailbox AND mark = :mark")
_WITHDRAW_SEND = sql("DELETE FROM send WHERE mailbox = :mailbox AND mark = :mark")
_END_SEND = sql("""
    UPDATE send SET smtp_id = :smtp_id,
        message = (SELECT number FROM message WHERE mailbox = :mailbox AND bare_id = :bare_id)
    WHERE mailbox = :mailbox AND mark = :mark
""")
_FORGET_BEGIN = sql("UPDATE send SET began_at = 0 WHERE mailbox = :mailbox AND mark = :mark")
_CORRECT_TIMES = sql("UPDATE message SET added_at = :now WHERE mailbox = :mailbox AND added_at > :now")
_MESSAGE_COLUMNS = ("number", "mailbox", "smtp_id", "added_at", "recipients", "give_up_after", "isolated")
_SELECT_FOLLOWED = sql(f"""
    SELECT {", ".join(_MESSAGE_COLUMNS)} FROM message WHERE mailbox = :mailbox AND NOT is_over ORDER BY number
""")  # noqa: S608  of constants
_SELECT_RECIPIENTS = sql("""
    SELECT message, address, recipient, status, step, is_end FROM recipient JOIN message ON message = number
    WHERE mailbox = :mailbox AND NOT is_over
""")
_SET_RECIPIENT = sql("""
    INSERT INTO recipient VALUES (:message, :address, :recipient, :status, :step, :is_end)
    ON CONFLICT (message, address) DO UPDATE SET
        recipient = excluded.recipient, status = excluded.status, step = excluded.step, is_end = excluded.is_end
""")
_ADD_CHANGE = sql("""
    INSERT INTO change (message, id, recipient, status, step, details, sent_at, is_end, given_up, ends_message)
    VALUES (:message, :id, :recipient, :status, :step, :details, :sent_at, :is_end, :given_up, :ends_message)
    ON CONFLICT DO NOTHING
""")
_END_MESSAGE = sql("UPDATE message SET is_over = 1 WHERE number = :message")
_ISOLATE = sql("UPDATE message SET isolated = :isolated WHERE number = :message")
_CHANGE_COLUMNS = tuple(field.name for field in attrs.fields(DeliveryChange))
_SELECT_PENDING = sql(f"""
    SELECT {", ".join(_CHANGE_COLUMNS)} FROM change JOIN message ON message = message.number
    WHERE mailbox = :mailbox ORDER BY change.number LIMIT :most
""")  # noqa: S608  of constants
_DELETE_CHANGE = sql("DELETE FROM change WHERE id = :id RETURNING message, ends_message")
_DROP_RECIPIENTS = sql("DELETE FROM recipient WHERE message = :message")
_FORGET = sql("""
    DELETE FROM message
    WHERE is_over AND added_at < :before AND NOT EXISTS (SELECT 1 FROM change WHERE message = message.number)
""")
_COUNT_DELETED = sql("SELECT changes()")


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

        async def forget(transaction: Transaction) -> int:
            await transaction.execute(_FORGET, {"before": moment})
            ((count,),) = await transaction.execute(_COUNT_DELETED)
            return int(count)

        return await self._database.transaction(forget)

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
        made = await self._database.execute(_ADD, values)
        return attrs.evolve(message, number=made[0][0]) if made else None

    async def begin_send(self, mailbox: str, request_id: str, *, at: float, content: str) -> SendRecord:
        """Return the record of a sent message, inserted if it is new. at: Unix time. content: digest of the message."""
        values = {"mailbox": mailbox, "mark": request_id, "began_at": at, "content": content}

        async def begin(transaction: Transaction) -> SendRecord:
            is_new = bool(await transaction.execute(_BEGIN_SEND, values))
            ((began_at, content, smtp_id),) = await transaction.execute(_SELECT_SEND, values)
            return SendRecord(began_at, content, smtp_id, is_new)

        return await self._database.transaction(begin)

    async def forget_begin(self, mailbox: str, request_id: str) -> None:
        """Replace a wrong time of the first attempt by 1970, so that searches cover all times."""
        await self._database.execute(_FORGET_BEGIN, {"mailbox": mailbox, "mark": request_id})

    async def withdraw_send(self, mailbox: str, request_id: str) -> None:
        """Delete the record of a message that was certainly not sent."""
        await self._database.execute(_WITHDRAW_SEND, {"mailbox": mailbox, "mark": request_id})

    async def end_send(self, mailbox: str, request_id: str, smtp_id: str) -> None:
        """Record that a message was sent, and link the record to the tracked message with this id.

        Add that message first: an unlinked record is never deleted.
        """
        smtp_id = smtp_id.encode("utf-8", "replace").decode()  # SQLite cannot store lone surrogates
        values = {"mailbox": mailbox, "mark": request_id, "smtp_id": smtp_id, "bare_id": normalize_smtp_id(smtp_id)}
        await self._database.execute(_END_SEND, values)

    async def correct_times(self, mailbox: str, now: float) -> None:
        """If the clock was ahead, set each `added_at` in the future to `now`, Unix time."""
        await self._database.execute(_CORRECT_TIMES, {"mailbox": mailbox, "now": now})

    async def load(self, mailbox: str) -> list[TrackedMessage]:
        """Return messages that are not over, oldest first."""
        values = {"mailbox": mailbox}

        async def load(transaction: Transaction) -> list[TrackedMessage]:
            messages = dict[int, TrackedMessage]()
            for row in await transaction.execute(_SELECT_FOLLOWED, values):
                messages[row[0]] = TrackedMessage(**dict(zip(_MESSAGE_COLUMNS, row, strict=True)))
            for number, address, recipient, status, step, is_end in await transaction.execute(
                _SELECT_RECIPIENTS, values
            ):
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
            await transaction.execute_each(_SET_RECIPIENT, rows)
            await transaction.execute_each(_ADD_CHANGE, rows)
            await transaction.execute_each(_END_MESSAGE, (row for row in rows if row["ends_message"]))

        await self._database.transaction(record)

    async def set_isolated(self, messages: Iterable[TrackedMessage], *, isolated: bool) -> None:
        """Record whether these messages must be polled alone."""
        rows = [{"message": message.number, "isolated": isolated} for message in messages]
        await self._database.transaction(lambda transaction: transaction.execute_each(_ISOLATE, rows))

    async def list_pending(self, mailbox: str, limit: int) -> list[DeliveryChange]:
        """Return the mailbox's oldest changes that are not acknowledged, at most `limit`."""
        return await self._database.fetch(_SELECT_PENDING, {"mailbox": mailbox, "most": limit}, _make_change)

    async def acknowledge(self, change: DeliveryChange) -> None:
        """Delete a change that was processed. If it is the message's last one, also delete the message's recipients."""

        async def acknowledge(transaction: Transaction) -> None:
            for message, ends_message in await transaction.execute(_DELETE_CHANGE, {"id": change.id}):
                if ends_message:
                    await transaction.execute(_DROP_RECIPIENTS, {"message": message})

        await self._database.transaction(acknowledge)

    async def _prepare(self, transaction: Transaction) -> None:
        await transaction.ensure(_TABLES)


def _parse_status(text: str | None) -> MessageStatus | None:
    return None if text is None else MessageStatus(text)


def _make_change(values: Sequence[Any]) -> DeliveryChange:
    change = dict(zip(_CHANGE_COLUMNS, values, strict=True))
    sent_at = change["sent_at"]
    change |= {name: bool(change[name]) for name in ("is_end", "given_up", "ends_message")}
    change |= {"status": _parse_status(change["status"])}
    change |= {"sent_at": None if sent_at is None else datetime.fromisoformat(sent_at)}
    return DeliveryChange(**change)
