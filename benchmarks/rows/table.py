"""The rows. Ratios compare with bare aiohttp and the same JSON and base64 codecs, in one run on one machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from benchmarks.gauges import Reading
from benchmarks.server import ServerScenario

OURS, BARE = "ours", "bare"
PEERS = OPENAPI_GENERATOR, OPENAPI_PYTHON_CLIENT = "openapi-generator", "openapi-python-client"
FLOOR = "floor"
"""The least code that does the work, with bare aiohttp."""
AIOHTTP = "aiohttp"
"""Only `import aiohttp`."""

MB = 1_000_000


@attrs.frozen(eq=False)
class Quantity:
    """A quantity of a turn. column: its name and unit in tables. compute: its value in this unit."""

    name: str
    column: str
    compute: Callable[[Reading], float]

    def __str__(self) -> str:
        return self.name


CPU = Quantity("CPU", "CPU, µs", lambda reading: reading.cpu / reading.amount * 1e6)
WALL = Quantity("wall time", "wall, µs", lambda reading: reading.wall / reading.amount * 1e6)
RATE = Quantity("throughput", "per second", lambda reading: reading.amount / reading.wall)
PEAK = Quantity("peak memory", "peak, MB", lambda reading: reading.peak / 1e6)
P50 = Quantity("median pause", "p50, ms", lambda reading: reading.p50 * 1000)
P99 = Quantity("99th percentile of pauses", "p99, ms", lambda reading: reading.p99 * 1000)
PAUSE = Quantity("longest pause", "longest pause, ms", lambda reading: reading.pause * 1000)


@attrs.frozen
class Figure:
    """A quantity of our client, or its ratio to another client in the same round, with a target.

    beside: the other client. bound: the target, a minimum for RATE and a maximum for other quantities.
    per: a divisor of a quantity without another client. of: the quantity of which the figure is a multiple or a
    percentage.
    """

    quantity: Quantity
    beside: str | None = None
    bound: float | None = None
    per: float = 1.0
    unit: str = "x"
    of: str = ""

    @property
    def at_least(self) -> bool:
        """True if the bound is a minimum."""
        return self.quantity is RATE

    @property
    def name(self) -> str:
        """The name of the figure, unique within its row."""
        if self.beside:
            return f"{self.quantity} / {self.beside}"
        return f"{self.quantity}, {self.unit} of {self.of}" if self.of else f"{self.quantity}, {self.unit}"

    def is_met(self, value: float) -> bool:
        """Return True if the value meets the target, or if there is no target."""
        return self.bound is None or (value >= self.bound if self.at_least else value <= self.bound)

    def describe_verdict(self, value: float) -> str:
        """Return a text for the page: whether the value meets the target."""
        if self.bound is None:
            return ""
        return "met" if self.is_met(value) else f"**missed by {100 * abs(value - self.bound) / self.bound:.0f} %**"


@attrs.frozen
class MeasuredRow:
    """A measurement with several clients.

    name: for --only. work: a function in works. unit: the unit of work, for the report.
    options: the sizes of the work and of the server's responses.
    fresh: each turn runs in a new process, so that it cannot reuse memory; otherwise a turn is done before the first
    measured one. pauses: pauses of the event loop are measured. reads_files: the work reads `documents` files with the
    size `document`, from a disk instead of memory.
    scripts: instead of a work, Python code for each client, measured in a new interpreter.
    """

    name: str
    title: str
    work: str = ""
    unit: str = "call"
    options: Mapping[str, Any] = attrs.field(factory=dict[str, Any])
    rounds: int = 7
    clients: tuple[str, ...] = (OURS, BARE, *PEERS)
    figures: tuple[Figure, ...] = ()
    fresh: bool = False
    pauses: bool = False
    reads_files: bool = False
    scripts: Mapping[str, str] = attrs.field(factory=dict[str, str])

    @property
    def is_embedded(self) -> bool:
        """True if only the pauses are shown: what does a program notice in whose event loop the client runs?"""
        return self.name.startswith("embedding-")

    @property
    def scenario(self) -> ServerScenario:
        """The sizes of the server's responses."""
        names = {field.name for field in attrs.fields(ServerScenario)}
        return ServerScenario(**{name: size for name, size in self.options.items() if name in names})

    def make_quick(self) -> MeasuredRow:
        """Return a small row, which shows that the work runs. Its figures have no meaning."""
        options = {name: min(size, _QUICK.get(name, size)) for name, size in self.options.items()}
        return attrs.evolve(self, options=options, rounds=min(self.rounds, 2))


_QUICK = {
    "calls": 100,
    "repeats": 5,
    "messages": 5,
    "attachment": 200_000,
    "document": 300_000,
    "documents": 5,
    "signatures": 8,
    "batches": 40,
}
"""The maximum of each size for --quick and the warm-up."""


def _compare(quantity: Quantity, *clients: str, bound: float | None = None) -> tuple[Figure, ...]:
    return tuple(Figure(quantity, client, bound) for client in clients)


