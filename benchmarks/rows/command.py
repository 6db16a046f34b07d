"""`python -m benchmarks`: measure rows, and write RESULTS.md and its pictures."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import attrs

from benchmarks.peers.environment import PreparedPeers, prepare
from benchmarks.pictures import Panel, draw
from benchmarks.processes import RESULTS, Spread, describe_machine, format_table
from benchmarks.rows import table
from benchmarks.rows.rounds import Outcome, Results, RowContext, measure
from benchmarks.server import run_server

_MEMORY_FOLDER = Path("/dev/shm")  # noqa: S108  the speed of a disk is not measured
_COLUMNS = table.CPU, table.WALL, table.RATE, table.PEAK, table.PAUSE
_PAUSE_COLUMNS = table.P50, table.P99, table.PAUSE
_HEADLINES = (
    ("small-sequential", table.CPU, "CPU of a small call, µs"),
    ("upload", table.PEAK, "Peak memory of an upload of 100 MB, MB"),
)
_EXPLANATION = """\
In each round every client does one turn, in a rotating order. A figure is the median of the rounds' ratios (or of the
quantity), with the quartiles in brackets. Clients run on one core, in separate processes, and the server of prepared
responses on another core. `bare` is aiohttp with the same JSON and base64 codecs, as written by hand: without retries
and types, with complete payloads in memory. `floor` is the least code that does the work: it reads a file in blocks and
sends their base64, finds and decodes each attachment of a response, or writes as many bytes as a download has, without
decoding; in a signing job it is the simplest code that can resume after a crash. Files to send are on a disk, in the
system's cache; downloads are written to memory. The peers are generated from the OpenAPI document of the sandbox with
plain `date-time` strings (in their favour), and run in the same interpreter with the same aiohttp. Peak memory is
resident memory above the memory before the turn; each turn whose memory is a figure runs in a new process, which was
warmed up with the same work in a small size. A payload is the JSON text of the response. A pause is the delay of a task
that is due every 2 ms; it is about 0.3 ms in an idle event loop."""
_EMBEDDING = """\
What does a program notice in whose event loop this work is done? The pauses of another task, which is due every 2 ms:
half of them are at most p50, 99 % at most p99. While the event loop is blocked, each 2 ms count as one pause. Medians
of the rounds, with quartiles. The client, with all of its threads, has one core, and the server the other."""


def run_command(options: argparse.Namespace) -> int:
    """Measure the rows that the options name. Return 2 if there is no such row."""
    try:
        rows = table.choose_rows(options.only)
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
    """Write the readings and the pictures into a folder, and the page with links to the pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    readings = {each.row.name: each.readings for each in results.outcomes}
    text = json.dumps({"machine": results.machine, "rows": readings}, indent=1, default=attrs.asdict)
    (folder / "results.json").write_text(f"{text}\n", encoding="utf-8")
    links = [os.path.relpath(path, page.parent) for path in draw_pictures(results, folder)]
    page.write_text(format_page(results, links), encoding="utf-8")


def run_rows(rows: Sequence[table.MeasuredRow], *, quick: bool, peers: Path | None) -> Results:
    """Measure the rows. A quick run omits the generated clients unless it has a folder for them."""
    memory_folder = _MEMORY_FOLDER if _MEMORY_FOLDER.is_dir() else None
    with tempfile.TemporaryDirectory(dir=memory_folder) as folder, tempfile.TemporaryDirectory() as disk:
        if (quick and peers is None) or not any({*table.PEERS} & {*row.clients} for row in rows):
            missing: dict[str, str] = dict.fromkeys(table.PEERS, "not generated for a quick run")
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


def _measure_row(row: table.MeasuredRow, context: RowContext) -> Outcome:
    start = time.monotonic()
    outcome = asyncio.run(measure(row, context))
    _report(f"{row.name} ({time.monotonic() - start:.0f} s)")
    for figure, spread in outcome.compute_figures().items():
        _report(f"    {figure.name}: {spread} {figure.describe_verdict(spread.median)}")
    for client, reason in outcome.absent.items():
        _report(f"    {client}: {reason}")
    return outcome


