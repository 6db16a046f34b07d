"""Curves of growth: their slopes, their tables, their drawings; and each work once, small."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from benchmarks.growth import GROWTHS, WORKS, Growth, compute_total_costs, draw_growth, fit_slope, format_section
from benchmarks.server import run_server
from benchmarks.sync import postgres
from tests.sync.fleet.postgres_server import find_binaries

GROWTH = Growth("things", "things", (10, 100, 1_000), {"each": "CPU of a message, ms", "all": "time, ms"})
FOUND = [{"each": 2.0, "all": 3.0}, {"each": 2.0, "all": 3.0}, {"each": 2.0, "all": 3.0}]


def test_a_cost_of_a_unit_is_counted_for_each_unit() -> None:
    assert compute_total_costs(GROWTH, FOUND, "each") == [20, 200, 2_000]
    assert fit_slope(GROWTH.sizes, compute_total_costs(GROWTH, FOUND, "each")) == pytest.approx(1.0)
    assert fit_slope(GROWTH.sizes, compute_total_costs(GROWTH, FOUND, "all")) == pytest.approx(0.0)
    assert fit_slope(GROWTH.sizes, [size**2 for size in GROWTH.sizes]) == pytest.approx(2.0)


def test_a_curve_becomes_a_table_and_a_drawing() -> None:
    assert "| CPU of a message, ms | 2 | 2 | 2 | 1.00 |" in format_section(GROWTH, FOUND)
    assert "growth-things.svg" in format_section(GROWTH, FOUND)
    drawn = ET.fromstring(draw_growth(GROWTH, FOUND))  # noqa: S314  our own
    assert [text.text for text in drawn.iter("{http://www.w3.org/2000/svg}text")][-2:] == ["each", "all"]


@pytest.mark.process
@pytest.mark.parametrize("growth", GROWTHS, ids=lambda growth: growth.name)
async def test_each_work_gives_the_figures_that_are_drawn(
    growth: Growth, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if growth.name == "workers" and find_binaries() is None:
        pytest.skip("PostgreSQL isn't installed: initdb was not found")
    monkeypatch.setattr(postgres, "MAILBOXES", 4)
    monkeypatch.setattr(postgres, "INTERVAL", 0.5)
    monkeypatch.setattr(postgres, "_SECONDS", 2.0)
    with run_server() as url:
        figures = await WORKS[growth.name](url, tmp_path, 1 if growth.name == "workers" else 10)
    assert set(figures) == set(growth.figures)
