"""The process of one client. For each line of its input it does a turn of a row's work, and prints the readings.

`python -m benchmarks.rows.worker ROW CLIENT SERVER FOLDER [--quick]`. Each line that it prints is a JSON object: first
{"ready": true} or {"cannot": reason}, then the readings.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

import attrs

from benchmarks.gauges import read_gauges
from benchmarks.peers import get_client
from benchmarks.peers.work import CONNECTIONS, CannotError
from benchmarks.processes import CLIENTS_CORE, pin_to_core
from benchmarks.rows import works
from benchmarks.rows.table import TABLE, MeasuredRow
from benchmarks.rows.works import WorkTask, make_sources


async def _serve(row: MeasuredRow, name: str, server: str, folder: Path, output: TextIO) -> None:
    """Open the client, warm it up with a small work, and do turns."""
    small, connections = row.make_quick(), row.options.get("connections", CONNECTIONS)
    client_class, work = get_client(name), getattr(works, row.work)

    def make_task(options: Mapping[str, Any]) -> WorkTask:
        sources = make_sources(folder, options.get("documents", 1), options["document"]) if row.reads_files else ()
        return WorkTask(options=options, sources=sources, output=folder / f"{name}.out")

    try:
        async with client_class(f"{server}/{small.scenario.to_segment()}", connections=connections) as client:
            await work(client, task := make_task(small.options))
            task.remove_output()
        task = make_task(row.options)
        async with client_class(f"{server}/{row.scenario.to_segment()}", connections=connections) as client:
            await client.message_count()
            if not row.fresh:
                await work(client, task)
            _write(output, {"ready": True})
            while sys.stdin.readline():
                reading = await read_gauges(functools.partial(work, client, task), pauses=row.pauses)
                task.remove_output()
                _write(output, attrs.asdict(reading))
    except CannotError as error:
        _write(output, {"cannot": str(error)})


def _write(output: TextIO, content: dict[str, Any]) -> None:
    print(json.dumps(content), file=output, flush=True)


def main() -> None:
    """Do turns until the input ends."""
    name, client, server, folder, *options = sys.argv[1:]
    [row] = [each for each in TABLE if each.name == name]
    with os.fdopen(os.dup(1), "w") as output:
        os.dup2(2, 1)  # output of a client must not mix with the readings
        pin_to_core(CLIENTS_CORE)
        asyncio.run(_serve(row.make_quick() if options else row, client, server, Path(folder), output))


if __name__ == "__main__":
    main()
