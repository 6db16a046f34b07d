"""The rows. Ratios compare with bare aiohttp and the same JSON and base64 codecs, in one run on one machine."""

from __future__ import annotations

import enum
from collections.abc import Mapping

import attrs

from benchmarks.server import ServerScenario

OURS, BARE = "ours", "bare"
PEERS = OPENAPI_GENERATOR, OPENAPI_PYTHON_CLIENT = "openapi-generator", "openapi-python-client"
FLOOR = "floor"
"""Bare aiohttp that transfers the same bytes without encoding, decoding or keeping them."""
UNTYPED = "untyped"
"""msgspec's parser with dictionaries and lists as the result."""
AIOHTTP = "aiohttp"
"""Only `import aiohttp`."""
CLIENT_OF_ROLE = {FLOOR: BARE, UNTYPED: BARE}
"""The classes in benchmarks.peers that do the work of roles that are not clients."""

MB = 1_000_000


class Quantity(enum.StrEnum):
    """A quantity of a turn."""

    CPU = "CPU"
    """Seconds of CPU for each unit of work."""
    WALL = "wall time"
    """Seconds for each unit of work."""
    RATE = "throughput"
    """Units of work per second."""
    PEAK = "peak memory"
    """Megabytes above the memory before the turn."""
    P50 = "median pause"
    """Milliseconds that half of the ticks in the event loop were late at most."""
    P99 = "99th percentile of pauses"
    PAUSE = "longest pause"


CPU, WALL, RATE, PEAK, P50, P99, PAUSE = Quantity
PAUSES = P50, P99, PAUSE


@attrs.frozen
class Figure:
    """A quantity of our client, or its ratio to another client in the same round, with a target.

    beside: the other client. per: a divisor of a quantity without another client. bound: the target.
    at_least: True if the bound is a minimum. of: the quantity of which the figure is a multiple or a percentage.
    """

    quantity: Quantity
    beside: str | None = None
    bound: float | None = None
    per: float = 1.0
    at_least: bool = False
    unit: str = "x"
    of: str = ""

    @property
    def name(self) -> str:
        """The name of the figure, unique within its row."""
        if self.beside:
            return f"{self.quantity} / {self.beside}"
        return f"{self.quantity}, {self.unit} of {self.of}" if self.of else f"{self.quantity}, {self.unit}"

    def is_met(self, value: float) -> bool | None:
        """Return True if the value meets the target, and None without a target."""
        if self.bound is None:
            return None
        return value >= self.bound if self.at_least else value <= self.bound


@attrs.frozen(kw_only=True)
class MeasuredRow:
    """A measurement with several clients.

    name: for --only. work: a key of works.WORKS. unit: the unit of work, for the report.
    options, scenario: the sizes of the work and of the server's responses; quick, quick_scenario: replace them for
    --quick and for the warm-up.
    fresh: each turn runs in a new process, so that it cannot reuse memory. warm: without fresh, a complete turn is done
    before the first measured one. pauses: pauses of the event loop are measured.
    seconds: no further round starts after this time, except for the first three.
    scripts: instead of a work, Python code for each client, measured in a new interpreter.
    curve, size: the curve to which the row belongs, and its point.
    """

    name: str
    title: str
    work: str = ""
    unit: str = "call"
    options: Mapping[str, int] = attrs.field(factory=dict[str, int])
    scenario: ServerScenario = attrs.field(factory=ServerScenario)
    quick: Mapping[str, int] = attrs.field(factory=dict[str, int])
    quick_scenario: ServerScenario | None = None
    clients: tuple[str, ...] = (OURS, BARE, *PEERS)
    figures: tuple[Figure, ...] = ()
    rounds: int = 7
    seconds: float = 36.0
    fresh: bool = False
    warm: bool = True
    pauses: bool = False
    scripts: Mapping[str, str] = attrs.field(factory=dict[str, str])
    curve: str = ""
    size: float = 0.0

    def make_quick(self) -> MeasuredRow:
        """Return a small row, which shows that the work runs. Its figures have no meaning."""
        return attrs.evolve(
            self,
            options={**self.options, **self.quick},
            scenario=self.quick_scenario or self.scenario,
            rounds=min(self.rounds, 2),
        )


def _compare(quantity: Quantity, *clients: str) -> tuple[Figure, ...]:
    return tuple(Figure(quantity, client) for client in clients)


def _bulk(peak: float, pause: float, cpu: float = 2.0) -> tuple[Figure, ...]:
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

