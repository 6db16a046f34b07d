"""`python -m benchmarks calls`: the CPU of a small call, compared with bare aiohttp in several ways.

The ways: each given Python, the event loops of asyncio and uvloop, 1 and 64 callers, and both clients in one process or
each in its own. Their memory allocator has another state in each case.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import uvloop

from benchmarks.peers import bare, ours
from benchmarks.processes import (
    CLIENTS_CORE,
    RESULTS,
    ROOT,
    Figures,
    compute_ratios,
    compute_spread,
    format_machine,
    pin_to_core,
)
from benchmarks.server import make_scenario_url, run_server

CLIENTS: dict[str, type[Any]] = {"ours": ours.Client, "bare": bare.Client}
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
CALLERS = (1, 64)
_BOUND = 1.1


async def measure_clients(url: str, names: Sequence[str], callers: int, rounds: int, calls: int) -> dict[str, float]:
    """Return the median CPU of a call in µs for each client. They take turns in this process."""
    taken: dict[str, list[float]] = {name: [] for name in names}
    for name in names:
        async with CLIENTS[name](url, connections=64) as client:
            await client.message_count()  # imports what the first call needs
    for turn in range(rounds):
        for name in names if turn % 2 else reversed(names):
            async with CLIENTS[name](url, connections=64) as client:

                async def call_often(count: int = calls // callers, client: Any = client) -> None:
                    for _ in range(count):
                        await client.message_count()

                await asyncio.gather(*(client.message_count() for _ in range(callers)))  # opens the connections
                start = time.process_time()
                await asyncio.gather(*(call_often() for _ in range(callers)))
                taken[name].append((time.process_time() - start) / (calls // callers * callers) * 1e6)
    return {name: compute_spread(values).median for name, values in taken.items()}


def run_measurement(python: str, *arguments: object) -> Figures:
    """Run `measure_clients` in a separate process of the given Python, and return its result."""
    command = (python, "-m", "benchmarks.calls", *map(str, arguments))
    done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE)  # noqa: S603
    figures: Figures = json.loads(done.stdout)
    return figures


def measure_way(url: str, python: str, loop: str, callers: int, rounds: int, calls: int) -> tuple[str, ...]:
    """Return a row of the table: one Python, event loop and number of callers."""
    repeats = range(3 if rounds > 1 else 1)
    together = [run_measurement(python, url, loop, callers, rounds, calls, *CLIENTS) for _ in repeats]
    alone = {
        name: [run_measurement(python, url, loop, callers, rounds, calls, name)[name] for _ in repeats]
        for name in CLIENTS
    }
    ratios = (
        compute_ratios([each["ours"] for each in together], [each["bare"] for each in together]),
        compute_ratios(alone["ours"], alone["bare"]),
    )
    version = subprocess.run((python, "-V"), check=True, stdout=subprocess.PIPE, text=True).stdout.split()[1]  # noqa: S603
    print(version, loop, callers, *(f"{compute_spread(each).median:.2f}" for each in ratios))
    return version, loop, str(callers), *(str(compute_spread(each)) for each in ratios)


def write_calls(arguments: Sequence[str]) -> int:
    """Measure all ways, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks calls", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--python", nargs="+", default=[sys.executable], help="interpreters with the extra dev")
    parser.add_argument("--quick", action="store_true", help="few calls, as a test")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for calls.md")
    chosen = parser.parse_args(arguments)
    rounds, calls = (1, 64) if chosen.quick else (7, 1_920)
    with run_server() as server:
        url = make_scenario_url(server)
        ways = itertools.product(chosen.python, LOOPS, CALLERS)
        rows = [measure_way(url, python, loop, callers, rounds, calls) for python, loop, callers in ways]
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    chosen.out.mkdir(parents=True, exist_ok=True)
    (chosen.out / "calls.md").write_text(
        "# CPU of a small call ÷ bare aiohttp\n\n"
        f"`python -m benchmarks calls`; the expected ratio is at most {_BOUND}. A figure is the median of the ratios,\n"
        "with the quartiles in brackets. Bare aiohttp has its default settings.\n\n"
        "| Python | event loop | callers | both in one process | each in its own |\n|---|---|---|---|---|\n"
        f"{table}\n\n{format_machine()}"
    )
    return 0


if __name__ == "__main__":
    pin_to_core(CLIENTS_CORE)
    url, loop, callers, rounds, calls, *names = sys.argv[1:]
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        print(json.dumps(runner.run(measure_clients(url, names, int(callers), int(rounds), int(calls)))))
