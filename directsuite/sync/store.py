"""The store: the recorded state of mailboxes, in SQLite for one process or in PostgreSQL for several, and its own sink.

claim ─► Lease ─► folder, states, rows … ─► commit(lease, change_set, changes)
                                               └─ StaleLeaseError if another process has claimed the mailbox
"""

from __future__ import annotations

import functools
import itertools
import operator
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol, TypeAlias

import attrs

from directsuite.core.privacy import scrub_class
from directsuite.durable.database import DatabaseRejection, Tables, Transaction, load_statements
from directsuite.durable.sqlite import Database, DatabaseContext, SqliteDatabase, SqliteFile
from directsuite.errors import ConfigurationError
from directsuite.messaging.models import MessageDetail
from directsuite.sync.model import (
    Change,
    ChangeSet,
    FolderStatus,
    Key,
    Kind,
    Lease,
    MailboxStatus,
    MessageRow,
    MessageState,
    OperatorRequest,
    QuarantinedMessage,
    SinkError,
    StaleLeaseError,
    StoredFolder,
    StoreError,
)
from directsuite.sync.sinks.eml import replace_lone_surrogates, to_utc

MEMORY = ":memory:"
"""The path of a store in memory, which is deleted when it is closed."""

FILE = SqliteFile(
    noun="store",
    error=StoreError,
    application_id=0x64735379,
    version=2,
    page_bytes=16384,  # the sink may store complete messages
)

_SQL = load_statements("directsuite.sync", "store")
_TABLES = Tables("store", _SQL["tables"], version=2)
_QUARANTINE_TABLES = Tables("quarantine", _SQL["quarantine_tables"])

_SINK_SQL = load_statements("directsuite.sync", "table")
_SINK_TABLES = Tables("sink", _SINK_SQL["tables"])

_STATES = {int(state): state for state in MessageState}  # faster than calling the enum for each of many rows


_StoredKey: TypeAlias = tuple[str, str, int, int]
"""A key in the sink's tables: mailbox, folder, uid_validity and uid."""


class StoreSink(Protocol):
    """A sink that writes changes to the store's database, in the transaction that records them as done.

    A store is bound to one sink, identified by its attribute `sink_name`, or else by the name of its class.
    In SQLite, both methods run in the store's thread, and may await only methods of the transaction.
    """

    async def prepare(self, transaction: Transaction) -> None:
        """Create missing tables. Called at each opening, by one process at a time."""
        ...

    async def write(self, transaction: Transaction, changes: Sequence[Change]) -> None:
        """Write changes, without beginning or committing a transaction. An exception rolls back the commit."""
        ...


