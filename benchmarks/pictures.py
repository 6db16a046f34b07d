"""Pictures of curves and bars, drawn by matplotlib, which is imported when a picture is drawn."""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

_MIN_LOG_BAR = 0.1  # the value of a bar without length
Curve = Sequence[tuple[float, float]]


@attrs.frozen
class Panel:
    """A plot of curves, by name, or of bars, by name. log_x, log_y: logarithmic scales."""

    title: str
    curves: Mapping[str, Curve] = {}
    bars: Mapping[str, float] = {}
    x: str = ""
    log_x: bool = False
    log_y: bool = False


def draw(path: Path, panels: Sequence[Panel], *, columns: int) -> None:
    """Draw the panels into an SVG file."""
    matplotlib: Any = importlib.import_module("matplotlib")
    rows = math.ceil(len(panels) / columns)
    height = max(2.6, *(0.25 * len(panel.bars) for panel in panels))
    figure: Any = importlib.import_module("matplotlib.figure").Figure(
        figsize=(9 if columns > 1 else 8, height * rows), layout="constrained"
    )
    for number, panel in enumerate(panels, start=1):
        axes = figure.add_subplot(rows, columns, number)
        axes.set_title(panel.title, loc="left", fontsize="medium")
        axes.spines[["top", "right"]].set_visible(False)
        if panel.bars:
            bars = axes.barh(list(panel.bars), list(panel.bars.values()), color="tab:blue")
            axes.bar_label(bars, [f"{value:,.{0 if value >= 100 else 2}f}" for value in panel.bars.values()], padding=4)
            axes.invert_yaxis()
            if panel.log_x:
                axes.set_xscale("log")
                axes.set_xlim(left=_MIN_LOG_BAR)
                axes.minorticks_off()
            axes.set_xticks([])
            continue
        for name, curve in panel.curves.items():
            axes.plot(*zip(*curve, strict=True), label=name, linewidth=1.2, marker="." if len(curve) < 20 else None)
        axes.set_xlabel(panel.x)
        axes.set_xscale("log" if panel.log_x else "linear")
        if panel.log_y:
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=0)
        axes.minorticks_off()
        if any(panel.curves):
            axes.legend(frameon=False, fontsize="small")
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "directsuite"}):  # the same file each time
        figure.savefig(path, format="svg", metadata={"Date": None})
