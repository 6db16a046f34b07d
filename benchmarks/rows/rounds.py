"""Measure a row. In each round every client does one turn, in a rotating order.

If the machine is slow for a while, it is slow for all clients, and the ratios within a round remain valid.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from asyncio.subprocess import PIPE, Process
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from pathlib import Path
from typing import Any

import attrs

from benchmarks.gauges import Reading
from benchmarks.peers.environment import PreparedPeers
from benchmarks.processes import ROOT, Spread, compute_ratios, compute_spread
from benchmarks.rows.table import OURS, Figure, MeasuredRow, Quantity

_TURN_TIMEOUT = 120.0


@attrs.define(kw_only=True)
class Outcome:
    """The readings of each client of a row by round. absent: clients without readings, and the reason."""

    row: MeasuredRow
    readings: dict[str, list[Reading]] = attrs.Factory(dict[str, list[Reading]])
    absent: dict[str, str] = attrs.Factory(dict[str, str])

    def compute_values(self, client: str, quantity: Quantity) -> list[float]:
        """Return a quantity of each round."""
        return [quantity.compute(reading) for reading in self.readings.get(client, ())]

    def compute_spread(self, client: str, quantity: Quantity) -> Spread:
        """Return a quantity for one unit of work."""
        return compute_spread(self.compute_values(client, quantity))

    def compute_figures(self) -> dict[Figure, Spread]:
        """Return the figures, without those for which our client or the other one has no readings."""
        return {figure: compute_spread(values) for figure in self.row.figures if (values := self._compute(figure))}

    def _compute(self, figure: Figure) -> list[float]:
        values = [value / figure.per for value in self.compute_values(OURS, figure.quantity)]
        if figure.beside is None:
            return values
        others = self.compute_values(figure.beside, figure.quantity)
        return compute_ratios(values, others) if values and others else []


@attrs.frozen(kw_only=True)
class Results:
    """A run. machine: also the versions of the clients. seconds: its duration."""

    machine: dict[str, str]
    seconds: float
    outcomes: list[Outcome]
    quick: bool = False


class WorkerFailedError(Exception):
    """The process of a client ended without a reading. The text is the last line that it wrote."""


@attrs.frozen
class RowContext:
    """The prepared clients, the URL of the server, and folders in memory and on a disk."""

    peers: PreparedPeers
    server: str
    memory: Path
    disk: Path
    quick: bool = False


def rotate(clients: Sequence[str], number: int) -> list[str]:
    """Return the clients in the order of a round. The next round starts with the next client."""
    first = number % len(clients) if clients else 0
    return [*clients[first:], *clients[:first]]


async def run_rounds(outcome: Outcome, take_turn: Callable[[str], Awaitable[Reading]]) -> None:
    """Run all rounds. A client that fails becomes absent, without its earlier readings."""
    row, readings = outcome.row, defaultdict[str, list[Reading]](list)
    for number in range(row.rounds):
        for client in rotate([client for client in row.clients if client not in outcome.absent], number):
            with _record_absence(outcome, client):
                readings[client].append(await take_turn(client))
    outcome.readings = {client: readings[client] for client in row.clients if client not in outcome.absent}


async def measure(row: MeasuredRow, context: RowContext) -> Outcome:
    """Measure a row with all of its clients."""
    outcome = Outcome(row=row, absent={name: why for name, why in context.peers.missing.items() if name in row.clients})
    workers = dict[str, Process]()

    async def take_turn(client: str) -> Reading:
        if row.scripts:
            return await run_script(context.peers.python, row.scripts[client])
        if row.fresh:
            async with start_worker(context, row, client) as worker:
                return await run_turn(worker)
        return await run_turn(workers[client])

    async with contextlib.AsyncExitStack() as stack:
        for client in [client for client in row.clients if client not in outcome.absent]:
            if row.scripts:  # the first run compiles the modules
                with contextlib.suppress(WorkerFailedError):
                    await take_turn(client)
            elif not row.fresh:
                with _record_absence(outcome, client):
                    workers[client] = await stack.enter_async_context(start_worker(context, row, client))
        await run_rounds(outcome, take_turn)
    return outcome


@contextlib.contextmanager
def _record_absence(outcome: Outcome, client: str) -> Generator[None]:
    try:
        yield
    except WorkerFailedError as error:
        outcome.absent[client] = str(error)


async def run_turn(worker: Process) -> Reading:
    """Run one turn of a worker. Raises WorkerFailedError."""
    assert worker.stdin is not None
    worker.stdin.write(b"\n")
    return Reading(**await _read_line(worker))


async def run_script(python: str, script: str) -> Reading:
    """Run Python code that prints `cpu` and `wall`, in a new interpreter. Raises WorkerFailedError."""
    async with _start_process(python, "-c", script) as process:
        return Reading(amount=1, **await _read_line(process))


@contextlib.asynccontextmanager
async def start_worker(context: RowContext, row: MeasuredRow, client: str) -> AsyncGenerator[Process]:
    """Start a worker and wait until it is ready. Raises WorkerFailedError."""
    folder = context.disk if row.reads_files else context.memory
    arguments = [row.name, client, context.server, str(folder), *(["--quick"] if context.quick else [])]
    async with _start_process(context.peers.python, "-m", "benchmarks.rows.works", *arguments) as process:
        await _read_line(process)
        yield process


async def _read_line(process: Process) -> dict[str, Any]:
    """Return the next line of JSON. Raises WorkerFailedError."""
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        async with asyncio.timeout(_TURN_TIMEOUT):
            if line := await process.stdout.readline():
                content: dict[str, Any] = json.loads(line)
                return content
            last = (await process.stderr.read()).decode(errors="replace").strip().rpartition("\n")[2]
    except TimeoutError:
        last = f"no reading within {_TURN_TIMEOUT:.0f} seconds"
    raise WorkerFailedError(last.replace(str(ROOT), ""))


@contextlib.asynccontextmanager
async def _start_process(python: str, *arguments: str) -> AsyncGenerator[Process]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # as after an installation, modules are compiled only once
    process = await asyncio.create_subprocess_exec(
        python, *arguments, stdin=PIPE, stdout=PIPE, stderr=PIPE, cwd=ROOT, env=environment
    )
    try:
        yield process
    finally:
        try:
            async with asyncio.timeout(10):
                await process.communicate(b"")  # without input, Python 3.11 would not close it
        except TimeoutError:
            process.kill()
            await process.wait()
