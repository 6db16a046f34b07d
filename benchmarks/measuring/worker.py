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

from benchmarks.measuring.gauges import Turn, gauge, idle_pause
from benchmarks.peers import CannotError
from benchmarks.peers import client as client_named
from benchmarks.peers.work import CONNECTIONS
from benchmarks.scenarios.rows import PLAYED_BY
from benchmarks.scenarios.works import WORKS, Task
from benchmarks.server.pinning import CLIENTS, pin


@attrs.frozen(kw_only=True)
class Order:
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

    def text(self) -> str:
        """As the command line takes it."""
        return json.dumps(attrs.asdict(self))

    def task(self, *, small: bool = False) -> Task:
        """The work at its full size or at the warm-up's."""
        options = self.small_options if small else self.options
        return Task(work=self.work, role=self.role, options=options, folder=Path(self.folder))


@contextlib.asynccontextmanager
async def prepared(order: Order) -> AsyncGenerator[Turn]:
    """The turn that an order asks for, with a client that is open and warm. Raises CannotError."""
    opened = client_named(PLAYED_BY.get(order.role, order.role))
    work = WORKS[order.work]
    connections = order.options.get("connections", CONNECTIONS)
    async with opened(order.small_url, connections=connections) as client:
        await work(client, order.task(small=True))()
    task = order.task()
    async with opened(order.url, connections=connections) as client:
        turn = work(client, task)
        await client.message_count()
        if order.warm:
            await turn()
        task.tidy()
        yield turn


async def _serve(order: Order, lines: TextIO) -> None:
    try:
        async with prepared(order) as turn:
            _say(lines, {"ready": await idle_pause() if order.pauses else 0.0})
            while sys.stdin.readline():
                reading = await gauge(turn, pauses=order.pauses)
                order.task().tidy()
                _say(lines, attrs.asdict(reading))
    except CannotError as refusal:
        _say(lines, {"cannot": str(refusal)})


def _say(lines: TextIO, told: dict[str, Any]) -> None:
    print(json.dumps(told), file=lines, flush=True)


def main() -> None:
    """Serve until the input ends."""
    with os.fdopen(os.dup(1), "w") as lines:
        os.dup2(2, 1)  # what a client prints must not stand among the readings
        pin(CLIENTS)
        asyncio.run(_serve(Order(**json.loads(sys.argv[1])), lines))


if __name__ == "__main__":
    main()
