"""`python -m benchmarks growth`: how the cost of synchronisation and of journals grows, as curves with their slopes.

Each size runs in a process of its own. A slope is that of the whole cost over the size, both as logarithms: 1 where
twice as much takes twice as long, 0 where it takes as long.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

import attrs

import directsuite as ds
from benchmarks.counts import Gauge
from benchmarks.measuring.machine import described
from benchmarks.peers import work
from benchmarks.server import at, served
from benchmarks.soak.census import resident
from benchmarks.sync.remotes import CannedRemote
from benchmarks.sync.works import rounds_of
from directsuite.jobs.delivery import DeliveryTracker
from directsuite.jobs.delivery import Journal as DeliveryJournal
from directsuite.sync import SqliteSink, SqliteStore, Synchronizer
from directsuite.sync.remote import Remote

_ROOT = Path(__file__).resolve().parents[2]
_LOOKS = 20  # at a large mailbox
_SMALL = 3  # messages of each of many mailboxes

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
)


async def mailboxes(url: str, folder: Path, size: int) -> Figures:
    """Rounds of many small mailboxes, in which nothing or little happens."""
    gauge, settings = Gauge(), _settings(url)
    names, held = [f"mailbox-{number}" for number in range(size)], dict[str, CannedRemote]()
    with gauge.watching():
        async with ds.DirectSuite(settings) as suite, SqliteStore(folder / "sync.db", sink=SqliteSink()) as store:
            sync = Synchronizer(suite, store, names, _password)

            async def opened(name: str) -> Remote:
                """A canned mailbox."""
                held[name] = CannedRemote(suite.mailbox(work.USERNAME, work.PASSWORD), _SMALL)
                return held[name]

            sync._worker._open = opened  # type: ignore[method-assign]
            before = resident(os.getpid())
            sync._worker.requested = ()  # as while `run` listens, and no operator has left anything
            await sync.once()
            memory = resident(os.getpid()) - before
            idle = await _cpu(sync.once)
            for name in names[:: min(100, size)]:
                held[name]._folder = f"INBOX.{_SMALL + 1}"
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
    async with ds.DirectSuite(_settings(url)) as suite, SqliteStore(folder / "sync.db") as store:
        remote = CannedRemote(suite.mailbox(work.USERNAME, work.PASSWORD), size)
        rounds, before = rounds_of(remote, store), resident(os.getpid())
        while (await rounds.round()).more:
            pass
        await rounds.round()
        memory = resident(os.getpid()) - before
        idle = sum([await _cpu(rounds.round) for _ in range(_LOOKS)]) / _LOOKS
        remote._folder = f"INBOX.{size + 1}"
        more = await _cpu(rounds.round)
    return {"idle": 1000 * idle, "one more": 1000 * more, "memory": memory / 1e6}


async def tracked(url: str, folder: Path, size: int) -> Figures:
    """A tracker whose journal has so many messages, read anew."""
    async with ds.DirectSuite(_settings(url)) as suite:
        box = suite.mailbox(work.USERNAME, work.PASSWORD)
        async with DeliveryJournal(folder / "delivery.db") as journal:
            tracker = DeliveryTracker(box, journal=journal)
            await asyncio.gather(*(tracker.add(f"<{number}@direct.example.test>") for number in range(size)))
        async with DeliveryJournal(folder / "delivery.db") as journal:
            loaded = await _cpu(DeliveryTracker(box, journal=journal).followed)
    return {"loaded": 1e6 * loaded / size}


async def _cpu(do: Callable[[], Awaitable[object]]) -> float:
    began = time.process_time()
    await do()
    return time.process_time() - began


def _settings(url: str) -> ds.Settings:
    return ds.Settings(message_url=at(url) + work.MESSAGING, requests_per_second=1e9, burst=10**9)


async def _password(_: str) -> str:
    return work.PASSWORD


WORKS: Mapping[str, Callable[[str, Path, int], Awaitable[Figures]]] = {
    each.__name__: each for each in (mailboxes, messages, tracked)
}


def slope(sizes: Sequence[int], each: Sequence[float], *, per_unit: bool) -> float:
    """Of the whole cost over the size, both as logarithms. each: the cost; per_unit: of one unit of the size."""
    xs = [math.log10(size) for size in sizes]
    ys = [math.log10(cost * (size if per_unit else 1)) for size, cost in zip(sizes, each, strict=True)]
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    covariance = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True))
    return covariance / sum((x - mean_x) ** 2 for x in xs)


def growth(out: Path = _ROOT / "benchmarks" / "results") -> int:
    """Measure all sizes, and write growth.md and growth.json."""
    found = dict[str, list[Figures]]()
    with served() as url:
        for each in GROWTHS:
            found[each.name] = [_run(each.name, url, size) for size in each.sizes]
            print(_section(each, found[each.name]), flush=True)
    about = "\n".join(f"| {name} | {value} |" for name, value in described().items())
    page = "\n".join(_section(each, found[each.name]) for each in GROWTHS)
    head = f"# Growth\n\n{(__doc__ or '').split(': ', 1)[1].strip()}\n\n"
    (out / "growth.md").write_text(f"{head}{page}\nMeasured on:\n\n| | |\n|---|---|\n{about}\n", encoding="utf-8")
    (out / "growth.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0


def _run(name: str, url: str, size: int) -> Figures:
    with tempfile.TemporaryDirectory() as folder:
        command = (sys.executable, "-m", "benchmarks.sync.growth", name, url, folder, str(size))
        done = subprocess.run(command, cwd=_ROOT, check=True, stdout=subprocess.PIPE)  # noqa: S603  our own module
    figures: Figures = json.loads(done.stdout)
    return figures


def _section(growth: Growth, found: Sequence[Figures]) -> str:
    lines = [f"## {growth.what.capitalize()}", "", f"| | {' | '.join(f'{size:,}' for size in growth.sizes)} | slope |"]
    lines.append("|---" * (len(growth.sizes) + 2) + "|")
    for name, unit in growth.figures.items():
        values = [figures[name] for figures in found]
        per_unit = " of a mailbox" in unit or " of a message" in unit
        steep = slope(growth.sizes, [max(value, 1e-9) for value in values], per_unit=per_unit)
        lines.append(f"| {unit} | {' | '.join(f'{value:,.3g}' for value in values)} | {steep:.2f} |")
    return "\n".join([*lines, ""])


def main() -> None:
    """Do one size and print its figures."""
    name, url, folder, size = sys.argv[1:]
    print(json.dumps(asyncio.run(WORKS[name](url, Path(folder), int(size)))))  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
