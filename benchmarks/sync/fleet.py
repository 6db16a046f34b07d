"""`python -m benchmarks fleet`: a fleet on PostgreSQL with one and two workers. It writes fleet.md.

`python -m benchmarks.sync.fleet NAME …` does one work of WORKS in this process.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import LiteralString

import psutil

from benchmarks.processes import (
    RESULTS,
    ROOT,
    Figures,
    Works,
    compute_spread,
    format_machine,
    pin_to_core,
    print_figures,
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
FIGURES = (
    "rounds per second",
    "CPU of the workers for a mailbox and round, ms",
    "CPU of PostgreSQL for a mailbox and round, ms",
    "transactions for a mailbox and round",
)


async def worker(url: str, conninfo: str, interval: str, core: str) -> Figures:
    """One worker of a fleet, until SIGTERM."""
    pin_to_core(int(core))
    async with make_suite(url) as suite, PostgresStore(conninfo, sink=PostgresSink()) as store:
        seconds = float(interval)
        fleet = Fleet(suite, store, get_password, interval=seconds, requests_per_second=1e9, tick=seconds / 5)
        use_canned_mailboxes(fleet, suite, lambda _: _MESSAGES_PER_MAILBOX)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, fleet.stop)
        await fleet.run()
    return {}


async def fleet(url: str, workers: str, interval: str, mailboxes: str, seconds: str) -> Figures:
    """Rounds of unchanged mailboxes, after each mailbox has had two rounds."""
    with run_postgres() as server, contextlib.ExitStack() as stack:
        conninfo = server.create_database()
        async with make_suite(url) as suite, PostgresStore(conninfo, sink=PostgresSink()) as store:
            await Fleet(suite, store, get_password).add([f"mailbox-{number}" for number in range(int(mailboxes))])

            async def fetch(query: LiteralString) -> list[int]:
                return [number for (number,) in await store.database.fetch(Statement(query.encode(), ""))]

            async def measure(pids: Sequence[int]) -> list[float]:
                rounds = await fetch("SELECT fence FROM directsuite.schedule")
                query = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
                [transactions] = await fetch(query)
                return [sum(rounds), sum(map(_read_cpu, pids)), sum(map(_read_cpu, server.pids)), transactions]

            command = (sys.executable, "-m", "benchmarks.sync.fleet", "worker", url, conninfo, interval)
            processes = [
                subprocess.Popen((*command, str(core)), cwd=ROOT, stdout=subprocess.DEVNULL)  # noqa: S603, ASYNC220
                for core in range(int(workers))
            ]
            for process in processes:
                stack.callback(process.wait)
                stack.callback(process.terminate)
            pids = [process.pid for process in processes]
            async with asyncio.timeout(_START_TIMEOUT):
                while min(await fetch("SELECT fence FROM directsuite.schedule")) < 2:  # noqa: ASYNC110
                    await asyncio.sleep(0.2)
            before = await measure(pids)
            await asyncio.sleep(float(seconds))
            after = await measure(pids)
    rounds, cpu, server_cpu, transactions = (new - old for new, old in zip(after, before, strict=True))
    values = rounds / float(seconds), 1000 * cpu / rounds, 1000 * server_cpu / rounds, transactions / rounds
    return dict(zip(FIGURES, values, strict=True))


def _read_cpu(pid: int) -> float:
    with contextlib.suppress(psutil.NoSuchProcess):
        return sum(psutil.Process(pid).cpu_times()[:4])
    return 0.0


WORKS: Works = {"worker": worker, "fleet": fleet}


def measure_fleet(arguments: Sequence[str]) -> int:
    """Measure fleets of one and two workers alternately, and write fleet.md."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks fleet", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="few mailboxes for a short time, as a test")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for fleet.md")
    options = parser.parse_args(arguments)
    mailboxes, seconds, rounds = (20, 2.0, 1) if options.quick else (_MAILBOXES, _SECONDS, _ROUNDS)
    found = {(load, workers): list[Figures]() for load in _LOADS for workers in (1, 2)}
    with run_server() as url:
        for _round in range(rounds):
            for (load, workers), figures in found.items():
                sizes = (workers, _LOADS[load] / (10 if options.quick else 1), mailboxes, seconds)
                figures.append(run_work("benchmarks.sync.fleet", "fleet", url, *map(str, sizes)))
    rows = list[str]()
    for (load, workers), figures in found.items():
        spreads = " | ".join(str(compute_spread([each[name] for each in figures])) for name in FIGURES)
        rows.append(f"| {load} | {workers} | {spreads} |")
    page = _PAGE.format(
        mailboxes=mailboxes, rounds=rounds, columns=" | ".join(FIGURES), rows="\n".join(rows), machine=format_machine()
    )
    return write_page("fleet.md", page, options.out)


_PAGE = f"""# A fleet on PostgreSQL

`python -m benchmarks fleet`: rounds of {{mailboxes}} mailboxes without changes, each with {_MESSAGES_PER_MAILBOX}
messages. Each worker is a process on its own core. PostgreSQL and the server of prepared responses share these cores.
Its CPU is that of all of its processes. Measured {{rounds}} times: medians with quartiles.

| load | workers | {{columns}} |
|---|---|---|---|---|---|
{{rows}}

{{machine}}"""


if __name__ == "__main__":
    print_figures(WORKS)
