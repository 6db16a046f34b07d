"""Answers that lack something, and rounds that are broken off: what is listed is never told gone, and nothing twice."""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
import threading
from array import array
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import attrs
import pytest

from directsuite.durable.database import Transaction
from directsuite.errors import ServerError
from directsuite.messaging.models import MessageDetail
from directsuite.sync import Change, Kind, SqliteStore
from directsuite.sync.remote import Listing
from directsuite.sync.round import MailboxRounds
from tests.integration.world import StoppedClock

A_DAY = 86_400_000
NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)


def letter(number: int) -> MessageDetail:
    """A message, told from others by its number."""
    received = NEW_YEAR + timedelta(seconds=5 * number)
    return MessageDetail(
        msg_id=f"<{number}@x>", received_date=received, size=100, sender="a@b.test", body=f"letter {number}"
    )


@attrs.define
class Server:
    """Folders of messages by uid. metadata_up_to: the last uid that metadata tells of. search_finds: anything at all.

    spoilt: uids that can't be fetched. returns_none: an answer has no message, whatever is asked for. before: done
    before a folder is listed.
    """

    boxes: dict[str, dict[int, MessageDetail]]
    metadata_up_to: int | None = None
    search_finds: bool = True
    returns_none: bool = False
    spoilt: set[int] = attrs.field(factory=set[int])
    before: dict[str, Callable[[], object]] = attrs.field(factory=dict[str, Callable[[], object]])
    asked: Counter[str] = attrs.field(factory=Counter[str])

    async def folders(self) -> list[str]:
        """Their names."""
        return sorted(self.boxes)

    async def count(self, folder: str) -> int:
        """Return the number of messages."""
        return len(self.boxes[folder])

    async def uids(self, folder: str, mark: bytes | None = None) -> Listing | None:
        """All of them."""
        self.asked["uids"] += 1
        if folder in self.before:
            self.before.pop(folder)()
        listed = array("q", sorted(self.boxes[folder]))
        now = hashlib.sha256(listed.tobytes()).digest()
        return None if now == mark else Listing(listed, now)

    async def metadata(self, folder: str) -> AsyncIterator[MessageDetail]:
        """Of all, or of some."""
        self.asked["metadata"] += 1
        for uid, message in sorted(self.boxes[folder].items()):
            if self.metadata_up_to is None or uid <= self.metadata_up_to:
                yield attrs.evolve(message, uid=uid, folder=folder, body=None)

    async def metadata_between(self, folder: str, begin_ms: int, end_ms: int) -> Sequence[MessageDetail]:
        """Of those in a window, or of none."""
        return [
            attrs.evolve(message, uid=uid, folder=folder, body=None)
            for uid, message in self.boxes[folder].items()
            if self.search_finds
            and message.received_date is not None
            and begin_ms <= message.received_date.timestamp() * 1000 <= end_ms
        ]

    async def messages(self, folder: str, uids: Sequence[int]) -> Sequence[MessageDetail]:
        """Whole ones."""
        self.asked["messages"] += 1
        if not self.spoilt.isdisjoint(uids):
            raise ServerError("failed", status=500)
        box = self.boxes[folder]
        return [attrs.evolve(box[uid], uid=uid, folder=folder) for uid in uids if uid in box and not self.returns_none]

    async def measured_messages(self, folder: str, uids: Sequence[int]) -> tuple[Sequence[MessageDetail], int]:
        """Whole ones, of 200 bytes each."""
        return await self.messages(folder, uids), 200 * len(uids)


class Told(list[tuple[Kind, str, int]]):
    """What a sink was told: kind, folder and uid."""

    async def __call__(self, changes: Sequence[Change]) -> None:
        """Take changes."""
        self.extend((each.kind, each.key.folder, each.key.uid) for each in changes)


@attrs.define(slots=False)
class Scene:
    """A mailbox that is up to date, its rounds, and the time."""

    server: Server
    store: SqliteStore
    told: Told = attrs.field(factory=Told)
    clock: StoppedClock = attrs.field(factory=StoppedClock)
    now_ms: int = 1000

    def __attrs_post_init__(self) -> None:
        self.rounds = MailboxRounds(
            self.server,
            self.store,
            name="alice@direct.example.test",
            folders=sorted(self.server.boxes),
            deliver=self.told,
            clock=self.clock,
            now_ms=lambda: self.now_ms,
        )

    async def come_up_to_date(self) -> None:
        """Rounds until nothing happens; what was told is forgotten."""
        for _ in range(3):
            await self.rounds.round()
        self.told.clear()
        self.server.asked.clear()


@pytest.fixture
async def store() -> AsyncIterator[SqliteStore]:
    async with SqliteStore(":memory:") as store:
        yield store


def ten() -> dict[int, MessageDetail]:
    """Ten messages by uid."""
    return {uid: letter(uid) for uid in range(1, 11)}


async def test_an_audit_believes_the_listing_not_the_metadata(store: SqliteStore) -> None:
    scene = Scene(Server({"INBOX": ten()}), store)
    await scene.come_up_to_date()
    scene.now_ms += A_DAY
    scene.server.metadata_up_to = 5
    for _ in range(3):
        await scene.rounds.round()
    assert scene.told == []


