"""`python -m benchmarks fleet`: a fleet on PostgreSQL with one and two workers. It writes fleet.md."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import multiprocessing
import signal
from collections.abc import Sequence
from typing import LiteralString

import psutil

from benchmarks.processes import (
    Figures,
    compute_spread,
    format_machine,
    format_table,
    pin_to_core,
    run_work,
    write_page,
)
from benchmarks.server import run_server
from benchmarks.sync.canned import get_password, make_suite, use_canned_mailboxes
from benchmarks.sync.works import run_postgres
from directsuite.durable.database import Statement
from directsuite.sync.fleet import Fleet
from directsuite.sync.postgres import PostgresSink, PostgresStore

_MAILBOXES, _SECONDS, _START_TIMEOUT = 1_000, 20.0, 120.0
_MESSAGES_PER_MAILBOX = 3
_ROUNDS = 3
_LOADS = {"due every 10 seconds": 10.0, "as often as possible": 0.25}
"""Seconds between two rounds of a mailbox. The second interval is too short for the workers."""
_SPAWN = multiprocessing.get_context("spawn")
FIGURES = (
    "rounds per second",
    "CPU of the workers for a mailbox and round, ms",
    "CPU of PostgreSQL for a mailbox and round, ms",
    "transactions for a mailbox and round",
)


def _run_worker(url: str, conninfo: str, interval: float, core: int) -> None:
    pin_to_core(core)
    asyncio.run(_work_until_sigterm(url, conninfo, interval))


async def _work_until_sigterm(url: str, conninfo: str, interval: float) -> None:
    async with make_suite(url) as suite, PostgresStore(conninfo, sink=PostgresSink()) as store:
        fleet = Fleet(suite, store, get_password, interval=interval, requests_per_second=1e9, tick=interval / 5)
        use_canned_mailboxes(fleet, suite, lambda _: _MESSAGES_PER_MAILBOX)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, fleet.stop)
        await fleet.run()


async def run_fleet(url: str, workers: int, interval: float, mailboxes: int, seconds: float) -> Figures:
    """Rounds of unchanged mailboxes, after each mailbox has had two rounds."""
    with run_postgres() as server, contextlib.ExitStack() as stack:
        conninfo = server.create_database()
        async with make_suite(url) as suite, PostgresStore(conninfo, sink=PostgresSink()) as store:
            await Fleet(suite, store, get_password).add([f"mailbox-{number}" for number in range(mailboxes)])

            async def fetch(query: LiteralString) -> list[int]:
                return [number for (number,) in await store.database.fetch(Statement(query.encode(), ""))]

            async def measure(pids: Sequence[int]) -> list[float]:
                rounds = await fetch("SELECT fence FROM directsuite.schedule")
                query = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
                [transactions] = await fetch(query)
                return [sum(rounds), sum(map(_read_cpu, pids)), sum(map(_read_cpu, server.pids)), transactions]

            pids = list[int]()
            for core in range(workers):
                process = _SPAWN.Process(target=_run_worker, args=(url, conninfo, interval, core))
                process.start()
                stack.callback(process.join)
                stack.callback(process.terminate)
                pids.append(process.pid or 0)
            async with asyncio.timeout(_START_TIMEOUT):
                while min(await fetch("SELECT fence FROM directsuite.schedule")) < 2:  # noqa: ASYNC110
                    await asyncio.sleep(0.2)
            before = await measure(pids)
            await asyncio.sleep(seconds)
            after = await measure(pids)
    rounds, cpu, server_cpu, transactions = (new - old for new, old in zip(after, before, strict=True))
    values = rounds / seconds, 1000 * cpu / rounds, 1000 * server_cpu / rounds, transactions / rounds
    return dict(zip(FIGURES, values, strict=True))


def _read_cpu(pid: int) -> float:
    with contextlib.suppress(psutil.NoSuchProcess):
        return sum(psutil.Process(pid).cpu_times()[:4])
    return 0.0


def measure_fleet(options: argparse.Namespace) -> int:
    """Measure fleets of one and two workers alternately, and write fleet.md."""
    mailboxes, seconds, rounds = (20, 2.0, 1) if options.quick else (_MAILBOXES, _SECONDS, _ROUNDS)
    found = {(load, workers): list[Figures]() for load in _LOADS for workers in (1, 2)}
    with run_server() as url:
        for _round in range(rounds):
            for (load, workers), figures in found.items():
                interval = _LOADS[load] / (10 if options.quick else 1)
                figures.append(run_work(run_fleet, url, workers, interval, mailboxes, seconds))
    rows = [
        (load, workers, *(compute_spread([each[name] for each in figures]) for name in FIGURES))
        for (load, workers), figures in found.items()
    ]
    table = format_table(("load", "workers", *FIGURES), rows)
    page = _PAGE.format(mailboxes=mailboxes, rounds=rounds, table=table, machine=format_machine())
    return write_page("fleet.md", page, options.out)


_PAGE = f"""# A fleet on PostgreSQL

`python -m benchmarks fleet`: rounds of {{mailboxes}} mailboxes without changes, each with {_MESSAGES_PER_MAILBOX}
messages. Each worker is a process on its own core. PostgreSQL and the server of prepared responses share these cores.
Its CPU is that of all of its processes. Measured {{rounds}} times: medians with quartiles.

{{table}}

{{machine}}"""
