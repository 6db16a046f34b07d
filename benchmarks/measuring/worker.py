"""One client's process: it prepares a work, does a turn of it for each line that it reads, and writes the reading.

`python -m benchmarks.measuring.worker ORDER`, where ORDER is an Order as JSON. Each line written is a JSON object:
first {"ready": the event loop's own pause} or {"cannot": reason}, then the readings.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, TextIO

import attrs

from benchmarks.measuring.gauges import WorkTurn, measure_idle_pause, read_gauges
from benchmarks.peers import CannotError
from benchmarks.peers import get_client as client_named
from benchmarks.peers.work import CONNECTIONS
from benchmarks.scenarios.rows import CLIENT_FOR
from benchmarks.scenarios.works import WORKS, WorkTask
from benchmarks.server.pinning import CLIENTS_CORE, pin_to_core


@attrs.frozen(kw_only=True)
class WorkOrder:
    """What a worker is started for. small_url, small_options: the same work, small, for the warm-up.

    warm: the work itself is done once before it is measured, too.
    """

    work: str
    role: str
    url: str
    small_url: str
    options: dict[str, int]
    small_options: dict[str, int]
    folder: str
    pauses: bool
    warm: bool

    def to_json(self) -> str:
        """As the command line takes it."""
        return json.dumps(attrs.asdict(self))

    def make_task(self, *, small: bool = False) -> WorkTask:
        """The work at its full size or at the warm-up's."""
        options = self.small_options if small else self.options
        return WorkTask(work=self.work, role=self.role, options=options, folder=Path(self.folder))


@contextlib.asynccontextmanager
async def prepare_turn(order: WorkOrder) -> AsyncGenerator[WorkTurn]:
    """The turn that an order asks for, with a client that is open and warm. Raises CannotError."""
    opened = client_named(CLIENT_FOR.get(order.role, order.role))
    work = WORKS[order.work]
    connections = order.options.get("connections", CONNECTIONS)
    async with opened(order.small_url, connections=connections) as client:
        await work(client, order.make_task(small=True))()
    task = order.make_task()
    async with opened(order.url, connections=connections) as client:
        turn = work(client, task)
        await client.message_count()
        if order.warm:
            await turn()
        task.remove_download()
        yield turn


async def _serve(order: WorkOrder, lines: TextIO) -> None:
    try:
        async with prepare_turn(order) as turn:
            _write_message(lines, {"ready": await measure_idle_pause() if order.pauses else 0.0})
            while sys.stdin.readline():
                reading = await read_gauges(turn, pauses=order.pauses)
                order.make_task().remove_download()
                _write_message(lines, attrs.asdict(reading))
    except CannotError as refusal:
        _write_message(lines, {"cannot": str(refusal)})


def _write_message(lines: TextIO, told: dict[str, Any]) -> None:
    print(json.dumps(told), file=lines, flush=True)


def main() -> None:
    """Serve until the input ends."""
    with os.fdopen(os.dup(1), "w") as lines:
        os.dup2(2, 1)  # what a client prints must not stand among the readings
        pin_to_core(CLIENTS_CORE)
        asyncio.run(_serve(WorkOrder(**json.loads(sys.argv[1])), lines))


if __name__ == "__main__":
    main()
