"""Growth: slopes, tables and curves, and each work once in a small size."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.growth import (
    GROWTHS,
    Growth,
    compute_total_costs,
    fit_slope,
    format_section,
    mailboxes,
    make_panel,
    workers,
)
from benchmarks.pictures import draw
from benchmarks.processes import PEAK
from benchmarks.server import run_server
from tests.sync.fleet.postgres_server import find_binaries

EACH, TOTAL = "CPU of a message, ms", "time, ms"
GROWTH = Growth(mailboxes, "Things", (10, 100, 1_000))
FOUND = [{EACH: 2.0, TOTAL: 3.0, PEAK: 4.0}] * 3


def test_cost_of_one_unit_is_multiplied_by_the_size() -> None:
    costs = compute_total_costs(GROWTH, FOUND)
    assert costs == {EACH: [20, 200, 2_000], TOTAL: [3, 3, 3]}
    assert fit_slope(GROWTH.sizes, costs[EACH]) == pytest.approx(1.0)
    assert fit_slope(GROWTH.sizes, costs[TOTAL]) == pytest.approx(0.0)
    assert fit_slope(GROWTH.sizes, [size**2 for size in GROWTH.sizes]) == pytest.approx(2.0)


@pytest.mark.process  # matplotlib lists the fonts
def test_curve_becomes_a_table_and_a_picture(tmp_path: Path) -> None:
    assert "| CPU of a message, ms | 2 | 2 | 2 | 1.00 |" in format_section(GROWTH, FOUND)
    draw(tmp_path / "growth.svg", [make_panel(GROWTH, FOUND)], columns=1)
    assert ">CPU of a message<" in (tmp_path / "growth.svg").read_text("utf-8").replace("</", "<")


@pytest.mark.process
@pytest.mark.parametrize("growth", GROWTHS, ids=lambda growth: growth.work.__name__)
async def test_each_work_returns_its_figures(growth: Growth, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if growth.work == workers and find_binaries() is None:
        pytest.skip("PostgreSQL is not installed: initdb was not found.")
    monkeypatch.setattr("benchmarks.growth.FLEET_MAILBOXES", 4)
    monkeypatch.setattr("benchmarks.growth.FLEET_INTERVAL", 0.5)
    monkeypatch.setattr("benchmarks.growth.FLEET_SECONDS", 2.0)
    with run_server() as url:
        figures = await growth.work(url, str(tmp_path), 1 if growth.work == workers else 10)
    assert all(value >= 0 for value in figures.values())
