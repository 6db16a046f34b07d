"""The rows: the table, works, rounds, figures, and the page."""

from __future__ import annotations

import asyncio
import json
import platform
import sys
import time
from pathlib import Path

import attrs
import pytest

from benchmarks.__main__ import main
from benchmarks.gauges import Reading, Ticker, read_gauges
from benchmarks.peers.environment import PreparedPeers
from benchmarks.processes import Spread, compute_ratios, describe_machine
from benchmarks.rows import table, works
from benchmarks.rows.command import draw_pictures, format_page, write
from benchmarks.rows.rounds import (
    Outcome,
    Results,
    RowContext,
    WorkerFailedError,
    measure,
    rotate,
    run_rounds,
    run_script,
)
from benchmarks.rows.table import BARE, CPU, FLOOR, OURS, PAUSE, PEAK, RATE, TABLE, Figure, MeasuredRow, choose_rows
from benchmarks.rows.works import WorkTask, make_sources
from benchmarks.server import run_server

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is read from /proc")

READING = Reading(amount=100, cpu=1.0, wall=2.0, peak=1_000_000, p50=0.0005, p99=0.002, pause=0.01)
ROW = MeasuredRow(
    name="upload",
    title="Upload 100 MB",
    unit="MB",
    clients=(OURS, BARE, FLOOR),
    rounds=3,
    pauses=True,
    figures=(
        Figure(CPU, FLOOR, 2.0),
        Figure(PEAK, bound=2.0, unit="MB"),
        Figure(RATE, per=0.5, bound=93.0, unit="%", of="the maximum"),
        Figure(PAUSE, bound=20.0, unit="ms"),
        Figure(CPU, table.OPENAPI_GENERATOR),
    ),
)


# The table


def test_names_are_unique() -> None:
    assert len({row.name for row in TABLE}) == len(TABLE)
    for row in TABLE:
        assert len({figure.name for figure in row.figures}) == len(row.figures)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_row_can_be_measured(row: MeasuredRow) -> None:
    assert OURS in row.clients
    assert {figure.beside for figure in row.figures} <= {*row.clients, None}
    small, measured = row.make_quick(), {figure.quantity for figure in row.figures if figure.beside is None}
    if row.scripts:
        assert set(row.clients) <= row.scripts.keys()
        for script in row.scripts.values():
            compile(script, row.name, "exec")
        return
    assert callable(getattr(works, row.work))
    assert {*row.clients} <= {OURS, BARE, FLOOR, *table.PEERS}
    assert row.fresh or not measured & {PEAK, PAUSE}
    assert row.pauses or PAUSE not in measured
    assert all(small.options[name] <= row.options[name] for name in row.options)
    assert row.scenario.messages == row.options.get("messages", 50)


@pytest.mark.parametrize(
    ("names", "found"),
    [
        *((["small"], ["small-sequential", "small-64"]), (["giant"], ["giant-download", "giant-stream"])),
        *((["send", "import"], ["send", "import"]), ([], [row.name for row in TABLE])),
    ],
)
def test_rows_are_chosen_by_name_or_group(names: list[str], found: list[str]) -> None:
    assert [row.name for row in choose_rows(names)] == found


def test_unknown_row_is_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "send", "sen"]) == 2
    assert "There is no row sen. The rows are: small-sequential, small-64, " in capsys.readouterr().err


# Works


class Stub:
    """A client that counts its calls and returns six for each of them."""

    def __init__(self) -> None:
        self.called: list[str] = []

    def __getattr__(self, name: str) -> object:
        async def call(*_: object) -> int:
            self.called.append(name)
            await asyncio.sleep(0)
            return 6

        return call


@pytest.mark.parametrize(
    ("work", "options", "calls", "amount"),
    [
        ("small_calls", {"calls": 10, "callers": 1}, ["message_count"] * 10, 10),
        ("small_calls", {"calls": 10, "callers": 4}, ["message_count"] * 8, 8),
        ("upload", {"document": 3000}, ["upload"], 3),
        ("send", {"document": 3000}, ["send"], 3),
        ("download", {"document": 6}, ["download"], 0),
        ("read_messages", {"messages": 6}, ["read_messages"], 6),
        ("batches", {"batches": 3, "per": 2}, ["batches"], 6),
        ("sign", {"signatures": 40, "document": 30}, ["sign"] * 40, 40),
    ],
)
async def test_turn_does_its_work(
    work: str, options: dict[str, int], calls: list[str], amount: int, tmp_path: Path
) -> None:
    client = Stub()
    task = WorkTask(options=options, sources=make_sources(tmp_path, 1, options.get("document", 100)))
    assert await getattr(works, work)(client, task) == amount
    assert client.called == calls


