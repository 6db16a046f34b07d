"""RESULTS.md: the targets with the results, then each row with all of its clients; and the pictures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.pictures import Panel, draw
from benchmarks.processes import Spread
from benchmarks.rows.results import Outcome, Results
from benchmarks.rows.table import BARE, OURS, PAUSES, Figure, MeasuredRow, Quantity

_FORMATS = ((0.1, ".2g"), (10, ".2f"), (100, ".1f"), (math.inf, ",.0f"))
_COLUMNS = {
    Quantity.CPU: "CPU, µs",
    Quantity.WALL: "wall, µs",
    Quantity.RATE: "per second",
    Quantity.PEAK: "peak, MB",
    Quantity.P50: "p50, ms",
    Quantity.P99: "p99, ms",
    Quantity.PAUSE: "longest pause, ms",
}
_QUANTITIES = [quantity for quantity in Quantity if quantity not in (Quantity.P50, Quantity.P99)]
_SCALES = {Quantity.CPU: 1e6, Quantity.WALL: 1e6}
_HEADLINES = (
    ("small-sequential", Quantity.CPU, "CPU of a small call, µs"),
    ("upload", Quantity.PEAK, "Peak memory of an upload of 100 MB, MB"),
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


def format_page(results: Results, pictures: Iterable[str] = ()) -> str:
    """Return the page. pictures: the links of the pictures."""
    embedded, rest = results.find("embedding-"), results.find("giant-")
    measured = [each for each in results.outcomes if each not in embedded + rest]
    paused = [*embedded, *(each for each in measured if each.row.pauses)]
    targets = [
        (each.row, figure, spread)
        for each in (*measured, *embedded)
        for figure, spread in each.compute_figures().items()
        if figure.bound is not None
    ]
    met = sum(figure.is_met(spread.median) for _, figure, spread in targets)
    smoke = "\n**A quick run with small sizes: its figures have no meaning.**\n" if results.quick else ""
    lines = [
        "# Results",
        "",
        f"`python -m benchmarks`, {results.seconds / 60:.1f} minutes: {met} of {len(targets)} targets met.",
        smoke,
        "## Targets",
        "",
        "| work | figure | target | result [quartiles] | |",
        "|---|---|---|---|---|",
        *(_format_target(*target) for target in targets),
        "",
        _EXPLANATION,
        "",
        *(line for link in pictures for line in (f"![{Path(link).stem}]({link})", "")),
        *(["## Embedding", "", _EMBEDDING, "", *_format_table(paused, PAUSES, (OURS, BARE))] if paused else []),
        "## Rows",
        "",
        *(line for each in measured for line in _format_row(each)),
        *(["## Transfers of 1 GB", "", *_format_table(rest, _QUANTITIES)] if rest else []),
        "## Machine",
        "",
        "| | |",
        "|---|---|",
        *(f"| {name} | {value} |" for name, value in results.machine.items()),
        "",
    ]
    return "\n".join(lines)


def _format_target(row: MeasuredRow, figure: Figure, spread: Spread) -> str:
    bound = f"{'≥' if figure.at_least else '≤'} {figure.bound:g} {figure.unit}"
    cells = row.title, figure.name, bound, format_spread(spread), figure.describe_verdict(spread.median)
    return _format_cells(cells)


def _format_row(outcome: Outcome) -> list[str]:
    row, rounds = outcome.row, max(map(len, outcome.readings.values()), default=0)
    lines = [f"### {row.title}", "", f"`--only {row.name}`: {rounds} rounds; for one {row.unit}.", ""]
    lines += _format_table([outcome], _QUANTITIES)
    figures = [
        f"{figure.name}: {format_spread(spread)} {figure.unit}" for figure, spread in outcome.compute_figures().items()
    ]
    return [*lines, "Ours, " + "; ".join(figures) + ".", ""] if figures else lines


def _format_table(
    outcomes: Sequence[Outcome], quantities: Sequence[Quantity], clients: Sequence[str] | None = None
) -> list[str]:
    """Return a table of quantities of the clients, or of all. Several rows have an additional column with titles."""
    quantities = [quantity for quantity in quantities if any(quantity in each.quantities for each in outcomes)]
    first = ["row"] if len(outcomes) > 1 else []
    lines = [_format_cells([*first, "client", *(_COLUMNS[quantity] for quantity in quantities)])]
    lines.append("|---" * (len(first) + 1 + len(quantities)) + "|")
    for each in outcomes:
        title = [each.row.title] if first else []
        for client in each.readings if clients is None else [client for client in clients if client in each.readings]:
            spreads = (each.compute_spreads(quantity)[client] for quantity in quantities)
            cells = [format_spread(s, _SCALES.get(q, 1.0)) for q, s in zip(quantities, spreads, strict=True)]
            lines.append(_format_cells([*title, client, *cells]))
        for client, reason in each.absent.items() if clients is None else ():
            lines.append(_format_cells([*title, client, reason.replace("|", "/"), *[""] * (len(quantities) - 1)]))
    return [*lines, ""]


def _format_cells(texts: Iterable[str]) -> str:
    return f"| {' | '.join(texts)} |"


def format_spread(spread: Spread, scale: float = 1.0) -> str:
    """Return a median with its quartiles."""
    median, low, high = (_format_number(value * scale) for value in (spread.median, spread.low, spread.high))
    return f"{median} [{low}-{high}]"


def _format_number(value: float) -> str:
    return format(value, next(form for bound, form in _FORMATS if value < bound))


def draw_pictures(results: Results, folder: Path) -> list[Path]:
    """Draw the pictures for which the run has rows, and return their paths."""
    headline, embedding = list[Panel](), list[Panel]()
    for name, quantity, title in _HEADLINES:
        found = [outcome for outcome in results.outcomes if outcome.row.name == name]
        headline += [Panel(title, bars=_get_medians(outcome, quantity)) for outcome in found]
    for quantity in PAUSES[1:]:
        bars = {
            f"{outcome.row.name.removeprefix('embedding-')}, {client}": value
            for outcome in results.outcomes
            if outcome.row.pauses and not outcome.row.name.startswith("giant-")
            for client, value in _get_medians(outcome, quantity).items()
            if client in (OURS, BARE)
        }
        if bars:
            embedding.append(Panel(f"{_COLUMNS[quantity]}, logarithmic, during a work", bars=bars, log_x=True))
    drawn = list[Path]()
    for name, panels in (("headline", headline), ("embedding", embedding)):
        if panels:
            drawn.append(folder / f"{name}.svg")
            draw(drawn[-1], panels, columns=1)
    return drawn


def _get_medians(outcome: Outcome, quantity: Quantity) -> dict[str, float]:
    scale = _SCALES.get(quantity, 1.0)
    return {client: spread.median * scale for client, spread in outcome.compute_spreads(quantity).items()}
