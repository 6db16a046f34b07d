"""The run in words and figures: a JSON document, a page of Markdown, a drawing."""

from __future__ import annotations

import json
import platform
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import attrs

from benchmarks.soak.census import MEGABYTE, Sample
from benchmarks.soak.chart import draw_chart
from benchmarks.soak.checks import SoakCheck, compute_growth, compute_warm_up

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.soak.tally import Tally

_WORDS = {True: "holds", False: "**fails**", None: "too short to tell"}


@attrs.frozen(kw_only=True)
class SoakResult:
    """A run that is over. sockets: the most that there might have been."""

    command: str
    samples: Sequence[Sample]
    tally: Tally
    checks: Sequence[SoakCheck]
    sockets: int

    @property
    def has_passed(self) -> bool:
        """Whether nothing failed that could be told."""
        return all(check.holds is not False for check in self.checks)


def write(soak: SoakResult, folder: Path) -> None:
    """soak.json, soak.md and soak.svg, in a folder that is made where it is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "soak.json").write_text(f"{json.dumps(make_summary(soak), indent=2, sort_keys=True)}\n", encoding="utf-8")
    (folder / "soak.md").write_text(format_page(soak), encoding="utf-8")
    (folder / "soak.svg").write_text(
        draw_chart(soak.samples, warm_up=compute_warm_up(soak.samples), sockets=soak.sockets), encoding="utf-8"
    )


def make_summary(soak: SoakResult) -> dict[str, Any]:
    """The figures as JSON."""
    line, end = compute_growth(soak.samples), soak.samples[-1]
    tally = attrs.asdict(soak.tally, filter=lambda field, _: field.name != "shown")
    return {
        "held": soak.has_passed,
        "command": soak.command,
        "python": platform.python_version(),
        "aiohttp": version("aiohttp"),
        "seconds": end.seconds,
        "samples": len(soak.samples),
        "warm_up_seconds": round(compute_warm_up(soak.samples), 2),
        "growth_mb_per_minute": round(line.slope, 4),
        "growth_standard_error": round(line.error, 4),
        "rss_mb": [round(soak.samples[0].rss / MEGABYTE, 2), round(end.rss / MEGABYTE, 2)],
        "server_rss_mb_at_most": round(max(sample.server_rss for sample in soak.samples) / MEGABYTE, 2),
        "sockets_allowed": soak.sockets,
        "checks": [attrs.asdict(check) for check in soak.checks],
        "counted": tally,
    }


def format_page(soak: SoakResult) -> str:
    """The figures as Markdown."""
    tally, end = soak.tally, soak.samples[-1]
    minutes, calls = end.seconds / 60, end.calls
    warm = compute_warm_up(soak.samples) / 60
    outcome = "everything held" if soak.has_passed else "**not everything held**"
    endings = ", ".join(f"{name} {count:,}" for name, count in tally.endings.most_common())
    rows = "\n".join(f"| {c.name} | {c.found} | {c.bound} | {_WORDS[c.holds]} |" for c in soak.checks)
    return f"""# Soak

`{soak.command}`: {outcome}.

{minutes:.1f} minutes of mixed load on all four services of the sandbox, which ran in a process of its own.
Python {platform.python_version()}, aiohttp {version("aiohttp")}.

| how much | |
|---|---|
| calls | {calls:,}, of {len(tally.calls)} operations |
| actions | {tally.actions.total():,}: {endings} |
| requests | {tally.attempts:,}, of them {tally.retries:,} retries |
| outcomes left unknown | {tally.left_unknown:,} |
| calls cancelled by their caller, streams left early | {tally.cancelled:,} |
| tokens and sessions renewed | {tally.renewals:,} |
| circuits opened; services paused by Retry-After | {tally.circuits_opened:,}; {tally.pauses:,} |
| suites opened and closed | {tally.suites:,} |
| messages sent | {tally.sent:,} |

| what has to hold | found | bound | |
|---|---|---|---|
{rows}

![memory and sockets over time](soak.svg)

The plot shows the client's resident memory, sampled every 5 seconds under load. It rises by steps, to what the largest
answers that came at once have needed so far; a leak would go on rising. What the program holds is told by the C library
and by Python's own allocator, in the quiet moment at the end of each minute, when no call is under way; the lines are
fitted by least squares to what came after the warm-up of {warm:.1f} minutes. A leak of 1 KB a call would be
{calls / minutes / 1000:.1f} MB a minute, and of 100 bytes a tenth of that. Python's objects may grow by
what a suite is to remember: of up to 4,096 documents, changes whose outcome was left unknown.
None of the core's objects may be left in a quiet moment.
"""