class Store(DatabaseContext):
    """A store in a database. Methods raise StoreError; opening it also raises exceptions of the sink."""

    def __init__(self, database: Database, sink: StoreSink | None) -> None:
        self._database = database
        self._sink = sink

    async def _prepare(self, transaction: Transaction) -> None:
        await transaction.ensure(_TABLES)
        await transaction.ensure(_QUARANTINE_TABLES)
        if self._sink is not None:
            await self._sink.prepare(transaction)
            transaction.raise_suppressed_error()

    @property
    def sink_name(self) -> str | None:
        """The name of the store's sink; None if it has none."""
        if self._sink is None:
            return None
        name: str = getattr(self._sink, "sink_name", type(self._sink).__qualname__)
        return name

    async def bind(self, sink: str) -> None:
        """Bind the store to a sink, at the first call. Raises ConfigurationError if it is bound to another one."""

        async def work(transaction: Transaction) -> None:
            await transaction.execute(_SQL["bind"], {"kind": sink})
            ((bound,),) = await transaction.execute(_SQL["bound_sink"])
            if bound != sink:
                raise ConfigurationError(
                    f"This store is bound to another sink ({bound}, not {sink}). Use a separate store for each sink."
                )

        await self._database.transaction(work)

    async def claim(self, mailbox: str) -> Lease:
        """Return a new lease of the mailbox, and make earlier ones stale. An unknown mailbox is added."""
        (found,) = await self._database.execute(_SQL["claim"], {"name": mailbox})
        return Lease(*found)

    async def make_folder(self, lease: Lease, name: str) -> StoredFolder:
        """Create a folder if it is missing, and return it. Raises StaleLeaseError."""

        async def work(transaction: Transaction) -> StoredFolder:
            await _validate_lease(transaction, lease)
            (found,) = await transaction.execute(_SQL["make_folder"], {"mailbox": lease.mailbox, "name": name})
            return StoredFolder(*found)

        return await self._database.transaction(work)

    async def folders(self, lease: Lease) -> Sequence[StoredFolder]:
        """Return the mailbox's folders."""
        return await self._database.fetch(
            _SQL["folders"], {"mailbox": lease.mailbox}, lambda values: StoredFolder(*values)
        )

    async def states(self, folder: StoredFolder) -> Mapping[int, MessageState]:
        """Return the state of each uid of the current numbering."""
        found = await self._database.fetch(_SQL["states"], _make_folder_values(folder))
        return {uid: _STATES[state] for uid, state in found}

    async def rows(self, folder: StoredFolder, uids: Collection[int] | None = None) -> Sequence[MessageRow]:
        """Return rows of the current numbering, by ascending uid."""
        if uids is None:
            return await self._database.fetch(_SQL["rows"], _make_folder_values(folder), _make_row)
        return await self._database.fetch(
            _SQL["rows_by_uid"], _make_folder_values(folder) | {"uids": list(uids)}, _make_row
        )

    async def sentinels(self, folder: StoredFolder) -> Sequence[MessageRow]:
        """Return the newest and the oldest LIVE row with an identity and a date."""
        return await self._database.fetch(_SQL["sentinels"], _make_folder_values(folder), _make_row)

    async def with_digests(self, lease: Lease, digests: Iterable[bytes]) -> Sequence[tuple[str, MessageRow]]:
        """Return the mailbox's rows with one of the digests, each with its folder's name."""
        if not (wanted := list(set(digests))):
            return ()
        found = await self._database.fetch(
            _SQL["with_digests"], {"mailbox": lease.mailbox, "digests": wanted}, _make_folder_row
        )
        return sorted(found, key=lambda each: each[1].key)

    async def unfinished(self, lease: Lease) -> Sequence[tuple[str, MessageRow]]:
        """Return the mailbox's rows in `UNFINISHED_STATES`, each with its folder's name, by key."""
        return await self._database.fetch(_SQL["unfinished"], {"mailbox": lease.mailbox}, _make_folder_row)

    async def commit(self, lease: Lease, change_set: ChangeSet, changes: Sequence[Change]) -> None:
        """Write rows, and pass the changes to the store's sink, in one transaction.

        Raises StaleLeaseError; SinkError if the sink fails with an error of the database, and its other exceptions
        unchanged.
        """
        rejections = list[DatabaseRejection]()

        async def work(transaction: Transaction) -> None:
            await _validate_lease(transaction, lease)
            await _apply(transaction, lease, change_set)
            if self._sink is not None and changes:
                try:
                    await self._sink.write(transaction, changes)
                    transaction.raise_suppressed_error()
                except Exception as error:
                    if (rejection := transaction.find_rejection(error)) is not None:
                        rejections.append(rejection)
                    raise

        try:
            return await self._database.transaction(work)
        except StoreError:
            if not rejections:
                raise
        (rejection,) = rejections
        raise SinkError(rejection.explanation, is_general=rejection.is_general) from rejection.cause

    async def request(self, kind: OperatorRequest, names: Iterable[str] = ()) -> Sequence[str]:
        """Record an operator's request for mailboxes, and return the names of those that the store has.

        names: empty for all.
        """
        wanted = set(names)

        async def work(transaction: Transaction) -> list[str]:
            known = [name for (name,) in await transaction.execute(_SQL["mailbox_names"])]
            left = [name for name in known if not wanted or name in wanted]
            await transaction.execute(_SQL["add_request"], {"kind": kind.value, "names": left})
            return sorted(left)

        return await self._database.transaction(work)

    async def mailbox_names(self) -> Sequence[str]:
        """Return the names of the mailboxes."""
        return [name for (name,) in await self._database.fetch(_SQL["mailbox_names"])]

    async def mailboxes_with_messages(self) -> Sequence[str]:
        """Return the names of the mailboxes of which a message was recorded."""
        return [name for (name,) in await self._database.fetch(_SQL["mailboxes_with_messages"])]

    async def pending_requests(self) -> Sequence[str]:
        """Return the mailboxes with operators' requests."""
        return [name for (name,) in await self._database.fetch(_SQL["pending_requests"])]

    async def apply_requests(self, mailbox: str) -> bool:
        """Apply and delete operators' requests for a mailbox. Return True if there were any."""
        if not await self._database.fetch(_SQL["has_requests"], {"name": mailbox}):
            return False

        async def work(transaction: Transaction) -> bool:
            requests = await transaction.execute(_SQL["take_requests"], {"name": mailbox})
            for identifier, kind in requests:
                if f"apply_{kind}" in _SQL:  # a later release may have added other kinds
                    await transaction.execute(_SQL[f"apply_{kind}"], {"mailbox": identifier})
            return bool(requests)

        return await self._database.transaction(work)

    async def status(self) -> Sequence[MailboxStatus]:
        """Return the status of every mailbox, by name."""
        found = await self._database.fetch(_SQL["status"])
        by_mailbox = itertools.groupby(found, key=operator.itemgetter(0, 1))
        return [
            MailboxStatus(number=number, name=name, folders=_make_folder_statuses(of_it))
            for (number, name), of_it in by_mailbox
        ]

    async def quarantined(self) -> Sequence[QuarantinedMessage]:
        """Return the quarantined messages, by mailbox, folder, uid_validity and uid."""
        return await self._database.fetch(_SQL["quarantined_messages"], make=lambda values: QuarantinedMessage(*values))


