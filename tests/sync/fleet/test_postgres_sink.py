"""Messages in PostgreSQL's tables: exactly those that are there, however often each change is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from directsuite.messaging.models import Attachment, MessageDetail, MessageHeader, Recipient, RecipientType
from directsuite.sync.model import Change, ChangeSet, Key, Kind, Lease
from directsuite.sync.postgres import PostgresStore
from directsuite.sync.sinks import PostgresSink
from tests.examples import scale_examples

pytestmark = pytest.mark.postgres

MAILBOX = "jane.doe@direct.example"
MESSAGE = MessageDetail(
    uid=1,
    msg_id="<1@x>",
    sender="dr@direct.example",
    subject="Röntgen",
    body="Text\n",
    received_date=datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC),
    recipients=[Recipient(email=MAILBOX), Recipient(email="b@direct.example", type=RecipientType.CC)],
    headers=[MessageHeader(name="X-A", value="1")],
    attachments=[
        Attachment(filename="a.pdf", content_type="application/pdf", content=bytes(range(256))),
        Attachment(filename="b", content=b""),
    ],
)


def key(uid: int, folder: str = "INBOX", uid_validity: int = 1) -> Key:
    return Key(MAILBOX, folder, uid_validity, uid)


def new(uid: int, *, message: MessageDetail = MESSAGE, digest: str = "d1", folder: str = "INBOX") -> Change:
    return Change(kind=Kind.NEW, key=key(uid, folder), message=message, digest=digest)


class Writer:
    def __init__(self, store: PostgresStore, lease: Lease) -> None:
        self._store = store
        self._lease = lease

    async def tell(self, *changes: Change) -> None:
        await self._store.commit(self._lease, ChangeSet(), changes)

    async def rows(self, columns: str = "folder, uid_validity, uid, digest, present") -> list[tuple[Any, ...]]:
        query: Any = f"SELECT {columns} FROM directsuite.message WHERE mailbox = %s ORDER BY id"  # noqa: S608
        return await self._store.connections.fetch(query, (self._lease.name,))

    async def attachments(self) -> list[tuple[Any, ...]]:
        return await self._store.connections.fetch(
            "SELECT number, filename, content_type, content FROM directsuite.attachment ORDER BY message, number"
        )


@pytest.fixture(params=[False, True], ids=["deletes", "keeps"])
async def writer(conninfo: str, request: pytest.FixtureRequest) -> AsyncGenerator[Writer]:
    async with PostgresStore(conninfo, sink=PostgresSink(keep_gone=request.param)) as store:
        yield Writer(store, await store.claim(MAILBOX))


async def test_a_message_is_there_whole(writer: Writer) -> None:
    await writer.tell(new(1))
    columns = "mailbox, folder, uid_validity, uid, digest, message_id, sent, received, sender, subject, body, html"
    (found,) = await writer.rows(columns)
    assert found == (
        *(MAILBOX, "INBOX", 1, 1, "d1", "<1@x>", None, MESSAGE.received_date),
        *("dr@direct.example", "Röntgen", "Text\n", False),
    )
    (others,) = await writer.rows("recipients, headers")
    recipients = [{"type": "TO", "email": MAILBOX}, {"type": "CC", "email": "b@direct.example"}]
    assert others == (recipients, [{"name": "X-A", "value": "1"}])
    attachments = await writer.attachments()
    assert attachments == [(1, "a.pdf", "application/pdf", bytes(range(256))), (2, "b", None, b"")]


async def test_told_again_nothing_changes(writer: Writer) -> None:
    changes = [new(1), new(2, digest="d2")]
    for _ in range(3):
        await writer.tell(*changes, *changes)
        assert await writer.rows() == [("INBOX", 1, 1, "d1", True), ("INBOX", 1, 2, "d2", True)]
        assert len(await writer.attachments()) == 4


async def test_moved_renames(writer: Writer) -> None:
    await writer.tell(new(1))
    moved = Change(kind=Kind.MOVED, key=key(9, "Done"), previous=key(1), digest="d1")
    for _ in range(2):
        await writer.tell(moved)
        assert await writer.rows() == [("Done", 1, 9, "d1", True)]
    assert len(await writer.attachments()) == 2


async def test_a_moved_message_that_never_was_here_is_inserted(writer: Writer) -> None:
    await writer.tell(Change(kind=Kind.MOVED, key=key(9), previous=key(1), digest="d1", message=MESSAGE))
    assert await writer.rows() == [("INBOX", 1, 9, "d1", True)]


async def test_two_that_change_places_are_both_kept(writer: Writer) -> None:
    await writer.tell(new(1), new(2, digest="d2"))
    await writer.tell(
        Change(kind=Kind.MOVED, key=key(1, uid_validity=2), previous=key(2), digest="d2"),
        Change(kind=Kind.MOVED, key=key(2, uid_validity=2), previous=key(1), digest="d1"),
    )
    assert sorted(await writer.rows()) == [("INBOX", 2, 1, "d2", True), ("INBOX", 2, 2, "d1", True)]


async def test_gone_and_restored(conninfo: str) -> None:
    for keep_gone in (False, True):
        async with PostgresStore(conninfo, sink=PostgresSink(keep_gone=keep_gone)) as store:
            writer = Writer(store, await store.claim(f"{MAILBOX}{keep_gone}"))
            own = [attrs.evolve(new(1), key=attrs.evolve(key(uid), mailbox=f"{MAILBOX}{keep_gone}")) for uid in (1, 5)]
            await writer.tell(own[0])
            gone = Change(kind=Kind.GONE, key=own[0].key, digest="d1")
            await writer.tell(gone, gone)
            assert await writer.rows() == ([("INBOX", 1, 1, "d1", False)] if keep_gone else [])
            restored = attrs.evolve(own[1], kind=Kind.RESTORED, previous=own[0].key)
            for _ in range(2):
                await writer.tell(restored)
                assert await writer.rows() == [("INBOX", 1, 5, "d1", True)]


async def test_a_late_gone_spares_another_message_under_its_key(writer: Writer) -> None:
    await writer.tell(new(1, digest="d2"))
    await writer.tell(Change(kind=Kind.GONE, key=key(1), digest="d1"))
    assert await writer.rows() == [("INBOX", 1, 1, "d2", True)]


async def test_what_is_no_text_in_postgresql_is_replaced(writer: Writer) -> None:
    message = attrs.evolve(MESSAGE, subject="a\0b\ud800c", headers=[MessageHeader(name="\0", value="\udfff")])
    await writer.tell(new(1, message=message, folder="a\0\\\ud800"))
    (found,) = await writer.rows("subject, headers, folder")
    assert found == (
        "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}c",
        [{"name": "\ufffd", "value": "\ufffd"}],
        found[2],
    )
    await writer.tell(new(1, message=message, folder="a\0\\\ud800"))
    assert len(await writer.rows()) == 1


async def test_dates_at_the_ends_of_the_calendar_are_kept(writer: Writer) -> None:
    ends = (
        datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=3))),
        datetime(9999, 12, 31, 23, tzinfo=timezone(-timedelta(hours=3))),
    )
    for uid, when in enumerate(ends, start=1):
        await writer.tell(new(uid, digest=f"d{uid}", message=attrs.evolve(MESSAGE, received_date=when)))
    assert len(await writer.rows()) == 2


uids = st.integers(1, 4)
digests = st.sampled_from(["d1", "d2"])


def told_of(kind: Kind, uid: int, before: int, digest: str) -> Change:
    if kind is Kind.NEW:
        return new(uid, digest=digest)
    if kind is Kind.GONE:
        return Change(kind=kind, key=key(uid), digest=digest)
    return Change(kind=kind, key=key(uid), previous=key(before), digest=digest, message=MESSAGE)


changes = st.builds(told_of, st.sampled_from(Kind), uids, uids, digests)


@settings(max_examples=scale_examples(40))
@given(told=st.lists(changes, max_size=8), keep=st.booleans())
def test_in_one_commit_or_in_many_it_comes_to_the_same(shared_database: str, told: list[Change], keep: bool) -> None:
    async def compare() -> None:
        async with PostgresStore(shared_database, sink=PostgresSink(keep_gone=keep)) as store:
            outcomes = list[Any]()
            for parts in ([told], [[each] for each in told]):
                await store.connections.fetch("DELETE FROM directsuite.message RETURNING id")
                writer = Writer(store, await store.claim(MAILBOX))
                for part in parts:
                    await writer.tell(*part)
                outcomes.append(sorted(await writer.rows()))
            assert outcomes[0] == outcomes[1]
            present = [row[:3] for row in outcomes[0] if row[4]]
            assert len(present) == len(set(present))

    asyncio.run(compare())
