"""RESULTS.md: the targets with the results, then each row with all of its clients; and the pictures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.pictures import Panel, draw
from benchmarks.processes import Spread
from benchmarks.rows.results import MeasuredFigure, Results, RowResults
from benchmarks.rows.table import BARE, GROWTH, OURS, PAUSES, Quantity

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
_CURVES = (
    ("callers", Quantity.CPU, "CPU of a small call, µs", "callers"),
    ("messages", Quantity.CPU, "CPU of reading a message, µs", "messages"),
    ("messages", Quantity.PEAK, "Peak memory of reading messages, MB", "messages"),
    ("upload", Quantity.PEAK, "Peak memory of an upload, MB", "MB"),
    ("download", Quantity.PEAK, "Peak memory of a download, MB", "MB"),
)
_EXPLANATION = """\
In each round every client does one turn, in a rotating order. A figure is the median of the rounds' ratios (or of the
quantity), with the quartiles in brackets. Clients run on one core, in separate processes, and the server of prepared
responses on another core. `bare` is aiohttp with the same JSON and base64 codecs, as written by hand: without retries
and types, with complete payloads in memory. `floor` is the least code that does the work: it reads a file in blocks and
sends their base64, finds and decodes each attachment of a response, or writes as many bytes as a download has, without
decoding; `untyped` is msgspec's parser into dictionaries. The peers are generated from the OpenAPI document of the
sandbox with plain `date-time` strings (in their favour), and run in the same interpreter with the same aiohttp. Peak
memory is resident memory above the memory before the turn; each turn whose memory is a figure runs in a new process,
which was warmed up with the same work in a small size. A payload is the JSON text of the response, which is in memory
before the turn. A pause is the delay of a task that is due every 2 ms; it is about 0.3 ms in an idle event loop."""
_EMBEDDING = """\
What does a program notice in whose event loop this work is done? The pauses of another task, which is due every 2 ms:
half of them are at most p50, 99 % at most p99. While the event loop is blocked, each 2 ms count as one pause. Medians
of the rounds, with quartiles. The client, with all of its threads, has one core, and the server the other."""


def format_page(results: Results, pictures: Iterable[str] = ()) -> str:
    """Return the page. pictures: the links of the pictures."""
    paused, rest = _find_rows(results, "embedding-"), _find_rows(results, "growth-", "giant-")
    measured = [row for row in results.rows if row not in paused + rest]
    paused += [row for row in measured if any(Quantity.PAUSE in of for of in row.clients.values())]
    targets = [(row, figure) for row in measured for figure in row.figures if figure.bound is not None]
    met = sum(bool(figure.met) for _, figure in targets)
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
        *(_format_target(row, figure) for row, figure in targets),
        "",
        _EXPLANATION,
        "",
        *(line for link in pictures for line in (f"![{Path(link).stem}]({link})", "")),
        *(["## Embedding", "", _EMBEDDING, "", *_format_table(paused, PAUSES, (OURS, BARE))] if paused else []),
        "## Rows",
        "",
        *(line for row in measured for line in _format_row(row)),
        *(["## Growth and large transfers", "", *_format_table(rest)] if rest else []),
        "## Machine",
        "",
        "| | |",
        "|---|---|",
        *(f"| {name} | {value} |" for name, value in {**results.machine, **results.versions}.items()),
        "",
    ]
    return "\n".join(lines)


def _format_target(row: RowResults, figure: MeasuredFigure) -> str:
    verdict = "met" if figure.met else f"**missed by {100 * figure.shortfall:.0f} %**"
    bound = f"{'≥' if figure.at_least else '≤'} {figure.bound:g} {figure.unit}"
    return _format_cells([row.title, figure.name, bound, format_spread(figure.spread), verdict])


def _format_row(row: RowResults) -> list[str]:
    lines = [f"### {row.title}", "", f"`--only {row.name}`: {row.rounds} rounds; for one {row.unit}.", ""]
    lines += _format_table([row])
    figures = [f"{figure.name}: {format_spread(figure.spread)} {figure.unit}" for figure in row.figures]
    if figures:
        lines += ["Ours, " + "; ".join(figures) + ".", ""]
    return lines


def _find_rows(results: Results, *prefixes: str) -> list[RowResults]:
    return [row for row in results.rows if row.name.startswith(prefixes)]


def _format_table(
    rows: list[RowResults], columns: Sequence[Quantity] = _QUANTITIES, clients: Sequence[str] = ()
) -> list[str]:
    """Return a table of quantities of each client, or of some clients.

    Several rows have an additional column with their titles.
    """
    shown = [quantity for quantity in columns if any(quantity in of for row in rows for of in row.clients.values())]
    first = ["row"] if len(rows) > 1 else []
    lines = [_format_cells([*first, "client", *(_COLUMNS[quantity] for quantity in shown)])]
    lines.append("|---" * (len(first) + 1 + len(shown)) + "|")
    for row in rows:
        title = [row.title] if first else []
        for client, of in row.clients.items():
            if clients and client not in clients:
                continue
            cells = [format_spread(of[each], _SCALES.get(each, 1.0)) if each in of else "" for each in shown]
            lines.append(_format_cells([*title, client, *cells]))
        for client, reason in () if clients else row.absent.items():
            lines.append(_format_cells([*title, client, reason.replace("|", "/"), *[""] * (len(shown) - 1)]))
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
    growth, headline, embedding = list[Panel](), list[Panel](), list[Panel]()
    for name, quantity, title, x in _CURVES:
        curves = dict[str, list[tuple[float, float]]]()
        for point in (each for each in GROWTH if each.curve == name):
            for client, value in _get_medians(results.find_row(point.name), quantity).items():
                curves.setdefault(client, []).append((point.size, value))
        if any(len(curve) > 1 for curve in curves.values()):
            growth.append(Panel(title, curves, x=x, log_x=True))
    for name, quantity, title in _HEADLINES:
        if bars := _get_medians(results.find_row(name), quantity):
            headline.append(Panel(title, bars=bars))
    for quantity in PAUSES[1:]:
        medians = {row.name.removeprefix("embedding-"): _get_medians(row, quantity) for row in results.rows}
        bars = {
            f"{name}, {client}": of[client] for name, of in medians.items() for client in (OURS, BARE) if client in of
        }
        if bars:
            embedding.append(
                Panel(f"{_COLUMNS[quantity]}, logarithmic, while this work is done", bars=bars, log_x=True)
            )
    drawn = list[Path]()
    for name, panels, columns in (("headline", headline, 1), ("embedding", embedding, 1), ("growth-rows", growth, 2)):
        if panels:
            drawn.append(folder / f"{name}.svg")
            draw(drawn[-1], panels, columns=columns)
    return drawn


def _get_medians(row: RowResults | None, quantity: Quantity) -> dict[str, float]:
    scale = _SCALES.get(quantity, 1.0)
    return {client: of[quantity].median * scale for client, of in row.clients.items() if quantity in of} if row else {}
