"""Waiting for a time or an event, also when the machine's clock is changed, which has no effect on a suite."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

import directsuite as ds
from directsuite.core.clock import sleep_or_event

from . import api, responses
from .scripted_server import ScriptedServer
from .scripted_suite import catch_error, expect_error, open_suite
from .token_fetches import NumberedTokens
from .virtual_time import measure_elapsed

HOUR, TWO_YEARS = 3600.0, 2 * 365 * 86400.0

every_jump = pytest.mark.parametrize("jump", [-TWO_YEARS, -HOUR, HOUR, TWO_YEARS])
SetClock = Callable[[float], None]


@pytest.fixture
def set_clock(monkeypatch: pytest.MonkeyPatch) -> SetClock:
    """Return a function that sets the machine's clock forward by this many seconds."""
    right = time.time

    def forward(seconds: float) -> None:
        monkeypatch.setattr(time, "time", lambda: right() + seconds)

    return forward


@pytest.mark.exhaustive(limit=2)
@every_jump
@pytest.mark.parametrize("ask", [api.GET_DOC_INFO, api.GET_PATIENT_ADDRESS], ids=["token", "session"])
async def test_credential_lives_as_long_as_it_was_given(
    server: ScriptedServer, set_clock: SetClock, jump: float, ask: api.ApiCall
) -> None:
    source = NumberedTokens(lifetime=600.0)
    async with open_suite(server, token=source) as suite:
        await ask(suite)
        set_clock(jump)
        await asyncio.sleep(500)
        await ask(suite)
        assert source.asked + len(server.find_requests("login")) == 1
        await asyncio.sleep(101)
        await ask(suite)
        assert source.asked + len(server.find_requests("login")) == 2


@pytest.mark.exhaustive(limit=2)
@every_jump
async def test_pause_takes_as_long_as_the_service_asked_for(
    server: ScriptedServer, set_clock: SetClock, jump: float
) -> None:
    server.enqueue(responses.respond(b"", 429, Retry_After="30"))
    async with open_suite(server, retry=ds.RetryPolicy.none()) as suite:
        await catch_error(api.GET_MESSAGE_COUNT(suite))
        set_clock(jump)
        assert await measure_elapsed(api.GET_MESSAGE_COUNT(suite)) == pytest.approx(30)


@pytest.mark.exhaustive(limit=2)
@every_jump
async def test_circuit_breaker_pauses_as_long_as_it_is_set(
    server: ScriptedServer, set_clock: SetClock, jump: float
) -> None:
    server.enqueue(responses.hang_up)
    async with open_suite(server, circuit_failures=1, circuit_pause=10, retry=ds.RetryPolicy.none()) as suite:
        await catch_error(api.GET_MESSAGE_COUNT(suite))
        set_clock(jump)
        await asyncio.sleep(9.9)
        assert type(await catch_error(api.GET_MESSAGE_COUNT(suite))) is ds.CircuitOpenError
        await asyncio.sleep(0.2)
        assert await api.GET_MESSAGE_COUNT(suite) == 7


async def test_wait_ends_with_the_sleep_or_with_the_event() -> None:
    event, woken = asyncio.Event(), asyncio.Event()
    waiting = asyncio.create_task(sleep_or_event(_until(woken), event))
    await asyncio.sleep(0)
    assert not waiting.done()
    woken.set()
    await waiting
    event.set()
    await sleep_or_event(_until(asyncio.Event()), event)


async def test_what_ends_a_sleep_is_raised() -> None:
    async def closed() -> None:
        raise ds.ClosedError("the suite is closed")

    await expect_error(ds.ClosedError, sleep_or_event(closed(), asyncio.Event()))


async def test_wait_that_is_cancelled_leaves_no_sleep_behind() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def sleep() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    waiting = asyncio.create_task(sleep_or_event(sleep(), asyncio.Event()))
    await begun.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert ended.is_set()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def _until(event: asyncio.Event) -> None:
    await event.wait()
