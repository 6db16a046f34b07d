"""Messages as rows of two tables in the store's own database, in the transaction that notes them as done.

    directsuite.message ──► directsuite.attachment (by message.id, in the order of number)

`message.present` is false for one that is gone and kept. Of messages present, each has a key of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, LiteralString

import attrs

from directsuite.durable.postgres import Connection, ensure_part
from directsuite.messaging.models import MessageDetail
from directsuite.sync.changes import Change, Key, Kind
from directsuite.sync.sinks.whole_text import whole_text
from directsuite.sync.store import StoreError

_VERSION = 1
_TABLES = (
    """
    CREATE TABLE directsuite.message (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        mailbox text NOT NULL,
        folder text NOT NULL,
        generation bigint NOT NULL,
        uid bigint NOT NULL,
        present boolean NOT NULL DEFAULT true,
        digest text,
        message_id text,
        sent timestamptz,
        received timestamptz,
        sender text,
        reply_to text,
        subject text,
        body text,
        html boolean NOT NULL,
        recipients jsonb NOT NULL,
        headers jsonb NOT NULL
    )
    """,
    "CREATE UNIQUE INDEX message_present ON directsuite.message (mailbox, folder, generation, uid) WHERE present",
    "CREATE INDEX message_gone ON directsuite.message (mailbox, folder, generation, uid) WHERE NOT present",
    """
    CREATE TABLE directsuite.attachment (
        message bigint NOT NULL REFERENCES directsuite.message ON DELETE CASCADE,
        number bigint NOT NULL,
        filename text,
        content_type text,
        content bytea NOT NULL,
        PRIMARY KEY (message, number)
    )
    """,
)

_OF_KEY = "SELECT id FROM directsuite.message WHERE mailbox = %s AND folder = %s AND generation = %s AND uid = %s"
_OF_DIGEST = "(%s::text IS NULL OR digest IS NULL OR digest = %s)"
_PRESENT = f"{_OF_KEY} AND present"
_THE_SAME = f"{_OF_KEY} AND present AND {_OF_DIGEST}"
_GONE = f"{_OF_KEY} AND NOT present AND {_OF_DIGEST} ORDER BY id DESC LIMIT 1"
_RENAME = """
    UPDATE directsuite.message SET present = true, mailbox = %s, folder = %s, generation = %s, uid = %s WHERE id = %s
"""
_TAKEN = """
    SELECT m.mailbox, m.folder, m.generation, m.uid FROM directsuite.message m
    JOIN unnest(%s::text[], %s::text[], %s::bigint[], %s::bigint[]) AS k (mailbox, folder, generation, uid)
    USING (mailbox, folder, generation, uid) WHERE m.present
"""
_INSERT = """
    INSERT INTO directsuite.message (
        mailbox, folder, generation, uid, digest, message_id, sent, received, sender, reply_to, subject, body, html,
        recipients, headers
    ) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s) RETURNING id
"""
_ATTACH = """
    INSERT INTO directsuite.attachment (message, number, filename, content_type, content)
    VALUES (%s, %s, %s, %s, %b)
