"""The figures of a run, computed from its readings."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from benchmarks.gauges import Reading
from benchmarks.processes import Spread, compute_ratios, compute_spread
from benchmarks.rows.table import OURS, PAUSES, Figure, MeasuredRow, Quantity

_VALUES: dict[Quantity, Callable[[Reading], float]] = {
    Quantity.CPU: lambda reading: reading.cpu / reading.amount,
    Quantity.WALL: lambda reading: reading.wall / reading.amount,
    Quantity.RATE: lambda reading: reading.amount / reading.wall,
    Quantity.PEAK: lambda reading: reading.peak / 1e6,
    Quantity.P50: lambda reading: reading.p50 * 1000,
    Quantity.P99: lambda reading: reading.p99 * 1000,
    Quantity.PAUSE: lambda reading: reading.pause * 1000,
}


@attrs.define(kw_only=True)
class Outcome:
    """The readings of each client of a row by round. absent: clients without readings, and the reason."""

    row: MeasuredRow
    readings: dict[str, list[Reading]] = attrs.Factory(dict[str, list[Reading]])
    absent: dict[str, str] = attrs.Factory(dict[str, str])

    @property
    def quantities(self) -> list[Quantity]:
        """The quantities that were measured."""
        return [quantity for quantity in Quantity if self.row.pauses or quantity not in PAUSES]

    def compute_values(self, client: str, quantity: Quantity) -> list[float]:
        """Return a quantity of each round."""
        return [_VALUES[quantity](reading) for reading in self.readings.get(client, ())]

    def compute_spreads(self, quantity: Quantity) -> dict[str, Spread]:
        """Return a quantity for one unit of work by client."""
        return {client: compute_spread(self.compute_values(client, quantity)) for client in self.readings}

    def compute_figures(self) -> dict[Figure, Spread]:
        """Return the figures, without those for which our client or the other one has no readings."""
        return {figure: compute_spread(values) for figure in self.row.figures if (values := self._compute(figure))}

    def _compute(self, figure: Figure) -> list[float]:
        values = [value / figure.per for value in self.compute_values(OURS, figure.quantity)]
        if figure.beside is None:
            return values
        others = self.compute_values(figure.beside, figure.quantity)
        return compute_ratios(values, others) if values and others else []


@attrs.frozen(kw_only=True)
class Results:
    """A run. machine: also the versions of the clients. seconds: its duration."""

    machine: dict[str, str]
    seconds: float
    outcomes: list[Outcome]
    quick: bool = False

    def find(self, prefix: str) -> list[Outcome]:
        """Return the outcomes of the rows whose names start with the prefix."""
        return [each for each in self.outcomes if each.row.name.startswith(prefix)]
