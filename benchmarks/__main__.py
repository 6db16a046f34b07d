"""`python -m benchmarks`: directsuite beside bare aiohttp; `python -m benchmarks soak --help`: half an hour of load.

Side by side is one small call, with the same JSON codec, alternating, in CPU per call.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Sequence

import aiohttp
import msgspec

import directsuite as ds
from benchmarks.canned_server import canned_server

ROUNDS = 15
CALLS = 300
TASKS = 30
_CREDENTIALS = {"username": "a@direct.example.test", "password": "secret"}

Work = Callable[[], Awaitable[int]]


async def _cpu_seconds(work: Work, tasks: int) -> float:
    """CPU seconds of one call, of many made by so many tasks."""

    async def some() -> None:
        for _ in range(CALLS // tasks):
            assert await work() == 3

    started = time.process_time()
    await asyncio.gather(*(some() for _ in range(tasks)))
    return (time.process_time() - started) / CALLS


async def _compare(ours: Work, bare: Work, tasks: int) -> list[float]:
    ratios: list[float] = []
    for _ in range(ROUNDS):
        base = await _cpu_seconds(bare, tasks)
        ratios.append(await _cpu_seconds(ours, tasks) / base)
    return ratios


async def side_by_side() -> None:
    """Print the ratios."""
    with canned_server(b'{"success":true,"code":0,"message":null,"count":3}') as base:
        settings = ds.Settings(message_url=base, requests_per_second=1e9, burst=10**9)
        async with aiohttp.ClientSession() as session, ds.DirectSuite(settings) as suite:
            box = suite.mailbox(**_CREDENTIALS)

            async def bare() -> int:
                body = msgspec.json.encode(_CREDENTIALS)
                headers = {"Content-Type": "application/json"}
                async with session.post(f"{base}/GetMessageCount/INBOX", data=body, headers=headers) as response:
                    count: int = msgspec.json.decode(await response.read())["count"]
                    return count

            for tasks in (1, TASKS):
                await _compare(box.get_message_count, bare, tasks)  # warm both up
                ratios = await _compare(box.get_message_count, bare, tasks)
                low, median, high = statistics.quantiles(ratios, n=4)
                print(f"small call, {tasks:>2} tasks: CPU {median:.2f} [{low:.2f}-{high:.2f}] x bare aiohttp")


def main(arguments: Sequence[str]) -> int:
    """Run the benchmark that is named, or the side by side where none is, and return the exit status."""
    match arguments:
        case []:
            asyncio.run(side_by_side())
            return 0
        case ["soak", *options]:
            from benchmarks.soak.command import soak

            return soak(options)
        case _:
            sys.stderr.write("usage: python -m benchmarks [soak ...]\n")
            return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
