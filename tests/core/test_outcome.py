"""The meaning of aiohttp's exceptions, and the result of a call whose first attempt failed."""

from __future__ import annotations

import aiohttp
import pytest

import directsuite as ds
from directsuite.core.outcome import convert_exception
from directsuite.messaging.operations import SEND as SEND_OPERATION

from . import responses
from .scripted_server import Responder, ScriptedServer
from .scripted_suite import API_CALLS, LOGIN_RESPONSE, SESSION, ApiCall, catch_error, open_suite
from .virtual_time import LoopClock

UNKNOWN, NOT_SENT, FAILED = ds.Outcome.UNKNOWN, ds.Outcome.NOT_SENT, ds.Outcome.FAILED


@pytest.mark.exhaustive
@pytest.mark.parametrize("started", [False, True])
@pytest.mark.parametrize("lost", [aiohttp.ServerDisconnectedError(), ConnectionResetError(104, "reset"), OSError()])
def test_connection_lost_before_the_body_started_sent_nothing(lost: Exception, *, started: bool) -> None:
    failure = convert_exception(lost, SEND_OPERATION, started=started)
    assert type(failure) is (ds.ConnectionLostError if started else ds.ConnectFailedError)
    assert failure.outcome is (UNKNOWN if started else NOT_SENT)


def test_failure_that_is_not_the_network_s_is_left_alone() -> None:
    assert convert_exception(ValueError("of the user's"), SEND_OPERATION, started=True) is None


@pytest.mark.parametrize("ask", API_CALLS, ids=str)
async def test_provider_s_response_on_the_second_try_is_the_call_s(server: ScriptedServer, ask: ApiCall) -> None:
    if ask.service == "registration":
        server.enqueue(responses.respond(LOGIN_RESPONSE))
    server.enqueue(responses.respond(b"", 429, Retry_After="3"))
    server.default_responder = responses.respond(ask.success_body)
    clock = LoopClock()
    async with open_suite(server, clock=clock) as suite:
        await ask.call(suite)
    assert clock.sleeps == [3.0]


@pytest.mark.parametrize("refusal", [responses.respond({"success": False, "code": "011"}), responses.respond(b"", 401)])
async def test_rejected_session_is_renewed_once_and_no_more(server: ScriptedServer, refusal: Responder) -> None:
    again = responses.respond(LOGIN_RESPONSE | {"sessionId": f"{SESSION}-2"})
    server.enqueue(responses.respond(LOGIN_RESPONSE), refusal, again, refusal)
    async with open_suite(server) as suite:
        error = await catch_error(suite.registration.get_patient_address_by_username("direct.example.test", "ada"))
    assert type(error) is ds.AuthenticationError
    assert (error.outcome, error.attempts) == (FAILED, 2)
    assert len(server.find_requests("/login")) == 2
    assert len(server.find_requests(f"/{SESSION}-2/")) == 1
