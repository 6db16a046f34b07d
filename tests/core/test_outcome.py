"""What each failure means: the table of core/outcome.py, row by row, for every kind of operation."""

from __future__ import annotations

from collections.abc import Callable

import aiohttp
import attrs
import pytest

import directsuite as ds
from directsuite.core.outcome import of_exception
from directsuite.messaging.operations import SEND as SEND_OPERATION

from . import plays
from .opened import ASKS, LOGGED_IN, PATIENT, SESSION, Ask, failure_of, opened
from .scripted_server import Play, ScriptedServer
from .virtual_time import LoopClock

UNKNOWN, NOT_SENT, REJECTED, FAILED = (
    ds.Outcome.UNKNOWN,
    ds.Outcome.NOT_SENT,
    ds.Outcome.REJECTED,
    ds.Outcome.FAILED,
)

PROXY_PAGE = b"<html>" + PATIENT.encode()


@attrs.frozen
class Row:
    """A failure, what it is raised as and how often it is tried; where it leaves the outcome open, by semantics."""

    seen: str
    play: Callable[[Ask], Play]
    error: type[ds.DirectSuiteError]
    outcome: ds.Outcome
    attempts: int

    def __str__(self) -> str:
        return self.seen


def always(play: Play) -> Callable[[Ask], Play]:
    return lambda ask: play


def status(number: int, **headers: str) -> Callable[[Ask], Play]:
    return always(plays.answer(PROXY_PAGE, number, **headers))


def own_refusal(number: int) -> Callable[[Ask], Play]:
    """A refusal in the service's own form."""

    def play(ask: Ask) -> Play:
        code = 3 if ask.service == "messaging" else "010"
        return plays.answer({"success": False, "code": code, "message": PATIENT}, number)

    return play


ROWS = [
    Row("reset before the answer", always(plays.reset), ds.ConnectionLostError, UNKNOWN, 2),
    Row("closed before the answer", always(plays.hang_up), ds.ConnectionLostError, UNKNOWN, 2),
    Row("half a head", always(plays.half_a_head), ds.ConnectionLostError, UNKNOWN, 2),
    Row("no answer", always(plays.silence), ds.ConnectionLostError, UNKNOWN, 2),
    Row("not HTTP", always(plays.not_http), ds.ResponseDecodeError, UNKNOWN, 2),
    Row("truncated", lambda ask: plays.truncated(ask.good), ds.ResponseDecodeError, UNKNOWN, 2),
    Row(
        "malformed JSON", always(plays.answer(b'{"success": tr' + PATIENT.encode())), ds.ResponseDecodeError, UNKNOWN, 2
    ),
    Row("empty answer", always(plays.answer(b"")), ds.ResponseDecodeError, UNKNOWN, 2),
    Row("too large", always(plays.answer(PATIENT.encode() * 200)), ds.ResponseDecodeError, UNKNOWN, 1),
    Row("500", status(500), ds.ServerError, UNKNOWN, 2),
    Row("502", status(502), ds.ServerError, UNKNOWN, 2),
    Row("504", status(504), ds.ServerError, UNKNOWN, 2),
    Row("503", status(503), ds.ServerError, UNKNOWN, 2),
    Row("503 with Retry-After", status(503, Retry_After="1"), ds.ServerError, REJECTED, 2),
    Row("408", status(408), ds.ServiceError, UNKNOWN, 2),
    Row("429", status(429), ds.RateLimitedError, REJECTED, 2),
    Row("400", status(400), ds.BadRequestError, FAILED, 1),
    Row("403", status(403), ds.PermissionDeniedError, FAILED, 1),
    Row("404", status(404), ds.NotFoundError, FAILED, 1),
    Row("418", status(418), ds.ServiceError, FAILED, 1),
    Row("302", status(302, Location="http://127.0.0.1:9/elsewhere"), ds.ServiceError, FAILED, 1),
]


@pytest.mark.parametrize("row", ROWS, ids=str)
@pytest.mark.parametrize("ask", ASKS, ids=str)
async def test_failure_is_what_the_table_says(server: ScriptedServer, ask: Ask, row: Row) -> None:
    if ask.service == "registration":
        server.plays(plays.answer(LOGGED_IN))
    server.otherwise = row.play(ask)
    settled = row.outcome is UNKNOWN and not ask.may_repeat
    async with opened(server, max_response_bytes=1000, attempt_timeout=5) as suite:
        error = await failure_of(ask.call(suite))
    logins = server.to("/login")
    assert error.operation == ask.operation
    assert error.service == ask.service
    assert error.outcome is row.outcome
    if settled:
        assert type(error) is ds.OutcomeUnknownError
        assert error.how_to_find_out
        expected = ds.DeadlineExceededError if row.seen == "no answer" else row.error
        assert type(error.__cause__) is expected
        assert "(1 attempt," in str(error.__cause__)
    else:
        assert type(error) is row.error
    assert error.attempts == (1 if settled else row.attempts)
    assert len(server.requests) - len(logins) == error.attempts
    if row.seen == "no answer":
        assert error.elapsed == pytest.approx(60 if settled else 11)
    else:
        assert error.elapsed == pytest.approx(error.attempts - 1)


@pytest.mark.parametrize("number", [200, 400, 401, 404, 500, 503])
@pytest.mark.parametrize("ask", [ask for ask in ASKS if ask.service != "signing"], ids=str)
async def test_own_refusal_decides_whatever_the_status(server: ScriptedServer, ask: Ask, number: int) -> None:
    if ask.service == "registration":
        server.plays(plays.answer(LOGGED_IN))
    server.otherwise = own_refusal(number)(ask)
    async with opened(server) as suite:
        error = await failure_of(ask.call(suite))
    assert isinstance(error, ds.ServiceError)
    assert error.code == (3 if ask.service == "messaging" else "010")
    assert (error.outcome, error.attempts, error.status) == (FAILED, 1, number)
    assert error.message == PATIENT


@pytest.mark.parametrize("ask", ASKS, ids=str)
async def test_refused_connection_means_that_nothing_was_sent(server: ScriptedServer, ask: Ask) -> None:
    async with opened(server) as suite:
        await server.stop()
        error = await failure_of(ask.call(suite))
    assert type(error) is ds.ConnectFailedError
    assert error.outcome is NOT_SENT
    if ask.service != "registration":  # there it is the login that finds no connection
        assert (error.operation, error.attempts) == (ask.operation, 2)


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
