"""A row, round by round: in each every client does one turn, in an order that rotates.

What slows the machine for a while then slows all of them, and the ratios within a round stay what they are.
"""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from typing import Protocol

import attrs

from benchmarks.measuring.gauges import Reading
from benchmarks.measuring.processes import Worker, WorkerFailedError, run_script, start_worker
from benchmarks.measuring.worker import WorkOrder
from benchmarks.peers import CannotError
from benchmarks.scenarios.rows import MeasuredRow

_MIN_ROUNDS = 3

Samples = list[tuple[float, float]]


@attrs.define(kw_only=True)
class Outcome:
    """What a row gave. readings: of each client, a round's at its place. absent: clients without, and why.

    idle_pauses: seconds, of event loops with nothing to do. samples: a client's memory over time.
    """

    row: MeasuredRow
    readings: dict[str, list[Reading]] = attrs.Factory(dict[str, list[Reading]])
    absent: dict[str, str] = attrs.Factory(dict[str, str])
    idle_pauses: list[float] = attrs.Factory(list[float])
    samples: dict[str, Samples] = attrs.Factory(dict[str, Samples])


@attrs.frozen(kw_only=True)
class RowContext:
    """Where rows run. python: the interpreter of all clients. missing: clients that can't take part, and why."""

    python: Path
    server: str
    folder: Path
    missing: dict[str, str]

    def make_order(self, row: MeasuredRow, client: str) -> WorkOrder:
        """What a worker has to do for a row."""
        small = row.make_quick()
        return WorkOrder(
            work=row.work,
            role=client,
            url=f"{self.server}/{row.scenario.to_segment()}",
            small_url=f"{self.server}/{small.scenario.to_segment()}",
            options=dict(row.options),
            small_options=dict(small.options),
            folder=str(self.folder),
            pauses=row.pauses,
            warm=row.warm and not row.fresh,
        )


class TurnTaker(Protocol):
    """A client that takes turns. Raises CannotError or WorkerFailed where it can't."""

    async def __call__(self, client: str) -> Reading: ...


def rotate(clients: Sequence[str], number: int) -> list[str]:
    """The clients in the order of a round: each round another one begins."""
    first = number % len(clients) if clients else 0
    return [*clients[first:], *clients[:first]]


async def run_rounds(
    row: MeasuredRow,
    clients: Sequence[str],
    turn_taker: TurnTaker,
    outcome: Outcome,
    *,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """All rounds. A client that fails is absent from then on, and its readings are forgotten."""
    readings: dict[str, list[Reading]] = defaultdict(list)
    began = clock()
    for number in range(row.rounds):
        if number >= _MIN_ROUNDS and clock() - began > row.seconds:
            break  # on a slow or busy machine the whole run still ends in its time
        for client in rotate([client for client in clients if client not in outcome.absent], number):
            try:
                readings[client].append(await turn_taker(client))
            except CannotError as refusal:
                outcome.absent[client] = f"can't: {refusal}"
            except WorkerFailedError as failure:
                outcome.absent[client] = f"failed: {failure}"
    outcome.readings = {client: readings[client] for client in clients if client not in outcome.absent}


async def measure(row: MeasuredRow, stage: RowContext) -> Outcome:
    """A row with all of its clients."""
    outcome = Outcome(row=row, absent={name: why for name, why in stage.missing.items() if name in row.clients})
    clients = [client for client in row.clients if client not in outcome.absent]
    if row.scripts:
        await _run_scripts(row, stage, clients, outcome)
    elif row.fresh:
        await run_rounds(row, clients, _FreshProcess(row=row, stage=stage, outcome=outcome), outcome)
    else:
        async with _open_workers(row, stage, clients, outcome) as player:
            await run_rounds(row, clients, player, outcome)
    return outcome


async def _run_scripts(row: MeasuredRow, stage: RowContext, clients: Sequence[str], outcome: Outcome) -> None:
    async def player(client: str) -> Reading:
        return await run_script(stage.python, row.scripts[client])

    for client in clients:  # so that every module's compiled form is there
        with contextlib.suppress(WorkerFailedError):
            await player(client)
    await run_rounds(row, clients, player, outcome)


@attrs.frozen(kw_only=True)
class _FreshProcess:
    """Each turn in a process of its own."""

    row: MeasuredRow
    stage: RowContext
    outcome: Outcome

    async def __call__(self, client: str) -> Reading:
        async with start_worker(self.stage.python, self.stage.make_order(self.row, client)) as worker:
            self.outcome.idle_pauses.append(worker.idle_pause)
            if not self.row.sampled:
                return await worker.run_turn()
            reading, self.outcome.samples[client] = await worker.run_sampled_turn()
            return reading


@contextlib.asynccontextmanager
async def _open_workers(
    row: MeasuredRow, stage: RowContext, clients: Sequence[str], outcome: Outcome
) -> AsyncGenerator[TurnTaker]:
    """Every client in a process that lives for all of the rounds."""
    async with contextlib.AsyncExitStack() as stack:
        workers: dict[str, Worker] = {}
        for client in clients:
            try:
                workers[client] = await stack.enter_async_context(
                    start_worker(stage.python, stage.make_order(row, client))
                )
            except CannotError as refusal:
                outcome.absent[client] = f"can't: {refusal}"
            except WorkerFailedError as failure:
                outcome.absent[client] = f"failed: {failure}"

        async def player(client: str) -> Reading:
            return await workers[client].run_turn()

        yield player
