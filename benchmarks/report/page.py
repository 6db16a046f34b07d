"""RESULTS.md: the targets with what came out, then every row with all of its clients."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from benchmarks.measuring.spread import Spread
from benchmarks.report.results import MeasuredFigure, Results, RowResults
from benchmarks.scenarios.rows import Quantity

_SCALES = {Quantity.CPU: 1e6, Quantity.WALL: 1e6}  # microseconds are what a unit of work takes
_FORMS = ((0.1, ".2g"), (10, ".2f"), (100, ".1f"), (math.inf, ",.0f"))
_COLUMN_HEADS = {
    Quantity.CPU: "CPU, µs",
    Quantity.WALL: "wall, µs",
    Quantity.RATE: "a second",
    Quantity.PEAK: "peak, MB",
    Quantity.PAUSE: "pause, ms",
}


def format_page(results: Results, plots: Mapping[str, str]) -> str:
    """The page. plots: titles of drawings, with the links to them."""
    measured = [row for row in results.rows if not row.name.startswith(("growth-", "giant-"))]
    rest = [row for row in results.rows if row not in measured]
    aimed = [(row, figure) for row in measured for figure in row.figures if figure.bound is not None]
    met = sum(bool(figure.met) for _, figure in aimed)
    smoke = "\n**A smoke run, with small sizes: its figures mean nothing.**\n" if results.quick else ""
    lines = [
        "# Results",
        "",
        f"`python -m benchmarks`, {results.seconds / 60:.1f} minutes: {met} of {len(aimed)} targets met.",
        smoke,
        "## Targets",
        "",
        "| work | figure | target | found [quartiles] | |",
        "|---|---|---|---|---|",
        *(_format_target(row, figure) for row, figure in aimed),
        "",
        _READING_GUIDE,
        "",
        *(line for title, link in plots.items() for line in (f"![{title}]({link})", "")),
        "## Every row",
        "",
        *(line for row in measured for line in _format_row(row)),
        *(["## Growth and giants", "", *_format_table(rest)] if rest else []),
        "## Measured on",
        "",
        "| | |",
        "|---|---|",
        *(f"| {name} | {told} |" for name, told in {**results.machine, **results.versions}.items()),
        "",
    ]
    return "\n".join(lines)


_READING_GUIDE = """\
Every round has each client do one turn, in an order that rotates; a figure is the median of the rounds' ratios (or of
the quantity itself), with the quartiles in brackets. Clients run on one core, in processes of their own, and the
server of canned answers on another. `bare` is aiohttp with the same JSON and base64 codec, as one writes it by hand:
no retries, no types, whole payloads. `floor` is bare aiohttp that moves as many bytes, writes a download to its file,
and neither codes nor keeps them otherwise; `untyped` is msgspec's parse into dictionaries. The generated peers are made
of the same OpenAPI document as the sandbox's, in which dates are plain `date-time` strings (in their favour), and run
in the same interpreter with the same aiohttp. Peak memory is resident memory above what there was before the turn;
turns that are measured for it have a new process each, warmed up with the work at a small size. A payload is the
answer's JSON, which is in memory before. The longest pause is how much later than asked a task that sleeps 2 ms is
woken; that of an idle loop stands beside it."""


def _format_target(row: RowResults, figure: MeasuredFigure) -> str:
    verdict = "met" if figure.met else f"**missed by {100 * figure.shortfall:.0f} %**"
    sign = "≥" if figure.at_least else "≤"
    assert figure.bound is not None
    bound = f"{sign} {figure.bound:g} {figure.unit}"
    return _format_cells([row.title, figure.name, bound, _format_spread(figure.spread), verdict])


def _format_row(row: RowResults) -> list[str]:
    lines = [f"### {row.title}", "", f"`--only {row.name}`: {row.rounds} rounds; for one {row.unit}.", ""]
    lines += _format_table([row])
    told = [f"{figure.name}: {_format_spread(figure.spread)} {figure.unit}" for figure in row.figures]
    if told:
        lines += ["Ours, " + "; ".join(told) + ".", ""]
    if row.idle_pause is not None:
        lines += [f"Longest pause of an idle event loop here: {_format_number(row.idle_pause)} ms.", ""]
    return lines


def _format_table(rows: Iterable[RowResults]) -> list[str]:
    """What each client's quantities were. The names of rows stand there where there is more than one."""
    rows = list(rows)
    shown = [quantity for quantity in Quantity if any(quantity in of for row in rows for of in row.clients.values())]
    first = ["row"] if len(rows) > 1 else []
    lines = [_format_cells([*first, "client", *(_COLUMN_HEADS[quantity] for quantity in shown)])]
    lines.append("|---" * (len(first) + 1 + len(shown)) + "|")
    for row in rows:
        place = [row.title] if first else []
        for client, of in row.clients.items():
            told = [_format_scaled(of[quantity], quantity) if quantity in of else "" for quantity in shown]
            lines.append(_format_cells([*place, client, *told]))
        for client, why in row.absent.items():
            lines.append(_format_cells([*place, client, why.replace("|", "/"), *[""] * (len(shown) - 1)]))
    return [*lines, ""]


def _format_cells(texts: Iterable[str]) -> str:
    return f"| {' | '.join(texts)} |"


def _format_scaled(value: Spread, quantity: Quantity) -> str:
    scale = _SCALES.get(quantity, 1.0)
    return _format_spread(Spread(value.median * scale, value.low * scale, value.high * scale))


def _format_spread(value: Spread) -> str:
    return f"{_format_number(value.median)} [{_format_number(value.low)}-{_format_number(value.high)}]"


def _format_number(value: float) -> str:
    """Two or three digits, or all that stand before the point."""
    form = next(form for bound, form in _FORMS if value < bound)
    return format(value, form)