def _report(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def format_page(results: Results, pictures: Iterable[str] = ()) -> str:
    """Return the page. pictures: the links of the pictures."""
    targets = [
        (each.row, figure, spread)
        for each in results.outcomes
        for figure, spread in each.compute_figures().items()
        if figure.bound is not None
    ]
    met = sum(figure.is_met(spread.median) for _, figure, spread in targets)
    smoke = "\n**A quick run with small sizes: its figures have no meaning.**\n" if results.quick else ""
    embedding = [
        [each.row.title, client, *(each.compute_spread(client, quantity) for quantity in _PAUSE_COLUMNS)]
        for each in sorted(results.outcomes, key=lambda each: not each.row.is_embedded)
        for client in (table.OURS, table.BARE)
        if each.row.pauses and client in each.readings
    ]
    columns = ["row", "client", *(quantity.column for quantity in _PAUSE_COLUMNS)]
    lines = [
        "# Results",
        "",
        f"`python -m benchmarks`, {results.seconds / 60:.1f} minutes: {met} of {len(targets)} targets met.",
        smoke,
        "## Targets",
        "",
        format_table(["work", "figure", "target", "result [quartiles]", ""], (_list_cells(*each) for each in targets)),
        "",
        _EXPLANATION,
        "",
        *(f"![{Path(link).stem}]({link})\n" for link in pictures),
        *(["## Embedding", "", _EMBEDDING, "", format_table(columns, embedding), ""] if embedding else []),
        "## Rows",
        "",
        *(line for each in results.outcomes if not each.row.is_embedded for line in _format_row(each)),
        "## Machine",
        "",
        format_table(["", ""], results.machine.items()),
        "",
    ]
    return "\n".join(lines)


def _list_cells(row: table.MeasuredRow, figure: table.Figure, spread: Spread) -> tuple[object, ...]:
    bound = f"{'≥' if figure.at_least else '≤'} {figure.bound:g} {figure.unit}"
    return row.title, figure.name, bound, spread, figure.describe_verdict(spread.median)


def _format_row(outcome: Outcome) -> list[str]:
    row, rounds = outcome.row, max(map(len, outcome.readings.values()), default=0)
    columns = [quantity for quantity in _COLUMNS if row.pauses or quantity is not table.PAUSE]
    cells: list[Sequence[object]] = [
        *([client, *(outcome.compute_spread(client, quantity) for quantity in columns)] for client in outcome.readings),
        *([client, why.replace("|", "/"), *[""] * (len(columns) - 1)] for client, why in outcome.absent.items()),
    ]
    lines = [f"### {row.title}", "", f"`--only {row.name}`: {rounds} rounds; for one {row.unit}.", ""]
    lines += [format_table(["client", *(quantity.column for quantity in columns)], cells), ""]
    figures = [f"{figure.name}: {spread} {figure.unit}" for figure, spread in outcome.compute_figures().items()]
    return [*lines, "Ours, " + "; ".join(figures) + ".", ""] if figures else lines


def draw_pictures(results: Results, folder: Path) -> list[Path]:
    """Draw the pictures for which the run has rows, and return their paths."""
    headline, embedding = list[Panel](), list[Panel]()
    for name, quantity, title in _HEADLINES:
        for outcome in results.outcomes:
            if outcome.row.name == name:
                bars = {client: outcome.compute_spread(client, quantity).median for client in outcome.readings}
                headline.append(Panel(title, bars=bars))
    for quantity in _PAUSE_COLUMNS[1:]:
        bars = {
            f"{outcome.row.name.removeprefix('embedding-')}, {client}": outcome.compute_spread(client, quantity).median
            for outcome in results.outcomes
            if outcome.row.pauses
            for client in (table.OURS, table.BARE)
            if client in outcome.readings
        }
        if bars:
            embedding.append(Panel(f"{quantity.column}, logarithmic, during a work", bars=bars, log_x=True))
    drawn = list[Path]()
    for name, panels in (("headline", headline), ("embedding", embedding)):
        if panels:
            drawn.append(folder / f"{name}.svg")
            draw(drawn[-1], panels, columns=1)
    return drawn
