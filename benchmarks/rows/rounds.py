"""Measure a row. In each round every client does one turn, in a rotating order.

If the machine is slow for a while, it is slow for all clients, and the ratios within a round remain valid.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from asyncio.subprocess import PIPE, Process
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import attrs

from benchmarks.gauges import Reading
from benchmarks.peers.work import CannotError
from benchmarks.processes import ROOT
from benchmarks.rows.table import MeasuredRow

_MIN_ROUNDS = 3
_TURN_TIMEOUT = 120.0


class WorkerFailedError(Exception):
    """The process of a client ended without a reading. The text is the last line that it wrote."""


@attrs.define(kw_only=True)
class Outcome:
    """The readings of each client by round. absent: clients without readings, and the reason."""

    row: MeasuredRow
    readings: dict[str, list[Reading]] = attrs.Factory(dict[str, list[Reading]])
    absent: dict[str, str] = attrs.Factory(dict[str, str])


@attrs.frozen(kw_only=True)
class RowContext:
    """The interpreter of all clients, the URL of the server, and a folder. missing: reasons, by client."""

    python: str
    server: str
    folder: Path
    missing: dict[str, str]
    quick: bool = False


def rotate(clients: Sequence[str], number: int) -> list[str]:
    """Return the clients in the order of a round. The next round starts with the next client."""
    first = number % len(clients) if clients else 0
    return [*clients[first:], *clients[:first]]


async def run_rounds(
    outcome: Outcome, take_turn: Callable[[str], Awaitable[Reading]], clock: Callable[[], float] = time.monotonic
) -> None:
    """Run all rounds. A client that fails becomes absent, without its earlier readings."""
    row, readings, start = outcome.row, defaultdict[str, list[Reading]](list), clock()
    for number in range(row.rounds):
        if number >= _MIN_ROUNDS and clock() - start > row.seconds:
            break
        for client in rotate([client for client in row.clients if client not in outcome.absent], number):
            with _record_absence(outcome, client):
                readings[client].append(await take_turn(client))
    outcome.readings = {client: readings[client] for client in row.clients if client not in outcome.absent}


async def measure(row: MeasuredRow, context: RowContext) -> Outcome:
    """Measure a row with all of its clients."""
    outcome = Outcome(row=row, absent={name: why for name, why in context.missing.items() if name in row.clients})
    clients = [client for client in row.clients if client not in outcome.absent]
    if row.scripts:

        async def take_turn(client: str) -> Reading:
            return await run_script(context.python, row.scripts[client])

        for client in clients:  # compiles the modules
            with contextlib.suppress(WorkerFailedError):
                await take_turn(client)
        await run_rounds(outcome, take_turn)
    elif row.fresh:

        async def take_turn(client: str) -> Reading:
            async with start_worker(context, row, client) as worker:
                return await worker.run_turn()

        await run_rounds(outcome, take_turn)
    else:
        async with contextlib.AsyncExitStack() as stack:
            workers = dict[str, Worker]()
            for client in clients:
                with _record_absence(outcome, client):
                    workers[client] = await stack.enter_async_context(start_worker(context, row, client))
            await run_rounds(outcome, lambda client: workers[client].run_turn())
    return outcome


@contextlib.contextmanager
def _record_absence(outcome: Outcome, client: str) -> Any:
    try:
        yield
    except CannotError as error:
        outcome.absent[client] = f"cannot: {error}"
    except WorkerFailedError as error:
        outcome.absent[client] = f"failed: {error}"


@attrs.define
class Worker:
    """The process of a client, ready for turns."""

    _process: Process

    async def run_turn(self) -> Reading:
        """Run one turn. Raises WorkerFailedError."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        return Reading(**await self.read_line())

    async def read_line(self) -> dict[str, Any]:
        """Return the next line of JSON. Raises WorkerFailedError."""
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        try:
            async with asyncio.timeout(_TURN_TIMEOUT):
                if line := await self._process.stdout.readline():
                    content: dict[str, Any] = json.loads(line)
                    return content
                last = (await self._process.stderr.read()).decode(errors="replace").strip().rpartition("\n")[2]
        except TimeoutError:
            last = f"no reading within {_TURN_TIMEOUT:.0f} seconds"
        raise WorkerFailedError(last.replace(str(ROOT), ""))


@contextlib.asynccontextmanager
async def start_worker(context: RowContext, row: MeasuredRow, client: str) -> AsyncGenerator[Worker]:
    """Start a worker and wait until it is ready. Raises CannotError and WorkerFailedError."""
    arguments = [row.name, client, context.server, str(context.folder), *(["--quick"] if context.quick else [])]
    async with _start_process(context.python, "-m", "benchmarks.rows.worker", *arguments) as process:
        worker = Worker(process)
        content = await worker.read_line()
        if "cannot" in content:
            raise CannotError(content["cannot"])
        yield worker


async def run_script(python: str, script: str) -> Reading:
    """Run Python code that prints `cpu` and `wall`, in a new interpreter. Raises WorkerFailedError."""
    async with _start_process(python, "-c", script) as process:
        return Reading(amount=1, **await Worker(process).read_line())


@contextlib.asynccontextmanager
async def _start_process(python: str, *arguments: str) -> AsyncGenerator[Process]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # as after an installation, modules are compiled only once
    process = await asyncio.create_subprocess_exec(
        python, *arguments, stdin=PIPE, stdout=PIPE, stderr=PIPE, cwd=ROOT, env=environment
    )
    assert process.stdin is not None
    try:
        yield process
    finally:
        process.stdin.close()
        try:
            async with asyncio.timeout(10):
                await process.communicate()
        except TimeoutError:
            process.kill()
            await process.wait()
