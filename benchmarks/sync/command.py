"""`python -m benchmarks sync`: every work in a process of its own, and the page of their figures."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from benchmarks.measuring.machine import described, figures_of
from benchmarks.server import served
from benchmarks.sync.postgres import served_by_postgresql
from benchmarks.sync.works import ATTACHED, FIRST, FOLDER_OF_MANY, LARGE, MAILBOXES, POLLS, SMALL, WORKS

_ROOT = Path(__file__).resolve().parents[2]
_ROUNDS = 5  # of the first synchronisation, its floor and the iterator, one after the other
_OF_A_ROUND = ("first", "floor", "iterated")


def sync(out: Path = _ROOT / "benchmarks" / "results") -> int:
    """Measure all, and write sync.md and sync.json."""
    with served() as url:
        found = {name: _run(name, url) for name in WORKS}
        rounds = [{name: _run(name, url)["messages a second"] for name in _OF_A_ROUND} for _ in range(_ROUNDS)]
        with served_by_postgresql() as server:
            for each in rounds:
                for name in ("first", "floor"):
                    figures = figures_of("benchmarks.sync.postgres", name, url, server.new_database())
                    each[f"{name}, PostgreSQL"] = figures["messages a second"]
    ratios = {name: sorted(each["first"] / each[name] for each in rounds) for name in ("iterated", "floor")}
    ratios["PostgreSQL"] = sorted(each["first, PostgreSQL"] / each["floor, PostgreSQL"] for each in rounds)
    page = _page(found, ratios)
    (out / "sync.json").write_text(json.dumps({"works": found, "ratios": ratios}, indent=1) + "\n", encoding="utf-8")
    (out / "sync.md").write_text(page, encoding="utf-8")
    print(page)
    return 0


def _run(name: str, url: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        return figures_of("benchmarks.sync.works", name, url, folder)


def _page(found: dict[str, dict[str, float]], ratios: dict[str, list[float]]) -> str:
    idle, first, iterated = found["idle"], found["first"], found["iterated"]
    beside, alone = found["fairness"], found["fairness_without"]
    to_iterator, to_floor, to_copy = (
        f"{each[_ROUNDS // 2]:.2f} [{each[0]:.2f}-{each[-1]:.2f}] x" for each in ratios.values()
    )
    about = "\n".join(f"| {name} | {value} |" for name, value in described().items())
    return f"""# Synchronisation

`python -m benchmarks sync`, against the server of canned answers on the same machine.

## A look at a folder of {FOLDER_OF_MANY:,} messages in which nothing happened

The median of {POLLS}; beside it bare aiohttp, which asks for the same listing and parses it.

| requests | commits, all looks together | CPU, ms | bare, ms | CPU / bare | resident memory more after all looks, KB |
|---|---|---|---|---|---|
| {idle["requests a look"]:.2f} | {idle["commits"]:.0f} | {idle["CPU of a look, ms"]:.2f} \
| {idle["of bare aiohttp, ms"]:.2f} | {idle["ratio"]:.2f} x | {idle["resident memory more after all looks, KB"]:.0f} |

## {FIRST:,} messages with {ATTACHED / 1000:.0f} KB attached, for the first time

Into the store's own SQLite file, message and checkpoint in one transaction. Beside it: the bare iterator, which keeps
nothing; and the floor, the iterator with the same rows put in by plain sqlite3 in batches of the same size. Into
PostgreSQL, whose floor is the iterator with COPY. One after the other, {_ROUNDS} times; the median with the lowest and
the highest.

| messages a second / iterator | / floor | into PostgreSQL / floor | peak memory, MB | iterator's peak memory, MB |
|---|---|---|---|---|
| {to_iterator} | {to_floor} | {to_copy} | {first["peak memory above the start, MB"]:.0f} \
| {iterated["peak memory above the start, MB"]:.0f} |

## {MAILBOXES:,} mailboxes, one of them with {LARGE:,} messages, all others with {SMALL}

How long a small mailbox waits until it is in step, counted from the start of them all.

| | median | last |
|---|---|---|
| beside the large one, over without it | {beside["median, seconds"] / alone["median, seconds"]:.2f} x \
| {beside["last, seconds"] / alone["last, seconds"]:.2f} x |

Measured on:

| | |
|---|---|
{about}
"""
