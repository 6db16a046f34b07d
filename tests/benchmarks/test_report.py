"""What a run's readings become: figures, a page, drawings."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import attrs
import pytest

from benchmarks.measuring.command import write
from benchmarks.measuring.gauges import Reading
from benchmarks.measuring.rounds import Outcome
from benchmarks.measuring.spread import Spread
from benchmarks.report.drawings import make_drawings
from benchmarks.report.page import format_page
from benchmarks.report.results import MeasuredFigure, Results, RowResults, make_row_results, read_results
from benchmarks.scenarios.growth import GROWTH
from benchmarks.scenarios.rows import (
    BARE,
    FLOOR,
    OPENAPI_GENERATOR,
    OPENAPI_PYTHON_CLIENT,
    OURS,
    Figure,
    MeasuredRow,
    Quantity,
)
from benchmarks.scenarios.table import TARGETS, choose_rows

ROW = MeasuredRow(
    name="upload",
    title="Upload 100 MB",
    unit="MB",
    rounds=3,
    pauses=True,
    figures=(
        Figure(quantity=Quantity.CPU, beside=FLOOR, bound=2.0),
        Figure(quantity=Quantity.PEAK, bound=2.0, unit="MB"),
        Figure(quantity=Quantity.RATE, per=0.5, bound=93.0, at_least=True, unit="%", of="what the latency permits"),
        Figure(quantity=Quantity.PAUSE, bound=20.0, unit="ms"),
        Figure(quantity=Quantity.CPU, beside=OPENAPI_GENERATOR),
    ),
)


def reading(
    cpu: float = 1.0, wall: float = 2.0, peak: int = 1_000_000, pause: float = 0.01, amount: int = 100
) -> Reading:
    """A turn."""
    return Reading(amount=amount, cpu=cpu, wall=wall, peak=peak, pause=pause)


def outcome() -> Outcome:
    """Three rounds of two clients, the third of which was slow for both; and a client that can't."""
    return Outcome(
        row=ROW,
        readings={
            OURS: [reading(3.0), reading(3.2, peak=5_000_000), reading(30.0, peak=4_000_000)],
            FLOOR: [reading(1.0), reading(1.0), reading(10.0)],
        },
        absent={OPENAPI_PYTHON_CLIENT: "can't: no text/plain | bodies"},
        idle_pauses=[0.001, 0.002, 0.003],
    )


def run(*rows: Outcome, quick: bool = False) -> Results:
    """A run that had these."""
    found = [make_row_results(row) for row in rows]
    return Results(machine={"cores": "2"}, versions={"httpx": "0.28"}, seconds=90.0, rows=found, quick=quick)


def tables(text: str) -> list[list[list[str]]]:
    """The tables of a page: rows of cells, without the line under the heads."""
    found: list[list[list[str]]] = [[]]
    for line in text.splitlines():
        if not line.startswith("|"):
            if found[-1]:
                found.append([])
        elif set(line) - set("|-"):
            found[-1].append([cell.strip() for cell in line.strip("|").split("|")])
    return [table for table in found if table]


def figures() -> dict[str, MeasuredFigure]:
    """The figures of that row."""
    return {figure.name: figure for figure in make_row_results(outcome()).figures}


def test_a_ratio_is_the_median_of_the_rounds_ratios() -> None:
    found = figures()["CPU / floor"]
    assert found.spread == Spread(3.0, 3.0, 3.1)
    assert found.met is False
    assert found.shortfall == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("name", "median", "met"),
    [
        ("peak memory, MB", 4.0, False),
        ("throughput, % of what the latency permits", 100.0, True),
        ("longest pause, ms", 10.0, True),
    ],
)
def test_a_quantity_without_another_client_is_the_median_of_its_rounds(name: str, median: float, met: bool) -> None:
    found = figures()[name]
    assert found.spread.median == pytest.approx(median)
    assert found.met is met


def test_a_figure_beside_a_client_that_is_absent_is_left_out() -> None:
    assert "CPU / openapi-generator" not in figures()


def test_where_ours_failed_there_is_no_figure_and_the_reason_stands() -> None:
    found = make_row_results(Outcome(row=ROW, readings={FLOOR: [reading()]}, absent={OURS: "failed: MemoryError"}))
    assert found.figures == []
    assert found.absent == {OURS: "failed: MemoryError"}


def test_page_shows_result_and_shortfall_of_each_target() -> None:
    text = format_page(run(outcome()), {})
    assert "2 of 4 targets met" in text
    targets = {row[1]: row for row in tables(text)[0][1:]}
    assert targets["CPU / floor"] == ["Upload 100 MB", "CPU / floor", "≤ 2 x", "3.00 [3.00-3.10]", "**missed by 50 %**"]
    assert targets["peak memory, MB"][2:] == ["≤ 2 MB", "4.00 [2.50-4.50]", "**missed by 100 %**"]
    assert targets["longest pause, ms"][2:] == ["≤ 20 ms", "10.0 [10.0-10.0]", "met"]
    assert targets["throughput, % of what the latency permits"][2:] == ["≥ 93 %", "100 [100-100]", "met"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (0.00144, "0.0014"),
        (0.5, "0.50"),
        (9.994, "9.99"),
        (12.34, "12.3"),
        (99.96, "100.0"),
        (1234.5, "1,234"),
    ],
)
def test_a_number_shows_what_it_is_worth(value: float, text: str) -> None:
    row = RowResults(
        name="a",
        title="A",
        unit="call",
        rounds=1,
        figures=[],
        clients={OURS: {"peak memory": Spread(value, 0, 0)}},
        absent={},
    )
    (table, _) = tables(format_page(Results(machine={}, versions={}, seconds=1.0, rows=[row]), {}))[-2:]
    assert table[1][1].split()[0] == text


