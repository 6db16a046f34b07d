"""The records of which the table of scenarios is made."""

from __future__ import annotations

import enum
from collections.abc import Mapping

import attrs

from benchmarks.server.scenario import ServerScenario

OURS, BARE = "ours", "bare"
PEERS = OPENAPI_GENERATOR, OPENAPI_PYTHON_CLIENT = "openapi-generator", "openapi-python-client"
FLOOR = "floor"
"""Bare aiohttp that only moves the same bytes: nothing is coded, kept or looked at."""
UNTYPED = "untyped"
"""msgspec's parse into plain dictionaries and lists."""
AIOHTTP = "aiohttp"
"""Nothing but `import aiohttp`."""

CLIENT_FOR = {FLOOR: BARE, UNTYPED: BARE}
"""Which client of benchmarks.peers does the work of those that are none of their own."""


class Quantity(enum.StrEnum):
    """What is read off a turn, and its unit."""

    CPU = "CPU"
    """Seconds of CPU for each unit of work."""
    WALL = "wall time"
    """Seconds for each unit of work."""
    RATE = "throughput"
    """Units of work a second."""
    PEAK = "peak memory"
    """Megabytes above what there was before."""
    PAUSE = "longest pause"
    """Milliseconds in which the event loop did nothing else."""


@attrs.frozen(kw_only=True)
class Figure:
    """A figure of ours, and what it has to be.

    beside: the client of the same round to which it is the ratio; None for the quantity itself. per: what the quantity
    itself is divided by. bound: the target, None where there is none; at_least: the figure has to reach it rather than
    stay below. unit: what stands behind the figure; of: of what it is so many times or percent.
    """

    quantity: Quantity
    beside: str | None = None
    per: float = 1.0
    bound: float | None = None
    at_least: bool = False
    unit: str = "x"
    of: str = ""

    @property
    def name(self) -> str:
        """The figure in words; no two of a row have the same."""
        if self.beside:
            return f"{self.quantity} / {self.beside}"
        return f"{self.quantity}, {self.unit} of {self.of}" if self.of else f"{self.quantity}, {self.unit}"

    def is_met(self, value: float) -> bool | None:
        """Whether a value reaches the target; None where there is none."""
        if self.bound is None:
            return None
        return value >= self.bound if self.at_least else value <= self.bound


@attrs.frozen(kw_only=True)
class MeasuredRow:
    """Something measured with several clients.

    name: by which it is asked for. title: what is done, for the report. work: a key of works.WORKS. unit: of what the
    work does many. options: for the work. served: what the server answers. quick: what `--quick` puts in the place of
    options, and quick_served of served: the size of the warm-up, too. fresh: each turn in a new process, so that no
    turn finds memory that another one left. warm: elsewhere a whole turn goes before the first that is measured.
    pauses: the event loop is watched. seconds: when they are over no further round begins, save the first three.
    scripts: instead of a work, a text of Python for each client, run and measured in a new interpreter. sampled: memory
    is drawn over time. curve and at: the plot in which the row is a point, and where.
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
    sampled: bool = False
    curve: str = ""
    at: float = 0.0

    def make_quick(self) -> MeasuredRow:
        """The row as `--quick` runs it: to see that it runs, not what it gives."""
        return attrs.evolve(
            self,
            options={**self.options, **self.quick},
            scenario=self.quick_scenario or self.scenario,
            rounds=min(self.rounds, 2),
        )
