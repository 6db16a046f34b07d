"""`python -m benchmarks sync`: measure synchronisation, each work in a separate process, and write sync.md.

store: a folder, or the address of a PostgreSQL database.
"""

from __future__ import annotations

import argparse
import contextlib
import sqlite3
import statistics
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import psycopg
from psycopg.types.json import Jsonb

import directsuite as ds
from benchmarks.counts import Gauge
from benchmarks.gauges import measure_cpu, read_resident_bytes
from benchmarks.peers import work
from benchmarks.processes import PEAK, Figures, format_machine, format_table, run_work, run_work_in_folder, write_page
from benchmarks.server import make_scenario_url, run_server
from benchmarks.sync.canned import CannedRemote, make_mailbox, make_rounds, make_suite, run_all_rounds
from directsuite.sync import MaildirSink, SqliteSink, SqliteStore
from directsuite.sync.decide import compute_digest, compute_identity, read_received_ms, read_size
from directsuite.sync.postgres import PostgresSink, PostgresStore
from directsuite.sync.remote import MAX_BATCH_MESSAGES
from directsuite.sync.store import Store
from tests.sync.fleet.postgres_server import PostgresServer, find_binaries
from tests.sync.fleet.postgres_server import run_server as run_postgres_server

LARGE_FOLDER_MESSAGES, POLLS = 100_000, 200
FIRST_SYNC_MESSAGES, ATTACHMENT_BYTES = 20_000, 15_000  # 15,000 bytes need 20,000 on the wire
MAILDIR_MESSAGES = 4_000
_ROUNDS = 5
_RATE = "messages per second"


def _open_store(store: str) -> Store:
    if Path(store).is_dir():
        return SqliteStore(Path(store, "sync.db"), sink=SqliteSink())
    return PostgresStore(store, sink=PostgresSink())


async def idle(url: str, folder: str) -> Figures:
    """Rounds of a folder without changes, compared with bare aiohttp that requests and parses the same listing."""
    gauge = Gauge()
    with gauge.count_statements():
        async with make_suite(url) as suite, SqliteStore(Path(folder, "sync.db"), sink=SqliteSink()) as store:
            rounds = await make_rounds(CannedRemote(make_mailbox(suite), LARGE_FOLDER_MESSAGES), store)
            await run_all_rounds(rounds)
            await rounds.run_round()
            suite.add_listener(gauge)
            gauge.statements.clear()
            before = read_resident_bytes()
            ours = await _measure_median(rounds.run_round)
            commits, memory = gauge.statements["COMMIT"], read_resident_bytes() - before
    async with aiohttp.ClientSession() as session:
        body = msgspec.json.encode({"username": work.USERNAME, "password": work.PASSWORD})

        async def list_uids() -> None:
            path = f"{make_scenario_url(url)}{work.MESSAGING}/GetUIDs/INBOX.{LARGE_FOLDER_MESSAGES}"
            async with session.post(path, data=body, headers={"Content-Type": "application/json"}) as response:
                assert len(msgspec.json.decode(await response.read())["uids"]) == LARGE_FOLDER_MESSAGES

        bare = await _measure_median(list_uids)
    return {
        "requests per round": gauge.requests.total() / POLLS,
        "commits of all rounds": commits,
        "growth of memory during all rounds, KB": memory / 1000,
        "CPU of a round, ms": 1000 * ours,
        "CPU of bare aiohttp, ms": 1000 * bare,
        "ratio": ours / bare,
    }


async def _measure_median(do: Callable[[], Awaitable[object]]) -> float:
    return statistics.median([await measure_cpu(do) for _ in range(POLLS)])


async def first(url: str, store: str) -> Figures:
    """A first synchronisation into a database."""
    async with make_suite(url, attachment=ATTACHMENT_BYTES) as suite, _open_store(store) as opened:
        rounds = await make_rounds(CannedRemote(make_mailbox(suite), FIRST_SYNC_MESSAGES), opened)
        start = time.perf_counter()
        await run_all_rounds(rounds)
        return {_RATE: FIRST_SYNC_MESSAGES / (time.perf_counter() - start)}


async def iterated(url: str, _: str) -> Figures:
    """The same messages read by the iterator and not stored."""
    start, count = time.perf_counter(), 0
    async for batch in _iterate(url):
        count += len(batch)
    assert count == FIRST_SYNC_MESSAGES
    return {_RATE: FIRST_SYNC_MESSAGES / (time.perf_counter() - start)}


