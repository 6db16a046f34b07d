"""The figures of a run, computed from its readings."""

from __future__ import annotations

import attrs

from benchmarks.gauges import Reading
from benchmarks.processes import Spread, compute_ratios, compute_spread
from benchmarks.rows.table import OURS, Figure, MeasuredRow, Quantity


@attrs.define(kw_only=True)
class Outcome:
    """The readings of each client of a row by round. absent: clients without readings, and the reason."""

    row: MeasuredRow
    readings: dict[str, list[Reading]] = attrs.Factory(dict[str, list[Reading]])
    absent: dict[str, str] = attrs.Factory(dict[str, str])

    def compute_values(self, client: str, quantity: Quantity) -> list[float]:
        """Return a quantity of each round."""
        return [quantity.compute(reading) for reading in self.readings.get(client, ())]

    def compute_spread(self, client: str, quantity: Quantity) -> Spread:
        """Return a quantity for one unit of work."""
        return compute_spread(self.compute_values(client, quantity))

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
