"""A process that calls the messaging service as often as it may: `python -m … URL CONNINFO SECONDS NUMBERS…`.

Its suite shares the limits. It prints `ready`, waits for a line on its standard input, and prints the number of calls.
"""

from __future__ import annotations

import asyncio
import sys

import directsuite as ds
from directsuite.sync.shared_limits import SharedLimits

ADDRESS, PASSWORD = "alice@direct.example.test", "correct horse"
_CONCURRENT_CALLERS = 12


async def main(url: str, conninfo: str, seconds: float, rate: float, burst: int, processes: int, most: int) -> None:
    settings = ds.Settings(message_url=url, requests_per_second=rate, burst=burst)
    async with (
        SharedLimits(conninfo, processes=processes, connections=most) as shared,
        ds.DirectSuite(settings, shared_limits=shared) as suite,
    ):
        print("ready", flush=True)  # noqa: T201
        await asyncio.to_thread(sys.stdin.readline)
        box, loop = suite.mailbox(ADDRESS, PASSWORD), asyncio.get_running_loop()
        end, calls = loop.time() + seconds, 0

        async def use() -> None:
            nonlocal calls
            while loop.time() < end:
                await box.get_message_count()
                calls += 1

        await asyncio.gather(*(use() for _ in range(_CONCURRENT_CALLERS)))
    print(calls, flush=True)  # noqa: T201


if __name__ == "__main__":
    url, conninfo, *numbers = sys.argv[1:]
    seconds, rate, burst, processes, most = map(float, numbers)
    asyncio.run(main(url, conninfo, seconds, rate, int(burst), int(processes), int(most)))