def _bulk(peak: float, pause: float, cpu: float) -> tuple[Figure, ...]:
    """Return the figures of large transfers: bounds in MB, in milliseconds, and as a multiple of the floor."""
    return (
        Figure(PEAK, bound=peak, unit="MB"),
        Figure(CPU, FLOOR, cpu),
        Figure(PAUSE, bound=pause, unit="ms"),
        *_compare(CPU, BARE, *PEERS),
        *_compare(PEAK, *PEERS),
    )


def _make_script(work: str) -> str:
    start, end = "cpu, wall = time.process_time(), time.perf_counter()", "time.process_time() - cpu"
    return f"""import json, time
{start}
{work}
print(json.dumps({{"cpu": {end}, "wall": time.perf_counter() - wall}}))
"""


_READY = """
import asyncio
import directsuite as ds
from directsuite import types

URL = "https://127.0.0.1:9"
ANSWERS = {
    ds.DocumentInfo: b'{"identifier": "1", "documentDigest": "2"}',
    ds.FaxMessageInformation: b'{"messageDetail": [{"faxNumber": "1"}]}',
    types.GetMessageResponse: b'{"success": true, "code": 0, "messages": [{"uid": 1, "headers": [{"name": "a"}]}]}',
    ds.AddUsersResponseV2: b'{"success": true, "code": "000"}',
}

async def ready():
    settings = ds.Settings(signing_url=URL, fax_url=URL, message_url=URL, registration_url=URL)
    async with ds.DirectSuite(settings, token="1", login=ds.Login("a", "b")) as suite:
        assert suite.signing and suite.fax and suite.registration and suite.mailbox("a@b.test", "c")
        codec = suite._transport.environment.codec
        codec.encode(ds.Message(subject="a", recipients=[ds.Recipient("a@b.test")]))
        for model, answer in ANSWERS.items():
            codec.decode(model, answer)

asyncio.run(ready())
"""
_IMPORTS = {
    OURS: _make_script("import directsuite"),
    AIOHTTP: _make_script("import aiohttp"),
    OPENAPI_GENERATOR: _make_script("from benchmarks.peers.openapi_generator import load; load()"),
    OPENAPI_PYTHON_CLIENT: _make_script("from benchmarks.peers.openapi_python_client import load; load()"),
}
_ATTACHMENTS_MB = 500 * 4 * -(-200_000 // 3) / MB
_MAX_BATCH_RATE = 10 / 0.05 * 50  # messages per second: 10 connections, 50 ms, batches of 50

_SMALL = MeasuredRow(
    "small-sequential",
    "One small call after another",
    "small_calls",
    options={"calls": 400, "callers": 1},
    rounds=15,
    figures=(
        Figure(CPU, BARE, 1.05),
        Figure(CPU, OPENAPI_GENERATOR, 0.30),
        *_compare(CPU, OPENAPI_PYTHON_CLIENT),
        *_compare(WALL, BARE, *PEERS),
    ),
)
_METADATA = MeasuredRow(
    "decode-page",
    "Decode a page of 50 metadata records",
    "decode_metadata",
    "record",
    {"messages": 50, "repeats": 150},
    rounds=15,
    figures=(*_compare(CPU, *PEERS, bound=0.40), *_compare(CPU, BARE)),
)
_UPLOAD = MeasuredRow(
    "upload",
    "Upload 100 MB (Save, from a file)",
    "upload",
    "KB",
    {"document": 100 * MB},
    clients=(OURS, FLOOR, BARE, *PEERS),
    fresh=True,
    pauses=True,
    reads_files=True,  # in the system's cache
    figures=_bulk(peak=2.0, pause=20.0, cpu=1.35),
)
_DOWNLOAD = attrs.evolve(
    _UPLOAD,
    name="download",
    title="Download 100 MB (GetDoc, to a file)",
    work="download",
    reads_files=False,
    figures=_bulk(peak=2.0, pause=35.0, cpu=1.6),
)
_STREAM = attrs.evolve(
    _DOWNLOAD,
    name="stream",
    title="Read a GetMessages response of 300 MB, message by message",
    work="read_messages",
    unit="message",
    options={"messages": 300, "attachment": 750_000},
    rounds=5,
    figures=_bulk(peak=10.0, pause=35.0, cpu=1.9),
)
_READY_ROW = MeasuredRow(
    "ready",
    "Start a client over https: import, open, and use the models of all four services once",
    unit="start",
    scripts={**_IMPORTS, OURS: _make_script(_READY)},
    clients=(OURS, AIOHTTP, *PEERS),
    rounds=11,
    figures=(Figure(CPU, AIOHTTP, 1.45), *_compare(CPU, *PEERS)),
)
_JOB = MeasuredRow(
    "job",
    "Sign 200 documents of 200 KB in a job with a journal",
    "sign_folder",
    "document",
    {"documents": 200, "document": 200_000},
    clients=(OURS, FLOOR, BARE),
    fresh=True,
    pauses=True,
    reads_files=True,
    figures=(
        Figure(RATE, FLOOR, 1.1),
        Figure(RATE, BARE, 0.5),
        *_compare(CPU, FLOOR, BARE),
        *_compare(PEAK, FLOOR, BARE),
    ),
)


def _embed(name: str, title: str, work: str, options: Mapping[str, Any], pause: float | None = None) -> MeasuredRow:
    """Return a row of which only the pauses are shown. pause: the bound of the longest one, in milliseconds."""
    figures = () if pause is None else (Figure(PAUSE, bound=pause, unit="ms"),)
    clients = (OURS,) if work == "synchronise" else (OURS, BARE)
    return MeasuredRow(
        name, title, work, options=options, rounds=5, clients=clients, figures=figures, fresh=True, pauses=True
    )


def _enlarge(row: MeasuredRow, title: str, options: Mapping[str, Any]) -> MeasuredRow:
    figures = Figure(PEAK, unit="MB"), Figure(PAUSE, unit="ms")
    name = f"giant-{row.name}"
    return attrs.evolve(row, name=name, title=title, options=options, figures=figures, clients=(OURS,), rounds=1)


TABLE: tuple[MeasuredRow, ...] = (
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
        options={"messages": 10_000, "repeats": 1},
        rounds=7,
        figures=_compare(CPU, *PEERS, BARE),
    ),
    MeasuredRow(
        "list-attachments",
        "Read a list of 500 messages with attachments of 200 KB",
        "get_messages",
        "message",
        {"messages": 500, "attachment": 200_000},
        rounds=5,
        fresh=True,
        figures=(
            Figure(PEAK, per=_ATTACHMENTS_MB, bound=2.1, of="the payload"),  # the payload itself, and its decoded list
            *_compare(CPU, BARE, *PEERS),
            *_compare(PEAK, *PEERS),
        ),
    ),
    _UPLOAD,
    attrs.evolve(_UPLOAD, name="send", title="Send 100 MB (Send, attached from a file)", work="send"),
    _DOWNLOAD,
    _STREAM,
    MeasuredRow(
        "batches",
        "2,000 batches of 50 messages, in order, 50 ms latency, 10 connections",
        "batches",
        "message",
        {"batches": 2000, "per": 50, "latency": 0.05},
        rounds=3,
        fresh=True,
        figures=(
            Figure(RATE, per=_MAX_BATCH_RATE / 100, bound=93.0, unit="%", of="the maximum at this latency"),
            *_compare(RATE, BARE, *PEERS),
            *_compare(CPU, BARE, *PEERS),
        ),
    ),
    MeasuredRow(
        "signing",
        "Sign documents of 200 KB, three calls each, 32 at a time",
        "sign",
        "document",
        {"signatures": 160, "document": 200_000},
        rounds=11,
        reads_files=True,
        figures=(Figure(RATE, BARE, 0.88), *_compare(RATE, *PEERS), *_compare(CPU, BARE, *PEERS)),
    ),
    attrs.evolve(
        _READY_ROW,
        name="import",
        title="Import the package",
        unit="import",
        scripts=_IMPORTS,
        figures=(Figure(CPU, AIOHTTP, 0.05), *_compare(CPU, *PEERS)),
    ),
    _READY_ROW,
    _JOB,
    attrs.evolve(
        _JOB,
        name="job-slow",
        title="The same with signatures that take 50 ms",
        options={**_JOB.options, "latency": 0.05},
        pauses=False,
        figures=_compare(RATE, FLOOR, BARE),
    ),
    _enlarge(_DOWNLOAD, "Download a PDF of 1 GB", {"document": 1000 * MB}),
    _enlarge(
        _STREAM, "Read a GetMessages response of 1 GB, message by message", {"messages": 1000, "attachment": 750_000}
    ),
    _embed(
        "embedding-calls",
        "Small calls by 64 callers",
        "small_calls",
        {"calls": 12_800, "callers": 64, "connections": 64},
    ),
    _embed(
        "embedding-list", "Read a list of 100,000 messages of 0.8 KB", "get_messages", {"messages": 100_000}, pause=50.0
    ),
    _embed(
        "embedding-attachments",
        "Read a list of 50 messages of 1 MB",
        "get_messages",
        {"messages": 50, "attachment": 750_000},
        pause=20.0,
    ),
    _embed(
        "embedding-sync",
        "Synchronise 20 mailboxes with 200 messages of 20 KB each into SQLite",
        "synchronise",
        {"mailboxes": 20, "messages": 200, "attachment": 15_000},
    ),
)


def choose_rows(names: list[str]) -> tuple[MeasuredRow, ...]:
    """Return the rows with these names, or with names that start with one of them and a hyphen; all without names.

    Raises ValueError if a name matches no row.
    """
    found = {name: [row for row in TABLE if f"{row.name}-".startswith(f"{name}-")] for name in names}
    for name, rows in found.items():
        if not rows:
            raise ValueError(f"There is no row {name}. The rows are: {', '.join(row.name for row in TABLE)}")
    return tuple(row for row in TABLE if not names or any(row in rows for rows in found.values()))
