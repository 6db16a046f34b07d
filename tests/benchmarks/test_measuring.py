"""Medians, rounds, gauges and workers: that what is read off is what happened."""

from __future__ import annotations

import asyncio
import json
import platform
import sys
from pathlib import Path

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.measuring.gauges import Reading, Ticker, read_gauges
from benchmarks.measuring.machine import describe_machine
from benchmarks.measuring.processes import WorkerFailedError, run_script
from benchmarks.measuring.rounds import Outcome, RowContext, measure, rotate, run_rounds
from benchmarks.measuring.spread import Spread, compute_ratios, compute_spread
from benchmarks.measuring.worker import WorkOrder
from benchmarks.peers import CannotError
from benchmarks.scenarios.rows import BARE, FLOOR, OURS, MeasuredRow
from benchmarks.scenarios.table import choose_rows
from benchmarks.server import run_server

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is read from /proc")

READING = Reading(amount=1, cpu=1.0, wall=1.0, peak=0, pause=0.0)
THREE = (OURS, BARE, FLOOR)


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ([4.0], Spread(4.0, 4.0, 4.0)),
        ([1.0, 3.0], Spread(2.0, 1.5, 2.5)),
        ([5.0, 1.0, 3.0, 2.0, 4.0], Spread(3.0, 2.0, 4.0)),
        ([1.0, 1.0, 1.0, 1.0, 900.0], Spread(1.0, 1.0, 1.0)),
    ],
)
def test_a_spread_is_the_median_and_its_quartiles(values: list[float], wanted: Spread) -> None:
    assert compute_spread(values) == wanted


@given(st.lists(st.floats(0.001, 1000), min_size=1, max_size=30))
def test_a_quarter_of_all_values_at_the_most_lies_beyond_each_quartile(values: list[float]) -> None:
    found = compute_spread(values)
    assert found.low <= found.median <= found.high
    assert 4 * sum(value < found.low - 1e-9 for value in values) <= len(values) + 2
    assert 4 * sum(value > found.high + 1e-9 for value in values) <= len(values) + 2


@given(st.lists(st.tuples(st.floats(0.1, 10), st.floats(0.5, 4)), min_size=1), st.floats(1, 100))
def test_what_slows_a_whole_round_does_not_change_its_ratio(rounds: list[tuple[float, float]], slower: float) -> None:
    base = [each for each, _ in rounds]
    ours = [each * ratio for each, ratio in rounds]
    found = compute_ratios([ours[0] * slower, *ours[1:]], [base[0] * slower, *base[1:]])
    assert found == pytest.approx([ratio for _, ratio in rounds])


def test_a_round_whose_base_is_nothing_is_left_out() -> None:
    assert compute_ratios([1.0, 2.0], [0.0, 4.0]) == [0.5]


def test_rounds_of_different_number_are_refused() -> None:
    with pytest.raises(ValueError, match="zip"):
        compute_ratios([1.0, 2.0], [1.0])


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_every_client_begins_a_round_as_often_as_the_others(count: int) -> None:
    clients = [str(number) for number in range(count)]
    orders = [rotate(clients, number) for number in range(2 * count)]
    assert all(sorted(order) == clients for order in orders)
    assert [order[0] for order in orders] == 2 * clients


async def test_every_round_has_a_turn_of_every_client() -> None:
    turns: list[str] = []

    async def player(client: str) -> Reading:
        turns.append(client)
        return READING

    outcome = Outcome(row=MeasuredRow(name="a", title="A", rounds=3))
    await run_rounds(outcome.row, THREE, player, outcome)
    assert [sorted(turns[start : start + 3]) for start in (0, 3, 6)] == [sorted(THREE)] * 3
    assert {client: len(series) for client, series in outcome.readings.items()} == dict.fromkeys(THREE, 3)


@pytest.mark.parametrize(
    ("failure", "why"),
    [(CannotError("no text/plain"), "can't: no text/plain"), (WorkerFailedError("MemoryError"), "failed: MemoryError")],
)
async def test_a_client_that_fails_in_a_later_round_is_absent_with_the_reason(failure: Exception, why: str) -> None:
    played: list[str] = []

    async def player(client: str) -> Reading:
        played.append(client)
        if client == BARE and played.count(BARE) == 2:
            raise failure
        return READING

    outcome = Outcome(row=MeasuredRow(name="a", title="A", rounds=4))
    await run_rounds(outcome.row, THREE, player, outcome)
    assert outcome.absent == {BARE: why}
    assert {client: len(series) for client, series in outcome.readings.items()} == {OURS: 4, FLOOR: 4}
    assert played.count(BARE) == 2


