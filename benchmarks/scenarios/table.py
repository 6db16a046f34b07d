"""The rows: every target of the hot path, and what is worth knowing beside them.

A target that is a ratio holds in one run, on one machine, against bare aiohttp with the same JSON and base64 codec.
"""

from __future__ import annotations

import attrs

from benchmarks.scenarios.growth import GROWTH
from benchmarks.scenarios.rows import (
    AIOHTTP,
    BARE,
    FLOOR,
    OPENAPI_GENERATOR,
    OPENAPI_PYTHON_CLIENT,
    OURS,
    PEERS,
    UNTYPED,
    Figure,
    MeasuredRow,
    Quantity,
)
from benchmarks.scenarios.startup import READY_SCRIPT, SCRIPTS
from benchmarks.server.scenario import ServerScenario

MB = 1_000_000
_ATTACHMENT, _WITH_ATTACHMENTS = 200_000, 500
_CONNECTIONS, _LATENCY, _PER_BATCH = 10, 0.05, 50
_SMALL_FILE = 300_000

CPU, WALL, RATE, PEAK, PAUSE = Quantity.CPU, Quantity.WALL, Quantity.RATE, Quantity.PEAK, Quantity.PAUSE


def _make_ratio_figure(quantity: Quantity, *clients: str) -> tuple[Figure, ...]:
    return tuple(Figure(quantity=quantity, beside=client) for client in clients)


def _bulk(peak: float, pause: float, cpu: float = 2.0) -> tuple[Figure, ...]:
    """The figures of the rows that move much: the bounds in MB, milliseconds, and multiples of the floor."""
    return (
        Figure(quantity=PEAK, bound=peak, unit="MB"),
        Figure(quantity=CPU, beside=FLOOR, bound=cpu),
        Figure(quantity=PAUSE, bound=pause, unit="ms"),
        *_make_ratio_figure(CPU, BARE, *PEERS),
        *_make_ratio_figure(PEAK, *PEERS),
    )


_SMALL = MeasuredRow(
    name="small-sequential",
    title="One small call after another",
    work="small_calls",
    options={"calls": 400, "callers": 1},
    quick={"calls": 100},
    rounds=15,
    figures=(
        Figure(quantity=CPU, beside=BARE, bound=1.10),
        Figure(quantity=CPU, beside=OPENAPI_GENERATOR, bound=0.30),
        *_make_ratio_figure(CPU, OPENAPI_PYTHON_CLIENT),
        *_make_ratio_figure(WALL, BARE, *PEERS),
    ),
)
_METADATA = MeasuredRow(
    name="decode-page",
    title="Decode a page of 50 metadata records",
    work="decode_metadata",
    unit="record",
    options={"records": 50, "repeats": 150},
    quick={"repeats": 5},
    rounds=15,
    clients=(OURS, UNTYPED, BARE, *PEERS),
    figures=(
        Figure(quantity=CPU, beside=OPENAPI_GENERATOR, bound=0.40),
        Figure(quantity=CPU, beside=OPENAPI_PYTHON_CLIENT, bound=0.40),
        *_make_ratio_figure(CPU, UNTYPED, BARE),
    ),
)
_MOVED = MeasuredRow(
    name="upload",
    title="Upload 100 MB (Save, from a file)",
    work="upload",
    unit="KB",
    options={"bytes": 100 * MB},
    quick={"bytes": _SMALL_FILE},
    clients=(OURS, FLOOR, BARE, *PEERS),
    fresh=True,
    pauses=True,
    figures=_bulk(peak=2.0, pause=20.0),
)

