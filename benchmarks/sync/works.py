"""What is measured, each in a process of its own: `python -m benchmarks.sync.works NAME URL FOLDER` prints JSON."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import sqlite3
import statistics
import sys
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import aiohttp
import attrs
import msgspec

import directsuite as ds
from benchmarks.peers import work
from benchmarks.server import make_scenario_url
from benchmarks.soak.census import read_resident_bytes
from benchmarks.sync.remotes import CannedRemote
from directsuite.core.clock import SystemClock
from directsuite.core.events import AttemptStarted, Event
from directsuite.sync import Change, Deliver, MaildirSink, SqliteSink, SqliteStore, Synchronizer
from directsuite.sync.decide import compute_digest, compute_identity, read_received_ms, read_size
from directsuite.sync.fetch import MAX_BATCH_MESSAGES
from directsuite.sync.model import ChangeSet, Lease
from directsuite.sync.remote import Remote
from directsuite.sync.round import MailboxRounds
from directsuite.sync.status import MailboxProgress
from directsuite.sync.store import Store

LARGE_FOLDER_MESSAGES, POLLS = 100_000, 200
FIRST_SYNC_MESSAGES, ATTACHMENT_BYTES = 20_000, 15_000  # messages, and bytes that are 20 KB on the wire
MAILDIR_MESSAGES = 4_000
MAILBOXES, LARGE_MAILBOX_MESSAGES, SMALL_MAILBOX_MESSAGES = 1_000, 20_000, 3
_POLL_SECONDS = 0.05  # seconds between two looks at how the mailboxes stand

Figures = dict[str, float]


@attrs.define
class RequestCounter:
    """A listener that counts requests."""

    count: Counter[str] = attrs.field(factory=Counter[str])

    def __call__(self, event: Event) -> None:
        """Take an event."""
        if isinstance(event, AttemptStarted):
            self.count[event.operation] += 1


class CountingStore(SqliteStore):
    """Counts its commits."""

    commits = 0

    async def commit(self, lease: Lease, change_set: ChangeSet, changes: Sequence[Change]) -> None:
        """Commit, and count."""
        self.commits += 1
        await super().commit(lease, change_set, changes)


def make_suite(url: str, **scenario: int) -> ds.DirectSuite:
    """A client of the server of canned answers that nothing limits."""
    url = make_scenario_url(url, **scenario) + work.MESSAGING
    return ds.DirectSuite(ds.Settings(message_url=url, requests_per_second=1e9, burst=10**9))


@contextlib.asynccontextmanager
async def _open_store(url: str, folder: Path) -> AsyncGenerator[tuple[ds.DirectSuite, SqliteStore]]:
    """A client of mailboxes with attachments, and a store that keeps them."""
    store = SqliteStore(folder / "sync.db", sink=SqliteSink())
    async with make_suite(url, attachment=ATTACHMENT_BYTES) as suite, store:
        yield suite, store


def make_rounds(
    remote: CannedRemote, store: Store, name: str = "alice", deliver: Deliver | None = None
) -> MailboxRounds:
    """The rounds of a canned mailbox's INBOX."""
    return MailboxRounds(
        remote,
        store,
        name=name,
        folders=("INBOX",),
        deliver=deliver,
        clock=SystemClock(),
        now_ms=lambda: int(time.time() * 1000),
    )


