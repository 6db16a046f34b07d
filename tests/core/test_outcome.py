"""What an exception of aiohttp's means, and what becomes of a call whose first attempt failed."""

from __future__ import annotations

import aiohttp
import pytest

import directsuite as ds
from directsuite.core.outcome import of_exception
from directsuite.messaging.operations import SEND as SEND_OPERATION

from . import plays
from .opened import ASKS, LOGGED_IN, SESSION, Ask, failure_of, opened
from .scripted_server import Play, ScriptedServer
from .virtual_time import LoopClock

UNKNOWN, NOT_SENT, FAILED = ds.Outcome.UNKNOWN, ds.Outcome.NOT_SENT, ds.Outcome.FAILED


@pytest.mark.parametrize("started", [False, True])
@pytest.mark.parametrize("lost", [aiohttp.ServerDisconnectedError(), ConnectionResetError(104, "reset"), OSError()])
def test_connection_lost_before_the_body_started_sent_nothing(lost: Exception, *, started: bool) -> None:
    failure = of_exception(lost, SEND_OPERATION, started=started)
    assert type(failure) is (ds.ConnectionLostError if started else ds.ConnectFailedError)
    assert failure.outcome is (UNKNOWN if started else NOT_SENT)


def test_failure_that_is_not_the_network_s_is_left_alone() -> None:
    assert of_exception(ValueError("of the user's"), SEND_OPERATION, started=True) is None


@pytest.mark.parametrize("ask", ASKS, ids=str)
async def test_provider_s_answer_on_the_second_try_is_the_call_s(server: ScriptedServer, ask: Ask) -> None:
    if ask.service == "registration":
        server.plays(plays.answer(LOGGED_IN))
    server.plays(plays.answer(b"", 429, Retry_After="3"))
    server.otherwise = plays.answer(ask.good)
    clock = LoopClock()
    async with opened(server, clock=clock) as suite:
        await ask.call(suite)
    assert clock.sleeps == [3.0]


@pytest.mark.parametrize("refusal", [plays.answer({"success": False, "code": "011"}), plays.answer(b"", 401)])
async def test_refused_session_is_renewed_once_and_no_more(server: ScriptedServer, refusal: Play) -> None:
    again = plays.answer(LOGGED_IN | {"sessionId": f"{SESSION}-2"})
    server.plays(plays.answer(LOGGED_IN), refusal, again, refusal)
    async with opened(server) as suite:
        error = await failure_of(suite.registration.get_patient_address_by_username("direct.example.test", "ada"))
    assert type(error) is ds.AuthenticationError
    assert (error.outcome, error.attempts) == (FAILED, 2)
    assert len(server.to("/login")) == 2
    assert len(server.to(f"/{SESSION}-2/")) == 1
