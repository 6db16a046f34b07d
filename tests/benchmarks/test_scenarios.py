"""The table: every target of the hot path has its row, and every row can run."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from benchmarks.scenarios.growth import CURVES, GROWTH
from benchmarks.scenarios.rows import (
    AIOHTTP,
    BARE,
    CLIENT_FOR,
    FLOOR,
    OPENAPI_GENERATOR,
    OPENAPI_PYTHON_CLIENT,
    OURS,
    UNTYPED,
    Figure,
    MeasuredRow,
    Quantity,
)
from benchmarks.scenarios.table import TABLE, TARGETS, choose_rows
from benchmarks.scenarios.works import WORKS, WorkTask

CPU, RATE, PEAK, PAUSE = Quantity.CPU, Quantity.RATE, Quantity.PEAK, Quantity.PAUSE
GENERATED = (OPENAPI_GENERATOR, OPENAPI_PYTHON_CLIENT)

TARGETED: dict[str, set[tuple[Quantity, str | None, float]]] = {
    "small-sequential": {(CPU, BARE, 1.10), (CPU, OPENAPI_GENERATOR, 0.30)},
    "small-64": {(CPU, BARE, 1.10), (CPU, OPENAPI_GENERATOR, 0.30)},
    "decode-page": {(CPU, OPENAPI_GENERATOR, 0.40), (CPU, OPENAPI_PYTHON_CLIENT, 0.40)},
    "decode-attachments": {(PEAK, None, 1.1)},
    "upload": {(PEAK, None, 2.0), (CPU, FLOOR, 2.0), (PAUSE, None, 20.0)},
    "send": {(PEAK, None, 2.0), (CPU, FLOOR, 2.0), (PAUSE, None, 20.0)},
    "download": {(PEAK, None, 2.0), (CPU, FLOOR, 1.6), (PAUSE, None, 35.0)},
    "stream": {(PEAK, None, 10.0), (CPU, FLOOR, 2.0), (PAUSE, None, 35.0)},
    "batches": {(RATE, None, 93.0)},
    "signing": {(RATE, BARE, 0.95)},
    "import": {(CPU, AIOHTTP, 0.05)},
    "ready": {(CPU, AIOHTTP, 1.25)},
}


def bounds(row: MeasuredRow) -> set[tuple[Quantity, str | None, float]]:
    """The targets of a row."""
    return {(figure.quantity, figure.beside, figure.bound) for figure in row.figures if figure.bound is not None}


def test_every_target_has_its_row_and_its_bound() -> None:
    assert {row.name: bounds(row) for row in TARGETS if bounds(row)} == TARGETED


def test_the_ratio_to_an_untyped_parse_is_told_beside() -> None:
    (row,) = choose_rows(["decode-page"])
    assert any(figure.quantity is CPU and figure.beside == UNTYPED for figure in row.figures)


def test_throughput_has_to_be_reached_and_all_else_to_be_stayed_below() -> None:
    figures = [figure for row in TABLE for figure in row.figures if figure.bound is not None]
    assert all(figure.at_least == (figure.quantity is RATE) for figure in figures)


def test_names_are_told_apart() -> None:
    assert len({row.name for row in TABLE}) == len(TABLE)
    for row in TABLE:
        assert len({figure.name for figure in row.figures}) == len(row.figures)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_a_row_has_a_work_or_scripts_for_each_of_its_clients(row: MeasuredRow) -> None:
    assert OURS in row.clients
    assert {figure.beside for figure in row.figures} <= {*row.clients, None}
    if row.scripts:
        assert set(row.clients) <= row.scripts.keys()
        for script in row.scripts.values():
            compile(script, row.name, "exec")
    else:
        assert row.work in WORKS
        assert {CLIENT_FOR.get(client, client) for client in row.clients} <= {OURS, BARE, *GENERATED}


@pytest.mark.parametrize("row", [row for row in TABLE if not row.scripts], ids=lambda row: row.name)
def test_memory_and_pauses_are_measured_where_no_turn_before_disturbs_them(row: MeasuredRow) -> None:
    watched = {figure.quantity for figure in row.figures if figure.beside is None}
    assert row.fresh or not watched & {PEAK, PAUSE}
    assert row.pauses or PAUSE not in watched


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_a_smoke_run_takes_less_of_the_same(row: MeasuredRow) -> None:
    small = row.make_quick()
    assert small.rounds <= 2
    assert small.options.keys() == row.options.keys()
    assert all(small.options[name] <= row.options[name] for name in row.options)
    assert small.scenario.messages <= row.scenario.messages
    assert small.scenario.document <= row.scenario.document
    assert (small.figures, small.clients) == (row.figures, row.clients)


@pytest.mark.exhaustive
@pytest.mark.parametrize("row", [row for row in TABLE if not row.scripts], ids=lambda row: row.name)
@pytest.mark.parametrize("small", [False, True])
def test_the_server_answers_as_much_as_the_work_expects(row: MeasuredRow, small: bool) -> None:
    sized = row.make_quick() if small else row
    if row.work == "download":
        assert sized.scenario.document == sized.options["bytes"]
    if row.work == "read_messages":
        assert sized.scenario.messages == sized.options["records"]


def test_each_curve_has_rows_of_several_sizes() -> None:
    for curve in CURVES:
        sizes = [row.at for row in GROWTH if row.curve == curve.curve]
        assert len(sizes) >= 3
        assert sizes == sorted(set(sizes))
        assert min(sizes) >= 1 or not curve.log


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["small"], ["small-sequential", "small-64"]),
        (["send", "import"], ["send", "import"]),
        (["giant"], ["giant-download", "giant-stream"]),
        ([], [row.name for row in TABLE]),
    ],
)
def test_rows_are_chosen_by_name_or_group(names: list[str], found: list[str]) -> None:
    assert [row.name for row in choose_rows(names)] == found


@pytest.mark.parametrize("name", ["nothing", "sen", "import-"])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        choose_rows(["send", name])


@pytest.mark.parametrize(
    ("bound", "at_least", "value", "met"),
    [(2.0, False, 2.0, True), (2.0, False, 2.01, False), (93.0, True, 93.0, True), (93.0, True, 92.9, False)],
)
def test_a_target_is_met_up_to_its_bound(bound: float, at_least: bool, value: float, met: bool) -> None:
    assert Figure(quantity=CPU, bound=bound, at_least=at_least).is_met(value) is met
    assert Figure(quantity=CPU).is_met(value) is None


class Stub:
    """A client that counts its calls, and decodes to as many messages as it is told."""

    def __init__(self, messages: int = 0) -> None:
        self.called: list[str] = []
        self.found = messages

    def __getattr__(self, name: str) -> object:
        async def call(*_: object) -> int:
            """Any of the methods."""
            self.called.append(name)
            await asyncio.sleep(0)
            return self.found

        return call


@pytest.mark.parametrize(
    ("work", "role", "options", "calls", "amount"),
    [
        ("small_calls", OURS, {"calls": 10, "callers": 1}, ["message_count"] * 10, 10),
        ("small_calls", OURS, {"calls": 10, "callers": 4}, ["message_count"] * 8, 8),
        ("upload", OURS, {"bytes": 3000}, ["upload"], 3),
        ("upload", FLOOR, {"bytes": 3000}, ["floor_upload"], 3),
        ("send", FLOOR, {"bytes": 3000}, ["floor_upload"], 3),
        ("send", BARE, {"bytes": 3000}, ["send"], 3),
        ("download", FLOOR, {"bytes": 3000}, ["floor_download"], 3),
        ("read_messages", OURS, {"records": 6}, ["read_messages"], 6),
        ("read_messages", FLOOR, {"records": 6}, ["floor_read_messages"], 6),
        ("batches", OURS, {"batches": 3, "per": 2}, ["batches"], 6),
        ("sign", BARE, {"documents": 40, "bytes": 30}, ["sign"] * 40, 40),
    ],
)
async def test_a_turn_does_what_its_row_says(
    work: str, role: str, options: dict[str, int], calls: list[str], amount: int, tmp_path: Path
) -> None:
    client = Stub(messages=6)
    turn = WORKS[work](client, WorkTask(work=work, role=role, options=options, folder=tmp_path))
    assert client.called == []
    assert await turn() == amount
    assert client.called == calls


@pytest.mark.parametrize(
    ("work", "options"), [("read_messages", {"records": 7}), ("batches", {"batches": 7, "per": 1})]
)
async def test_a_client_that_misses_messages_is_not_measured(
    work: str, options: dict[str, int], tmp_path: Path
) -> None:
    turn = WORKS[work](Stub(messages=6), WorkTask(work=work, role=OURS, options=options, folder=tmp_path))
    with pytest.raises(AssertionError, match="6 messages of 7"):
        await turn()


@pytest.mark.parametrize("size", [3, 9, 4096, 3_000_001])
def test_a_file_has_the_size_that_is_asked_for_and_is_made_once(size: int, tmp_path: Path) -> None:
    task = WorkTask(work="upload", role=OURS, options={}, folder=tmp_path)
    path = task.make_file(size)
    assert path.stat().st_size == size
    assert path.read_bytes().startswith(b"%PDF-1.7\n"[:size])
    made = path.stat().st_mtime_ns
    assert task.make_file(size) == path
    assert path.stat().st_mtime_ns == made


@pytest.mark.parametrize("row", [row for row in choose_rows([]) if row.work == "small_calls"], ids=lambda row: row.name)
def test_each_caller_has_a_call_of_its_own(row: MeasuredRow) -> None:
    assert all(each.options["calls"] >= each.options["callers"] for each in (row, row.make_quick()))
