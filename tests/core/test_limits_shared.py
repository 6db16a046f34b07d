"""Limits shared with other processes: a share of the connections, and external slots."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncGenerator

import pytest

import directsuite as ds
from directsuite.core.clock import Clock
from directsuite.core.limits import Limits, LocalRateLimiter, RateLimiter
from directsuite.core.operation import Service
from tests.chaos.interrupter import InterruptMode, run_interrupted

from . import responses
from .scripted_server import ScriptedServer
from .scripted_suite import ALICE, PASSWORD, make_settings
from .virtual_time import LoopClock, VirtualTimeLoop, yield_to_loop

ANSWER = responses.respond({"success": True, "count": 7})


class Shared:
    """Shared limits: a number of connections to each service, and slots."""

    def __init__(self, connections: int | None = None) -> None:
        self.connections = connections
        self.rates = dict[str, LocalRateLimiter]()

    def rate_limiter(self, service: str, *, per_second: float, burst: int, clock: Clock) -> RateLimiter:
        return self.rates.setdefault(service, LocalRateLimiter(per_second, burst, clock))


@contextlib.asynccontextmanager
async def sharing(server: ScriptedServer, shared: Shared, **others: object) -> AsyncGenerator[ds.DirectSuite]:
    suite = ds.DirectSuite(make_settings(server, **others), token="token", clock=LoopClock(), shared_limits=shared)
    async with suite:
        yield suite


def limits_of(suite: ds.DirectSuite) -> Limits:
    return suite._transport._endpoints[Service.MESSAGING].limits


async def count(suite: ds.DirectSuite) -> int:
    return await suite.mailbox(ALICE, PASSWORD).get_message_count()


@pytest.mark.parametrize(("shared", "own", "most"), [(3, 10, 3), (10, 3, 3), (None, 3, 3)])
async def test_never_more_connections_are_used_than_this_process_may_have(
    server: ScriptedServer, shared: int | None, own: int, most: int
) -> None:
    server.default_responder = responses.delay(0.1, ANSWER)
    async with sharing(server, Shared(shared), max_connections=own) as suite:
        await asyncio.gather(*(count(suite) for _ in range(40)))
        assert limits_of(suite).connections == most
    assert server.busiest == server.connections == most


async def test_shared_limits_get_slots_and_pauses(server: ScriptedServer) -> None:
    shared = Shared()
    server.enqueue(responses.respond({}, 429, retry_after="20"))
    server.default_responder = responses.respond({"identifier": "doc"})
    async with sharing(server, shared) as suite:
        began = asyncio.get_running_loop().time()
        await suite.signing.get_doc_info("doc")
        assert asyncio.get_running_loop().time() - began >= 20
    assert not shared.rates["signing"].pause(0)
    assert shared.rates["fax"].pause(0)


@pytest.mark.parametrize("way", InterruptMode, ids=str)
def test_call_ended_at_any_wait_keeps_no_connection(way: InterruptMode) -> None:
    async def at_every_wait() -> int:
        for at in itertools.count(1):
            shared = Shared(connections=1)
            async with ScriptedServer(ANSWER) as server, sharing(server, shared) as suite:
                server.enqueue(responses.delay(1, ANSWER))
                other = asyncio.create_task(count(suite))
                await yield_to_loop()
                ending = await run_interrupted(suite.mailbox(ALICE, PASSWORD).get_message_count(), at=at, way=way)
                await asyncio.gather(other, return_exceptions=True)
                assert not limits_of(suite).has_no_free_slot
                assert limits_of(suite).try_admit(needs_slot=False)
                assert await count(suite) == 7
            if not ending.has_reached_wait:
                return at
        raise AssertionError

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        assert runner.run(at_every_wait()) > 2
