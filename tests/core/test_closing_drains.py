"""After its grace period, closing waits only for fetches that use single-use credentials."""

from __future__ import annotations

import asyncio

import attrs
import pytest

import directsuite as ds
from directsuite.core.credentials import TokenCache

from . import responses
from .scripted_server import ScriptedServer
from .scripted_suite import GET_DOC_INFO, GET_PATIENT_ADDRESS, catch_error, open_suite
from .virtual_time import LoopClock, measure_elapsed, yield_to_loop, yield_until


@attrs.define
class Slow:
    """A slow token source. took: the duration of each fetch. begun, ended: the numbers of fetches."""

    took: float
    renewable: bool = True
    begun: int = 0
    ended: int = 0

    async def fetch(self) -> ds.AccessToken:
        self.begun += 1
        await asyncio.sleep(self.took)
        self.ended += 1
        return ds.AccessToken("a", 100)


@attrs.define
class Spending(Slow):
    """A token source that says whether its credentials are single-use."""

    single_use: bool = True


@pytest.mark.parametrize(
    ("like", "seconds", "ended"),
    [(Slow(1), 0, 0), (Spending(1, single_use=False), 0, 0), (Spending(1), 1, 1), (Spending(6), 5, 0)],
)
async def test_closing_waits_only_for_single_use_fetch(
    server: ScriptedServer, like: Slow, seconds: float, ended: int
) -> None:
    source = attrs.evolve(like)
    async with open_suite(server, token=source, leaky=True) as suite:
        caller = asyncio.create_task(catch_error(GET_DOC_INFO.call(suite)))
        await yield_until(lambda: source.begun == 1)
        assert await measure_elapsed(suite.aclose(grace=0)) == pytest.approx(seconds)
        assert isinstance(await caller, ds.ClosedError)
    assert (source.begun, source.ended) == (1, ended)
    assert server.requests == []


async def test_login_is_not_waited_for(server: ScriptedServer) -> None:
    server.default_responder = responses.never_respond
    async with open_suite(server, token=Spending(1), leaky=True) as suite:
        caller = asyncio.create_task(catch_error(GET_PATIENT_ADDRESS.call(suite)))
        await yield_until(lambda: server.busy == 1)
        assert await measure_elapsed(suite.aclose(grace=0)) == 0
        assert isinstance(await caller, ds.ClosedError)


async def test_second_closer_waits_for_the_fetch(server: ScriptedServer) -> None:
    source = Spending(2)
    async with open_suite(server, token=source, leaky=True) as suite:
        caller = asyncio.create_task(catch_error(GET_DOC_INFO.call(suite)))
        await yield_until(lambda: source.begun == 1)
        first = asyncio.create_task(suite.aclose(grace=0))
        await yield_to_loop()
        assert await measure_elapsed(suite.aclose(grace=0)) == pytest.approx(2)
        await first
        await caller


async def test_no_other_fetch_begins_concurrently(server: ScriptedServer) -> None:
    told: list[ds.Event] = []
    source = Spending(2)
    async with open_suite(server, token=source, listeners=[told.append], leaky=True) as suite:
        caller = asyncio.create_task(catch_error(GET_DOC_INFO.call(suite)))
        await yield_until(lambda: source.begun == 1)
        closing = asyncio.create_task(suite.aclose(grace=0))
        await yield_to_loop()
        sessions = suite._caches[1]
        assert isinstance(await catch_error(sessions.get_current()), ds.ClosedError)
        await closing
        await caller
    assert not any(isinstance(event, ds.RenewalFailed) for event in told)


async def test_stopped_cache_begins_no_fetch_any_more() -> None:
    source = Spending(2)
    cache = TokenCache(source, LoopClock(), keep_alive=True)
    await cache.get_current()
    await asyncio.sleep(51)  # its renewal is in progress
    cache.stop()
    drained = asyncio.create_task(cache.wait_for_single_use_fetch(5))
    await asyncio.sleep(200)
    await drained
    assert source.begun == source.ended == 2
    assert isinstance(await catch_error(cache.get_current()), ds.ClosedError)
    await cache.aclose()