"""


@attrs.define
class _Run:
    """NEW changes one after the other, each with another key, which are written together."""

    changes: dict[tuple[Any, ...], tuple[Change, MessageDetail]] = attrs.field(factory=dict[Any, Any])


class PostgresSink:
    """Writes changes into the tables `message` and `attachment` of the schema `directsuite`.

    keep_gone: whether messages that are gone stay, with present = false. recipients: a JSON array of {"type", "email"};
    headers: one of {"name", "value"}. What PostgreSQL has no text for, NUL and halves of surrogate pairs, is U+FFFD.
    """

    def __init__(self, *, keep_gone: bool = False) -> None:
        self._keep_gone = keep_gone

    async def prepare(self, connection: Connection) -> None:
        """Make the tables where they aren't there."""
        await ensure_part(connection, "sink", _VERSION, _TABLES, error=StoreError)

    async def write(self, connection: Connection, changes: Sequence[Change]) -> None:
        """Write changes, in their order. One that was written before changes nothing."""
        run = _Run()
        for change in changes:
            if change.kind is Kind.NEW and change.message is not None:
                if _key(change.key) in run.changes:
                    await self._write_run(connection, run)
                run.changes[_key(change.key)] = (change, change.message)
                continue
            await self._write_run(connection, run)
            if change.kind is Kind.GONE:
                await self._end(connection, await _id(connection, _THE_SAME, change.key, change.digest))
            else:
                await self._move(connection, change)
        await self._write_run(connection, run)

    async def _write_run(self, connection: Connection, run: _Run) -> None:
        """Insert new messages; those whose key is there are looked at one by one."""
        if not run.changes:
            return
        changes, run.changes = run.changes, {}
        cursor = await connection.execute(_TAKEN, [list(column) for column in zip(*changes, strict=True)])
        for taken in await cursor.fetchall():
            change, message = changes.pop(taken)
            await self._replace(connection, change, message)
        await _insert(connection, changes.values())

    async def _replace(self, connection: Connection, change: Change, message: MessageDetail) -> None:
        """Insert a message, unless it is there; another one under its key is no more, for a key is of one message."""
        if await _id(connection, _THE_SAME, change.key, change.digest) is None:
            await self._end(connection, await _id(connection, _PRESENT, change.key))
            await _insert(connection, [(change, message)])

    async def _move(self, connection: Connection, change: Change) -> None:
        here = await _id(connection, _THE_SAME, change.key, change.digest)
        before = None
        if change.previous is not None:
            before = await _id(connection, _THE_SAME, change.previous, change.digest)
            if before is None and here is None:
                before = await _id(connection, _GONE, change.previous, change.digest)
        if before is not None and before != here:
            await self._end(connection, await _id(connection, _PRESENT, change.key))
            await connection.execute(_RENAME, (*_key(change.key), before))
        elif change.message is not None:
            await self._replace(connection, change, change.message)

    async def _end(self, connection: Connection, message: int | None) -> None:
        if message is None:
            return
        if self._keep_gone:
            await connection.execute("UPDATE directsuite.message SET present = false WHERE id = %s", (message,))
        else:
            await connection.execute("DELETE FROM directsuite.message WHERE id = %s", (message,))


async def _id(connection: Connection, query: LiteralString, key: Key, *digest: str | None) -> int | None:
    """The message that a query finds under a key, and with a digest where that is part of the query."""
    cursor = await connection.execute(query, (*_key(key), *digest, *digest))
    found = await cursor.fetchone()
    return None if found is None else int(found[0])


async def _insert(connection: Connection, new: Iterable[tuple[Change, MessageDetail]]) -> None:
    """In two trips to PostgreSQL, however many there are."""
    messages = list(new)
    if not messages:
        return
    ids = list[int]()
    async with connection.cursor() as cursor:
        await cursor.executemany(_INSERT, [_values(*each) for each in messages], returning=True)
        async for result in cursor.results():
            ids += [found[0] for found in await result.fetchall()]
        attachments = [
            (message_id, number, _text(each.filename), _text(each.content_type), each.content)
            for message_id, (_, message) in zip(ids, messages, strict=True)
            for number, each in enumerate(message.attachments, start=1)
        ]
        if attachments:
            await cursor.executemany(_ATTACH, attachments)


def _values(change: Change, message: MessageDetail) -> tuple[Any, ...]:
    from psycopg.types.json import Jsonb

    recipients = [{"type": _text(str(each.type)), "email": _text(each.email)} for each in message.recipients]
    headers = [{"name": _text(each.name), "value": _text(each.value)} for each in message.headers]
    return (
        *_key(change.key),
        change.digest,
        _text(message.msg_id),
        _time(message.sent_date),
        _time(message.received_date),
        _text(message.sender),
        _text(message.reply_to),
        _text(message.subject),
        _text(message.body),
        message.html_body,
        Jsonb(recipients),
        Jsonb(headers),
    )


def _key(key: Key) -> tuple[str, str, int, int]:
    """As it stands in the tables: a backslash is doubled, and marks what is no text, so that all names differ there."""
    mailbox, folder = (
        each.replace("\\", "\\\\").replace("\0", "\\0").encode("utf-8", "backslashreplace").decode()
        for each in (key.mailbox, key.folder)
    )
    return mailbox, folder, key.generation, key.uid


def _text(text: str | None) -> str | None:
    return None if text is None else whole_text(text).replace("\0", "\N{REPLACEMENT CHARACTER}")


def _time(time: datetime | None) -> datetime | None:
    if time is None:
        return None
    try:
        return time.astimezone(UTC)
    except OverflowError:  # on the first and the last day of the calendar
        return time.replace(tzinfo=UTC)