def test_the_page_has_every_client_of_a_row_and_why_one_is_absent() -> None:
    text = format_page(run(outcome()), {})
    (table,) = [table for table in tables(text) if table[0][0] == "client"]
    assert table[0] == ["client", "CPU, µs", "wall, µs", "a second", "peak, MB", "pause, ms"]
    assert [row[0] for row in table[1:]] == [OURS, FLOOR, OPENAPI_PYTHON_CLIENT]
    assert table[1][1].startswith("32,000 [")
    assert table[3][1] == "can't: no text/plain / bodies"
    assert all(len(row) == len(table[0]) for row in table)
    assert "idle event loop here: 2.00 ms" in text


def test_the_page_says_what_it_was_measured_on_and_links_to_the_drawings() -> None:
    text = format_page(run(outcome()), {"Memory": "results/memory.svg"})
    assert ["cores", "2"] in tables(text)[-1]
    assert ["httpx", "0.28"] in tables(text)[-1]
    assert "![Memory](results/memory.svg)" in text
    assert "smoke run" not in text
    assert "smoke run" in format_page(run(outcome(), quick=True), {})


def test_a_failed_row_of_ours_does_not_hide_its_target() -> None:
    failed = Outcome(row=ROW, readings={FLOOR: [reading()]}, absent={OURS: "failed: MemoryError"})
    assert "failed: MemoryError" in format_page(run(failed), {})


def test_every_row_of_the_table_can_stand_on_the_page() -> None:
    outcomes = [Outcome(row=row, readings={client: [reading()] for client in row.clients}) for row in TARGETS]
    text = format_page(run(*outcomes), {})
    bounds = [figure for row in TARGETS for figure in row.figures if figure.bound is not None]
    assert len(tables(text)[0]) == 1 + len(bounds)
    for row in TARGETS:
        assert f"### {row.title}" in text


def shapes(text: str, kind: str) -> list[ET.Element]:
    """The elements of a kind in a drawing, which has to be XML."""
    return list(ET.fromstring(text).iter(f"{{http://www.w3.org/2000/svg}}{kind}"))  # noqa: S314 - our own


def test_the_headline_has_a_bar_for_each_client_as_long_as_its_figure() -> None:
    clients = {OURS: [reading(1.0)], BARE: [reading(0.5)], OPENAPI_GENERATOR: [reading(4.0)]}
    small = Outcome(row=choose_rows(["small-sequential"])[0], readings=clients)
    _, drawn = make_drawings(run(small))["headline.svg"]
    widths = [float(bar.attrib["width"]) for bar in shapes(drawn, "rect")[1:]]
    assert [width / widths[0] for width in widths] == pytest.approx([1.0, 0.5, 4.0], rel=0.01)
    assert max(widths) < float(ET.fromstring(drawn).attrib["width"])  # noqa: S314 - our own
    texts = [text.text for text in shapes(drawn, "text")]
    assert {"directsuite", "bare aiohttp", OPENAPI_GENERATOR} <= set(texts)


@pytest.mark.parametrize("peak", [0, 1_000_000])
def test_growth_is_drawn_where_there_are_several_sizes(peak: int) -> None:
    rows = [Outcome(row=row, readings={OURS: [reading(peak=peak)], BARE: [reading(peak=peak)]}) for row in GROWTH]
    drawn = make_drawings(run(*rows))
    assert {name for name in drawn if name.startswith("growth")} == {
        "growth-callers-cpu.svg",
        "growth-upload-peak.svg",
        "growth-download-peak.svg",
        "growth-messages-cpu.svg",
        "growth-messages-peak.svg",
    }
    for _, text in drawn.values():
        assert shapes(text, "path")
    assert not any(name.startswith("growth") for name in make_drawings(run(rows[0])))


def test_memory_over_time_is_drawn_for_the_rows_that_sampled_it() -> None:
    giant = Outcome(
        row=choose_rows(["giant-stream"])[0],
        readings={OURS: [reading()]},
        samples={OURS: [(0.0, 0.0), (1.0, 4.0), (2.0, 3.0)]},
    )
    assert "giant-stream.svg" in make_drawings(run(giant))
    assert make_drawings(run(attrs.evolve(giant, samples={}))) == {}


def test_a_run_is_written_with_links_that_lead_to_its_drawings(tmp_path: Path) -> None:
    clients = {OURS: [reading()], BARE: [reading()]}
    results = run(Outcome(row=choose_rows(["small-sequential"])[0], readings=clients), outcome())
    sheet = tmp_path / "RESULTS.md"
    write(results, tmp_path / "results", sheet)
    assert "(results/headline.svg)" in sheet.read_text(encoding="utf-8")
    assert (tmp_path / "results" / "headline.svg").exists()
    assert read_results(tmp_path / "results" / "results.json") == results