@pytest.mark.parametrize(
    ("work", "options", "error"),
    [
        ("read_messages", {"messages": 7}, "6 messages of 7"),
        ("batches", {"batches": 7, "per": 1}, "6 messages of 7"),
        ("download", {"document": 7}, "6 bytes of 7"),
    ],
)
async def test_client_that_misses_messages_or_bytes_fails(work: str, options: dict[str, int], error: str) -> None:
    with pytest.raises(AssertionError, match=error):
        await getattr(works, work)(Stub(), WorkTask(options=options))


@pytest.mark.parametrize("size", [30, 1_000, 3 * 1_048_576])
def test_sources_have_the_size_and_are_created_once(size: int, tmp_path: Path) -> None:
    paths = make_sources(tmp_path, 2, size)
    content = paths[1].read_bytes()
    assert (len(content), content[:5], content[-6:]) == (size, b"%PDF-", b"%%EOF\n")
    paths[0].write_bytes(b"")
    assert make_sources(tmp_path, 2, size) == paths
    assert paths[0].read_bytes() == b""


# Gauges and rounds


def test_ratios_compare_values_of_the_same_round() -> None:
    assert compute_ratios([20.0, 2.0, 1.0], [10.0, 1.0, 0.0]) == [2.0, 2.0]
    with pytest.raises(ValueError, match="zip"):
        compute_ratios([1.0, 2.0], [1.0])


@pytest.mark.wide
async def test_peak_memory_is_above_the_memory_before_the_turn() -> None:
    size = 40_000_000

    async def turn() -> int:
        held = bytearray(size)
        held[::4096] = b"x" * len(held[::4096])  # a page counts after a write
        return len(held)

    async def nothing() -> int:
        return 0

    await read_gauges(turn, pauses=False)
    again = await read_gauges(turn, pauses=False)
    assert again.amount == size
    assert size * 0.9 < again.peak < size * 1.2
    assert (await read_gauges(nothing, pauses=False)).peak < size / 10


async def test_pause_at_the_end_of_a_turn_is_measured() -> None:
    async def busy() -> int:
        await asyncio.sleep(0)
        _ = sum(range(3_000_000))  # several milliseconds
        return 1

    found = await read_gauges(busy, pauses=True)
    assert 0 < found.pause <= found.wall + 1
    assert (await read_gauges(busy, pauses=False)).pause == 0
    async with Ticker() as ticker:
        time.sleep(0.02)  # noqa: ASYNC251  ten ticks are due during this pause
    assert len([delay for delay in ticker.delays if delay > 0.003]) > 5


def test_description_of_the_machine_does_not_contain_its_name() -> None:
    described = describe_machine()
    assert {"python", "cores", "aiohttp"} <= described.keys()
    assert not any(platform.node() in text or "/" in text for text in described.values())


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_every_client_is_first_equally_often(count: int) -> None:
    clients = [str(number) for number in range(count)]
    orders = [rotate(clients, number) for number in range(2 * count)]
    assert all(sorted(order) == clients for order in orders)
    assert [order[0] for order in orders] == 2 * clients


async def test_client_that_fails_later_is_absent_with_the_reason() -> None:
    turns = list[str]()

    async def take_turn(client: str) -> Reading:
        turns.append(client)
        if client == BARE and turns.count(BARE) == 2:
            raise WorkerFailedError("MemoryError")
        return READING

    outcome = Outcome(row=attrs.evolve(ROW, rounds=4))
    await run_rounds(outcome, take_turn)
    assert outcome.absent == {BARE: "MemoryError"}
    assert {client: len(series) for client, series in outcome.readings.items()} == {OURS: 4, FLOOR: 4}


def make_peers(**missing: str) -> PreparedPeers:
    return PreparedPeers(python=sys.executable, missing=missing, versions={})


@pytest.mark.process
@pytest.mark.parametrize(("name", "clients"), [("small-sequential", (OURS, BARE)), ("upload", (OURS, FLOOR))])
async def test_workers_measure_a_row(name: str, clients: tuple[str, ...], tmp_path: Path) -> None:
    [row] = choose_rows([name])
    row = attrs.evolve(row.make_quick(), rounds=1, clients=clients)
    with run_server() as server:
        context = RowContext(make_peers(), server, tmp_path, tmp_path, quick=True)
        outcome = await measure(row, context)
    assert not outcome.absent
    assert {client: len(series) for client, series in outcome.readings.items()} == dict.fromkeys(row.clients, 1)
    assert all(reading.cpu > 0 and reading.amount > 0 for (reading,) in outcome.readings.values())


@pytest.mark.process
async def test_scripts_are_measured_and_missing_clients_are_absent(tmp_path: Path) -> None:
    scripts = {OURS: 'print(\'{"cpu": 1, "wall": 1}\')'}
    row = MeasuredRow(name="a", title="A", clients=(OURS, "other"), scripts=scripts, rounds=1)
    context = RowContext(make_peers(other="no Java", third=""), "", tmp_path, tmp_path)
    outcome = await measure(row, context)
    assert outcome.absent == {"other": "no Java"}
    assert list(outcome.readings) == [OURS]
    with pytest.raises(WorkerFailedError, match=r"^ModuleNotFoundError: No module named 'nothing_of_this_name'$"):
        await run_script(sys.executable, "import nothing_of_this_name")


