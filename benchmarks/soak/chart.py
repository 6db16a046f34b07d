"""Memory and sockets over time, as SVG: two panels over one axis of minutes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import attrs

from benchmarks.soak.census import MEGABYTE, Sample

if TYPE_CHECKING:
    from collections.abc import Sequence

_WIDTH, _LEFT, _RIGHT = 860, 64, 20
_PANEL, _GAP, _TOP = 210, 56, 40
_HEIGHT = _TOP + 2 * _PANEL + _GAP + 44
_TICKS = 6
_STEPS = (1, 2, 2.5, 5, 10)
_STYLE = "text{font:12px sans-serif;fill:#333}.grid{stroke:#ddd}.axis{stroke:#888}path{fill:none;stroke-width:1.5}"


@attrs.frozen(kw_only=True)
class Curve:
    """One quantity over time: (minutes, value), its name and colour."""

    name: str
    colour: str
    points: Sequence[tuple[float, float]]


def draw_chart(samples: Sequence[Sample], *, warm_up: float, sockets: int) -> str:
    """The drawing. warm_up: seconds, shaded. sockets: the most that there may be, as a line."""
    loaded = [sample for sample in samples if not sample.quiet]
    end = samples[-1].seconds / 60
    memory = [Curve(name="client", colour="#1f6fb4", points=[(s.seconds / 60, s.rss / MEGABYTE) for s in loaded])]
    taken = [
        Curve(name="most in 5 s", colour="#e08a1e", points=[(s.seconds / 60, s.sockets_peak) for s in loaded]),
        Curve(name="at the sample", colour="#2a8f4f", points=[(s.seconds / 60, s.sockets) for s in loaded]),
        Curve(name=f"allowed: {sockets}", colour="#c03030", points=[(0, sockets), (end, sockets)]),
    ]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}">',
        f'<style>{_STYLE}</style><rect width="100%" height="100%" fill="white"/>',
        *_draw_panel(_TOP, "Resident memory, MB", memory, end, warm_up / 60),
        *_draw_panel(_TOP + _PANEL + _GAP, "Open sockets", taken, end, warm_up / 60),
        (
            f'<text x="{_LEFT + _plot_width() / 2:.0f}" y="{_HEIGHT - 8}" text-anchor="middle">'
            "minutes (shaded: warm-up)</text>"
        ),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _draw_panel(top: float, title: str, curves: Sequence[Curve], end: float, shaded: float) -> list[str]:
    highest = max((value for curve in curves for _, value in curve.points), default=1)
    values, minutes = _choose_ticks(highest * 1.05), _choose_ticks(end)
    ceiling, bottom = max(values[-1], highest), top + _PANEL

    def x(minute: float) -> float:
        """Where a minute is."""
        return _LEFT + _plot_width() * minute / end

    def y(value: float) -> float:
        """Where a value is."""
        return bottom - _PANEL * value / ceiling

    parts = [
        f'<rect x="{_LEFT}" y="{top}" width="{x(shaded) - _LEFT:.1f}" height="{_PANEL}" fill="#f4f4f4"/>',
        f'<text x="{_LEFT}" y="{top - 10}">{title}</text>',
    ]
    for value in values:
        parts.append(f'<path class="grid" d="M{_LEFT} {y(value):.1f}H{_WIDTH - _RIGHT}"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{value:g}</text>')
    parts += [
        f'<text x="{x(minute):.1f}" y="{bottom + 18}" text-anchor="middle">{minute:g}</text>'
        for minute in minutes
        if minute <= end
    ]
    parts.append(f'<path class="axis" d="M{_LEFT} {top}V{bottom}H{_WIDTH - _RIGHT}"/>')
    for place, curve in enumerate(curves):
        path = "L".join(f"{x(minute):.1f} {y(value):.1f}" for minute, value in curve.points)
        parts.append(f'<path d="M{path}" stroke="{curve.colour}"/>')
        left = _WIDTH - _RIGHT - 130 * (len(curves) - place)
        parts.append(f'<path d="M{left} {top - 14}h18" stroke="{curve.colour}" stroke-width="3"/>')
        parts.append(f'<text x="{left + 24}" y="{top - 10}">{curve.name}</text>')
    return parts


def _plot_width() -> int:
    return _WIDTH - _LEFT - _RIGHT


def _choose_ticks(highest: float) -> list[float]:
    """Round numbers from 0 to beyond the highest."""
    rough = max(highest, 1e-9) / _TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(each * power for each in _STEPS if each * power >= rough * (1 - 1e-9))
    return [number * step for number in range(math.ceil(highest / step - 1e-9) + 1)]
