"""A program's own account: one request for all callers, renewed by another request."""

from __future__ import annotations

import asyncio
import re

import pytest

import directsuite as ds
from directsuite.cli.errors import exit_for_error
from directsuite.oauth.source import CODES
from tests.core import api, responses
from tests.core.scripted_server import Responder
from tests.core.scripted_suite import catch_error, expect_error
from tests.core.virtual_time import measure_elapsed, yield_to_loop, yield_until
from tests.guides.documents import read_document

from .token_service import TokenService, fetch, make_rejection


@pytest.mark.parametrize("scope", [None, "pdf fax"])
async def test_hundred_callers_cause_one_token_request(service: TokenService, scope: str | None) -> None:
    grant = service.make_client_credentials(scope=scope)
    async with service.open(grant, requests_per_second=10_000, burst=1000) as suite:
        await asyncio.gather(*(fetch(suite) for _ in range(100)))
    assert service.issued == 1
    assert service.forms == [{"grant_type": "client_credentials"} | ({"scope": scope} if scope else {})]


async def test_call_that_closing_waits_for_may_still_get_a_token(service: TokenService) -> None:
    gate = asyncio.Event()
    async with service.open(leaky=True) as suite:
        await fetch(suite)
        service.valid.clear()
        service.server.enqueue(responses.respond_after(gate, service))
        caller = asyncio.create_task(fetch(suite))
        await yield_until(lambda: service.server.busy == 1)
        closing = asyncio.create_task(suite.aclose())
        await yield_to_loop()
        gate.set()
        assert (await caller).identifier == "doc"
        await closing
    assert service.issued == 2


async def test_pause_of_the_token_endpoint_that_is_longer_than_the_time_left_is_in_the_error(
    service: TokenService,
) -> None:
    service.script = [responses.respond(b"", 429, Retry_After="120")]
    async with service.open(retry=ds.RetryPolicy()) as suite:
        for seconds in (120, 110):
            error = await catch_error(fetch(suite))
            assert error.retry_after == pytest.approx(seconds, abs=0.1)
            assert error.advice == (
                f"the call was not retried, because the wait of {seconds} s is longer than the time left. "
                "Call again after this wait, or with a longer timeout"
            )
            await asyncio.sleep(10)
        error = await catch_error(fetch(suite.with_options(retry=ds.RetryPolicy.none())))
        assert error.retry_after == pytest.approx(100, abs=0.1)
        assert error.advice == ""


async def test_deadline_during_a_pause_of_the_token_endpoint_says_when_the_next_request_is_due(
    service: TokenService,
) -> None:
    unavailable = {"error": "temporarily_unavailable"}
    service.script = [responses.respond(unavailable, 503, Retry_After="30")]
    async with service.open(leaky=True) as suite:
        error = await expect_error(ds.DeadlineExceededError, api.GET_DOC_INFO(suite.with_options(timeout=10)))
        assert (await catch_error(api.GET_DOC_INFO(suite.with_options(timeout=5)))).retry_after == pytest.approx(15)
    assert error.explanation.startswith("the call's time is up: the next fetch of a token is due in 20 s. The last one")
    assert isinstance(error.__cause__, ds.ServerError)


async def test_call_waits_for_the_end_of_the_back_off(service: TokenService) -> None:
    service.script = [responses.respond(b"", 500), responses.respond(b"", 500)]
    async with service.open() as suite:
        assert (await catch_error(fetch(suite))).operation == "token"
        assert await measure_elapsed(fetch(suite)) == pytest.approx(1, abs=0.1)
    assert service.issued == 1


async def test_token_goes_through_while_all_connections_are_held(service: TokenService) -> None:
    gate = asyncio.Event()
    async with service.open(max_connections=2) as suite:
        await fetch(suite)
        service.server.enqueue(responses.respond_after(gate, service), responses.respond_after(gate, service))
        held = [asyncio.create_task(fetch(suite)) for _ in range(2)]
        await yield_until(lambda: service.server.busy == 2)
        tokens = suite._caches[0]
        tokens.invalidate((await tokens.get_current()).generation)
        assert await measure_elapsed(tokens.get_current()) == 0
        service.valid = {"sentinel-of-an-access-token-1", "sentinel-of-an-access-token-2"}
        gate.set()
        await asyncio.gather(*held)