async def test_sentinels_not_found_and_no_metadata_tell_nothing_gone(store: SqliteStore) -> None:
    scene = Scene(Server({"INBOX": ten()}), store)
    await scene.come_up_to_date()
    scene.clock.now += 700
    scene.server.search_finds, scene.server.metadata_up_to = False, 0
    for _ in range(3):
        await scene.rounds.round()
    assert scene.told == []


async def test_new_numbers_with_a_part_of_the_metadata_tell_nothing_gone(store: SqliteStore) -> None:
    scene = Scene(Server({"INBOX": ten()}), store)
    await scene.come_up_to_date()
    scene.server.boxes["INBOX"] = {11 - uid: message for uid, message in ten().items()} | {11: letter(11)}
    scene.server.metadata_up_to = 6
    for _ in range(3):
        await scene.rounds.round()
    assert Counter(kind for kind, _, _ in scene.told) == {Kind.MOVED: 10, Kind.NEW: 1}


async def test_search_that_finds_nothing_costs_two_messages_now_and_then(store: SqliteStore) -> None:
    scene = Scene(Server({"INBOX": ten()}), store)
    await scene.come_up_to_date()
    scene.server.search_finds = False
    for _ in range(10):
        scene.clock.now += 60
        await scene.rounds.round()
    assert (scene.server.asked["metadata"], scene.server.asked["messages"]) == (0, 2)


async def test_who_was_missing_for_a_moment_and_moves_much_later_is_moved(store: SqliteStore) -> None:
    server = Server({"Archive": {1: letter(100)}, "INBOX": ten()})
    scene = Scene(server, store)
    await scene.come_up_to_date()
    missing = server.boxes["INBOX"].pop(5)
    await scene.rounds.round()
    server.boxes["INBOX"][5] = missing
    await scene.come_up_to_date()
    server.before["INBOX"] = lambda: server.boxes["Archive"].update({2: server.boxes["INBOX"].pop(5)})
    for _ in range(3):
        await scene.rounds.round()
    assert scene.told == [(Kind.MOVED, "Archive", 2)]


async def test_where_all_have_moved_from_is_listed_once(store: SqliteStore) -> None:
    old = {uid: letter(uid) for uid in range(1, 31)}
    server = Server({"Archive": {}, "INBOX": old})
    scene = Scene(server, store)
    await scene.come_up_to_date()
    server.boxes["Archive"] = dict(old)
    server.before["Archive"] = old.clear
    await scene.rounds.round()
    assert Counter(kind for kind, _, _ in scene.told) == {Kind.MOVED: 30}
    assert server.asked["uids"] <= 5


@pytest.mark.parametrize("dated", [True, False])
async def test_one_deleted_while_a_process_died_is_gone_without_an_audit(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch, dated: bool
) -> None:
    def found(*numbers: int) -> dict[str, dict[int, MessageDetail]]:
        last = letter(4) if dated else attrs.evolve(letter(4), received_date=None)
        return {"Archive": {}, "INBOX": {number: last if number == 4 else letter(number) for number in numbers}}

    async def die(*_: object) -> None:
        raise asyncio.CancelledError

    first = Scene(Server(found(1, 2, 3)), store)
    await first.come_up_to_date()
    first.server.boxes["INBOX"].pop(3)
    await first.rounds.round()  # 3 waits for a second listing
    second = Scene(Server(found(1, 2, 4)), store)
    monkeypatch.setattr(second.rounds, "_finish", die)  # 4 is committed, the folder's fingerprint isn't yet
    with pytest.raises(asyncio.CancelledError):
        await second.rounds.round()
    third = Scene(Server(found(1, 2)), store)
    for _ in range(6):
        await third.rounds.round()
        third.clock.now += 700
    assert set(third.told) == {(Kind.GONE, "INBOX", 3), (Kind.GONE, "INBOX", 4)}


class SlowSink:
    """Writes a row for each change, when it may."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.may_go_on = threading.Event()

    async def prepare(self, transaction: Transaction) -> None:
        """Make the table."""
        transaction.connection.execute("CREATE TABLE IF NOT EXISTS told (uid INTEGER)")

    async def write(self, transaction: Transaction, changes: Sequence[Change]) -> None:
        """Write, in the store's own thread."""
        self.begun.set()
        self.may_go_on.wait()
        transaction.connection.executemany("INSERT INTO told VALUES (?)", [(each.key.uid,) for each in changes])


async def test_a_commit_whose_round_was_cancelled_is_waited_for_by_the_next(tmp_path: Path) -> None:
    sink = SlowSink()
    async with SqliteStore(tmp_path / "sync.db", sink=sink) as store:
        rounds = MailboxRounds(
            Server({"INBOX": ten()}),
            store,
            name="alice@direct.example.test",
            folders=["INBOX"],
            deliver=None,
            clock=StoppedClock(),
            now_ms=lambda: 1000,
        )
        broken_off = asyncio.create_task(rounds.round())
        await asyncio.to_thread(sink.begun.wait)
        broken_off.cancel()
        with pytest.raises(asyncio.CancelledError):
            await broken_off
        again = asyncio.create_task(rounds.round())
        for _ in range(50):
            await asyncio.sleep(0)
        sink.may_go_on.set()
        await again
    with sqlite3.connect(tmp_path / "sync.db") as database:
        assert [uid for (uid,) in database.execute("SELECT uid FROM told ORDER BY uid")] == list(range(1, 11))
    database.close()