# Results and the page


def make_outcome() -> Outcome:
    """Three rounds of two clients, of which the third was slow for both, and an absent client."""
    ours = [(3.0, 1_000_000), (3.2, 5_000_000), (30.0, 4_000_000)]
    readings = {OURS: [attrs.evolve(READING, cpu=cpu, peak=peak) for cpu, peak in ours]}
    readings[FLOOR] = [attrs.evolve(READING, cpu=cpu) for cpu in (1.0, 1.0, 10.0)]
    return Outcome(row=ROW, readings=readings, absent={table.OPENAPI_PYTHON_CLIENT: "cannot: no text/plain | bodies"})


def make_results(*outcomes: Outcome, quick: bool = False) -> Results:
    return Results(machine={"cores": "2", "httpx": "0.28"}, seconds=90.0, outcomes=[*outcomes], quick=quick)


def test_figure_is_the_median_of_ratios_or_of_the_quantity() -> None:
    figures = {figure.name: (figure, spread) for figure, spread in make_outcome().compute_figures().items()}
    ratio, spread = figures["CPU / floor"]
    assert (spread, ratio.describe_verdict(spread.median)) == (Spread(3.0, 3.0, 3.1), "**missed by 50 %**")
    medians = {name: (spread.median, figure.is_met(spread.median)) for name, (figure, spread) in figures.items()}
    assert medians["peak memory, MB"] == (4.0, False)
    assert medians["throughput, % of the maximum"] == (100.0, True)
    assert medians["longest pause, ms"] == (10.0, True)
    assert "CPU / openapi-generator" not in medians


def test_without_our_readings_there_are_no_figures() -> None:
    found = Outcome(row=ROW, readings={FLOOR: [READING]}, absent={OURS: "failed: MemoryError"})
    assert found.compute_figures() == {}
    assert "failed: MemoryError" in format_page(make_results(found))


def test_page_has_targets_clients_reasons_and_the_machine() -> None:
    text = format_page(make_results(make_outcome()), ["results/headline.svg"])
    assert "2 of 4 targets met" in text
    assert "| Upload 100 MB | CPU / floor | ≤ 2 x | 3.00 [3.00-3.10] | **missed by 50 %** |" in text
    assert "| ≥ 93 % | 100 [100-100] | met |" in text
    assert "| client | CPU, µs | wall, µs | per second | peak, MB | longest pause, ms |" in text
    assert "| ours | 0.50 [0.50-0.50] | 2.00 [2.00-2.00] | 10.0 [10.0-10.0] |" in text
    assert "| ours | 32,000 [31,000-166,000] |" in text
    assert "| openapi-python-client | cannot: no text/plain / bodies |  |  |  |  |" in text
    assert "| cores | 2 |\n| httpx | 0.28 |" in text
    assert "(results/headline.svg)" in text
    assert "quick run" not in text
    assert "quick run" in format_page(make_results(make_outcome(), quick=True))


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0"), (0.00144, "0.0014"), (0.5, "0.50"), (12.34, "12.3"), (1234.5, "1,234")]
)
def test_number_has_two_or_three_digits(value: float, text: str) -> None:
    outcome = Outcome(row=ROW, readings={OURS: [attrs.evolve(READING, peak=round(value * 1_000_000))]})
    assert f" {text} [" in format_page(make_results(outcome))


def test_every_row_fits_on_the_page() -> None:
    outcomes = [Outcome(row=row, readings={client: [READING] for client in row.clients}) for row in TABLE]
    text = format_page(make_results(*outcomes))
    assert all(row.title in text for row in TABLE)


@pytest.mark.process  # matplotlib lists the fonts
def test_results_are_written_with_links_to_the_pictures(tmp_path: Path) -> None:
    rows = [*choose_rows(["small-sequential", "embedding", "job"])]
    results = make_results(*(Outcome(row=row, readings={OURS: [READING], BARE: [READING]}) for row in rows))
    write(results, tmp_path / "results", tmp_path / "RESULTS.md")
    page = (tmp_path / "RESULTS.md").read_text("utf-8")
    stored = json.loads((tmp_path / "results" / "results.json").read_text("utf-8"))
    assert stored["rows"]["job"][BARE] == [attrs.asdict(READING)]
    for name in ("headline", "embedding"):
        assert f"(results/{name}.svg)" in page
        assert "ours" in (tmp_path / "results" / f"{name}.svg").read_text("utf-8")
    assert draw_pictures(make_results(make_outcome()), tmp_path) != []
    assert draw_pictures(make_results(), tmp_path) == []