TARGETS: tuple[MeasuredRow, ...] = (
    _SMALL,
    attrs.evolve(
        _SMALL,
        name="small-64",
        title="Small calls by 64 callers",
        options={"calls": 640, "callers": 64, "connections": 64},
        rounds=11,
    ),
    _METADATA,
    attrs.evolve(
        _METADATA,
        name="decode-10000",
        title="Decode 10,000 metadata records",
        options={"records": 10_000, "repeats": 1},
        quick={"records": 200},
        rounds=7,
        figures=_make_ratio_figure(CPU, *PEERS, UNTYPED, BARE),
    ),
    MeasuredRow(
        name="decode-attachments",
        title="Decode 500 records with attachments of 200 KB",
        work="decode_messages",
        unit="record",
        options={"records": _WITH_ATTACHMENTS, "attachment": _ATTACHMENT},
        quick={"records": 5},
        rounds=5,
        fresh=True,
        clients=(OURS, UNTYPED, BARE, *PEERS),
        figures=(
            Figure(quantity=PEAK, per=_WITH_ATTACHMENTS * 4 * -(-_ATTACHMENT // 3) / MB, bound=1.1, of="the payload"),
            *_make_ratio_figure(CPU, UNTYPED, BARE, *PEERS),
            *_make_ratio_figure(PEAK, *PEERS),
        ),
    ),
    _MOVED,
    attrs.evolve(_MOVED, name="send", title="Send 100 MB (Send, attached from a file)", work="send"),
    attrs.evolve(
        _MOVED,
        name="download",
        title="Download 100 MB (GetDoc, to a file)",
        work="download",
        scenario=ServerScenario(document=100 * MB),
        quick_scenario=ServerScenario(document=_SMALL_FILE),
        figures=_bulk(peak=2.0, pause=35.0, cpu=1.6),
    ),
    MeasuredRow(
        name="stream",
        title="Read a GetMessages answer of 300 MB, message by message",
        work="read_messages",
        unit="message",
        options={"records": 300},
        quick={"records": 5},
        scenario=ServerScenario(messages=300, attachment=750_000),
        quick_scenario=ServerScenario(messages=5, attachment=3000),
        clients=(OURS, FLOOR, BARE, *PEERS),
        rounds=5,
        fresh=True,
        pauses=True,
        figures=_bulk(peak=10.0, pause=35.0),
    ),
    MeasuredRow(
        name="batches",
        title="2,000 batches of 50 messages, in order, 50 ms latency, 10 connections",
        work="batches",
        unit="message",
        options={"batches": 2000, "per": _PER_BATCH},
        quick={"batches": 40},
        scenario=ServerScenario(latency=_LATENCY),
        rounds=3,
        warm=False,
        figures=(
            Figure(
                quantity=RATE,
                per=_CONNECTIONS / _LATENCY * _PER_BATCH / 100,
                bound=93.0,
                at_least=True,
                unit="%",
                of="what the latency permits",
            ),
            *_make_ratio_figure(RATE, BARE, *PEERS),
            *_make_ratio_figure(CPU, BARE, *PEERS),
        ),
    ),
    MeasuredRow(
        name="signing",
        title="Sign documents of 200 KB, three calls each, 32 under way",
        work="sign",
        unit="document",
        options={"documents": 160, "bytes": 200_000},
        quick={"documents": 8},
        scenario=ServerScenario(document=200_000),
        rounds=11,
        figures=(
            Figure(quantity=RATE, beside=BARE, bound=0.95, at_least=True),
            *_make_ratio_figure(RATE, *PEERS),
            *_make_ratio_figure(CPU, BARE, *PEERS),
        ),
    ),
    MeasuredRow(
        name="import",
        title="Import the package",
        unit="import",
        scripts=SCRIPTS,
        clients=(OURS, AIOHTTP, *PEERS),
        rounds=11,
        figures=(Figure(quantity=CPU, beside=AIOHTTP, bound=0.05), *_make_ratio_figure(CPU, *PEERS)),
    ),
    MeasuredRow(
        name="ready",
        title="A full client ready: imported, opened, the models of all four services used once",
        unit="start",
        scripts={**SCRIPTS, OURS: READY_SCRIPT},
        clients=(OURS, AIOHTTP, *PEERS),
        rounds=11,
        figures=(Figure(quantity=CPU, beside=AIOHTTP, bound=1.25), *_make_ratio_figure(CPU, *PEERS)),
    ),
)
"""The rows of the targets."""

_GIANT = MeasuredRow(
    name="giant-download",
    title="Download a PDF of 1 GB",
    work="download",
    unit="KB",
    options={"bytes": 1000 * MB},
    quick={"bytes": _SMALL_FILE},
    scenario=ServerScenario(document=1000 * MB),
    quick_scenario=ServerScenario(document=_SMALL_FILE),
    clients=(OURS,),
    rounds=1,
    fresh=True,
    pauses=True,
    sampled=True,
    figures=(Figure(quantity=PEAK, unit="MB"), Figure(quantity=PAUSE, unit="ms")),
)

GIANT: tuple[MeasuredRow, ...] = (
    _GIANT,
    attrs.evolve(
        _GIANT,
        name="giant-stream",
        title="Read a GetMessages answer of 1 GB, message by message",
        work="read_messages",
        unit="message",
        options={"records": 1000},
        quick={"records": 5},
        scenario=ServerScenario(messages=1000, attachment=750_000),
        quick_scenario=ServerScenario(messages=5, attachment=3000),
    ),
)
"""The rows whose memory is drawn over time."""

TABLE: tuple[MeasuredRow, ...] = (*TARGETS, *GROWTH, *GIANT)
"""All rows, in the order in which they run."""


def choose_rows(names: list[str]) -> tuple[MeasuredRow, ...]:
    """The rows of these names, or whose names begin with one of them and a dash; all where there are no names.

    Raises ValueError for a name that is none.
    """
    for name in names:
        if not any(_means(name, row) for row in TABLE):
            raise ValueError(name)
    return tuple(row for row in TABLE if not names or any(_means(name, row) for name in names))


def _means(name: str, row: MeasuredRow) -> bool:
    return row.name == name or row.name.startswith(f"{name}-")