@scrub_class
class SqliteStore(Store):
    """A store in an SQLite file. Can be opened once. Methods raise StoreError.

    path: the path of the file, or MEMORY.
    sink: a sink that writes to the same file.
    shared: True to use an existing file briefly, also while another process has it open for writing.
    """

    def __init__(self, path: str | os.PathLike[str], sink: StoreSink | None = None, *, shared: bool = False) -> None:
        super().__init__(SqliteDatabase(None if path == MEMORY else path, FILE, shared=shared), sink)


async def _validate_lease(transaction: Transaction, lease: Lease) -> None:
    # The row lock delays claims until the transaction ends.
    if await transaction.execute(_SQL["lock_lease"], {"mailbox": lease.mailbox}) != [(lease.lease_number,)]:
        raise StaleLeaseError(
            "Another worker has claimed the mailbox, so nothing was written. Let only one worker synchronise it."
        )


async def _apply(transaction: Transaction, lease: Lease, change_set: ChangeSet) -> None:
    if change_set.renumbered:
        await transaction.execute(_SQL["renumber"], {"folders": change_set.renumbered})
    rows = {row.key: row for row in change_set.rows}  # a statement may write a row only once
    values = [
        (*key, int(row.state), row.identity, row.digest, row.size, row.received_ms, row.attempts, row.retry_ms)
        for key, row in rows.items()
    ]
    await transaction.insert(_SQL["write_rows"], values)
    if change_set.problems:
        await transaction.execute(_SQL["forget_problems"], {"folders": list({folder for folder, *_ in rows})})
        problems = [(*key, problem) for key, problem in change_set.problems.items()]
        await transaction.insert(_SQL["write_problems"], problems)
    for folder in change_set.folders:
        await transaction.execute(_SQL["write_folder"], attrs.asdict(folder) | {"mailbox": lease.mailbox})


def _make_folder_values(folder: StoredFolder) -> dict[str, Any]:
    return {"folder": folder.id, "uid_validity": folder.uid_validity}


def _make_row(values: Sequence[Any]) -> MessageRow:
    folder, uid_validity, uid, state, *others = values
    return MessageRow(folder, uid_validity, uid, _STATES[state], *others)


def _make_folder_row(values: Sequence[Any]) -> tuple[str, MessageRow]:
    return values[0], _make_row(values[1:])


def _make_folder_statuses(found: Iterable[Sequence[Any]]) -> list[FolderStatus]:
    # A folder has a row per state. A mailbox without folders has one row, with NULLs.
    named = (values[2:] for values in found if values[2] is not None)
    return [
        FolderStatus(
            name=name,
            uid_validity=uid_validity,
            audited_ms=audited_ms,
            messages={MessageState(state): count for *_, state, count in of_it if state is not None},
        )
        for (name, uid_validity, audited_ms), of_it in itertools.groupby(named, key=operator.itemgetter(0, 1, 2))
    ]


