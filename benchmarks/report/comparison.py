"""Two runs side by side. Only figures that mean the same on both machines' days are compared: the rows' figures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import attrs

from benchmarks.report.results import MeasuredFigure, Results

_MIN_DIFFERENCES = {"MB": 0.5, "ms": 2.0}
"""Differences of this size say nothing, in the unit of the figure: pages and ticks come in such lumps."""
_MIN_RATIO_DIFFERENCE = 0.02


@attrs.frozen(kw_only=True)
class Change:
    """A figure then and now. ratio: now to then. worse: by more than either run's quartiles lie apart."""

    row: str
    figure: str
    then: float
    now: float
    ratio: float
    worse: bool

    def __str__(self) -> str:
        flag = "  WORSE" if self.worse else ""
        return f"{self.row:<26} {self.figure:<44} {self.then:>9.3f} -> {self.now:>9.3f}  x {self.ratio:.2f}{flag}"


def list_changes(then: Results, now: Results) -> list[Change]:
    """Each figure that both runs have, in the order of the later one."""
    return list(_yield_changes(then, now))


def has_regression(found: Iterable[Change]) -> bool:
    """Whether any is flagged."""
    return any(change.worse for change in found)


def _yield_changes(then: Results, now: Results) -> Iterator[Change]:
    for row in now.rows:
        earlier = then.row(row.name)
        named = {figure.name: figure for figure in earlier.figures} if earlier else {}
        for figure in row.figures:
            before = named.get(figure.name)
            if before is not None:
                yield _compare_figure(row.name, before, figure)


def _compare_figure(row: str, then: MeasuredFigure, now: MeasuredFigure) -> Change:
    before, after = then.spread, now.spread
    higher_is_better = now.at_least or now.name.startswith("throughput")
    loss = before.median - after.median if higher_is_better else after.median - before.median
    noise = max(before.width, after.width, _MIN_DIFFERENCES.get(now.unit, _MIN_RATIO_DIFFERENCE * before.median))
    return Change(
        row=row,
        figure=now.name,
        then=before.median,
        now=after.median,
        ratio=after.median / before.median if before.median else float(after.median > 0) + 1.0,
        worse=loss > noise,
    )