async def idle(url: str, folder: Path) -> Figures:
    """Looks at a folder in which nothing happened, beside the same listing asked for and parsed by bare aiohttp."""
    requests = RequestCounter()
    async with make_suite(url) as suite, CountingStore(folder / "sync.db", sink=SqliteSink()) as store:
        box = suite.mailbox(work.USERNAME, work.PASSWORD)
        rounds = make_rounds(CannedRemote(box, LARGE_FOLDER_MESSAGES), store)
        while (await rounds.run_round()).has_more:
            pass
        await rounds.run_round()
        suite.add_listener(requests)
        commits, before = store.commits, read_resident_bytes(os.getpid())
        ours = await _measure_cpu(rounds.run_round)
        figures = {
            "requests a look": requests.count.total() / POLLS,
            "commits": float(store.commits - commits),
            "resident memory more after all looks, KB": (read_resident_bytes(os.getpid()) - before) / 1000,
        }
    async with aiohttp.ClientSession() as session:
        body = msgspec.json.encode({"username": work.USERNAME, "password": work.PASSWORD})

        async def listing() -> None:
            """The listing as a list of numbers."""
            path = f"{make_scenario_url(url)}{work.MESSAGING}/GetUIDs/INBOX.{LARGE_FOLDER_MESSAGES}"
            async with session.post(path, data=body, headers={"Content-Type": "application/json"}) as answer:
                assert len(msgspec.json.decode(await answer.read())["uids"]) == LARGE_FOLDER_MESSAGES

        bare = await _measure_cpu(listing)
    return figures | {"CPU of a look, ms": 1000 * ours, "of bare aiohttp, ms": 1000 * bare, "ratio": ours / bare}


async def _measure_cpu(look: Callable[[], Awaitable[object]]) -> float:
    """Seconds of CPU of one look: the median."""
    taken = list[float]()
    for _ in range(POLLS):
        began = time.process_time()
        await look()
        taken.append(time.process_time() - began)
    return statistics.median(taken)


async def first(url: str, folder: Path) -> Figures:
    """A first synchronisation into SQLite, in the store's own transactions."""
    async with _open_store(url, folder) as (suite, store):
        rounds = make_rounds(CannedRemote(suite.mailbox(work.USERNAME, work.PASSWORD), FIRST_SYNC_MESSAGES), store)
        began = time.perf_counter()
        while (await rounds.run_round()).has_more:
            pass
        seconds = time.perf_counter() - began
    return {"messages a second": FIRST_SYNC_MESSAGES / seconds}


async def iterated(url: str, folder: Path) -> Figures:
    """The same messages by the bare iterator, which keeps nothing."""
    async with make_suite(url, attachment=ATTACHMENT_BYTES) as suite:
        began, count = time.perf_counter(), 0
        async with suite.mailbox(work.USERNAME, work.PASSWORD).iter_messages(
            f"INBOX.{FIRST_SYNC_MESSAGES}"
        ) as messages:
            async for _ in messages:
                count += 1
        assert count == FIRST_SYNC_MESSAGES
        return {"messages a second": FIRST_SYNC_MESSAGES / (time.perf_counter() - began)}


async def floor(url: str, folder: Path) -> Figures:
    """The bare iterator, with the same rows put in by plain sqlite3 in batches of the same size."""
    async with _open_store(url, folder) as (_, store):
        await store.folder(await store.claim("alice"), "INBOX")
    rows = contextlib.closing(sqlite3.connect(folder / "sync.db", isolation_level=None))
    async with make_suite(url, attachment=ATTACHMENT_BYTES) as suite:
        began, batch = time.perf_counter(), list[ds.MessageDetail]()
        messages = suite.mailbox(work.USERNAME, work.PASSWORD).iter_messages(
            f"INBOX.{FIRST_SYNC_MESSAGES}", batch_size=MAX_BATCH_MESSAGES
        )
        with rows as connection:
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA wal_autocheckpoint = 2048")
            async with messages:
                async for message in messages:
                    batch.append(message)
                    if len(batch) == MAX_BATCH_MESSAGES:
                        _insert(connection, batch)
                        batch = []
        return {"messages a second": FIRST_SYNC_MESSAGES / (time.perf_counter() - began)}


def _insert(connection: sqlite3.Connection, batch: list[ds.MessageDetail]) -> None:
    def as_text(records: list[dict[str, Any]]) -> str:
        return msgspec.json.encode(records).decode()

    connection.execute("BEGIN IMMEDIATE")
    for table, rows in make_rows(batch, time=datetime.isoformat, json=as_text).items():
        connection.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})", rows)  # noqa: S608
    connection.execute("COMMIT")