URL = "http://127.0.0.1:9"
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
        codec = suite._transport.codec
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
_ATTACHMENT, _WITH_ATTACHMENTS = 200_000, 500
_ATTACHMENTS_MB = _WITH_ATTACHMENTS * 4 * -(-_ATTACHMENT // 3) / MB
_MAX_BATCH_RATE = 10 / 0.05 * 50  # messages per second: 10 connections, 50 ms, batches of 50
_SMALL_FILE = 300_000

_SMALL = MeasuredRow(
    name="small-sequential",
    title="One small call after another",
    work="small_calls",
    options={"calls": 400, "callers": 1},
    quick={"calls": 100},
    rounds=15,
    figures=(
        Figure(CPU, BARE, 1.10),
        Figure(CPU, OPENAPI_GENERATOR, 0.30),
        *_compare(CPU, OPENAPI_PYTHON_CLIENT),
        *_compare(WALL, BARE, *PEERS),
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
        Figure(CPU, OPENAPI_GENERATOR, 0.40),
        Figure(CPU, OPENAPI_PYTHON_CLIENT, 0.40),
        *_compare(CPU, UNTYPED, BARE),
    ),
)
_UPLOAD = MeasuredRow(
    name="upload",
    title="Upload 100 MB (Save, from a file)",
    work="upload",
    unit="KB",
    options={"bytes": 100 * MB},
    quick={"bytes": _SMALL_FILE},
    clients=(OURS, FLOOR, BARE, *PEERS),
    fresh=True,
    pauses=True,
    figures=_bulk(peak=2.0, pause=20.0, cpu=1.35),
)
_DOWNLOAD = attrs.evolve(
    _UPLOAD,
    name="download",
    title="Download 100 MB (GetDoc, to a file)",
    work="download",
    scenario=ServerScenario(document=100 * MB),
    quick_scenario=ServerScenario(document=_SMALL_FILE),
    figures=_bulk(peak=2.0, pause=35.0, cpu=1.6),
)
_STREAM = MeasuredRow(
    name="stream",
    title="Read a GetMessages response of 300 MB, message by message",
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
    figures=_bulk(peak=10.0, pause=35.0, cpu=1.9),
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
        figures=_compare(CPU, *PEERS, UNTYPED, BARE),
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
            Figure(PEAK, per=_ATTACHMENTS_MB, bound=1.1, of="the payload"),
            *_compare(CPU, UNTYPED, BARE, *PEERS),
            *_compare(PEAK, *PEERS),
        ),
    ),
    _UPLOAD,
    attrs.evolve(_UPLOAD, name="send", title="Send 100 MB (Send, attached from a file)", work="send"),
    _DOWNLOAD,
    _STREAM,
    MeasuredRow(
        name="batches",
        title="2,000 batches of 50 messages, in order, 50 ms latency, 10 connections",
        work="batches",
        unit="message",
        options={"batches": 2000, "per": 50},
        quick={"batches": 40},
        scenario=ServerScenario(latency=0.05),
        rounds=3,
        warm=False,
        figures=(
            Figure(
                RATE, per=_MAX_BATCH_RATE / 100, bound=93.0, at_least=True, unit="%", of="the maximum at this latency"
            ),
            *_compare(RATE, BARE, *PEERS),
            *_compare(CPU, BARE, *PEERS),
        ),
    ),
    MeasuredRow(
        name="signing",
        title="Sign documents of 200 KB, three calls each, 32 at a time",
        work="sign",
        unit="document",
        options={"documents": 160, "bytes": 200_000},
        quick={"documents": 8},
        scenario=ServerScenario(document=200_000),
        rounds=11,
        figures=(Figure(RATE, BARE, 0.95, at_least=True), *_compare(RATE, *PEERS), *_compare(CPU, BARE, *PEERS)),
    ),
    MeasuredRow(
        name="import",
        title="Import the package",
        unit="import",
        scripts=_IMPORTS,
        clients=(OURS, AIOHTTP, *PEERS),
        rounds=11,
        figures=(Figure(CPU, AIOHTTP, 0.05), *_compare(CPU, *PEERS)),
    ),
    MeasuredRow(
        name="ready",
        title="Start a client: import, open, and use the models of all four services once",
        unit="start",
        scripts={**_IMPORTS, OURS: _make_script(_READY)},
        clients=(OURS, AIOHTTP, *PEERS),
        rounds=11,
        figures=(Figure(CPU, AIOHTTP, 1.25), *_compare(CPU, *PEERS)),
    ),
)
"""The rows with targets."""

