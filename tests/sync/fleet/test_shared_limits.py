"""Four processes together respect the limits, as measured by the server."""

from __future__ import annotations

import asyncio
import bisect
import logging
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

import directsuite as ds
from directsuite.errors import ConfigurationError
from directsuite.sandbox.server import Sandbox
from directsuite.sync.shared_limits import SharedLimits
from tests.sync.fleet.limited_process import ADDRESS, PASSWORD

PROCESSES, RATE, BURST, CONNECTIONS = 4, 50.0, 15, 11
TAKES = 0.03
"""Seconds until the server responds: so few that CONNECTIONS would permit more requests than RATE."""
_LOG = logging.getLogger(__name__)
_ROOT = Path(__file__).resolve().parents[3]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class WatchedSandbox(Sandbox):
    def __init__(self) -> None:
        super().__init__()
        self.times = list[float]()
        self.most_connections = 0
        self.pause: int | None = None
        self._transports = set[asyncio.BaseTransport]()

    def _build_application(self) -> web.Application:
        application = super()._build_application()

        @web.middleware
        async def watch(request: web.Request, handler: Handler) -> web.StreamResponse:
            return await self._watched(request, handler)

        application.middlewares.insert(0, watch)
        return application

    async def _watched(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        self.times.append(time.monotonic())
        if request.transport is not None:
            self._transports = {each for each in self._transports if not each.is_closing()} | {request.transport}
        self.most_connections = max(self.most_connections, len(self._transports))
        if self.pause is not None:
            return web.Response(status=429, headers={"Retry-After": str(self.pause)})
        await asyncio.sleep(TAKES)  # real processes use real time
        return await handler(request)

    def most_in(self, seconds: float) -> int:
        times = sorted(self.times)
        return max(bisect.bisect_right(times, each + seconds) - place for place, each in enumerate(times))


async def a_process(sandbox: Sandbox, conninfo: str, seconds: float) -> asyncio.subprocess.Process:
    numbers = map(str, (seconds, RATE, BURST, PROCESSES, CONNECTIONS))
    command = (sys.executable, "-m", "tests.sync.fleet.limited_process", sandbox.message_url, conninfo, *numbers)
    return await asyncio.create_subprocess_exec(*command, cwd=_ROOT, stdin=PIPE, stdout=PIPE)


@pytest.mark.postgres
@pytest.mark.process
@pytest.mark.parametrize("seconds", [2.0, pytest.param(60, marks=pytest.mark.slow)])
async def test_four_processes_together_keep_to_the_limits(conninfo: str, seconds: float) -> None:
    async with WatchedSandbox() as sandbox:
        await sandbox.add_account(ADDRESS, PASSWORD)
        processes = [await a_process(sandbox, conninfo, seconds) for _ in range(PROCESSES)]
        for each in processes:
            assert each.stdout is not None
            assert await each.stdout.readline() == b"ready\n"
        outputs = await asyncio.gather(*(each.communicate(b"\n") for each in processes))
    calls = [int(output) for output, _ in outputs]
    took = max(sandbox.times) - min(sandbox.times)
    _LOG.info(
        "%d requests in %.1f s, at most %d in any second, on at most %d connections; by process %s",
        sum(calls),
        took,
        sandbox.most_in(1.0),
        sandbox.most_connections,
        calls,
    )
    assert sandbox.most_in(1.0) <= RATE + BURST
    assert sandbox.most_connections <= CONNECTIONS // PROCESSES * PROCESSES
    assert sum(calls) > RATE * seconds / 3  # a busy machine makes it slower
    assert min(calls) > 0


async def several(box: ds.Mailbox, times: int) -> None:
    for _ in range(times):
        await box.get_message_count()


@pytest.mark.postgres
async def test_a_pause_requested_from_one_suite_applies_to_all(conninfo: str) -> None:
    settings: dict[str, Any] = {"requests_per_second": 50.0, "timeout": 1.0, "retry": ds.RetryPolicy(attempts=1)}
    async with (
        WatchedSandbox() as sandbox,
        SharedLimits(conninfo, processes=2) as here,
        SharedLimits(conninfo, processes=2) as there,
        ds.DirectSuite(ds.Settings(message_url=sandbox.message_url, **settings), shared_limits=here) as one,
        ds.DirectSuite(ds.Settings(message_url=sandbox.message_url, **settings), shared_limits=there) as other,
    ):
        await sandbox.add_account(ADDRESS, PASSWORD)
        boxes = [suite.mailbox(ADDRESS, PASSWORD) for suite in (one, other)]
        assert await asyncio.gather(*(box.get_message_count() for box in boxes)) == [0, 0]
        sandbox.pause = 30
        with pytest.raises(ds.RateLimitedError):
            await boxes[0].get_message_count()
        sandbox.pause = None
        requests = len(sandbox.times)
        with pytest.raises(ds.DeadlineExceededError) as raised:
            await several(boxes[1], 5)  # slots leased earlier can still be used
        assert (raised.value.retry_after or 0) > 20
        assert len(sandbox.times) - requests < 5


def test_invalid_arguments_are_rejected() -> None:
    with pytest.raises(ConfigurationError):
        SharedLimits("host=127.0.0.1", processes=4, connections=3)
    with pytest.raises(ConfigurationError) as raised:
        SharedLimits("not a conninfo hunter2", processes=1)
    assert "hunter2" not in str(raised.value)