@scrub_class
class TableSink:
    """Writes changes to two tables in the store's database, in the transaction that records them as done.

        message ──► attachment (by message.id, in the order of number)

    `message.present` is false for a retained deleted message. Present messages have unique keys. In PostgreSQL, the
    schema is `directsuite`.

    keep_gone: True to retain deleted messages.

    The column recipients is a JSON array of {"type", "email"}, headers one of {"name", "value"}. Times in SQLite are
    ISO 8601 in UTC. NUL and lone surrogates are replaced by U+FFFD.
    """

    def __init__(self, *, keep_gone: bool = False) -> None:
        self._keep_gone = keep_gone

    async def prepare(self, transaction: Transaction) -> None:
        """Create missing tables."""
        await transaction.ensure(_SINK_TABLES)

    async def write(self, transaction: Transaction, changes: Sequence[Change]) -> None:
        """Write changes in order. A change that was written before has no effect."""
        run = dict[_StoredKey, Change]()
        for change in changes:
            key, is_new = _make_stored_key(change.key), change.kind is Kind.NEW and change.message is not None
            if not is_new or key in run:
                await self._write_new(transaction, run)
                run.clear()
            if is_new:
                run[key] = change
            elif change.kind is Kind.GONE:
                found = await _find_message_id(transaction, "select_present", change.key, change.digest)
                await self._remove(transaction, found)
            else:
                await self._put(transaction, change)
        await self._write_new(transaction, run)

    async def _write_new(self, transaction: Transaction, run: dict[_StoredKey, Change]) -> None:
        taken = await _read_ids(transaction, run)
        for key in taken:
            await self._put(transaction, run[key])
        await _insert(transaction, {key: change for key, change in run.items() if key not in taken})

    async def _put(self, transaction: Transaction, change: Change) -> None:
        here = await _find_message_id(transaction, "select_present", change.key, change.digest)
        before = await _find_message_id(transaction, "select_present", change.previous, change.digest)
        if here is not None:
            if before != here:
                await self._remove(transaction, before)
            return
        if before is None:
            before = await _find_message_id(transaction, "select_gone", change.previous, change.digest)
        if before is not None or change.message is not None:  # a key identifies one message
            await self._remove(transaction, await _find_message_id(transaction, "select_present", change.key))
        if before is not None:
            await transaction.execute(_SINK_SQL["move"], _make_key_values(change.key) | {"id": before})
        elif change.message is not None:
            await _insert(transaction, {_make_stored_key(change.key): change})

    async def _remove(self, transaction: Transaction, message: int | None) -> None:
        if message is not None:
            await transaction.execute(_SINK_SQL["hide"] if self._keep_gone else _SINK_SQL["delete"], {"id": message})


async def _find_message_id(
    transaction: Transaction, select: str, key: Key | None, digest: str | None = None
) -> int | None:
    # An unknown digest equals any.
    rows = () if key is None else await transaction.execute(_SINK_SQL[select], _make_key_values(key))
    return next((found for found, its in rows if digest is None or its is None or its == digest), None)


async def _read_ids(transaction: Transaction, keys: Iterable[_StoredKey]) -> dict[_StoredKey, int]:
    found = dict[_StoredKey, int]()
    for folder, keys_there in itertools.groupby(sorted(keys), key=lambda key: key[:3]):
        values: dict[str, Any] = dict(zip(("mailbox", "folder", "uid_validity"), folder, strict=True))
        values["uids"] = [uid for *_, uid in keys_there]
        ((pairs,),) = await transaction.execute(_SINK_SQL["select_ids"], values)
        for pair in pairs.split(",") if pairs else ():
            uid, number = map(int, pair.split())
            found[(*folder, uid)] = number
    return found


async def _insert(transaction: Transaction, new: dict[_StoredKey, Change]) -> None:
    messages = {key: change.message for key, change in new.items() if change.message is not None}
    rows = [(*key, new[key].digest, *_make_columns(transaction, message)) for key, message in messages.items()]
    await transaction.insert(_SINK_SQL["insert"], rows)
    ids = await _read_ids(transaction, messages)  # faster than RETURNING
    attachments = [
        (ids[key], place, _sanitize_text(each.filename), _sanitize_text(each.content_type), each.content)
        for key, message in messages.items()
        for place, each in enumerate(message.attachments, start=1)
    ]
    await transaction.insert(_SINK_SQL["insert_attachments"], attachments)


def _make_columns(transaction: Transaction, message: MessageDetail) -> tuple[Any, ...]:
    return (
        _sanitize_text(message.msg_id),
        _convert_time(transaction, message.sent_date),
        _convert_time(transaction, message.received_date),
        _sanitize_text(message.sender),
        _sanitize_text(message.reply_to),
        _sanitize_text(message.subject),
        _sanitize_text(message.body),
        message.html_body,
        transaction.json(
            [
                {"type": _sanitize_text(str(each.type)), "email": _sanitize_text(each.email)}
                for each in message.recipients
            ]
        ),
        transaction.json(
            [{"name": _sanitize_text(each.name), "value": _sanitize_text(each.value)} for each in message.headers]
        ),
    )


def _make_stored_key(key: Key) -> _StoredKey:
    return _encode_name(key.mailbox), _encode_name(key.folder), key.uid_validity, key.uid


@functools.lru_cache(maxsize=64)
def _encode_name(name: str) -> str:
    # Different names stay different.
    name = name.replace("\\", "\\\\").replace("\0", "\\0")
    return name.encode("utf-8", "backslashreplace").decode()


def _make_key_values(key: Key) -> dict[str, Any]:
    return dict(zip(("mailbox", "folder", "uid_validity", "uid"), _make_stored_key(key), strict=True))


def _sanitize_text(text: str | None) -> str | None:
    if text is None or (text.isascii() and "\0" not in text):
        return text
    return replace_lone_surrogates(text).replace("\0", "\N{REPLACEMENT CHARACTER}")


def _convert_time(transaction: Transaction, time: datetime | None) -> Any:
    return None if time is None else transaction.time(to_utc(time))