LOST: dict[str, Responder] = {
    "reset": responses.reset,
    "closed": responses.hang_up,
    "half a head": responses.send_partial_head,
    "not HTTP": responses.send_non_http,
    "silence": responses.never_respond,
    "500": responses.respond(b"", 500),
    "502": responses.respond(b"<html>", 502),
    "503": responses.respond(b"", 503),
    "429": responses.respond(b"", 429),
    "broken off": responses.truncate({"access_token": "x" * 99, "token_type": "Bearer"}),
    "garbage": responses.respond(b"\x00\xff"),
    "no token": responses.respond({"token_type": "Bearer"}),
}


@pytest.mark.exhaustive(limit=4)
@pytest.mark.parametrize("lost", LOST)
async def test_lost_token_is_requested_again(service: TokenService, lost: str) -> None:
    service.script = [LOST[lost]]
    async with service.open(timeout=120) as suite:
        raw = await suite.signing.with_raw_response.get_doc_info("doc")
    assert (raw.attempts, service.issued) == (1, 1)
    assert len(service.forms) == 2


@pytest.mark.exhaustive(limit=4)
@pytest.mark.parametrize("ask", [api.GET_DOC_INFO, api.FLATTEN], ids=str)
@pytest.mark.parametrize("lost", LOST)
async def test_lost_token_leaves_the_call_unsent(service: TokenService, lost: str, ask: api.ApiCall) -> None:
    service.script = [LOST[lost]] * 9
    async with service.open(leaky=True) as suite:
        error = await catch_error(ask(suite))
    assert not isinstance(error, ds.OutcomeUnknownError)
    assert error.outcome in (ds.Outcome.NOT_SENT, ds.Outcome.REJECTED)
    assert len(service.forms) == len(service.server.requests)


async def test_retry_after_of_the_token_endpoint_is_waited_for(service: TokenService) -> None:
    service.script = [responses.respond(b"", 503, Retry_After="7")]
    async with service.open() as suite:
        assert await measure_elapsed(fetch(suite)) == pytest.approx(7)
    assert service.issued == 1


@pytest.mark.exhaustive(limit=5)
@pytest.mark.parametrize(
    ("code", "status", "error"),
    [
        *(("invalid_client", status, ds.AuthenticationError) for status in (401, 400, 200)),
        *((code, 400, ds.AuthenticationError) for code in ("invalid_grant", "unauthorized_client")),
        *(("invalid_scope", status, ds.BadRequestError) for status in (400, 200)),
        *((code, 400, ds.BadRequestError) for code in ("invalid_request", "unsupported_grant_type")),
    ],
)
async def test_rejection_is_reported_by_code_and_not_retried(
    service: TokenService, code: str, status: int, error: type[ds.ServiceError]
) -> None:
    failure = await service.fail(error, make_rejection(code, status))
    assert (failure.code, failure.status) == (code, status)
    assert (failure.operation, failure.service, failure.outcome) == ("token", "oauth", ds.Outcome.FAILED)
    assert f"({code})" in str(failure)
    assert failure.advice == ("check client_id and client_secret" if code == "invalid_client" else "")
    assert failure.explanation.endswith("; GetDocInfo was not sent")
    assert "not known" not in repr(vars(failure))
    assert status == 200 or "not known" in (failure.message or "")
    assert len(service.server.requests) == 1


_ROWS_OF_GUIDE = re.findall(
    r"^\| ([^|]*) \| `(\w+Error)` \| [^|]* \| (no|yes|if [^|]*) \|$", read_document("settings"), re.MULTILINE
)


def test_guide_lists_every_code() -> None:
    assert set(re.findall(r"`(\w+)`", " ".join(cell for cell, _, _ in _ROWS_OF_GUIDE))) == set(CODES)


