"""A whole run: peers made, the server started, each row measured, the results put together."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.measuring.machine import describe_machine
from benchmarks.measuring.rounds import Outcome, RowContext, measure
from benchmarks.peers import prepare
from benchmarks.report.results import Results, RowResults, make_row_results
from benchmarks.scenarios.rows import PEERS, MeasuredRow
from benchmarks.server import run_server

_IN_MEMORY = Path("/dev/shm")  # noqa: S108 - a disk's moods are not what is measured


def run(rows: Sequence[MeasuredRow], *, quick: bool, peers: Path | None) -> Results:
    """Measure these rows. peers: where the generated clients are kept; a smoke run leaves them out where it is None."""
    with tempfile.TemporaryDirectory(dir=_IN_MEMORY if _IN_MEMORY.is_dir() else None) as folder:
        python, missing, versions = _prepare_clients(Path(folder), quick=quick, peers=peers)
        began = time.monotonic()
        with run_server() as server:
            stage = RowContext(python=python, server=server, folder=Path(folder), missing=missing)
            found = [_measure_row(row.make_quick() if quick else row, stage) for row in rows]
        seconds = time.monotonic() - began
    return Results(machine=describe_machine(), versions=versions, seconds=seconds, rows=found, quick=quick)


def _prepare_clients(folder: Path, *, quick: bool, peers: Path | None) -> tuple[Path, dict[str, str], dict[str, str]]:
    """The interpreter of all clients, those that are missing, and the versions."""
    if quick and peers is None:
        return Path(sys.executable), dict.fromkeys(PEERS, "not made for a smoke run"), {}
    _echo_err("making the peers")
    prepared = prepare(peers or folder / "peers")
    missing = {name: why for name, why in prepared.available.items() if why is not None}
    for name, why in missing.items():
        _echo_err(f"without {name}: {why}")
    return prepared.python, missing, dict(prepared.versions)


def _measure_row(row: MeasuredRow, stage: RowContext) -> RowResults:
    began = time.monotonic()
    outcome: Outcome = asyncio.run(measure(row, stage))
    found = make_row_results(outcome)
    _echo_err(f"{row.name} ({time.monotonic() - began:.0f} s)")
    for figure in found.figures:
        bound = f", target {figure.bound:g}: {'met' if figure.met else 'MISSED'}" if figure.bound is not None else ""
        spread = figure.spread
        _echo_err(f"    {figure.name}: {spread.median:.3g} [{spread.low:.3g}-{spread.high:.3g}]{bound}")
    for client, why in found.absent.items():
        _echo_err(f"    {client}: {why}")
    return found


def _echo_err(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
