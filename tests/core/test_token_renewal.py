"""Tokens and sessions in calls over a socket, with rejections and many callers."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path

import pytest

import directsuite as ds
from directsuite.core.call import Call
from directsuite.core.credentials import AccessToken

from . import api, responses
from .scripted_server import Exchange, Responder, ScriptedServer
from .scripted_suite import (
    INDIVIDUAL,
    LOGIN_RESPONSE,
    PASSWORD,
    SESSION,
    SUCCESS_BODY,
    catch_error,
    expect_error,
    open_suite,
    respond_after_login,
)
from .token_fetches import NumberedTokens
from .virtual_time import measure_elapsed, yield_to_loop, yield_until


class Sessions:
    """The registration service, with numbered sessions. Those in `valid` are accepted."""

    def __init__(self) -> None:
        self.logins = 0
        self.result: dict[str, object] = SUCCESS_BODY
        self.valid: set[str] = set()

    async def __call__(self, exchange: Exchange) -> None:
        if exchange.request.target.endswith("/login"):
            self.logins += 1
            session = f"session-{self.logins}"
            self.valid = {session}
            await responses.respond(LOGIN_RESPONSE | {"sessionId": session})(exchange)
            return
        known = any(f"/{session}/" in exchange.request.target for session in self.valid)
        await responses.respond(self.result if known else {"success": False, "code": "011"})(exchange)


@pytest.fixture
def sessions(server: ScriptedServer) -> Sessions:
    server.default_responder = service = Sessions()
    return service


async def test_hundred_callers_without_a_session_or_on_a_rejected_one_cause_one_login(
    server: ScriptedServer, sessions: Sessions
) -> None:
    async with open_suite(server, requests_per_second=10_000, burst=1000) as suite:
        await asyncio.gather(*(api.GET_PATIENT_ADDRESS(suite) for _ in range(100)))
        assert sessions.logins == 1
        sessions.valid.clear()
        await asyncio.gather(*(api.GET_PATIENT_ADDRESS(suite) for _ in range(100)))
    assert sessions.logins == 2


@pytest.mark.parametrize(("age", "logins"), [(539, 1), (541, 2), (3600, 2)])
async def test_session_is_renewed_a_minute_before_its_ten_are_over(
    server: ScriptedServer, suite: ds.DirectSuite, sessions: Sessions, age: float, logins: int
) -> None:
    await api.GET_PATIENT_ADDRESS(suite)
    await asyncio.sleep(age)
    await api.GET_PATIENT_ADDRESS(suite)
    await yield_until(lambda: sessions.logins == logins and not suite._session.calls)
    assert sessions.logins == logins
    assert len(server.requests) == 2 + logins


async def test_login_forces_a_new_session_that_later_calls_use(server: ScriptedServer, sessions: Sessions) -> None:
    async with open_suite(server) as suite:
        await api.GET_PATIENT_ADDRESS(suite)
        response = await suite.registration.login()
        assert response.session_id.reveal() == "session-2"
        await api.GET_PATIENT_ADDRESS(suite)
    assert sessions.logins == 2
    assert "/session-2/" in server.requests[-1].target


@pytest.mark.exhaustive
@pytest.mark.parametrize("ask", [api.GET_PATIENT_ADDRESS, api.PROVISION], ids=str)
@pytest.mark.parametrize(
    ("play", "error"),
    [
        (responses.reset, ds.ConnectionLostError),
        (responses.never_respond, ds.TransportError),
        (responses.respond(b"", 500), ds.ServerError),
        (responses.respond(b"{"), ds.ResponseDecodeError),
        (responses.respond({"success": True, "code": "000"}), ds.ResponseDecodeError),
    ],
    ids=["reset", "silence", "500", "malformed", "no session id"],
)
async def test_lost_login_leaves_the_call_unsent(
    server: ScriptedServer, ask: api.ApiCall, play: Responder, error: type[ds.DirectSuiteError]
) -> None:
    server.default_responder = play
    async with open_suite(server, leaky=True) as suite:  # the login continues after the call's deadline
        failure = await catch_error(ask(suite))
    assert isinstance(failure, error)
    assert failure.outcome is ds.Outcome.NOT_SENT
    assert all(path == "login" for path in server.paths)


async def test_login_that_was_lost_and_then_refused_is_not_retried_by_the_call(server: ScriptedServer) -> None:
    async def reset_and_stop(exchange: Exchange) -> None:
        server.stop_listening()
        await responses.reset(exchange)

    events: list[ds.Event] = []
    server.default_responder = reset_and_stop
    async with open_suite(server, listeners=[events.append]) as suite:
        failure = await catch_error(api.GET_PATIENT_ADDRESS(suite))
    assert (failure.operation, failure.attempts) == ("login", 2)
    assert isinstance(failure.__cause__, ds.ConnectFailedError)
    assert [each.operation for each in events if isinstance(each, ds.RetryScheduled)] == ["login"]


async def test_rejected_login_is_reported_once_and_backs_off(server: ScriptedServer, suite: ds.DirectSuite) -> None:
    server.default_responder = responses.respond({"success": False, "code": "011"})
    errors = [await catch_error(api.GET_PATIENT_ADDRESS(suite)) for _ in range(3)]
    assert {type(error) for error in errors} == {ds.AuthenticationError}
    assert {error.operation for error in errors} == {"login"}
    assert len(server.requests) == 1


async def test_login_goes_through_while_all_connections_are_held(server: ScriptedServer, sessions: Sessions) -> None:
    gate = asyncio.Event()
    async with open_suite(server, max_connections=2) as suite:
        await api.GET_PATIENT_ADDRESS(suite)
        server.enqueue(responses.respond_after(gate, sessions), responses.respond_after(gate, sessions))
        held = [asyncio.ensure_future(api.GET_PATIENT_ADDRESS(suite)) for _ in range(2)]
        await yield_until(lambda: server.busy == 2)
        assert await measure_elapsed(suite.registration.login()) == 0
        gate.set()
        await asyncio.gather(*held)
    assert sessions.logins == 2


class FirstTokenRejected:
    """A signing service that rejects the first token, and the source of the tokens."""

    def __init__(self) -> None:
        self.source = NumberedTokens()
        self.refused = 0

    async def __call__(self, exchange: Exchange) -> None:
        stale = exchange.request.headers["authorization"] == "Bearer token-1"
        self.refused += stale
        await (responses.respond(b"", 401) if stale else responses.respond({"identifier": "doc"}))(exchange)


@pytest.mark.parametrize(
    "origin",
    [
        "token=... of the suite",
        "config.toml, line 1",
        "(here DIRECTSUITE_TOKEN, used instead of the OAuth client of {}/config.toml, line 1",
    ],
)
async def test_rejected_constant_token_is_named_with_its_origin(
    server: ScriptedServer, tmp_path: Path, origin: str
) -> None:
    (tmp_path / "config.toml").write_text('token_file = "secret"\n')
    (tmp_path / "secret").write_text("of the file\n")
    (tmp_path / "secret").chmod(0o600)
    environ = {"DIRECTSUITE_CONFIG": str(tmp_path / "config.toml"), "DIRECTSUITE_SIGNING_URL": server.url("signing")}
    if "DIRECTSUITE_TOKEN" in origin:  # takes precedence over the file
        environ["DIRECTSUITE_TOKEN"] = "of the variable"
        (tmp_path / "config.toml").write_text('token_url = "https://login.example.test"\n')
    given = ds.Secret("of the program") if origin.startswith("token=") else None
    server.default_responder = responses.respond(b"", 401)
    async with ds.DirectSuite.from_env(environ, token=given) as suite:
        error = await catch_error(api.GET_DOC_INFO(suite))
    assert error.explanation == "the service rejected the access token (HTTP 401)"
    assert error.advice.startswith("the token is invalid or has expired, and a constant one (here ")
    assert f"{origin.format(tmp_path)}) cannot be renewed. Replace it, or pass an async function" in error.advice


async def test_late_401_about_an_old_token_keeps_the_new_one(server: ScriptedServer) -> None:
    gate = asyncio.Event()
    server.default_responder = tokens = FirstTokenRejected()
    async with open_suite(server, token=tokens.source) as suite:
        server.enqueue(responses.respond_after(gate, tokens))
        late = await server.begin(suite.signing.get_doc_info("late"))
        await suite.signing.get_doc_info("early")
        assert tokens.source.asked == 2
        gate.set()
        await late
    assert tokens.source.asked == 2


async def test_call_waits_for_the_end_of_the_back_off_after_a_failed_login(
    server: ScriptedServer, suite: ds.DirectSuite, sessions: Sessions
) -> None:
    server.enqueue(responses.respond(b"", 500), responses.respond(b"", 500))
    await catch_error(api.GET_PATIENT_ADDRESS(suite))
    for impatient in (suite.with_options(timeout=0.5), suite.with_options(retry=ds.RetryPolicy.none())):
        began = asyncio.get_running_loop().time()
        error = await expect_error(ds.ServerError, api.GET_PATIENT_ADDRESS(impatient))
        assert asyncio.get_running_loop().time() == began
        assert error.retry_after == pytest.approx(1, abs=0.1)
    assert await measure_elapsed(api.GET_PATIENT_ADDRESS(suite)) == pytest.approx(1, abs=0.1)
    assert sessions.logins == 1


async def test_error_of_the_token_function_is_raised_immediately_even_if_it_names_a_wait(
    server: ScriptedServer,
) -> None:
    source, busy = NumberedTokens(), ds.ServerError("busy", status=503, operation="Vault", service="vault")
    busy.outcome, busy.retry_after = ds.Outcome.UNKNOWN, 20
    source.failures = [busy]
    async with open_suite(server, token=source, retry=ds.RetryPolicy()) as suite:
        for _ in range(2):
            assert await measure_elapsed(expect_error(ds.ServerError, api.GET_DOC_INFO(suite))) == 0
    assert source.asked == 1


async def test_failed_token_is_tried_as_often_as_the_policy_says(server: ScriptedServer) -> None:
    source = NumberedTokens()
    source.failures = [ConnectionError("vault") for _ in range(9)]
    async with open_suite(server, token=source, retry=ds.RetryPolicy()) as suite:
        error = await catch_error(api.GET_DOC_INFO(suite))
        assert source.asked == 4
        assert error.retry_after == pytest.approx(8, abs=0.1)
        assert str(error).endswith(
            f"raised ConnectionError, failure 4 in a row (call {error.call}, no request was sent, 7.0 s)"
        )
        # The next call waits for the end of the back-off, and then calls the source.
        await catch_error(api.GET_DOC_INFO(suite.with_options(timeout=10)))
    assert source.asked == 5


@pytest.mark.parametrize(
    ("failure", "is_temporary", "cause", "advice"),
    [
        (TimeoutError("vault"), True, "TimeoutError", ""),
        (ValueError("vault"), False, "ValueError", "raise an OSError in the"),
        (ds.ConfigurationError("vault"), False, None, ""),
        (ds.TransportError("vault", operation="Vault", service="vault"), False, None, ""),
    ],
)
async def test_failure_of_the_token_function_says_whether_a_later_call_may_help(
    server: ScriptedServer, failure: Exception, cause: str | None, advice: str, *, is_temporary: bool
) -> None:
    source, events = NumberedTokens(), list[ds.Event]()
    source.failures = [failure]
    retry = ds.RetryPolicy(attempts=1)
    async with open_suite(server, token=source, retry=retry, listeners=[events.append]) as suite:
        for _ in range(2):  # the second call gets the same error, during the back-off
            error = await catch_error(api.GET_DOC_INFO(suite))
            assert (error.retry_after is not None) is is_temporary
            assert advice in error.advice
            assert bool(advice) is bool(error.advice)
            assert "was not sent" not in str(error)
    assert source.asked == 1
    [event] = [each for each in events if isinstance(each, ds.RenewalFailed)]
    assert (event.cause, event.reason, event.credential) == (cause, None, "token")


async def test_password_goes_to_the_login_and_the_session_into_the_path_only(
    server: ScriptedServer, suite: ds.DirectSuite
) -> None:
    await suite.registration.get_patient_address_by_meta("direct.example.test", INDIVIDUAL)
    login, request = server.requests
    assert login.document["password"] == PASSWORD
    assert SESSION in request.target
    assert not {"authorization", "cookie"} & request.headers.keys()


async def test_queued_calls_do_not_send_rejected_token(server: ScriptedServer) -> None:
    server.default_responder = tokens = FirstTokenRejected()
    async with open_suite(server, token=tokens.source, max_connections=2) as suite:
        await asyncio.gather(*(api.GET_DOC_INFO(suite) for _ in range(40)), api.SAVE_STREAM(suite))
    assert (tokens.source.asked, tokens.refused) == (2, 2)


async def test_session_with_which_all_calls_failed_is_replaced_immediately(
    suite: ds.DirectSuite, sessions: Sessions
) -> None:
    sessions.result = {"success": False, "code": "210"}
    for logins in range(1, 9):
        assert type(await catch_error(api.GET_PATIENT_ADDRESS(suite))) is ds.NotFoundError
        assert sessions.logins == logins
        sessions.valid.clear()


async def test_rejected_sessions_cause_few_logins(server: ScriptedServer, suite: ds.DirectSuite) -> None:
    server.default_responder = respond_after_login(responses.respond({"success": False, "code": "011"}))
    for _ in range(10):
        assert type(await catch_error(api.GET_PATIENT_ADDRESS(suite))) is ds.AuthenticationError
    assert len(server.find_requests("/login")) == 2


async def test_token_that_is_given_out_expired_is_fetched_once_a_call(server: ScriptedServer) -> None:
    fetches = 0

    async def token() -> AccessToken:
        nonlocal fetches
        fetches += 1
        await asyncio.sleep(2)
        return AccessToken("token", 1)  # the lifetime counts from the request

    async with open_suite(server, token=token) as suite:
        for _ in range(3):
            await api.GET_DOC_INFO(suite)
    assert fetches == 3


class HangingTokens:
    """A token function whose first call hangs."""

    def __init__(self, *, ignores_cancellation: bool = False, single_use: bool = False) -> None:
        self.ignores_cancellation, self.single_use = ignores_cancellation, single_use
        self.renewable = True
        self.calls = 0
        self.is_cancelled = False
        self.recovered = asyncio.Event()

    async def fetch(self) -> AccessToken:
        self.calls += 1
        while self.calls == 1 and not self.recovered.is_set():
            try:
                await self.recovered.wait()
            except asyncio.CancelledError:
                self.is_cancelled = True
                if not self.ignores_cancellation:
                    raise
        return AccessToken(f"token-{self.calls}")


@pytest.mark.parametrize("ignores_cancellation", [False, True])
async def test_token_function_that_hangs_is_called_again_after_the_attempt_timeout(
    server: ScriptedServer, *, ignores_cancellation: bool
) -> None:
    source = HangingTokens(ignores_cancellation=ignores_cancellation)
    token = source if ignores_cancellation else source.fetch
    async with open_suite(server, token=token, attempt_timeout=10) as suite:
        impatient = suite.with_options(timeout=9)
        assert type(await catch_error(api.GET_DOC_INFO(impatient))) is ds.DeadlineExceededError
        await api.GET_DOC_INFO(impatient)  # repeated when the fetch ends after 10 seconds
        source.recovered.set()
    assert (source.calls, source.is_cancelled) == (2, True)
    assert server.requests[-1].headers["authorization"] == "Bearer token-2"


async def test_token_function_may_take_as_long_as_the_attempt_timeout(server: ScriptedServer) -> None:
    source = HangingTokens()
    async with open_suite(server, token=source.fetch, attempt_timeout=90, timeout=100) as suite:
        asyncio.get_running_loop().call_later(80, source.recovered.set)
        await suite.signing.get_doc_info("doc")
    assert source.calls == 1


async def test_deadline_during_a_fetch_names_the_failure_of_the_one_before(server: ScriptedServer) -> None:
    vault = ConnectionError("vault")

    async def token() -> str:
        await asyncio.sleep(3)
        raise vault

    async with open_suite(server, token=token, retry=ds.RetryPolicy()) as suite:
        error = await catch_error(api.GET_DOC_INFO(suite.with_options(timeout=8)))  # fetches at 0, 4 and 9 s
        assert "the token source raised ConnectionError" in str(error)
        error = await catch_error(api.GET_DOC_INFO(suite.with_options(timeout=3)))
    assert type(error) is ds.DeadlineExceededError
    assert error.explanation == (
        "the call's time is up: a fetch of a token is in progress. "
        "The last one failed: the token source raised ConnectionError, failure 2 in a row"
    )
    assert isinstance(error.__cause__, ds.TransportError)
    assert error.__cause__.__cause__ is vault


async def test_deadline_during_the_back_off_of_a_login_says_when_the_next_is_due(server: ScriptedServer) -> None:
    server.default_responder = responses.respond(b"", 503, Retry_After="30")
    async with open_suite(server, retry=ds.RetryPolicy(), leaky=True) as suite:
        error = await expect_error(ds.DeadlineExceededError, api.GET_PATIENT_ADDRESS(suite.with_options(timeout=10)))
    assert error.explanation == (
        "the call's time is up: the next login is due in 20 s. The last one failed: the service failed (HTTP 503)"
    )
    assert error.retry_after == pytest.approx(20, abs=0.1)
    assert isinstance(error.__cause__, ds.ServerError)


async def test_single_use_token_source_is_not_cancelled_by_the_attempt_timeout(server: ScriptedServer) -> None:
    source = HangingTokens(single_use=True)
    async with open_suite(server, token=source, attempt_timeout=10) as suite:
        asyncio.get_running_loop().call_later(30, source.recovered.set)
        await api.GET_DOC_INFO(suite)
    assert source.calls == 1


async def test_remembered_login_failure_references_no_call(server: ScriptedServer, suite: ds.DirectSuite) -> None:
    server.default_responder = responses.respond(b"", 500)
    await catch_error(api.GET_PATIENT_ADDRESS(suite))
    await yield_to_loop()
    gc.collect()
    endpoints = list(suite._transport._endpoints.values())
    assert not [each for each in gc.get_objects() if isinstance(each, Call) and each.endpoint in endpoints]
    assert isinstance(await catch_error(api.GET_PATIENT_ADDRESS(suite)), ds.ServerError)


async def test_forced_login_wins_over_older_login_response(server: ScriptedServer, suite: ds.DirectSuite) -> None:
    gate = asyncio.Event()
    server.enqueue(
        responses.respond_after(gate, responses.respond(LOGIN_RESPONSE | {"sessionId": "older"})),
        responses.respond(LOGIN_RESPONSE | {"sessionId": "newer"}),
    )
    calling = await server.begin(api.GET_PATIENT_ADDRESS(suite))
    await asyncio.sleep(1)
    await suite.registration.login()
    gate.set()
    await calling
    await api.GET_PATIENT_ADDRESS(suite)
    assert all("/newer/" in request.target for request in server.requests[2:])


async def test_session_is_kept_alive_without_repeating_a_rejected_login(server: ScriptedServer) -> None:
    async with open_suite(server, keep_alive=True) as suite:
        await api.GET_PATIENT_ADDRESS(suite)
        server.default_responder = responses.respond({"success": False, "code": "011"})
        await asyncio.sleep(10_000)
        assert len(server.find_requests("/login")) == 2
        server.default_responder = responses.respond(SUCCESS_BODY)
        await api.GET_PATIENT_ADDRESS(suite)
        await asyncio.sleep(1200)
        assert len(server.find_requests("/login")) == 5