@pytest.mark.parametrize(("a_turn", "rounds"), [(0.1, 9), (1.0, 6), (4.0, 3), (100.0, 3)])
async def test_a_slow_row_ends_in_its_time_but_not_before_three_rounds(a_turn: float, rounds: int) -> None:
    now = 0.0

    async def player(client: str) -> Reading:
        nonlocal now
        now += a_turn if client in row.clients else 0.0
        return READING

    row = MeasuredRow(name="a", title="A", rounds=9, seconds=10.0, clients=(OURS, BARE))
    outcome = Outcome(row=row)
    await run_rounds(row, row.clients, player, outcome, clock=lambda: now)
    assert {client: len(series) for client, series in outcome.readings.items()} == {OURS: rounds, BARE: rounds}


async def test_peak_memory_is_that_of_the_turn_and_not_of_what_was_before() -> None:
    size = 40_000_000

    async def turn() -> int:
        held = bytearray(size)
        held[::4096] = b"x" * len(held[::4096])  # a page counts when it is written to
        return len(held)

    await read_gauges(turn, pauses=False)
    again = await read_gauges(turn, pauses=False)

    async def nothing() -> int:
        return 0

    assert again.amount == size
    assert size * 0.9 < again.peak < size * 1.2
    assert (await read_gauges(nothing, pauses=False)).peak < size / 10


async def test_a_pause_of_the_event_loop_is_noticed_even_at_the_very_end() -> None:
    async def busy() -> int:
        await asyncio.sleep(0)
        _ = sum(range(3_000_000))  # some milliseconds, at the least, without a turn of the loop
        return 1

    found = await read_gauges(busy, pauses=True)
    assert 0 < found.pause <= found.wall + 1
    async with Ticker() as ticker:
        pass
    assert ticker.longest >= 0
    assert (await read_gauges(busy, pauses=False)).pause == 0


@pytest.mark.process
async def test_a_script_tells_what_it_measured() -> None:
    found = await run_script(Path(sys.executable), 'import json; print(json.dumps({"cpu": 2.5, "wall": 3.5}))')
    assert (found.cpu, found.wall, found.amount) == (2.5, 3.5, 1)


@pytest.mark.process
async def test_a_script_that_fails_says_its_last_line() -> None:
    with pytest.raises(WorkerFailedError, match=r"^ModuleNotFoundError: No module named 'nothing_of_this_name'$"):
        await run_script(Path(sys.executable), "import nothing_of_this_name")


def test_the_machine_is_described_without_its_name() -> None:
    told = describe_machine()
    assert {"python", "cores", "aiohttp"} <= told.keys()
    assert not any(platform.node() in text or "/" in text for text in told.values())


@pytest.mark.process
@pytest.mark.parametrize(
    ("name", "clients"), [("small-sequential", (OURS, BARE)), ("upload", (OURS, FLOOR)), ("giant-stream", (OURS,))]
)
async def test_workers_measure_a_row_at_its_small_size(name: str, clients: tuple[str, ...], tmp_path: Path) -> None:
    (row,) = choose_rows([name])
    row = attrs.evolve(row.make_quick(), rounds=1, clients=clients)
    with run_server() as server:
        stage = RowContext(python=Path(sys.executable), server=server, folder=tmp_path, missing={})
        outcome = await measure(row, stage)
    assert not outcome.absent
    assert {client: len(series) for client, series in outcome.readings.items()} == dict.fromkeys(row.clients, 1)
    assert all(reading.cpu > 0 and reading.amount > 0 for (reading,) in outcome.readings.values())
    assert bool(outcome.samples) == row.sampled


@pytest.mark.parametrize(("fresh", "warm", "whole"), [(False, True, True), (False, False, False), (True, True, False)])
def test_an_order_has_the_row_at_its_size_and_the_warm_up_at_the_small_one(
    fresh: bool, warm: bool, whole: bool, tmp_path: Path
) -> None:
    (row,) = choose_rows(["download"])
    stage = RowContext(python=Path(sys.executable), server="http://server", folder=tmp_path, missing={})
    order = stage.make_order(attrs.evolve(row, fresh=fresh, warm=warm), OURS)
    assert order.warm is whole
    assert order.url == f"http://server/{row.scenario.to_segment()}"
    assert order.small_url == f"http://server/{row.make_quick().scenario.to_segment()}"
    assert order.make_task().options == row.options
    assert order.make_task(small=True).options == row.make_quick().options
    assert WorkOrder(**json.loads(order.to_json())) == order


@pytest.mark.process
async def test_a_client_that_was_missing_from_the_start_is_absent(tmp_path: Path) -> None:
    row = MeasuredRow(
        name="a", title="A", clients=(OURS, "other"), scripts={OURS: 'print(\'{"cpu": 1, "wall": 1}\')'}, rounds=1
    )
    stage = RowContext(
        python=Path(sys.executable), server="", folder=tmp_path, missing={"other": "no Java", "third": "no"}
    )
    outcome = await measure(row, stage)
    assert outcome.absent == {"other": "no Java"}
    assert list(outcome.readings) == [OURS]
