"""What a series of measurements says: its median, and the quartiles that tell how far to trust it."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from collections.abc import Sequence


@attrs.frozen
class Spread:
    """The median of a series with its lower and upper quartile."""

    median: float
    low: float
    high: float

    @property
    def width(self) -> float:
        """From one quartile to the other: half of all measurements lie within."""
        return self.high - self.low


def compute_spread(values: Sequence[float]) -> Spread:
    """Median and quartiles of one value or more; of a single value it has no width."""
    if len(values) == 1:
        return Spread(values[0], values[0], values[0])
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return Spread(median, low, high)


def compute_ratios(values: Sequence[float], base: Sequence[float]) -> list[float]:
    """Each round's value to the same round's base, so that what slows a whole round cancels out.

    A round whose base is nothing says nothing, and is left out.
    """
    return [value / other for value, other in zip(values, base, strict=True) if other > 0]
