"""`python -m benchmarks growth [--only NAME ...]`: the costs of synchronisation and of journals at growing sizes.

Each size runs in a separate process. A slope is fitted to the logarithms of total cost and size: 1 if the cost is
proportional to the size, 0 if it is constant. growth.md has the tables, growth.svg the curves.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import statistics
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import attrs

import directsuite as ds
from benchmarks import processes
from benchmarks.counts import Gauge
from benchmarks.gauges import measure_cpu, read_resident_bytes
from benchmarks.pictures import Panel, draw
from benchmarks.server import make_scenario_url, run_server
from benchmarks.sync import canned
from benchmarks.sync.fleet import run_fleet
from directsuite.durable.database import Statement
from directsuite.jobs.delivery import DeliveryJournal, DeliveryTracker
from directsuite.jobs.signing import DocumentState, Pdf, SigningJob, SigningJournal, TargetFolder
from directsuite.sync import SqliteSink, SqliteStore, Synchronizer

FLEET_MAILBOXES, FLEET_INTERVAL, FLEET_SECONDS = 500, 10.0, 20.0
_MESSAGES_PER_MAILBOX = 3
_POLLS = 20
_JOURNAL_BATCH_ROWS = 10_000


@attrs.frozen
class Growth:
    """A curve: a work, which returns figures by name and unit, and its sizes."""

    work: processes.Work
    title: str
    sizes: Sequence[int]


async def mailboxes(url: str, folder: str, size: int) -> processes.Figures:
    gauge = Gauge()
    names = [f"mailbox-{number}" for number in range(size)]
    with gauge.count_statements():
        async with canned.make_suite(url) as suite, SqliteStore(Path(folder, "sync.db"), sink=SqliteSink()) as store:
            sync = Synchronizer(suite, store, names, canned.get_password)
            opened = canned.use_canned_mailboxes(sync, suite, lambda _: _MESSAGES_PER_MAILBOX)
            before = read_resident_bytes()
            sync._worker.requested_mailboxes = ()  # as during `run`, without requests of an operator
            await sync.once()
            memory = read_resident_bytes() - before
            idle = await measure_cpu(sync.once)
            for name in names[:: min(100, size)]:
                opened[name].messages += 1
            gauge.statements.clear()
            changing = await measure_cpu(sync.once)
    return {
        "CPU of a mailbox in a round without changes, ms": 1000 * idle / size,
        "CPU of a mailbox if 1 % have changed, ms": 1000 * changing / size,
        "statements of a mailbox if 1 % have changed": gauge.statements.total() / size,
        "memory of a mailbox, KB": memory / 1000 / size,
    }


async def messages(url: str, folder: str, size: int) -> processes.Figures:
    async with canned.make_suite(url) as suite, SqliteStore(Path(folder, "sync.db")) as store:
        remote = canned.CannedRemote(canned.make_mailbox(suite), size)
        rounds, before = await canned.make_rounds(remote, store), read_resident_bytes()
        await canned.run_all_rounds(rounds)
        await rounds.run_round()
        memory = read_resident_bytes() - before
        idle = statistics.mean([await measure_cpu(rounds.run_round) for _ in range(_POLLS)])
        remote.messages += 1
        more = await measure_cpu(rounds.run_round)
    return {
        "CPU of a round without changes, ms": 1000 * idle,
        "CPU of the round after one new message, ms": 1000 * more,
        "memory of the synchronisation, MB": memory / 1e6,
    }


async def tracked(url: str, folder: str, size: int) -> processes.Figures:
    path = Path(folder, "delivery.db")
    async with canned.make_suite(url) as suite:
        async with DeliveryJournal(path) as journal:
            tracker = DeliveryTracker(canned.make_mailbox(suite), journal=journal)
            await asyncio.gather(*(tracker.add(f"<{number}@direct.example.test>") for number in range(size)))
        async with DeliveryJournal(path) as journal:
            loaded = await measure_cpu(DeliveryTracker(canned.make_mailbox(suite), journal=journal).followed)
    return {"CPU of a message when the journal is read, µs": 1e6 * loaded / size}


async def documents(url: str, folder: str, size: int) -> processes.Figures:
    path = Path(folder, "journal.db")
    async with SigningJournal(path) as journal:
        for start in range(0, size, _JOURNAL_BATCH_ROWS):
            names = [f"{number:07}.pdf" for number in range(start, min(start + _JOURNAL_BATCH_ROWS, size))]
            assert {entry.state for entry in await journal.lease.entries(names)} == {DocumentState.NEW}
        await journal._database.execute(Statement(b"", "UPDATE signing_document SET state = 5"))

    async def source() -> AsyncGenerator[Pdf]:
        for number in range(size):
            yield Pdf(f"{number:07}.pdf", b"%PDF-1.7\n")

    settings = ds.Settings(signing_url=f"{make_scenario_url(url)}/signing")
    async with ds.DirectSuite(settings) as suite, SigningJournal(path) as journal:
        target = TargetFolder(Path(folder, "out"))
        job = SigningJob(suite.signing, source(), target, [ds.Signature(name="S")], journal=journal)
        skipped = await measure_cpu(job.run)
        assert job.progress.passed_over == size
        tally = await measure_cpu(journal.tally)
    return {
        "CPU of a document that is skipped, µs": 1e6 * skipped / size,
        "time of `tally`, ms": 1000 * tally,
        "size of the journal, MB": path.stat().st_size / 1e6,
    }


async def workers(url: str, _: str, size: int) -> processes.Figures:
    return await run_fleet(url, size, FLEET_INTERVAL, FLEET_MAILBOXES, FLEET_SECONDS)


GROWTHS = (
    Growth(mailboxes, "Mailboxes in one process on SQLite, each with 3 messages", (10, 100, 1_000, 10_000)),
    Growth(workers, f"Workers on PostgreSQL, {FLEET_MAILBOXES} mailboxes due every {FLEET_INTERVAL:.0f} s", (1, 2, 4)),
    Growth(messages, "Messages in one mailbox", (1_000, 10_000, 100_000, 1_000_000)),
    Growth(tracked, "Messages of a delivery tracker", (10, 100, 1_000, 10_000, 100_000)),
    Growth(documents, "Documents of a signing job, all signed by an earlier run", (1_000, 10_000, 100_000, 1_000_000)),
)


def measure_growth(options: argparse.Namespace) -> int:
    """Measure and print the curves with these names, or all. Write growth.md and growth.svg if all are measured."""
    page, panels = _HEAD, list[Panel]()
    with run_server() as url:
        for growth in GROWTHS:
            if growth.work.__name__ in (options.only or [growth.work.__name__]):
                found = [processes.run_work_in_folder(growth.work, url, size) for size in growth.sizes]
                print(section := format_section(growth, found), flush=True)
                page += f"\n{section}"
                panels.append(make_panel(growth, found))
    if not options.only:
        processes.write_page("growth.md", f"{page}\n{processes.format_machine()}", options.out)
        draw((options.out or processes.RESULTS) / "growth.svg", panels, columns=2)
    return 0


_HEAD = """# Growth

