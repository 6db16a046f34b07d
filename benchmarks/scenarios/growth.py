"""Rows that do the same at several sizes: is the price of one unit the same, and does memory stay where it is?"""

from __future__ import annotations

import attrs

from benchmarks.scenarios.rows import BARE, OURS, MeasuredRow, Quantity
from benchmarks.server.scenario import ServerScenario

_MB = 1_000_000
_CALLS = 640

CALLERS = tuple(
    MeasuredRow(
        name=f"growth-callers-{callers}",
        title=f"Small calls, callers: {callers}",
        work="small_calls",
        options={"calls": max(_CALLS, callers), "callers": callers, "connections": 64},
        quick={"calls": max(64, callers)},
        clients=(OURS, BARE),
        rounds=5,
        seconds=8.0,
        curve="callers",
        at=callers,
    )
    for callers in (1, 4, 16, 64, 256, 1_000)
)

_UPLOADS = tuple(
    MeasuredRow(
        name=f"growth-upload-{megabytes}",
        title=f"Upload {megabytes} MB",
        work="upload",
        unit="KB",
        options={"bytes": megabytes * _MB},
        quick={"bytes": 300_000},
        clients=(OURS, BARE),
        rounds=3,
        seconds=10.0,
        fresh=True,
        curve="upload",
        at=megabytes,
    )
    for megabytes in (1, 10, 100)
)

_DOWNLOADS = tuple(
    attrs.evolve(
        row,
        name=row.name.replace("upload", "download"),
        title=row.title.replace("Upload", "Download"),
        work="download",
        scenario=ServerScenario(document=int(row.at) * _MB),
        quick_scenario=ServerScenario(document=300_000),
        curve="download",
    )
    for row in _UPLOADS
)

_MESSAGES = tuple(
    MeasuredRow(
        name=f"growth-messages-{count}",
        title=f"Read {count:,} messages from one answer",
        work="read_messages",
        unit="message",
        options={"records": count},
        quick={"records": 10},
        scenario=ServerScenario(messages=count),
        quick_scenario=ServerScenario(messages=10),
        clients=(OURS, BARE),
        rounds=3,
        seconds=10.0,
        fresh=True,
        curve="messages",
        at=count,
    )
    for count in (10, 100, 1000, 10_000, 100_000)
)

GROWTH: tuple[MeasuredRow, ...] = (*CALLERS, *_UPLOADS, *_DOWNLOADS, *_MESSAGES)
"""All of them."""


@attrs.frozen(kw_only=True)
class Curve:
    """A plot of rows of one name: a quantity over their size. log: the sizes are drawn as powers of ten.

    factor: from the quantity's unit to that of the plot.
    """

    curve: str
    title: str
    sizes: str
    quantity: Quantity
    factor: float = 1.0
    log: bool = True


CURVES: tuple[Curve, ...] = (
    Curve(
        curve="callers", title="CPU of a small call, µs", sizes="callers", quantity=Quantity.CPU, factor=1e6, log=False
    ),
    Curve(curve="upload", title="Peak memory of an upload, MB", sizes="MB", quantity=Quantity.PEAK),
    Curve(curve="download", title="Peak memory of a download, MB", sizes="MB", quantity=Quantity.PEAK),
    Curve(curve="messages", title="CPU of a message read, µs", sizes="messages", quantity=Quantity.CPU, factor=1e6),
    Curve(curve="messages", title="Peak memory of reading them, MB", sizes="messages", quantity=Quantity.PEAK),
)
"""What is drawn of them."""
