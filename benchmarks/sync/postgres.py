"""What is kept in PostgreSQL: a first synchronisation beside its floor, and the rounds of a fleet's workers.

`python -m benchmarks.sync.postgres first|floor URL CONNINFO` prints figures, and `… worker URL CONNINFO INTERVAL` works
until SIGTERM.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from pathlib import Path

import psycopg
from psycopg.types.json import Jsonb

import directsuite as ds
from benchmarks.peers import work
from benchmarks.sync.remotes import CannedRemote
from benchmarks.sync.works import (
    ATTACHMENT_BYTES,
    FIRST_SYNC_MESSAGES,
    get_password,
    make_rounds,
    make_rows,
    make_suite,
)
from directsuite.sync.fetch import MAX_BATCH_MESSAGES
from directsuite.sync.fleet import Fleet
from directsuite.sync.postgres import PostgresSink, PostgresStore
from directsuite.sync.remote import Remote
from directsuite.sync.status import MailboxProgress
from tests.sync.fleet.postgres_server import PostgresServer, find_binaries, run_server

MAILBOXES, INTERVAL = 500, 10.0  # of a fleet, and seconds between the rounds of each
_MESSAGES_PER_MAILBOX = 3  # messages of each
_SECONDS = 20.0  # in which rounds are counted
_START_TIMEOUT = 60.0  # seconds until all have had two rounds
_CLOCK_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_ROOT = Path(__file__).resolve().parents[2]

Figures = dict[str, float]


async def first(url: str, conninfo: str) -> Figures:
    """A first synchronisation into PostgreSQL, in the store's own transactions."""
    store = PostgresStore(conninfo, sink=PostgresSink())
    async with make_suite(url, attachment=ATTACHMENT_BYTES) as suite, store:
        rounds = make_rounds(CannedRemote(suite.mailbox(work.USERNAME, work.PASSWORD), FIRST_SYNC_MESSAGES), store)
        began = time.perf_counter()
        while (await rounds.run_round()).has_more:
            pass
        return {"messages a second": FIRST_SYNC_MESSAGES / (time.perf_counter() - began)}


async def floor(url: str, conninfo: str) -> Figures:
    """The bare iterator, with the same rows put in by COPY in batches of the same size."""
    async with PostgresStore(conninfo, sink=PostgresSink()) as store:
        await store.folder(await store.claim("alice"), "INBOX")
    async with (
        make_suite(url, attachment=ATTACHMENT_BYTES) as suite,
        await psycopg.AsyncConnection.connect(conninfo) as connection,
    ):
        began, batch = time.perf_counter(), list[ds.MessageDetail]()
        messages = suite.mailbox(work.USERNAME, work.PASSWORD).iter_messages(
            f"INBOX.{FIRST_SYNC_MESSAGES}", batch_size=MAX_BATCH_MESSAGES
        )
        async with messages:
            async for message in messages:
                batch.append(message)
                if len(batch) == MAX_BATCH_MESSAGES:
                    await _copy(connection, batch)
                    batch = []
        return {"messages a second": FIRST_SYNC_MESSAGES / (time.perf_counter() - began)}


async def _copy(connection: psycopg.AsyncConnection, batch: Sequence[ds.MessageDetail]) -> None:
    for table, rows in make_rows(batch, time=lambda moment: moment, json=Jsonb).items():
        async with connection.cursor() as cursor, cursor.copy(f"COPY directsuite.{table} FROM STDIN".encode()) as copy:
            for row in rows:
                await copy.write_row(row)
    await connection.commit()


async def worker(url: str, conninfo: str, interval: str) -> None:
    """One of a fleet's, until SIGTERM."""
    async with make_suite(url) as suite, PostgresStore(conninfo, sink=PostgresSink()) as store:
        seconds = float(interval)
        fleet = Fleet(suite, store, get_password, interval=seconds, requests_per_second=1e9, tick=seconds / 5)

        async def opened(status: MailboxProgress) -> Remote:
            """A canned mailbox."""
            return CannedRemote(suite.mailbox(work.USERNAME, work.PASSWORD), _MESSAGES_PER_MAILBOX)

        fleet._worker._open = opened  # type: ignore[method-assign]
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, fleet.stop)
        await fleet.run()


async def measure_workers(url: str, _: Path, size: int) -> Figures:
    """So many workers, each a process, of one fleet of mailboxes in which nothing happens."""
    with run_postgresql() as server, contextlib.ExitStack() as stack:
        conninfo = server.create_database()
        async with make_suite(url) as suite, PostgresStore(conninfo, sink=PostgresSink()) as store:
            await Fleet(suite, store, get_password).add([f"mailbox-{number}" for number in range(MAILBOXES)])

            async def fences() -> list[int]:
                """How many rounds each mailbox had."""
                return [number for (number,) in await store.connections.fetch("SELECT fence FROM directsuite.schedule")]

            async def statements() -> int:
                """Transactions of the database so far: outside of one, a statement is one."""
                query = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
                ((count,),) = await store.connections.fetch(query)
                return int(count)

            command = [sys.executable, "-m", "benchmarks.sync.postgres", "worker", url, conninfo, str(INTERVAL)]
            pids = [stack.enter_context(_run_process(command)) for _ in range(size)]
            async with asyncio.timeout(_START_TIMEOUT):
                while min(await fences()) < 2:  # noqa: ASYNC110  of real processes
                    await asyncio.sleep(0.2)
            before = (sum(await fences()), _read_cpu_seconds(pids), _read_cpu_seconds(server.pids), await statements())
            await asyncio.sleep(_SECONDS)
            after = (sum(await fences()), _read_cpu_seconds(pids), _read_cpu_seconds(server.pids), await statements())
    rounds, cpu, of_postgresql, transactions = (now - then for now, then in zip(after, before, strict=True))
    return {
        "rounds": rounds / _SECONDS / (MAILBOXES / INTERVAL),
        "CPU": 1000 * cpu / rounds,
        "PostgreSQL": 1000 * of_postgresql / rounds,
        "transactions": transactions / rounds,
    }


@contextlib.contextmanager
def run_postgresql() -> Generator[PostgresServer]:
    """A server of its own while the block runs."""
    where = find_binaries()
    if where is None:
        raise FileNotFoundError("PostgreSQL isn't installed: initdb was not found")
    with run_server(where) as server:
        yield server


@contextlib.contextmanager
def _run_process(command: Sequence[str]) -> Generator[int]:
    with subprocess.Popen(command, cwd=_ROOT) as process:  # noqa: S603  our own module
        yield process.pid
        process.terminate()


def _read_cpu_seconds(pids: Sequence[int]) -> float:
    """Seconds of CPU of processes so far, those of children that have ended included."""
    total = 0
    for pid in pids:
        with contextlib.suppress(FileNotFoundError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += sum(map(int, fields[11:15]))
    return total / _CLOCK_TICKS_PER_SECOND


async def main(name: str, *arguments: str) -> None:
    """Print the figures of a first synchronisation, or work."""
    if name == "worker":
        await worker(*arguments)
    else:
        print(json.dumps(await {"first": first, "floor": floor}[name](*arguments)))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
