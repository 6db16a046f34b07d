"""The figures of a run, computed from its readings. They are stored as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import attrs

from benchmarks.gauges import Reading
from benchmarks.processes import Spread, compute_ratios, compute_spread
from benchmarks.rows.rounds import Outcome
from benchmarks.rows.table import OURS, PAUSES, Figure, Quantity

_QUANTITIES: dict[Quantity, Callable[[Reading], float]] = {
    Quantity.CPU: lambda reading: reading.cpu / reading.amount,
    Quantity.WALL: lambda reading: reading.wall / reading.amount,
    Quantity.RATE: lambda reading: reading.amount / reading.wall,
    Quantity.PEAK: lambda reading: reading.peak / 1e6,
    Quantity.P50: lambda reading: reading.p50 * 1000,
    Quantity.P99: lambda reading: reading.p99 * 1000,
    Quantity.PAUSE: lambda reading: reading.pause * 1000,
}


@attrs.frozen(kw_only=True)
class MeasuredFigure:
    """The value of a figure. met: None without a bound."""

    name: str
    unit: str
    spread: Spread
    bound: float | None = None
    at_least: bool = False
    met: bool | None = None

    @property
    def shortfall(self) -> float:
        """The distance to a missed bound, divided by the bound; otherwise 0."""
        if self.met is not False or self.bound is None:
            return 0.0
        return abs(self.spread.median - self.bound) / self.bound


@attrs.frozen(kw_only=True)
class RowResults:
    """The figures of a row, and the quantities of each client for one unit of work. absent: reasons, by client."""

    name: str
    title: str
    unit: str
    rounds: int
    figures: list[MeasuredFigure]
    clients: dict[str, dict[str, Spread]]
    absent: dict[str, str]


@attrs.frozen(kw_only=True)
class Results:
    """A run. versions: of the clients. seconds: its duration."""

    machine: dict[str, str]
    versions: dict[str, str]
    seconds: float
    rows: list[RowResults]
    quick: bool = False

    def find_row(self, name: str) -> RowResults | None:
        """Return the row with this name, if the run had it."""
        return next((row for row in self.rows if row.name == name), None)


def make_row_results(outcome: Outcome) -> RowResults:
    """Compute the figures of a row."""
    row, readings = outcome.row, outcome.readings
    quantities = [quantity for quantity in Quantity if row.pauses or quantity not in PAUSES]
    figures = (_compute_figure(figure, readings) for figure in row.figures)
    return RowResults(
        name=row.name,
        title=row.title,
        unit=row.unit,
        rounds=max((len(series) for series in readings.values()), default=0),
        figures=[figure for figure in figures if figure is not None],
        clients={
            client: {
                str(each): compute_spread([_QUANTITIES[each](reading) for reading in series]) for each in quantities
            }
            for client, series in readings.items()
            if series
        },
        absent=dict(outcome.absent),
    )


def _compute_figure(figure: Figure, readings: Mapping[str, list[Reading]]) -> MeasuredFigure | None:
    """Return a figure, or None if our client or the other one has no readings."""
    compute = _QUANTITIES[figure.quantity]
    values = [compute(reading) / figure.per for reading in readings.get(OURS, ())]
    if figure.beside is not None:
        others = [compute(reading) for reading in readings.get(figure.beside, ())]
        values = compute_ratios(values, others) if values and others else []
    if not values:
        return None
    spread, met = compute_spread(values), figure.is_met(compute_spread(values).median)
    return MeasuredFigure(
        name=figure.name, unit=figure.unit, spread=spread, bound=figure.bound, at_least=figure.at_least, met=met
    )


def to_json(results: Results) -> str:
    """Return the text of results.json."""
    return f"{json.dumps(attrs.asdict(results), indent=1)}\n"
