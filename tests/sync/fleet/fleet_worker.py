"""A worker process of a fleet, until SIGTERM: `python -m tests.sync.fleet.fleet_worker URL CONNINFO`."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Sequence
from typing import Any

import directsuite as ds
from directsuite.durable.database import Transaction
from directsuite.sync.fleet import Fleet
from directsuite.sync.model import Change
from directsuite.sync.postgres import PostgresSink, PostgresStore

PASSWORD = "correct horse"
FOLDERS = ("INBOX", "INBOX.Archive")


class LoggingSink(PostgresSink):
    async def prepare(self, transaction: Transaction) -> None:
        await super().prepare(transaction)
        await transaction.connection.execute("CREATE TABLE IF NOT EXISTS told (kind text, key text, subject text)")

    async def write(self, transaction: Transaction, changes: Sequence[Change]) -> None:
        await super().write(transaction, changes)
        for each in changes:
            told = (str(each.kind), str(each.key), each.message and each.message.subject)
            await transaction.connection.execute("INSERT INTO told VALUES (%s, %s, %s)", told)


async def get_password(name: str) -> str:
    if name.startswith("broken"):
        raise KeyError(name)
    return PASSWORD


def make_fleet(suite: ds.DirectSuite, store: PostgresStore, **more: Any) -> Fleet:
    hurry: dict[str, Any] = {"interval": 0.5, "tick": 0.2, "worker_timeout": 3.0, "grace": 5.0, **more}
    return Fleet(suite, store, get_password, folders=FOLDERS, **hurry)


async def work(url: str, conninfo: str) -> None:
    settings = ds.Settings(message_url=url, requests_per_second=1000, burst=1000)
    async with ds.DirectSuite(settings) as suite, PostgresStore(conninfo, sink=LoggingSink(), timeout=5) as store:
        fleet = make_fleet(suite, store)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, fleet.stop)
        await fleet.run()


if __name__ == "__main__":
    asyncio.run(work(*sys.argv[1:]))