def make_rows(
    batch: Sequence[ds.MessageDetail], *, time: Callable[[datetime], Any], json: Callable[[list[dict[str, Any]]], Any]
) -> dict[str, list[tuple[Any, ...]]]:
    """What the store and its sink keep of messages, for each table. time, json: what the database takes for them."""
    digests = [compute_digest(message) for message in batch]
    known = [
        (1, 1, each.uid, 1, compute_identity(each), digest, read_size(each), read_received_ms(each), 0, None)
        for each, digest in zip(batch, digests, strict=True)
    ]
    kept = [
        (
            *(each.uid, "alice", "INBOX", 1, each.uid, True, digest.hex(), each.msg_id),
            *(moment and time(moment) for moment in (each.sent_date, each.received_date)),
            *(each.sender, each.reply_to, each.subject, each.body, each.html_body),
            json([{"type": str(to.type), "email": to.email} for to in each.recipients]),
            json([{"name": line.name, "value": line.value} for line in each.headers]),
        )
        for each, digest in zip(batch, digests, strict=True)
    ]
    attached = [
        (each.uid, number, attachment.filename, attachment.content_type, attachment.content)
        for each in batch
        for number, attachment in enumerate(each.attachments, start=1)
    ]
    return {"msg": known, "message": kept, "attachment": attached}


async def maildir(url: str, folder: Path) -> Figures:
    """Fewer of them into a Maildir."""
    sink = MaildirSink(folder / "mail")
    async with make_suite(url, attachment=ATTACHMENT_BYTES) as suite, SqliteStore(folder / "sync.db") as store:
        remote = CannedRemote(suite.mailbox(work.USERNAME, work.PASSWORD), MAILDIR_MESSAGES)
        rounds = make_rounds(remote, store, deliver=sink)
        began = time.perf_counter()
        while (await rounds.run_round()).has_more:
            pass
        return {"messages": MAILDIR_MESSAGES, "messages a second": MAILDIR_MESSAGES / (time.perf_counter() - began)}


async def fairness(url: str, folder: Path) -> Figures:
    """Small mailboxes beside a very large one: seconds until each is in step."""
    return await _measure_fairness(url, folder, large=LARGE_MAILBOX_MESSAGES)


async def fairness_without(url: str, folder: Path) -> Figures:
    """The small mailboxes alone."""
    return await _measure_fairness(url, folder, large=SMALL_MAILBOX_MESSAGES)


async def _measure_fairness(url: str, folder: Path, *, large: int) -> Figures:
    names = [f"mailbox-{number}" for number in range(MAILBOXES)]
    async with _open_store(url, folder) as (suite, store):
        sync = Synchronizer(suite, store, names, get_password)

        async def opened(status: MailboxProgress) -> Remote:
            """A canned mailbox; the first is the large one."""
            box = suite.mailbox(work.USERNAME, work.PASSWORD)
            return CannedRemote(box, large if status.name == names[0] else SMALL_MAILBOX_MESSAGES)

        sync._worker._open = opened  # type: ignore[method-assign]
        began = time.time()
        running = asyncio.create_task(sync.run())
        while True:
            waits = [each.up_to_date_at for name, each in sync.status.items() if name != names[0]]
            if None not in waits:
                break
            await asyncio.sleep(_POLL_SECONDS)
        running.cancel()
        await asyncio.wait([running])
    seconds = sorted(each - began for each in waits if each is not None)
    return {"median, seconds": statistics.median(seconds), "last, seconds": seconds[-1]}


async def get_password(_: str) -> str:
    """That of all canned mailboxes."""
    return work.PASSWORD


WORKS = {each.__name__: each for each in (idle, first, floor, iterated, maildir, fairness, fairness_without)}
"""By name."""


def main() -> None:
    """Do one and print its figures, with the highest resident memory."""
    name, url, folder = sys.argv[1:]
    before = read_resident_bytes(os.getpid())
    figures: dict[str, Any] = asyncio.run(WORKS[name](url, Path(folder)))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps(figures | {"peak memory above the start, MB": (peak - before) / 1e6}))


if __name__ == "__main__":
    main()
