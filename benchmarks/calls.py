"""`python -m benchmarks calls`: the CPU of a small call, compared with bare aiohttp in several ways.

The ways: the event loops of asyncio and uvloop, 1 and 64 callers, and both clients in one process or each in its own.
Their memory allocator has another state in each case.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import itertools
import sys
from collections.abc import Sequence
from typing import Any

import uvloop

from benchmarks import processes
from benchmarks.gauges import measure_cpu
from benchmarks.peers import get_client
from benchmarks.rows.works import WorkTask, small_calls
from benchmarks.server import make_scenario_url, run_server

CLIENTS = ("ours", "bare")
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
CALLERS = (1, 64)


async def measure_clients(url: str, callers: int, rounds: int, calls: int, names: Sequence[str]) -> processes.Figures:
    """Return the median CPU of a call in µs for each client. They take turns in this process."""
    taken: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds + 1):  # the first one imports what a call needs
        for name in names if number % 2 else reversed(names):
            async with get_client(name)(url, connections=64) as client:
                opening, task = (WorkTask(options={"calls": n, "callers": callers}) for n in (callers, calls))
                await small_calls(client, opening)  # opens the connections
                taken[name].append(await measure_cpu(functools.partial(small_calls, client, task)) / calls * 1e6)
    return {name: processes.compute_spread(values[1:]).median for name, values in taken.items()}


def _measure_in_loop(loop: str, *arguments: Any) -> processes.Figures:
    processes.pin_to_core(processes.CLIENTS_CORE)
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        return runner.run(measure_clients(*arguments))


def write_calls(options: argparse.Namespace) -> int:
    """Measure all ways, and write the page."""
    sizes, repeats = ((1, 64), range(1)) if options.quick else ((7, 1_920), range(3))
    with run_server() as server:

        def measure(loop: str, callers: int, *names: str) -> processes.Figures:
            return processes.run_in_process(_measure_in_loop, loop, make_scenario_url(server), callers, *sizes, names)

        def compare(figures: Sequence[processes.Figures], ours: str, other: str) -> processes.Spread:
            return processes.compute_spread([each[ours] / each[other] for each in figures])

        def compare_clients(loop: str, callers: int) -> str:
            together = [measure(loop, callers, *CLIENTS) for _ in repeats]
            alone = [{name: measure(loop, callers, name)[name] for name in CLIENTS} for _ in repeats]
            return f"| {loop} | {callers} | {compare(together, 'ours', 'bare')} | {compare(alone, 'ours', 'bare')} |"

        def compare_loops(callers: int) -> str:
            taken = [{loop: measure(loop, callers, "ours")["ours"] for loop in LOOPS} for _ in repeats]
            return f"| {callers} | {compare(taken, 'uvloop', 'asyncio')} |"

        rows = "\n".join(compare_clients(*way) for way in itertools.product(LOOPS, CALLERS))
        loops = "\n".join(map(compare_loops, CALLERS))
    page = f"""# CPU of a small call

`python -m benchmarks calls`, with each Python. A figure is the median of the ratios, with the quartiles in brackets.

Ours ÷ bare aiohttp with its default settings; the expected ratio is at most 1.05:

| event loop | callers | both in one process | each in its own |
|---|---|---|---|
{rows}

Ours with uvloop ÷ ours with asyncio, each in its own process:

| callers | ratio |
|---|---|
{loops}

{processes.format_machine()}"""
    return processes.write_page(f"calls-{sys.version_info.major}.{sys.version_info.minor}.md", page, options.out)
