"""`python -m benchmarks calls`: the CPU of a small call, compared with bare aiohttp in several ways.

The ways: each given Python, the event loops of asyncio and uvloop, 1 and 64 callers, and both clients in one process or
each in its own. Their memory allocator has another state in each case.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import uvloop

from benchmarks.gauges import measure_cpu
from benchmarks.peers import get_client
from benchmarks.processes import (
    CLIENTS_CORE,
    RESULTS,
    Figures,
    compute_spread,
    format_machine,
    pin_to_core,
    print_figures,
    run_work,
    write_page,
)
from benchmarks.rows.works import WorkTask, small_calls
from benchmarks.server import make_scenario_url, run_server

CLIENTS = ("ours", "bare")
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
CALLERS = (1, 64)
_BOUND = 1.1


async def measure_clients(_loop: str, url: str, callers: str, rounds: str, calls: str, *names: str) -> Figures:
    """Return the median CPU of a call in µs for each client. They take turns in this process."""
    few, many = ({"calls": int(count), "callers": int(callers)} for count in (callers, calls))
    taken: dict[str, list[float]] = {name: [] for name in names}
    for number in range(int(rounds) + 1):  # the first one imports what a call needs
        for name in names if number % 2 else reversed(names):
            async with get_client(name)(url, connections=64) as client:
                await small_calls(client, WorkTask(role=name, options=few, folder=Path()))()  # opens the connections
                turn = small_calls(client, WorkTask(role=name, options=many, folder=Path()))
                taken[name].append(await measure_cpu(turn) / int(calls) * 1e6)
    return {name: compute_spread(values[1:]).median for name, values in taken.items()}


def measure_way(url: str, python: str, loop: str, callers: int, rounds: int, calls: int) -> str:
    """Return a row of the table: one Python, event loop and number of callers."""

    def run(*names: str) -> Figures:
        arguments = map(str, (loop, url, callers, rounds, calls, *names))
        return run_work("benchmarks.calls", "measure_clients", *arguments, python=python)

    repeats = range(3 if rounds > 1 else 1)
    together = [run(*CLIENTS) for _ in repeats]
    alone = [{name: run(name)[name] for name in CLIENTS} for _ in repeats]
    ratios = [compute_spread([each["ours"] / each["bare"] for each in way]) for way in (together, alone)]
    version = subprocess.check_output((python, "-V"), text=True).split()[1]  # noqa: S603
    print(row := f"| {version} | {loop} | {callers} | {ratios[0]} | {ratios[1]} |")
    return row


def write_calls(arguments: Sequence[str]) -> int:
    """Measure all ways, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks calls", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--python", nargs="+", default=[sys.executable], help="interpreters with the extra dev")
    parser.add_argument("--quick", action="store_true", help="few calls, as a test")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for calls.md")
    chosen = parser.parse_args(arguments)
    rounds, calls = (1, 64) if chosen.quick else (7, 1_920)
    with run_server() as server:
        ways = itertools.product(chosen.python, LOOPS, CALLERS)
        rows = [measure_way(make_scenario_url(server), *way, rounds, calls) for way in ways]
    table = "\n".join(rows)
    page = f"""# CPU of a small call ÷ bare aiohttp

`python -m benchmarks calls`; the expected ratio is at most {_BOUND}. A figure is the median of the ratios, with the
quartiles in brackets. Bare aiohttp has its default settings.

| Python | event loop | callers | both in one process | each in its own |
|---|---|---|---|---|
{table}

{format_machine()}"""
    return write_page("calls.md", page, chosen.out)


if __name__ == "__main__":
    pin_to_core(CLIENTS_CORE)
    print_figures({"measure_clients": measure_clients}, LOOPS[sys.argv[2]])