@pytest.mark.exhaustive(limit=6)
@pytest.mark.parametrize(
    ("case", "status", "error", "repeated"),
    [
        (case, status, error, repeated)
        for cell, error, repeated in _ROWS_OF_GUIDE
        for case in re.findall(r"\w{3,}_\w+|\d{3}|redirect", cell)
        for status in ((400, 500) if repeated.startswith("if") else (400,))
    ],
)
async def test_rejection_is_reported_as_the_guide_says(
    service: TokenService, case: str, status: int, error: str, repeated: str
) -> None:
    rejection = make_rejection(case, status)
    if case == "redirect" or case.isdigit():
        rejection = responses.respond(b"", 302 if case == "redirect" else int(case), Location="https://example.test/")
    failure = await service.fail(getattr(ds, error), *[rejection] * 4)
    assert failure.operation == "token"
    assert failure.outcome is not ds.Outcome.UNKNOWN
    assert (len(service.forms) > 1) == (repeated == "yes" or status == 500)


@pytest.mark.parametrize(
    ("responder", "error", "text"),
    [
        (make_rejection("sentinel-of-a-client-secret"), ds.BadRequestError, "HTTP 400"),
        (make_rejection("sentinel-of-a-client-secret", 200), ds.ServiceError, "responded with an unknown error"),
        (
            responses.respond(b"", 401),
            ds.AuthenticationError,
            "(HTTP 401); GetDocInfo was not sent: check client_id and client_secret (",
        ),
        (
            responses.respond(b"", 404),
            ds.ServiceError,
            "not found (HTTP 404); GetDocInfo was not sent: check the setting token_url (",
        ),
        (
            responses.respond(b"", 302, Location="https://other.example.test/"),
            ds.ServiceError,
            "followed (HTTP 302); GetDocInfo was not sent: check the setting token_url (",
        ),
    ],
    ids=["code of its own", "code of its own, 200", "bare 401", "404", "redirect"],
)
async def test_rejection_without_a_code_of_the_rfc_is_reported_by_its_status(
    service: TokenService, responder: Responder, error: type[ds.ServiceError], text: str
) -> None:
    failure = await service.fail(error, responder)
    assert failure.code is None
    assert text in str(failure)
    assert len(service.server.requests) == 1


@pytest.mark.parametrize(("circuit_failures", "kind"), [(1, ds.CircuitOpenError), (20, ds.ConnectFailedError)])
async def test_token_endpoint_without_connection_is_named_with_its_setting(
    service: TokenService, circuit_failures: int, kind: type[ds.ConnectFailedError]
) -> None:
    grant = ds.ClientCredentials("http://127.0.0.1:9/token", "client", "secret")
    failure = await service.fail(kind, grant=grant, circuit_failures=circuit_failures)
    assert "no connection to the token endpoint (Connection refused)" in str(failure)
    assert "; GetDocInfo was not sent: check the setting token_url (" in str(failure)
    assert "nothing was sent" not in exit_for_error(failure)[1]


async def test_call_that_was_sent_before_its_token_was_rejected_is_not_called_unsent(service: TokenService) -> None:
    async with service.open() as suite:
        await fetch(suite)
        service.valid.clear()
        service.script = [make_rejection("invalid_client", 401)]
        failure = await catch_error(fetch(suite))
    assert failure.operation == "token"
    assert "was not sent" not in str(failure)


async def test_token_rejected_once_is_not_requested_by_each_caller_and_not_waited_for(service: TokenService) -> None:
    service.script = [make_rejection("invalid_client", 401)]
    async with service.open() as suite:
        for _ in range(3):
            assert await measure_elapsed(catch_error(fetch(suite))) == 0
        errors = await asyncio.gather(*(catch_error(fetch(suite)) for _ in range(100)))
    assert {type(error) for error in errors} == {ds.AuthenticationError}
    assert len(service.server.requests) == 1


async def test_events_name_the_token_call_and_nothing_of_it(service: TokenService) -> None:
    events: list[ds.Event] = []
    async with service.open(listeners=[events.append]) as suite:
        await fetch(suite)
    started = [event for event in events if isinstance(event, ds.CallStarted) and event.service == "oauth"]
    assert [(event.operation, event.method, event.path) for event in started] == [("token", "POST", "")]
    assert any(isinstance(event, ds.TokenRefreshed) and event.expires_in == 3600 for event in events)
    assert "sentinel" not in repr(events)
