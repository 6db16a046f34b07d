"""The figures as SVG: bars for the page that one sees first, curves of growth, memory over time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from benchmarks.report.results import Results
from benchmarks.scenarios.growth import CURVES, GROWTH
from benchmarks.scenarios.growth import Curve as Growth
from benchmarks.scenarios.rows import BARE, FLOOR, OURS, PEERS, Quantity
from benchmarks.soak.chart import _HEIGHT, _PANEL, _STYLE, _TOP, _WIDTH, Curve, _draw_panel

_COLOURS = {OURS: "#1f6fb4", BARE: "#888888", FLOOR: "#bbbbbb", PEERS[0]: "#e08a1e", PEERS[1]: "#2a8f4f"}
_MIN_DRAWN_VALUE = 1e-3
_BAR, _STEP, _NAMES, _FIGURES = 18, 30, 170, 90
_HEADLINES = (
    ("small-sequential", Quantity.CPU, 1e6, "CPU of a small call, µs"),
    ("upload", Quantity.PEAK, 1.0, "Peak memory of an upload of 100 MB, MB"),
)


def make_drawings(results: Results) -> dict[str, tuple[str, str]]:
    """Names of files, each with the drawing's title and its text; only what the run had rows for."""
    drawn: dict[str, tuple[str, str]] = {}
    headline = _draw_headline(results)
    if headline:
        drawn["headline.svg"] = ("ours beside bare aiohttp and the generated clients", headline)
    for growth in CURVES:
        curves = _draw_growth(results, growth)
        if curves:
            sizes = f"{growth.sizes}, as a power of ten" if growth.log else growth.sizes
            quantity = growth.quantity.name.lower()
            drawn[f"growth-{growth.curve}-{quantity}.svg"] = (growth.title, _draw_plot(growth.title, sizes, curves))
    for row in results.rows:
        sampled = [_make_curve(client, points) for client, points in row.samples.items()]
        if sampled:
            title = f"{row.title}: memory above the start, MB"
            drawn[f"{row.name}.svg"] = (title, _draw_plot(title, "seconds", sampled))
    return drawn


def _draw_headline(results: Results) -> str:
    """Bars of each client, for the rows that tell most."""
    parts: list[str] = []
    top = 24
    for name, quantity, factor, title in _HEADLINES:
        row = results.row(name)
        if row is None or OURS not in row.clients:
            continue
        values = {client: of[quantity].median * factor for client, of in row.clients.items()}
        parts.append(f'<text x="10" y="{top}" font-weight="bold">{title}</text>')
        parts += _draw_bars(top + 10, values)
        top += 10 + _STEP * len(values) + 30
    return _make_svg(parts, top - 20) if parts else ""


def _draw_bars(top: float, values: Mapping[str, float]) -> list[str]:
    highest = max(*values.values(), 1e-9)
    parts: list[str] = []
    for place, (client, value) in enumerate(values.items()):
        y = top + _STEP * place
        width = (_WIDTH - _NAMES - _FIGURES) * max(0.0, value) / highest
        parts.append(f'<text x="{_NAMES - 8}" y="{y + 14}" text-anchor="end">{_get_label(client)}</text>')
        parts.append(
            f'<rect x="{_NAMES}" y="{y}" width="{width:.1f}" height="{_BAR}" fill="{_COLOURS.get(client, "#888")}"/>'
        )
        parts.append(f'<text x="{_NAMES + width + 6:.1f}" y="{y + 14}">{value:,.3g}</text>')
    return parts


def _get_label(client: str) -> str:
    return {OURS: "directsuite", BARE: "bare aiohttp", FLOOR: "the bytes uncoded"}.get(client, client)


def _draw_growth(results: Results, growth: Growth) -> list[Curve]:
    points: dict[str, list[tuple[float, float]]] = {}
    for row in GROWTH:
        found = results.row(row.name) if row.curve == growth.curve else None
        for client, of in found.clients.items() if found else ():
            size = math.log10(row.at) if growth.log else row.at
            points.setdefault(client, []).append((size, of[growth.quantity].median * growth.factor))
    return [_make_curve(client, each) for client, each in points.items() if len(each) > 1]


def _make_curve(client: str, points: Sequence[tuple[float, float]]) -> Curve:
    above = [
        (place, max(value, _MIN_DRAWN_VALUE)) for place, value in points
    ]  # a panel of nothing but zeros has no height
    return Curve(name=_get_label(client), colour=_COLOURS.get(client, "#888888"), points=above)


def _draw_plot(title: str, below: str, curves: Sequence[Curve]) -> str:
    """One panel, drawn as the soak draws its own."""
    end = max(place for curve in curves for place, _ in curve.points) or 1.0
    height = _HEIGHT - _PANEL - _TOP
    below_panel = f'<text x="{_WIDTH / 2:.0f}" y="{height - 6}" text-anchor="middle">{below}</text>'
    return _make_svg([*_draw_panel(_TOP, title, curves, end, 0.0), below_panel], height)


def _make_svg(parts: Sequence[str], height: float) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height:.0f}">'
    style = f'<style>{_STYLE}</style><rect width="100%" height="100%" fill="white"/>'
    return "\n".join([head, style, *parts, "</svg>"]) + "\n"
