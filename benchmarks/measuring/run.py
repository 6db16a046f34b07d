"""A whole run: peers made, the server started, each row measured, the results put together."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.measuring.machine import described
from benchmarks.measuring.rounds import Outcome, Stage, measure
from benchmarks.peers import prepare
from benchmarks.report.results import Results, RowResults, row_results
from benchmarks.scenarios.rows import PEERS, Row
from benchmarks.server import served

_IN_MEMORY = Path("/dev/shm")  # noqa: S108 - a disk's moods are not what is measured


def run(rows: Sequence[Row], *, quick: bool, peers: Path | None) -> Results:
    """Measure these rows. peers: where the generated clients are kept; a smoke run leaves them out where it is None."""
    with tempfile.TemporaryDirectory(dir=_IN_MEMORY if _IN_MEMORY.is_dir() else None) as folder:
        python, missing, versions = _clients(Path(folder), quick=quick, peers=peers)
        began = time.monotonic()
        with served() as server:
            stage = Stage(python=python, server=server, folder=Path(folder), missing=missing)
            found = [_measured(row.smaller() if quick else row, stage) for row in rows]
        seconds = time.monotonic() - began
    return Results(machine=described(), versions=versions, seconds=seconds, rows=found, quick=quick)


def _clients(folder: Path, *, quick: bool, peers: Path | None) -> tuple[Path, dict[str, str], dict[str, str]]:
    """The interpreter of all clients, those that are missing, and the versions."""
    if quick and peers is None:
        return Path(sys.executable), dict.fromkeys(PEERS, "not made for a smoke run"), {}
    _say("making the peers")
    prepared = prepare(peers or folder / "peers")
    missing = {name: why for name, why in prepared.available.items() if why is not None}
    for name, why in missing.items():
        _say(f"without {name}: {why}")
    return prepared.python, missing, dict(prepared.versions)


def _measured(row: Row, stage: Stage) -> RowResults:
    began = time.monotonic()
    outcome: Outcome = asyncio.run(measure(row, stage))
    found = row_results(outcome)
    _say(f"{row.name} ({time.monotonic() - began:.0f} s)")
    for figure in found.figures:
        bound = f", target {figure.bound:g}: {'met' if figure.met else 'MISSED'}" if figure.bound is not None else ""
        spread = figure.spread
        _say(f"    {figure.name}: {spread.median:.3g} [{spread.low:.3g}-{spread.high:.3g}]{bound}")
    for client, why in found.absent.items():
        _say(f"    {client}: {why}")
    return found


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