_POINT = MeasuredRow(name="growth", title="", clients=(OURS, BARE), rounds=3, seconds=10.0, fresh=True)
GROWTH: tuple[MeasuredRow, ...] = (
    *(
        attrs.evolve(
            _POINT,
            name=f"growth-callers-{callers}",
            title=f"Small calls, callers: {callers}",
            work="small_calls",
            options={"calls": max(640, callers), "callers": callers, "connections": 64},
            quick={"calls": max(64, callers)},
            rounds=5,
            seconds=8.0,
            fresh=False,
            curve="callers",
            size=callers,
        )
        for callers in (1, 4, 16, 64, 256, 1_000)
    ),
    *(
        attrs.evolve(
            _POINT,
            name=f"growth-{work}-{megabytes}",
            title=f"{work.capitalize()} {megabytes} MB",
            work=work,
            unit="KB",
            options={"bytes": megabytes * MB},
            quick={"bytes": _SMALL_FILE},
            scenario=ServerScenario(document=megabytes * MB),
            quick_scenario=ServerScenario(document=_SMALL_FILE),
            curve=work,
            size=megabytes,
        )
        for work in ("upload", "download")
        for megabytes in (1, 10, 100)
    ),
    *(
        attrs.evolve(
            _POINT,
            name=f"growth-messages-{count}",
            title=f"Read {count:,} messages from one response",
            work="read_messages",
            unit="message",
            options={"records": count},
            quick={"records": 10},
            scenario=ServerScenario(messages=count),
            quick_scenario=ServerScenario(messages=10),
            curve="messages",
            size=count,
        )
        for count in (10, 100, 1000, 10_000, 100_000)
    ),
)
"""The same work at several sizes: are the costs of one unit, and the memory, constant?"""

_EMBEDDING = MeasuredRow(name="embedding", title="", clients=(OURS, BARE), rounds=5, fresh=True, pauses=True)
EMBEDDING: tuple[MeasuredRow, ...] = (
    attrs.evolve(
        _EMBEDDING,
        name="embedding-calls",
        title="Small calls by 64 callers",
        work="small_calls",
        options={"calls": 12_800, "callers": 64, "connections": 64},
        quick={"calls": 640},
    ),
    *(
        attrs.evolve(
            _EMBEDDING,
            name=f"embedding-messages-{count}",
            title=title,
            work="get_messages",
            options={"records": count},
            quick={"records": 5},
            scenario=ServerScenario(messages=count, attachment=attachment),
            quick_scenario=ServerScenario(messages=5, attachment=attachment),
        )
        for count, attachment, title in (
            (100_000, 0, "Read a list of 100,000 messages of 0.8 KB"),
            (50, 750_000, "Read a list of 50 messages of 1 MB"),
        )
    ),
    attrs.evolve(
        _EMBEDDING,
        name="embedding-sync",
        title="Synchronise 20 mailboxes of 200 messages of 20 KB into SQLite",
        work="synchronise",
        options={"mailboxes": 20, "messages": 200},
        quick={"messages": 3},
        scenario=ServerScenario(attachment=15_000),
        clients=(OURS,),
    ),
    attrs.evolve(
        _EMBEDDING,
        name="embedding-signing-job",
        title="Sign 200 documents of 200 KB in a job with a journal",
        work="sign_folder",
        options={"documents": 200, "bytes": 200_000},
        quick={"documents": 5},
        scenario=ServerScenario(document=200_000),
        clients=(OURS,),
    ),
)
"""Additional works whose pauses are shown: what does a program notice in whose event loop the client runs?"""

_MEMORY = (Figure(PEAK, unit="MB"), Figure(PAUSE, unit="ms"))
GIANT: tuple[MeasuredRow, ...] = (
    attrs.evolve(
        _DOWNLOAD,
        name="giant-download",
        title="Download a PDF of 1 GB",
        options={"bytes": 1000 * MB},
        scenario=ServerScenario(document=1000 * MB),
        figures=_MEMORY,
        clients=(OURS,),
        rounds=1,
    ),
    attrs.evolve(
        _STREAM,
        name="giant-stream",
        title="Read a GetMessages response of 1 GB, message by message",
        options={"records": 1000},
        scenario=ServerScenario(messages=1000, attachment=750_000),
        figures=_MEMORY,
        clients=(OURS,),
        rounds=1,
    ),
)
"""Transfers of 1 GB."""

TABLE: tuple[MeasuredRow, ...] = (*TARGETS, *GROWTH, *GIANT, *EMBEDDING)


def choose_rows(names: list[str]) -> tuple[MeasuredRow, ...]:
    """Return the rows with these names, or with names that start with one of them and a hyphen; all without names.

    Raises ValueError if a name matches no row.
    """
    for name in names:
        if not any(_matches(name, row) for row in TABLE):
            raise ValueError(f"There is no row {name}. Run `python -m benchmarks --list` to see the names.")
    return tuple(row for row in TABLE if not names or any(_matches(name, row) for name in names))


def _matches(name: str, row: MeasuredRow) -> bool:
    return row.name == name or row.name.startswith(f"{name}-")
