"""The machine's clock is changed while a suite is open: this has no effect on waiting and expiry."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

import directsuite as ds
from directsuite.core.retry import parse_retry_after

from . import responses
from .scripted_server import ScriptedServer
from .scripted_suite import ALICE, GET_DOC_INFO, GET_PATIENT_ADDRESS, LOGIN_RESPONSE, PASSWORD, catch_error, open_suite
from .token_fetches import NumberedTokens
from .virtual_time import measure_elapsed

HOUR, TWO_YEARS = 3600.0, 2 * 365 * 86400.0

every_jump = pytest.mark.parametrize("jump", [-TWO_YEARS, -HOUR, HOUR, TWO_YEARS])
Set = Callable[[float], None]


@pytest.fixture
def set_clock(monkeypatch: pytest.MonkeyPatch) -> Set:
    """Return a function that sets the machine's clock forward by this many seconds."""
    right = time.time

    def forward(seconds: float) -> None:
        monkeypatch.setattr(time, "time", lambda: right() + seconds)

    return forward


@every_jump
async def test_token_lives_as_long_as_it_was_given(server: ScriptedServer, set_clock: Set, jump: float) -> None:
    source = NumberedTokens(lifetime=600.0)
    server.default_responder = responses.respond(GET_DOC_INFO.success_body)
    async with open_suite(server, token=source) as suite:
        await GET_DOC_INFO.call(suite)
        set_clock(jump)
        await asyncio.sleep(500)
        await GET_DOC_INFO.call(suite)
        assert source.asked == 1
        await asyncio.sleep(101)
        await GET_DOC_INFO.call(suite)
        assert source.asked == 2


@every_jump
async def test_session_lives_as_long_as_it_was_given(server: ScriptedServer, set_clock: Set, jump: float) -> None:
    server.enqueue(responses.respond(LOGIN_RESPONSE))
    server.default_responder = responses.respond(GET_PATIENT_ADDRESS.success_body)
    async with open_suite(server) as suite:
        await GET_PATIENT_ADDRESS.call(suite)
        set_clock(jump)
        await asyncio.sleep(500)
        await GET_PATIENT_ADDRESS.call(suite)
        assert len(server.find_requests("login")) == 1
        server.enqueue(responses.respond(LOGIN_RESPONSE))
        await asyncio.sleep(101)
        await GET_PATIENT_ADDRESS.call(suite)
        assert len(server.find_requests("login")) == 2


@every_jump
async def test_pause_takes_as_long_as_the_service_asked_for(
    server: ScriptedServer, set_clock: Set, jump: float
) -> None:
    server.enqueue(responses.respond(b"", 429, Retry_After="30"))
    async with open_suite(server) as suite:
        box = suite.mailbox(ALICE, PASSWORD).with_options(retry=ds.RetryPolicy.none())
        await catch_error(box.get_message_count())
        set_clock(jump)
        assert await measure_elapsed(box.get_message_count()) == pytest.approx(30)


@every_jump
async def test_circuit_breaker_pauses_as_long_as_it_is_set(server: ScriptedServer, set_clock: Set, jump: float) -> None:
    server.enqueue(responses.hang_up)
    async with open_suite(server, circuit_failures=1, circuit_pause=10) as suite:
        box = suite.mailbox(ALICE, PASSWORD).with_options(retry=ds.RetryPolicy.none())
        await catch_error(box.get_message_count())
        set_clock(jump)
        await asyncio.sleep(9.9)
        assert type(await catch_error(box.get_message_count())) is ds.CircuitOpenError
        await asyncio.sleep(0.2)
        assert await box.get_message_count() == 7


@pytest.mark.parametrize(("jump", "seconds"), [(-TWO_YEARS, 3600), (-HOUR, 3600), (HOUR, 0), (TWO_YEARS, 0)])
def test_retry_after_date_without_a_response_date_waits_an_hour_at_most(
    set_clock: Set, jump: float, seconds: float
) -> None:
    set_clock(jump)
    in_a_minute = time.time() - jump + 60
    header = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(in_a_minute))
    assert parse_retry_after(header, now=time.time) == seconds
