"""`python -m benchmarks sync`: every work in a process of its own, and the page of their figures."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from benchmarks.measuring.machine import describe_machine, run_for_figures
from benchmarks.server import run_server
from benchmarks.sync.postgres import run_postgresql
from benchmarks.sync.works import (
    ATTACHMENT_BYTES,
    FIRST_SYNC_MESSAGES,
    LARGE_FOLDER_MESSAGES,
    LARGE_MAILBOX_MESSAGES,
    MAILBOXES,
    POLLS,
    SMALL_MAILBOX_MESSAGES,
    WORKS,
)

_ROOT = Path(__file__).resolve().parents[2]
_ROUNDS = 5  # of the first synchronisation, its floor and the iterator, one after the other
_WORKS_PER_ROUND = ("first", "floor", "iterated")


def measure_sync(out: Path = _ROOT / "benchmarks" / "results") -> int:
    """Measure all, and write sync.md and sync.json."""
    with run_server() as url:
        found = {name: _run(name, url) for name in WORKS}
        rounds = [{name: _run(name, url)["messages a second"] for name in _WORKS_PER_ROUND} for _ in range(_ROUNDS)]
        with run_postgresql() as server:
            for each in rounds:
                for name in ("first", "floor"):
                    figures = run_for_figures("benchmarks.sync.postgres", name, url, server.create_database())
                    each[f"{name}, PostgreSQL"] = figures["messages a second"]
    ratios = {name: sorted(each["first"] / each[name] for each in rounds) for name in ("iterated", "floor")}
    ratios["PostgreSQL"] = sorted(each["first, PostgreSQL"] / each["floor, PostgreSQL"] for each in rounds)
    page = _format_page(found, ratios)
    (out / "sync.json").write_text(json.dumps({"works": found, "ratios": ratios}, indent=1) + "\n", encoding="utf-8")
    (out / "sync.md").write_text(page, encoding="utf-8")
    print(page)
    return 0


def _run(name: str, url: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        return run_for_figures("benchmarks.sync.works", name, url, folder)


def _format_page(found: dict[str, dict[str, float]], ratios: dict[str, list[float]]) -> str:
    idle, first, iterated = found["idle"], found["first"], found["iterated"]
    beside, alone = found["fairness"], found["fairness_without"]
    to_iterator, to_floor, to_copy = (
        f"{each[_ROUNDS // 2]:.2f} [{each[0]:.2f}-{each[-1]:.2f}] x" for each in ratios.values()
    )
    about = "\n".join(f"| {name} | {value} |" for name, value in describe_machine().items())
    return f"""# Synchronisation

`python -m benchmarks sync`, against the server of canned answers on the same machine.

## A look at a folder of {LARGE_FOLDER_MESSAGES:,} messages in which nothing happened

The median of {POLLS}; beside it bare aiohttp, which asks for the same listing and parses it.

| requests | commits, all looks together | CPU, ms | bare, ms | CPU / bare | resident memory more after all looks, KB |
|---|---|---|---|---|---|
| {idle["requests a look"]:.2f} | {idle["commits"]:.0f} | {idle["CPU of a look, ms"]:.2f} \
| {idle["of bare aiohttp, ms"]:.2f} | {idle["ratio"]:.2f} x | {idle["resident memory more after all looks, KB"]:.0f} |

## {FIRST_SYNC_MESSAGES:,} messages with {ATTACHMENT_BYTES / 1000:.0f} KB attached, for the first time

Into the store's own SQLite file, message and checkpoint in one transaction. Beside it: the bare iterator, which keeps
nothing; and the floor, the iterator with the same rows put in by plain sqlite3 in batches of the same size. Into
PostgreSQL, whose floor is the iterator with COPY. One after the other, {_ROUNDS} times; the median with the lowest and
the highest.

| messages a second / iterator | / floor | into PostgreSQL / floor | peak memory, MB | iterator's peak memory, MB |
|---|---|---|---|---|
| {to_iterator} | {to_floor} | {to_copy} | {first["peak memory above the start, MB"]:.0f} \
| {iterated["peak memory above the start, MB"]:.0f} |

## {MAILBOXES:,} mailboxes, one of them with {LARGE_MAILBOX_MESSAGES:,} messages, all others with \
{SMALL_MAILBOX_MESSAGES}

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
