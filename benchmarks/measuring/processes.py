"""Workers and scripts from outside: started, asked for a turn, watched, ended."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import attrs

from benchmarks.measuring.gauges import Reading
from benchmarks.measuring.worker import WorkOrder
from benchmarks.peers import CannotError
from benchmarks.soak.census import read_resident_bytes

ROOT = Path(__file__).resolve().parents[2]
_WORKER_TIMEOUT = 120.0  # seconds for one turn, however slow its client
_SAMPLE_INTERVAL = 0.05  # seconds between samples of a worker's memory


class WorkerFailedError(Exception):
    """A client's process came to an end instead of giving a reading; says what its last line was."""


@attrs.define
class Worker:
    """A client's process, ready for turns. idle_pause: seconds, of its event loop before any work."""

    _process: Process
    idle_pause: float = 0.0

    async def run_turn(self) -> Reading:
        """Have it do one turn. Raises WorkerFailed."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        return Reading(**await self._read_message())

    async def run_sampled_turn(self) -> tuple[Reading, list[tuple[float, float]]]:
        """A turn, and the worker's memory meanwhile: (seconds, MB above what there was before it)."""
        before, began = read_resident_bytes(self._process.pid), time.monotonic()
        samples = [(0.0, 0.0)]
        turn = asyncio.create_task(self.run_turn())
        while not turn.done():
            await asyncio.wait([turn], timeout=_SAMPLE_INTERVAL)
            now = read_resident_bytes(self._process.pid)
            if now:
                samples.append((time.monotonic() - began, (now - before) / 1e6))
        return await turn, samples

    async def _read_message(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        try:
            async with asyncio.timeout(_WORKER_TIMEOUT):
                line = await self._process.stdout.readline()
                if line:
                    told: dict[str, Any] = json.loads(line)
                    return told
                last = (await self._process.stderr.read()).decode(errors="replace").strip().rpartition("\n")[2]
        except TimeoutError:
            last = f"no reading within {_WORKER_TIMEOUT:.0f} seconds"
        raise WorkerFailedError(last.replace(str(ROOT), ""))

    async def wait_until_ready(self) -> None:
        """Wait until it is ready. Raises CannotError where its client can't do the work, and WorkerFailed."""
        told = await self._read_message()
        if "cannot" in told:
            raise CannotError(told["cannot"])
        self.idle_pause = told["ready"]


@contextlib.asynccontextmanager
async def start_worker(python: Path, order: WorkOrder) -> AsyncGenerator[Worker]:
    """A worker for an order, ready. Raises CannotError and WorkerFailed."""
    async with _start_process(python, "-m", "benchmarks.measuring.worker", order.to_json()) as process:
        worker = Worker(process)
        await worker.wait_until_ready()
        yield worker


async def run_script(python: Path, script: str) -> Reading:
    """Run a text of Python in a new interpreter; the text prints its `cpu` and `wall`. Raises WorkerFailed."""
    async with _start_process(python, "-c", script) as process:
        told = await Worker(process)._read_message()
    return Reading(amount=1, peak=0, pause=0.0, **told)


@contextlib.asynccontextmanager
async def _start_process(python: Path, *arguments: str) -> AsyncGenerator[Process]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package is compiled once, not at every start
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
