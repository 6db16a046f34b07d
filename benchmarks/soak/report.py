"""`python -m benchmarks soak`: run the load, check the samples, and write soak.md and soak.svg."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import itertools
import math
import os
import platform
import statistics
import sys
from collections.abc import Sequence
from importlib.metadata import version

import attrs

from benchmarks.pictures import Panel, draw
from benchmarks.processes import RESULTS, format_table, run_in_process, write_page
from benchmarks.soak.load import MAX_KEPT_ALIVE_SOCKETS, MAX_SOCKETS, SoakRun, run

_MEGABYTE = 1_000_000
_WARM_UP_SECONDS = 300.0  # not checked for growth: caches and memory pools fill; a third of a shorter run
_MIN_CHECKED_SECONDS = 600.0  # a shorter run cannot show growth
_MAX_RSS = 1.1
_MAX_BLOCKS = 500  # per minute: one for every dozen calls
_MIN_PACE = 0.7
_MIN_DONE = 0.7
_PROBLEMS = "errors of other types, messages of the event loop, and warnings"
_VERDICTS = {True: "passed", False: "**failed**", None: "the run was too short"}


@attrs.frozen
class SoakCheck:
    """A check and its result. passed: None if the run was too short."""

    name: str
    found: str
    bound: str
    passed: bool | None


def run_soak(options: argparse.Namespace) -> int:
    """Run the soak and write its report. Return 0 if no check failed, else 1."""
    os.nice(10)
    # A separate process makes the form, so that the PDF library does not change the memory that is measured.
    form = run_in_process(_make_form)
    finished = asyncio.run(run(form, minutes=options.minutes, seed=options.seed))
    checks = run_checks(finished)
    write_page("soak.md", format_page(finished, checks), options.out)
    loaded = [sample for sample in finished.samples if not sample.quiet]
    memory = [(sample.seconds / 60, sample.rss / _MEGABYTE) for sample in loaded]
    sockets = [(sample.seconds / 60, float(sample.sockets)) for sample in loaded]
    panels = [
        Panel("Resident memory of the client, MB", {"": memory}, x="minutes"),
        Panel(f"Open sockets, of at most {MAX_SOCKETS}", {"": sockets}, x="minutes"),
    ]
    draw((options.out or RESULTS) / "soak.svg", panels, columns=1)
    sys.stderr.writelines(f"{problem}\n" for problem in finished.problems)
    return int(any(check.passed is False for check in checks))


def _make_form() -> bytes:
    form: bytes = importlib.import_module("tests.consent_form").build_consent_form(1)
    return form


def run_checks(soak: SoakRun) -> list[SoakCheck]:
    """Return all checks with their results. Growth is the difference of both halves of the time after the warm-up."""
    samples, end = soak.samples, soak.samples[-1].seconds
    start = min(_WARM_UP_SECONDS, end / 3)
    halves = [
        [sample for sample in samples if low <= sample.seconds <= high] or samples  # few on a busy machine
        for low, high in itertools.pairwise((start, (start + end) / 2, end))
    ]
    rss, blocks, pace = (max(s.rss for s in half) for half in halves), list[float](), list[float]()
    for half in halves:
        blocks.append(statistics.mean([s.blocks for s in half if s.quiet] or [math.nan]))
        pace.append((half[-1].calls - half[0].calls) / max(half[-1].seconds - half[0].seconds, 1e-9))
    early_rss, late_rss = rss
    rss_ratio, pace_ratio = late_rss / early_rss, pace[1] / pace[0] if pace[0] else math.nan
    growth = (blocks[1] - blocks[0]) / ((end - start) / 2 / 60)
    quiet = [sample for sample in samples if sample.quiet]
    sockets, kept = max(sample.sockets for sample in samples), max(sample.sockets for sample in quiet)
    tasks, live = {sample.tasks for sample in quiet}, max(sample.live for sample in quiet)
    done = soak.results["done"] / max(1, soak.results.total())
    is_long = end - start >= _MIN_CHECKED_SECONDS
    checks: tuple[tuple[str, str, str, bool | None], ...] = (
        ("highest memory, second half / first half", f"{rss_ratio:.3f}", f"< {_MAX_RSS}", rss_ratio < _MAX_RSS),
        ("growth of Python's memory blocks per minute", f"{growth:+.0f}", f"< {_MAX_BLOCKS}", growth < _MAX_BLOCKS),
        ("calls per second, second half / first half", f"{pace_ratio:.2f}", f"> {_MIN_PACE}", pace_ratio > _MIN_PACE),
        ("share of successful actions", f"{done:.2f}", f"> {_MIN_DONE}", done > _MIN_DONE),
        ("sockets, maximum", str(sockets), f"≤ {MAX_SOCKETS}", sockets <= MAX_SOCKETS),
        ("sockets without calls", str(kept), f"≤ {MAX_KEPT_ALIVE_SOCKETS}", kept <= MAX_KEPT_ALIVE_SOCKETS),
        ("tasks without calls", " or ".join(map(str, sorted(tasks))), "constant", len(tasks) == 1),
        ("live calls, responses and request bodies without calls", str(live), "0", live == 0),
        *((f"{name} left after closing", str(count), "0", count == 0) for name, count in soak.left.items()),
        (_PROBLEMS, str(len(soak.problems)), "0", not soak.problems),
    )
    return [SoakCheck(*check[:3], check[3] if is_long or number > 3 else None) for number, check in enumerate(checks)]


def format_page(soak: SoakRun, checks: Sequence[SoakCheck]) -> str:
    """Return the report in Markdown."""
    end = soak.samples[-1]
    failed = sum(check.passed is False for check in checks)
    results = ", ".join(f"{name} {count:,}" for name, count in soak.results.most_common())
    rows = [(check.name, check.found, check.bound, _VERDICTS[check.passed]) for check in checks]
    count = soak.events
    return f"""# Soak

`python -m benchmarks soak`: {f"**{failed} checks failed**" if failed else "all checks passed"}.

{end.seconds / 60:.1f} minutes of mixed load on the four services of the sandbox, which ran in a separate process.
Python {platform.python_version()}, aiohttp {version("aiohttp")}.

| | |
|---|---|
| calls | {end.calls:,} |
| actions | {soak.results.total():,}: {results} |
| requests | {count["AttemptStarted"]:,}, of these {count["RetryScheduled"]:,} retries |
| calls with unknown outcome | {count["OutcomeLeftUnknown"]:,} |
| calls cancelled, and streams closed early | {count["cancelled"]:,} |
| circuits opened; services paused by Retry-After | {count["CircuitOpened"]:,}; {count["ServicePaused"]:,} |
| suites opened and closed | {soak.suites:,} |

{format_table(("check", "found", "bound", ""), rows)}

![memory and sockets over time](soak.svg)

The picture shows samples under load, every two seconds. After each minute all actions end, and a sample is taken while
no call is in progress. Resident memory grows in steps, up to the needs of the largest simultaneous responses. Python's
memory blocks may grow because a suite remembers the unknown outcomes of up to 4,096 documents.
"""
