"""`python -m benchmarks soak`: the run from its options to its exit status."""

from __future__ import annotations

import argparse
import asyncio
import os
import shlex
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.soak.census import read_samples
from benchmarks.soak.checks import run_checks
from benchmarks.soak.report import SoakResult, format_page, write
from benchmarks.soak.soak_run import MAX_KEPT_ALIVE_SOCKETS, MAX_SOCKETS, SoakPlan, run

if TYPE_CHECKING:
    from collections.abc import Sequence

_NICENESS = 10


def run_soak(arguments: Sequence[str]) -> int:
    """Run it and report; 0 where everything held, 1 where not."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks soak", description="Mixed load on a sandbox of its own: do memory and sockets hold?"
    )
    parser.add_argument("--minutes", type=float, default=30.0, help="how long (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of all that is drawn by lot (default: %(default)s)")
    parser.add_argument("--pause", type=float, default=0.25, help="seconds between a task's actions (%(default)s)")
    parser.add_argument("--csv", type=Path, help="where the samples go; a temporary file where nothing is given")
    parser.add_argument(
        "--output", type=Path, default=Path("benchmarks/results"), help="for soak.json, .md and .svg (%(default)s)"
    )
    chosen = parser.parse_args(arguments)
    if not Path("/proc/self/fd").is_dir():
        parser.error("memory and sockets are read from /proc, which this system does not have")
    if not (chosen.minutes > 0 and chosen.pause >= 0):
        parser.error("minutes have to be more than 0, and the pause not less")
    os.nice(_NICENESS)
    command = shlex.join(["python", "-m", "benchmarks", "soak", *arguments])
    with tempfile.TemporaryDirectory() as folder:
        samples = chosen.csv or Path(folder) / "soak.csv"
        plan = SoakPlan(minutes=chosen.minutes, seed=chosen.seed, pause=chosen.pause, samples=samples)
        tally, ending = asyncio.run(run(plan))
        rows = read_samples(samples)
    done = SoakResult(
        command=command,
        samples=rows,
        tally=tally,
        checks=run_checks(rows, tally, ending, sockets=MAX_SOCKETS, kept=MAX_KEPT_ALIVE_SOCKETS),
        sockets=MAX_SOCKETS,
    )
    write(done, chosen.output)
    print(format_page(done))
    for text in tally.shown:
        sys.stderr.write(f"{text}\n")
    return 0 if done.has_passed else 1
