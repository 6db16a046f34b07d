"""`python -m benchmarks growth`: how the cost of synchronisation and of journals grows, as curves with their slopes.

Each size runs in a process of its own. A slope is that of the whole cost over the size, both as logarithms: 1 where
twice as much takes twice as long, 0 where it takes as long.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path

import attrs

import directsuite as ds
from benchmarks.counts import Gauge
from benchmarks.measuring.machine import describe_machine, run_for_figures
from benchmarks.peers import work
from benchmarks.server import make_scenario_url, run_server
from benchmarks.soak.census import read_resident_bytes
from benchmarks.sync.postgres import INTERVAL, MAILBOXES, measure_workers
from benchmarks.sync.remotes import CannedRemote
from benchmarks.sync.works import get_password, make_rounds, make_suite
from directsuite.durable.database import sql
from directsuite.jobs.delivery import DeliveryJournal as DeliveryJournal
from directsuite.jobs.delivery import DeliveryTracker
from directsuite.jobs.signing import DocumentState, Pdf, SigningJob, TargetFolder
from directsuite.jobs.signing import SigningJournal as SigningJournal
from directsuite.sync import SqliteSink, SqliteStore, Synchronizer
from directsuite.sync.remote import Remote
from directsuite.sync.status import MailboxProgress

_ROOT = Path(__file__).resolve().parents[1]
_POLLS = 20  # at a large mailbox
_MESSAGES_PER_MAILBOX = 3  # messages of each of many mailboxes
_JOURNAL_BATCH_ROWS = 10_000  # rows of a journal at a time
_WIDTH, _HEIGHT, _LEFT, _BELOW, _NAMES = 860, 330, 56, 44, 330
_COLOURS = ("#1f6fb4", "#e08a1e", "#2a8f4f", "#c03030")

Figures = dict[str, float]


@attrs.frozen
class Growth:
    """One curve: what grows, its sizes, and the figures that are drawn, each with its unit."""

    name: str
    what: str
    sizes: Sequence[int]
    figures: Mapping[str, str]


GROWTHS = (
    Growth(
        "mailboxes",
        "mailboxes in one process on SQLite, each with 3 messages",
        (10, 100, 1_000, 10_000),
        {
            "idle": "CPU of a mailbox and round in which nothing happened, ms",
            "changing": "CPU of a mailbox and round in which one of a hundred changed, ms",
            "statements": "statements of a mailbox and round in which one of a hundred changed",
            "memory": "memory of a mailbox, KB",
        },
    ),
    Growth(
        "workers",
        f"workers of a fleet on PostgreSQL, {MAILBOXES} mailboxes each of which is due every {INTERVAL:.0f} seconds",
        (1, 2, 4),
        {
            "rounds": "rounds, of those that are due",
            "CPU": "CPU of a round, all workers together, ms",
            "PostgreSQL": "CPU of PostgreSQL for a round, ms",
            "transactions": "transactions of a round",
        },
    ),
    Growth(
        "messages",
        "messages in one mailbox",
        (1_000, 10_000, 100_000, 1_000_000),
        {
            "idle": "CPU of a look, ms",
            "one more": "CPU of the round after one new message, ms",
            "memory": "memory of it all, MB",
        },
    ),
    Growth(
        "tracked",
        "messages of a delivery tracker",
        (10, 100, 1_000, 10_000, 100_000),
        {"loaded": "CPU of a message when the journal is read, µs"},
    ),
    Growth(
        "documents",
        "documents of a signing job, all done before it starts",
        (1_000, 10_000, 100_000, 1_000_000),
        {
            "passed over": "CPU of a document that is passed over, µs",
            "tally": "time of `tally`, ms",
            "journal": "size of the journal, MB",
        },
    ),
)


async def mailboxes(url: str, folder: Path, size: int) -> Figures:
    """Rounds of many small mailboxes, in which nothing or little happens."""
    gauge = Gauge()
    names, held = [f"mailbox-{number}" for number in range(size)], dict[str, CannedRemote]()
    with gauge.count_statements():
        async with make_suite(url) as suite, SqliteStore(folder / "sync.db", sink=SqliteSink()) as store:
            sync = Synchronizer(suite, store, names, get_password)

            async def opened(status: MailboxProgress) -> Remote:
                """A canned mailbox."""
                held[status.name] = CannedRemote(suite.mailbox(work.USERNAME, work.PASSWORD), _MESSAGES_PER_MAILBOX)
                return held[status.name]

            sync._worker._open = opened  # type: ignore[method-assign]
            before = read_resident_bytes(os.getpid())
            sync._worker.requested_mailboxes = ()  # as while `run` listens, and no operator has left anything
            await sync.once()
            memory = read_resident_bytes(os.getpid()) - before
            idle = await _cpu(sync.once)
            for name in names[:: min(100, size)]:
                held[name]._folder = f"INBOX.{_MESSAGES_PER_MAILBOX + 1}"
            gauge.statements.clear()
            changing = await _cpu(sync.once)
    return {
        "idle": 1000 * idle / size,
        "changing": 1000 * changing / size,
        "statements": gauge.statements.total() / size,
        "memory": memory / 1000 / size,
    }


async def messages(url: str, folder: Path, size: int) -> Figures:
    """Looks at a large mailbox, and the round after one new message."""
    async with make_suite(url) as suite, SqliteStore(folder / "sync.db") as store:
        remote = CannedRemote(suite.mailbox(work.USERNAME, work.PASSWORD), size)
        rounds, before = make_rounds(remote, store), read_resident_bytes(os.getpid())
        while (await rounds.run_round()).has_more:
            pass
        await rounds.run_round()
        memory = read_resident_bytes(os.getpid()) - before
        idle = sum([await _cpu(rounds.run_round) for _ in range(_POLLS)]) / _POLLS
        remote._folder = f"INBOX.{size + 1}"
        more = await _cpu(rounds.run_round)
    return {"idle": 1000 * idle, "one more": 1000 * more, "memory": memory / 1e6}


async def tracked(url: str, folder: Path, size: int) -> Figures:
    """A tracker whose journal has so many messages, read anew."""
    async with make_suite(url) as suite:
        box = suite.mailbox(work.USERNAME, work.PASSWORD)
        async with DeliveryJournal(folder / "delivery.db") as journal:
            tracker = DeliveryTracker(box, journal=journal)
            await asyncio.gather(*(tracker.add(f"<{number}@direct.example.test>") for number in range(size)))
        async with DeliveryJournal(folder / "delivery.db") as journal:
            loaded = await _cpu(DeliveryTracker(box, journal=journal).followed)
    return {"loaded": 1e6 * loaded / size}


async def documents(url: str, folder: Path, size: int) -> Figures:
    """A signing job with so many documents, of which a run before it has signed all."""
    path = folder / "journal.db"
    async with SigningJournal(path) as journal:
        for start in range(0, size, _JOURNAL_BATCH_ROWS):
            names = [f"{number:07}.pdf" for number in range(start, min(start + _JOURNAL_BATCH_ROWS, size))]
            assert {entry.state for entry in await journal.entries(names)} == {DocumentState.NEW}
        await journal._database.execute(sql("UPDATE directsuite.signing_document SET state = 5"))

    async def source() -> AsyncGenerator[Pdf]:
        for number in range(size):
            yield Pdf(f"{number:07}.pdf", b"%PDF-1.7\n")

    async with (
        ds.DirectSuite(ds.Settings(signing_url=f"{make_scenario_url(url)}/signing")) as suite,
        SigningJournal(path) as journal,
    ):
        target, signatures = TargetFolder(folder / "out"), [ds.Signature(name="S")]
        job = SigningJob(suite.signing, source(), target, signatures, journal=journal)
        passed_over = await _cpu(job.run)
        assert job.progress.passed_over == size
        tally = await _cpu(journal.tally)
    return {"passed over": 1e6 * passed_over / size, "tally": 1000 * tally, "journal": path.stat().st_size / 1e6}


async def _cpu(do: Callable[[], Awaitable[object]]) -> float:
    began = time.process_time()
    await do()
    return time.process_time() - began


WORKS: Mapping[str, Callable[[str, Path, int], Awaitable[Figures]]] = {
    "mailboxes": mailboxes,
    "workers": measure_workers,
    "messages": messages,
    "tracked": tracked,
    "documents": documents,
}


def measure_growth(names: Sequence[str] = (), out: Path = _ROOT / "benchmarks" / "results") -> int:
    """Measure the curves of these names, or all; write growth.md, growth.json and a drawing of each curve."""
    kept = out / "growth.json"
    found: dict[str, list[Figures]] = json.loads(kept.read_text("utf-8")) if kept.exists() else {}
    with run_server() as url:
        for each in GROWTHS:
            if each.name in (names or [each.name]):
                found[each.name] = [_run(each.name, url, size) for size in each.sizes]
                kept.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
            if each.name in found:
                print(format_section(each, found[each.name]), flush=True)
                (out / f"growth-{each.name}.svg").write_text(draw_growth(each, found[each.name]), encoding="utf-8")
    about = "\n".join(f"| {name} | {value} |" for name, value in describe_machine().items())
    page = "\n".join(format_section(each, found[each.name]) for each in GROWTHS if each.name in found)
    head = f"# Growth\n\n`python -m benchmarks growth`{(__doc__ or '').partition('`')[2].partition('`')[2].strip()}\n\n"
    (out / "growth.md").write_text(f"{head}{page}\nMeasured on:\n\n| | |\n|---|---|\n{about}\n", encoding="utf-8")
    return 0


def _run(name: str, url: str, size: int) -> Figures:
    with tempfile.TemporaryDirectory() as folder:
        return run_for_figures("benchmarks.growth", name, url, folder, str(size))


def compute_total_costs(growth: Growth, found: Sequence[Figures], figure: str) -> list[float]:
    """The whole cost at each size: a figure of a unit counts as often as there are units."""
    of_a_unit = any(f" of a {unit}" in growth.figures[figure] for unit in ("mailbox", "message", "document"))
    pairs = zip(growth.sizes, found, strict=True)
    return [max(figures[figure], 1e-9) * (size if of_a_unit else 1) for size, figures in pairs]


def fit_slope(sizes: Sequence[int], costs: Sequence[float]) -> float:
    """Of the whole cost over the size, both as logarithms, by least squares."""
    return statistics.linear_regression(
        [math.log10(size) for size in sizes], [math.log10(cost) for cost in costs]
    ).slope


def format_section(growth: Growth, found: Sequence[Figures]) -> str:
    """The table of a curve, and its drawing."""
    sizes = " | ".join(f"{size:,}" for size in growth.sizes)
    lines = [f"## {growth.what[0].upper()}{growth.what[1:]}", "", f"| | {sizes} | slope |"]
    lines.append("|---" * (len(growth.sizes) + 2) + "|")
    for name, unit in growth.figures.items():
        values = " | ".join(f"{figures[name]:,.3g}" for figures in found)
        lines.append(f"| {unit} | {values} | {fit_slope(growth.sizes, compute_total_costs(growth, found, name)):.2f} |")
    return "\n".join([*lines, "", f"![The same as curves](growth-{growth.name}.svg)", ""])


def draw_growth(growth: Growth, found: Sequence[Figures]) -> str:
    """The whole costs as multiples of those at the smallest size, both axes as powers of ten; dashed: in proportion."""
    first, last = math.log10(growth.sizes[0]), math.log10(growth.sizes[-1])
    curves = {name: compute_total_costs(growth, found, name) for name in growth.figures}
    decades = max(last - first, *(math.log10(max(costs) / costs[0]) for costs in curves.values()))
    right, bottom = _WIDTH - _NAMES, _HEIGHT - _BELOW

    def x(size: float) -> float:
        """Where a size is."""
        return _LEFT + (right - _LEFT) * (math.log10(size) - first) / (last - first)

    def y(multiple: float) -> float:
        """Where a multiple of the first cost is; less than the first is drawn as the first."""
        return bottom - (bottom - 20) * max(math.log10(multiple), 0.0) / decades

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}">',
        "<style>text{font:12px sans-serif;fill:#333}path{fill:none;stroke:#ddd}</style>",
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for power in range(math.floor(decades) + 1):
        parts.append(f'<path d="M{_LEFT} {y(10**power):.1f}H{right}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y(10**power) + 4:.1f}" text-anchor="end">{10**power:,} x</text>')
    parts += [
        f'<text x="{x(size):.1f}" y="{bottom + 18}" text-anchor="middle">{size:,}</text>' for size in growth.sizes
    ]
    parts.append(f'<text x="{(_LEFT + right) / 2}" y="{_HEIGHT - 8}" text-anchor="middle">{growth.what}</text>')
    straight = f"M{x(10**first):.1f} {y(1):.1f}L{x(10**last):.1f} {y(10 ** (last - first)):.1f}"
    parts.append(f'<path d="{straight}" style="stroke:#888;stroke-dasharray:4"/>')
    for number, (name, costs) in enumerate(curves.items()):
        points = zip(growth.sizes, costs, strict=True)
        path, colour = "L".join(f"{x(size):.1f} {y(cost / costs[0]):.1f}" for size, cost in points), _COLOURS[number]
        parts.append(f'<path d="M{path}" style="stroke:{colour};stroke-width:1.5"/>')
        parts.append(f'<path d="M{right + 12} {30 + 22 * number}h18" style="stroke:{colour};stroke-width:3"/>')
        parts.append(f'<text x="{right + 36}" y="{34 + 22 * number}">{name}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def main() -> None:
    """Do one size and print its figures."""
    name, url, folder, size = sys.argv[1:]
    print(json.dumps(asyncio.run(WORKS[name](url, Path(folder), int(size)))))  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
