"""A worker in a separate process: `python -m tests.sync.killing.worker URL STORE run|once ADDRESS …`.

STORE: the path of an SQLite database, or PostgreSQL's conninfo (`host=…`). With a database `maildir.db`, the sink is
the Maildir `maildir` next to it. run: until it is killed. once: until all mailboxes are up to date; it prints the
problem of each mailbox that is not.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

import directsuite as ds
from directsuite.durable.database import Transaction
from directsuite.sync import SqliteSink
from directsuite.sync.model import Change
from directsuite.sync.postgres import PostgresStore
from directsuite.sync.sinks.maildir import MaildirSink
from directsuite.sync.store import SqliteStore
from directsuite.sync.synchronizer import Synchronizer
from tests.sync.fleet import fleet_worker

PASSWORD = "correct horse"
MAILDIR = "maildir.db"
INTERVAL = 0.05
"""Seconds between two polls of a mailbox: so few that a kill can come at any point."""


class LoggingSink(SqliteSink):
    async def prepare(self, transaction: Transaction) -> None:
        await super().prepare(transaction)
        transaction.connection.execute(
            "CREATE TABLE IF NOT EXISTS told (kind TEXT, key TEXT, previous TEXT, subject TEXT)"
        )

    async def write(self, transaction: Transaction, changes: Sequence[Change]) -> None:
        await super().write(transaction, changes)
        transaction.connection.executemany(
            "INSERT INTO told (kind, key, previous, subject) VALUES (?, ?, ?, ?)",
            [
                (str(each.kind), str(each.key), str(each.previous), each.message and each.message.subject)
                for each in changes
            ],
        )


async def _get_password(_: str) -> str:
    return PASSWORD


def _make_store(where: str) -> SqliteStore | PostgresStore:
    if where.startswith("host="):
        return PostgresStore(where, sink=fleet_worker.LoggingSink())
    return SqliteStore(Path(where), sink=None if where.endswith(MAILDIR) else LoggingSink())


async def work(url: str, where: str, how: str, addresses: Sequence[str]) -> int:
    settings = ds.Settings(message_url=url, requests_per_second=1000, burst=1000)
    async with ds.DirectSuite(settings) as suite, _make_store(where) as store:
        deliver = MaildirSink(Path(where).with_suffix("")) if where.endswith(MAILDIR) else None
        sync = Synchronizer(suite, store, addresses, _get_password, deliver=deliver, folders=None, interval=INTERVAL)
        if how == "run":
            await sync.run()
        problems = [status.problem for status in (await sync.once()).values() if status.problem]
        sys.stdout.write(f"{problems}\n")
        return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(work(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:])))
