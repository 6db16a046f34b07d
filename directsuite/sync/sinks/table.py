"""A sink that writes messages to two tables in the store's database, in the transaction that records them as done.

    message ──► attachment (by message.id, in the order of number)

`message.present` is false for a retained deleted message. Present messages have unique keys. In PostgreSQL, the schema
is `directsuite`.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias

from directsuite.core.privacy import scrub_class
from directsuite.durable.database import Statement, Tables, Transaction, load_statements
from directsuite.messaging.models import MessageDetail
from directsuite.sync.model import Change, Key, Kind
from directsuite.sync.sinks.eml import replace_lone_surrogates

_StoredKey: TypeAlias = tuple[str, str, int, int]

_SQL = load_statements("directsuite.sync.sinks", "table")
_TABLES = Tables("sink", _SQL["tables"])


@scrub_class
class TableSink:
    """Writes changes to the tables `message` and `attachment` of the store's database.

    keep_gone: True to retain deleted messages.

    The column recipients is a JSON array of {"type", "email"}, headers one of {"name", "value"}. Times in SQLite are
    ISO 8601 in UTC. NUL and lone surrogates are replaced by U+FFFD.
    """

    def __init__(self, *, keep_gone: bool = False) -> None:
        self._keep_gone = keep_gone

    async def prepare(self, transaction: Transaction) -> None:
        """Create missing tables."""
        await transaction.ensure(_TABLES)

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
                await self._remove(
                    transaction, await _find_message_id(transaction, _SQL["select_present"], change.key, change.digest)
                )
            else:
                await self._put(transaction, change)
        await self._write_new(transaction, run)

    async def _write_new(self, transaction: Transaction, run: dict[_StoredKey, Change]) -> None:
        taken = await _read_ids(transaction, run)
        for key in taken:
            await self._put(transaction, run[key])
        await _insert(transaction, {key: change for key, change in run.items() if key not in taken})

    async def _put(self, transaction: Transaction, change: Change) -> None:
        here, before = await _find_message_id(transaction, _SQL["select_present"], change.key, change.digest), None
        if change.previous is not None:
            before = await _find_message_id(transaction, _SQL["select_present"], change.previous, change.digest)
        if here is not None:
            if before != here:
                await self._remove(transaction, before)
            return
        if before is None and change.previous is not None:
            before = await _find_message_id(transaction, _SQL["select_gone"], change.previous, change.digest)
        if before is not None or change.message is not None:
            await self._remove(
                transaction, await _find_message_id(transaction, _SQL["select_present"], change.key)
            )  # a key identifies one message
        if before is not None:
            await transaction.execute(_SQL["move"], _make_key_values(change.key) | {"id": before})
        elif change.message is not None:
            await _insert(transaction, {_make_stored_key(change.key): change})

    async def _remove(self, transaction: Transaction, message: int | None) -> None:
        if message is not None:
            await transaction.execute(_SQL["hide"] if self._keep_gone else _SQL["delete"], {"id": message})


async def _find_message_id(
    transaction: Transaction, select: Statement, key: Key, digest: str | None = None
) -> int | None:
    # An unknown digest equals any.
    rows = await transaction.execute(select, _make_key_values(key))
    return next((found for found, its in rows if digest is None or its is None or its == digest), None)


async def _read_ids(transaction: Transaction, keys: Iterable[_StoredKey]) -> dict[_StoredKey, int]:
    found = dict[_StoredKey, int]()
    for folder, keys_there in itertools.groupby(sorted(keys), key=_get_folder_key):
        values: dict[str, Any] = dict(zip(("mailbox", "folder", "uid_validity"), folder, strict=True))
        ((pairs,),) = await transaction.execute(_SQL["select_ids"], values | {"uids": [uid for *_, uid in keys_there]})
        for pair in pairs.split(",") if pairs else ():
            uid, number = map(int, pair.split())
            found[(*folder, uid)] = number
    return found


async def _insert(transaction: Transaction, new: dict[_StoredKey, Change]) -> None:
    messages = {key: change.message for key, change in new.items() if change.message is not None}
    rows = [(*key, new[key].digest, *_make_columns(transaction, message)) for key, message in messages.items()]
    await transaction.insert(_SQL["insert"], rows)
    ids = await _read_ids(transaction, messages)  # faster than RETURNING
    attachments = [
        (ids[key], place, _sanitize_text(each.filename), _sanitize_text(each.content_type), each.content)
        for key, message in messages.items()
        for place, each in enumerate(message.attachments, start=1)
    ]
    await transaction.insert(_SQL["insert_attachments"], attachments)


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


def _get_folder_key(key: _StoredKey) -> tuple[str, str, int]:
    return key[:3]


def _make_key_values(key: Key) -> dict[str, Any]:
    return dict(zip(("mailbox", "folder", "uid_validity", "uid"), _make_stored_key(key), strict=True))


def _sanitize_text(text: str | None) -> str | None:
    if text is None or (text.isascii() and "\0" not in text):
        return text
    return replace_lone_surrogates(text).replace("\0", "\N{REPLACEMENT CHARACTER}")


def _convert_time(transaction: Transaction, time: datetime | None) -> Any:
    if time is None:
        return None
    try:
        return transaction.time(time.astimezone(UTC))
    except OverflowError:  # near datetime.min or datetime.max
        return transaction.time(time.replace(tzinfo=UTC))