async def floor(url: str, store: str) -> Figures:
    """The iterator, and the same rows inserted by plain code in batches of the same size."""
    async with _open_store(store) as opened:
        await opened.make_folder(await opened.claim("alice"), "INBOX")
    if not Path(store).is_dir():
        async with await psycopg.AsyncConnection.connect(store) as database:
            start = time.perf_counter()
            async for batch in _iterate(url):
                for table, rows in make_rows(batch, time=lambda moment: moment, json=Jsonb).items():
                    statement = f"COPY directsuite.{table} FROM STDIN".encode()
                    async with database.cursor() as cursor, cursor.copy(statement) as copy:
                        for row in rows:
                            await copy.write_row(row)
                await database.commit()
            return {_RATE: FIRST_SYNC_MESSAGES / (time.perf_counter() - start)}
    with contextlib.closing(sqlite3.connect(Path(store, "sync.db"), isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA wal_autocheckpoint = 2048")
        start = time.perf_counter()
        async for batch in _iterate(url):
            connection.execute("BEGIN IMMEDIATE")
            for table, rows in make_rows(
                batch, time=datetime.isoformat, json=lambda records: msgspec.json.encode(records).decode()
            ).items():
                places = ", ".join("?" * len(rows[0]))
                connection.executemany(f"INSERT INTO {table} VALUES ({places})", rows)  # noqa: S608
            connection.execute("COMMIT")
        return {_RATE: FIRST_SYNC_MESSAGES / (time.perf_counter() - start)}


async def _iterate(url: str) -> AsyncGenerator[list[ds.MessageDetail]]:
    async with make_suite(url, attachment=ATTACHMENT_BYTES) as suite:
        batch, folder = list[ds.MessageDetail](), work.name_folder(FIRST_SYNC_MESSAGES)
        async with make_mailbox(suite).iter_messages(folder, batch_size=MAX_BATCH_MESSAGES) as messages:
            async for message in messages:
                batch.append(message)
                if len(batch) == MAX_BATCH_MESSAGES:
                    yield batch
                    batch = []
        if batch:
            yield batch


def make_rows(
    batch: Sequence[ds.MessageDetail], *, time: Callable[[datetime], Any], json: Callable[[list[dict[str, Any]]], Any]
) -> dict[str, list[tuple[Any, ...]]]:
    """Return the rows of store and sink for messages, by table. time, json: convert values for the database."""
    digests = [compute_digest(message) for message in batch]
    known = [
        (1, 1, each.uid, 1, compute_identity(each, received, size), digest, size, received, 0, None)
        for each, digest in zip(batch, digests, strict=True)
        for received, size in [(read_received_ms(each), read_size(each))]
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


async def maildir(url: str, folder: str) -> Figures:
    """A first synchronisation of fewer messages into a Maildir."""
    async with make_suite(url, attachment=ATTACHMENT_BYTES) as suite, SqliteStore(Path(folder, "sync.db")) as store:
        remote = CannedRemote(make_mailbox(suite), MAILDIR_MESSAGES)
        rounds = await make_rounds(remote, store, deliver=MaildirSink(Path(folder, "mail")))
        start = time.perf_counter()
        await run_all_rounds(rounds)
        return {"messages": MAILDIR_MESSAGES, _RATE: MAILDIR_MESSAGES / (time.perf_counter() - start)}


def run_postgres() -> contextlib.AbstractContextManager[PostgresServer]:
    """Run a PostgreSQL server. Raises FileNotFoundError if PostgreSQL is not installed."""
    if (binaries := find_binaries()) is None:
        raise FileNotFoundError("PostgreSQL is not installed: initdb was not found.")
    return run_postgres_server(binaries)


def measure_sync(options: argparse.Namespace) -> int:
    """Measure all works, and write sync.md."""
    ratios: dict[str, list[float]] = {"iterated": [], "floor": [], "PostgreSQL": []}
    with run_server() as url, run_postgres() as server:
        found = {work.__name__: run_work_in_folder(work, url) for work in (idle, first, iterated)}
        for _round in range(_ROUNDS):
            ours, plain, iteration = (run_work_in_folder(work, url)[_RATE] for work in (first, floor, iterated))
            stored, copied = (run_work(work, url, server.create_database())[_RATE] for work in (first, floor))
            ratios["iterated"].append(ours / iteration)
            ratios["floor"].append(ours / plain)
            ratios["PostgreSQL"].append(stored / copied)
    return write_page("sync.md", _format_page(found, ratios), options.out)


def _format_page(found: dict[str, Figures], ratios: dict[str, list[float]]) -> str:
    round_of_one = {name: f"{value:.2f}" for name, value in found["idle"].items() if name != PEAK}
    spreads = [f"{statistics.median(each):.2f} [{min(each):.2f}-{max(each):.2f}] x" for each in ratios.values()]
    peaks = [f"{found[name][PEAK]:.0f}" for name in ("first", "iterated")]
    columns = "/ iterator", "/ floor", "PostgreSQL / floor", "peak memory, MB", "peak memory of the iterator, MB"
    return f"""# Synchronisation

`python -m benchmarks sync`, with the server of prepared responses on the same machine.

## A round of a folder of {LARGE_FOLDER_MESSAGES:,} messages without changes

The median of {POLLS} rounds, and of bare aiohttp, which requests and parses the same listing.

{format_table([*round_of_one], [[*round_of_one.values()]])}

## The first synchronisation of {FIRST_SYNC_MESSAGES:,} messages with attachments of {ATTACHMENT_BYTES // 1000} KB

Messages per second, divided by those of: the iterator, which stores nothing; the floor, which is the iterator and the
same rows inserted by sqlite3 in batches of the same size; and, for PostgreSQL, the iterator with COPY. Measured
alternately, {_ROUNDS} times; medians with minimum and maximum.

{format_table(columns, [[*spreads, *peaks]])}

{format_machine()}"""
