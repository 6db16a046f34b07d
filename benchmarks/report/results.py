"""The figures of a run, from its readings; to JSON and back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import attrs
import cattrs

from benchmarks.measuring.gauges import Reading
from benchmarks.measuring.rounds import Outcome
from benchmarks.measuring.spread import Spread, compute_ratios, compute_spread
from benchmarks.scenarios.rows import OURS, Figure, Quantity

MEGABYTE = 1_000_000
_QUANTITY_OF_TURN: dict[Quantity, Callable[[Reading], float]] = {
    Quantity.CPU: lambda reading: reading.cpu / reading.amount,
    Quantity.WALL: lambda reading: reading.wall / reading.amount,
    Quantity.RATE: lambda reading: reading.amount / reading.wall,
    Quantity.PEAK: lambda reading: reading.peak / MEGABYTE,
    Quantity.PAUSE: lambda reading: reading.pause * 1000,
}


@attrs.frozen(kw_only=True)
class MeasuredFigure:
    """A figure as it came out. met: whether it reaches its bound; None where it has none."""

    name: str
    unit: str
    spread: Spread
    bound: float | None = None
    at_least: bool = False
    met: bool | None = None

    @property
    def shortfall(self) -> float:
        """By what part of the bound it is missed; 0 where it is met or has none."""
        if self.met is not False or self.bound is None:
            return 0.0
        return abs(self.spread.median - self.bound) / self.bound


@attrs.frozen(kw_only=True)
class RowResults:
    """A row. clients: what each one's quantities were, as they are: of one unit of work, in Quantity's units.

    absent: clients that are not there, and why. samples: (seconds, MB) of a client's memory.
    """

    name: str
    title: str
    unit: str
    rounds: int
    figures: list[MeasuredFigure]
    clients: dict[str, dict[str, Spread]]
    absent: dict[str, str]
    idle_pause: float | None = None
    samples: dict[str, list[tuple[float, float]]] = attrs.Factory(dict[str, list[tuple[float, float]]])


@attrs.frozen(kw_only=True)
class Results:
    """A run. machine: what it ran on, in words. versions: of the clients. seconds: how long all of it took."""

    machine: dict[str, str]
    versions: dict[str, str]
    seconds: float
    rows: list[RowResults]
    quick: bool = False

    def row(self, name: str) -> RowResults | None:
        """The row of this name, where the run had it."""
        return next((row for row in self.rows if row.name == name), None)


def make_row_results(outcome: Outcome) -> RowResults:
    """The figures of a row."""
    row, readings = outcome.row, outcome.readings
    found = (_measure_figure(figure, readings) for figure in row.figures)
    return RowResults(
        name=row.name,
        title=row.title,
        unit=row.unit,
        rounds=max((len(series) for series in readings.values()), default=0),
        figures=[figure for figure in found if figure is not None],
        clients={
            client: _measure_quantities(series, pauses=row.pauses) for client, series in readings.items() if series
        },
        absent=dict(outcome.absent),
        idle_pause=1000 * compute_spread(outcome.idle_pauses).median if row.pauses and outcome.idle_pauses else None,
        samples=dict(outcome.samples),
    )


def _measure_figure(figure: Figure, readings: Mapping[str, list[Reading]]) -> MeasuredFigure | None:
    """A figure of ours; None where we, or whom it stands beside, gave no reading."""
    of = _QUANTITY_OF_TURN[figure.quantity]
    values = [of(reading) / figure.per for reading in readings.get(OURS, ())]
    if figure.beside is not None:
        others = [of(reading) for reading in readings.get(figure.beside, ())]
        values = compute_ratios(values, others) if values and others else []
    if not values:
        return None
    came = compute_spread(values)
    return MeasuredFigure(
        name=figure.name,
        unit=figure.unit,
        spread=came,
        bound=figure.bound,
        at_least=figure.at_least,
        met=figure.is_met(came.median),
    )


def _measure_quantities(series: Iterable[Reading], *, pauses: bool) -> dict[str, Spread]:
    series = list(series)
    wanted = [quantity for quantity in Quantity if pauses or quantity is not Quantity.PAUSE]
    return {
        str(quantity): compute_spread([_QUANTITY_OF_TURN[quantity](reading) for reading in series])
        for quantity in wanted
    }


def to_json(results: Results) -> str:
    """As JSON."""
    return f"{json.dumps(attrs.asdict(results), indent=1)}\n"


def read_results(path: Path) -> Results:
    """From a file that a run wrote. Raises ValueError where it is none."""
    text = path.read_text(encoding="utf-8")
    try:
        document: Any = json.loads(text)
        return cattrs.structure(document, Results)
    except (cattrs.BaseValidationError, LookupError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is not the results.json of a run") from error