`python -m benchmarks growth`. Each size runs in a separate process. A slope is fitted to the logarithms of total cost
and size: 1 if the cost is proportional to the size, 0 if it is constant.

![the same costs as multiples of those at the smallest size](growth.svg)
"""


def compute_total_costs(growth: Growth, found: Sequence[processes.Figures]) -> dict[str, list[float]]:
    """Return the total costs at each size, by figure. A figure "of a mailbox", message or document is multiplied."""
    costs = dict[str, list[float]]()
    for name in found[0]:
        if name != processes.PEAK:
            is_of_one = any(f" of a {unit}" in name for unit in ("mailbox", "message", "document"))
            pairs = zip(growth.sizes, found, strict=True)
            costs[name] = [max(figures[name], 1e-9) * (size if is_of_one else 1) for size, figures in pairs]
    return costs


def fit_slope(sizes: Sequence[int], costs: Sequence[float]) -> float:
    """Fit the slope of the logarithms by least squares."""
    return statistics.linear_regression([math.log10(size) for size in sizes], [math.log10(c) for c in costs]).slope


def format_section(growth: Growth, found: Sequence[processes.Figures]) -> str:
    """Return the table of a curve."""
    rows = [
        (name, *(f"{figures[name]:,.3g}" for figures in found), f"{fit_slope(growth.sizes, costs):.2f}")
        for name, costs in compute_total_costs(growth, found).items()
    ]
    columns = ("", *(f"{size:,}" for size in growth.sizes), "slope")
    return f"## {growth.title}\n\n{processes.format_table(columns, rows)}\n"


def make_panel(growth: Growth, found: Sequence[processes.Figures]) -> Panel:
    """Return the curves of the total costs, as multiples of the cost at the smallest size."""
    costs = {**compute_total_costs(growth, found), "proportional": growth.sizes}
    curves = {
        name.partition(",")[0]: [(size, cost / each[0]) for size, cost in zip(growth.sizes, each, strict=True)]
        for name, each in costs.items()
    }
    return Panel(growth.title.partition(",")[0], curves, log_x=True, log_y=True)
