"""A process that takes as many places of a shared rate as it gets, and prints when (monotonic seconds)."""

from __future__ import annotations

import asyncio
import sys
import time

from directsuite.sync.shared_limits import SharedRate

_USERS = 4


async def main(conninfo: str, per_second: float, burst: int, processes: int, seconds: float) -> None:
    """For so many seconds."""
    times = list[float]()
    async with SharedRate(conninfo, "test", per_second=per_second, burst=burst, processes=processes) as rate:
        print("ready", flush=True)  # noqa: T201
        sys.stdin.readline()
        end = time.monotonic() + seconds

        async def use() -> None:
            """One user after the other."""
            while time.monotonic() < end:
                await rate.take()
                times.append(time.monotonic())  # the same clock in all processes

        await asyncio.gather(*(use() for _ in range(_USERS)))
    print(*times, flush=True)  # noqa: T201


if __name__ == "__main__":
    given, *numbers = sys.argv[1:]
    asyncio.run(main(given, float(numbers[0]), int(numbers[1]), int(numbers[2]), float(numbers[3])))
