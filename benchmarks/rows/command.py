"""`python -m benchmarks`: measure rows, and write the results."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.peers.environment import PreparedPeers, prepare
from benchmarks.processes import RESULTS, describe_machine
from benchmarks.rows.page import draw_pictures, format_page, format_spread
from benchmarks.rows.rounds import Outcome, Results, RowContext, measure
from benchmarks.rows.table import PEERS, TABLE, MeasuredRow, choose_rows
from benchmarks.server import run_server

_MEMORY_FOLDER = Path("/dev/shm")  # noqa: S108  the speed of a disk is not measured


def run_command(options: argparse.Namespace) -> int:
    """Measure the rows that the options name. Return 2 if there is no such row."""
    if options.list:
        for row in TABLE:
            print(f"{row.name:<26} {row.title}")
        return 0
    try:
        rows = choose_rows(options.only)
    except ValueError as error:
        _report(str(error))
        return 2
    results = run_rows(rows, quick=options.quick, peers=options.peers)
    out: Path | None = options.out or (None if options.quick or options.only else RESULTS)
    if out is not None:
        write(results, out, RESULTS.parent / "RESULTS.md" if out.resolve() == RESULTS else out / "RESULTS.md")
    print(format_page(results))
    return 0


def write(results: Results, folder: Path, page: Path) -> None:
    """Write the pictures into a folder, and the page with links to the pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    links = [os.path.relpath(path, page.parent) for path in draw_pictures(results, folder)]
    page.write_text(format_page(results, links), encoding="utf-8")


def run_rows(rows: Sequence[MeasuredRow], *, quick: bool, peers: Path | None) -> Results:
    """Measure the rows. A quick run omits the generated clients unless it has a folder for them."""
    memory_folder = _MEMORY_FOLDER if _MEMORY_FOLDER.is_dir() else None
    with tempfile.TemporaryDirectory(dir=memory_folder) as folder, tempfile.TemporaryDirectory() as disk:
        if (quick and peers is None) or not any({*PEERS} & {*row.clients} for row in rows):
            missing: dict[str, str] = dict.fromkeys(PEERS, "not generated for a quick run")
            prepared = PreparedPeers(python=sys.executable, missing=missing, versions={})
        else:
            _report("Generating the clients")
            prepared = prepare(peers or Path(folder, "peers"))
        start = time.monotonic()
        with run_server() as server:
            context = RowContext(prepared, server, Path(folder), Path(disk), quick)
            outcomes = [_measure_row(row.make_quick() if quick else row, context) for row in rows]
        seconds = time.monotonic() - start
    machine = {**describe_machine(), **prepared.versions}
    return Results(machine=machine, seconds=seconds, outcomes=outcomes, quick=quick)


def _measure_row(row: MeasuredRow, context: RowContext) -> Outcome:
    start = time.monotonic()
    outcome = asyncio.run(measure(row, context))
    _report(f"{row.name} ({time.monotonic() - start:.0f} s)")
    for figure, spread in outcome.compute_figures().items():
        _report(f"    {figure.name}: {format_spread(spread)} {figure.describe_verdict(spread.median)}")
    for client, reason in outcome.absent.items():
        _report(f"    {client}: {reason}")
    return outcome


def _report(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
