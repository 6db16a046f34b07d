"""The process of one client. For each line of its input it does a turn of a row's work, and prints the readings.

`python -m benchmarks.rows.worker ROW CLIENT SERVER FOLDER [--quick]`. Each line that it prints is a JSON object: first
{"ready": true} or {"cannot": reason}, then the readings.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any, TextIO

import attrs

from benchmarks.gauges import read_gauges
from benchmarks.peers import get_client
from benchmarks.peers.work import CONNECTIONS, CannotError
from benchmarks.processes import CLIENTS_CORE, pin_to_core
from benchmarks.rows.table import CLIENT_OF_ROLE, TABLE
from benchmarks.rows.works import WORKS, WorkTask


async def _serve(name: str, role: str, server: str, folder: Path, output: TextIO, *, quick: bool) -> None:
    """Open the client, warm it up with a small work, and do turns."""
    [row] = [each for each in TABLE if each.name == name]
    work, small, client_class = WORKS[row.work], row.make_quick(), get_client(CLIENT_OF_ROLE.get(role, role))
    row = small if quick else row
    connections = row.options.get("connections", CONNECTIONS)
    try:
        async with client_class(f"{server}/{small.scenario.to_segment()}", connections=connections) as client:
            task = WorkTask(role=role, options=small.options, folder=folder)
            await work(client, task)()
            task.remove_output()
        task = WorkTask(role=role, options=row.options, folder=folder)
        async with client_class(f"{server}/{row.scenario.to_segment()}", connections=connections) as client:
            turn = work(client, task)
            await client.message_count()
            if not row.fresh:
                await turn()
            _write(output, {"ready": True})
            while sys.stdin.readline():
                reading = await read_gauges(turn, pauses=row.pauses)
                task.remove_output()
                _write(output, attrs.asdict(reading))
    except CannotError as error:
        _write(output, {"cannot": str(error)})


def _write(output: TextIO, content: dict[str, Any]) -> None:
    print(json.dumps(content), file=output, flush=True)


def main() -> None:
    """Do turns until the input ends."""
    name, role, server, folder, *options = sys.argv[1:]
    with os.fdopen(os.dup(1), "w") as output:
        os.dup2(2, 1)  # output of a client must not mix with the readings
        pin_to_core(CLIENTS_CORE)
        asyncio.run(_serve(name, role, server, Path(folder), output, quick="--quick" in options))


if __name__ == "__main__":
    main()
