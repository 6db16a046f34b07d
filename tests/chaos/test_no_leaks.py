"""No planted text appears in logs, events, spans, metrics, errors, frames or reprs, whatever happens.

Frames are searched with their locals, which tools that report errors print.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import functools
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

import directsuite as ds
from directsuite.types import Token
from tests.core import responses
from tests.core.scripted_server import Exchange, Responder, ScriptedServer
from tests.core.scripted_suite import TWO_ATTEMPTS_POLICY, make_settings
from tests.core.virtual_time import LoopClock, yield_to_loop, yield_until
from tests.operations import METHODS, OPERATIONS

from . import sentinels
from .leak_capture import (
    CapturedText,
    OutputCapture,
    collect_error_texts,
    collect_frame_locals,
    collect_pickles,
    collect_reprs,
    find_leaks,
)

_ALL_SENTINELS = " ".join(sentinels.ALL_SENTINELS)
_PERSON: dict[str, Any] = {
    "firstName": sentinels.NAME,
    "lastName": sentinels.SURNAME,
    "address": sentinels.STREET,
    "username": sentinels.USERNAME,
    "endpointPassword": sentinels.PATIENT_PASSWORD,
    "userType": "SMTP",
    "unknown": _ALL_SENTINELS,
}
_MAIL: dict[str, Any] = {
    "uid": sentinels.UID,
    "msgID": sentinels.SMTP_ID,
    "folder": sentinels.FOLDER,
    "sender": sentinels.ALICE,
    "subject": sentinels.SUBJECT,
    "body": sentinels.BODY,
    "recipients": [{"email": sentinels.BOB, "type": "TO"}],
    "headers": [{"name": "X-Planted", "value": sentinels.HEADER}],
    "attachments": [
        {
            "content": base64.b64encode(sentinels.ATTACHED).decode(),
            "contentType": "text/xml",
            "filename": sentinels.FILE_NAME,
        }
    ],
    "data": base64.b64encode(sentinels.RAW).decode(),
    "unknown": _ALL_SENTINELS,
}
_LOG = {
    "from": sentinels.ALICE,
    "to": sentinels.BOB,
    "messageId": sentinels.SMTP_ID,
    "status": _ALL_SENTINELS,
    "statusDetails": _ALL_SENTINELS,
}
_SUCCESS_BODIES: dict[str, dict[str, Any]] = {
    "signing": {
        "identifier": sentinels.DOCUMENT,
        "documentDigest": sentinels.REASON,
        "description": _ALL_SENTINELS,
        "signatures": [{"name": sentinels.SIGNER, "reason": sentinels.REASON, "isSigned": True}],
        "formFields": [{"name": sentinels.NAME, "value": _ALL_SENTINELS}],
    },
    "fax": {
        "Username": sentinels.USERNAME,
        "MessageHandle": sentinels.HANDLE,
        "MessageDetail": [
            {"MessageHandle": sentinels.HANDLE, "FaxNumber": sentinels.NUMBER, "description": _ALL_SENTINELS}
        ],
    },
    "message": {
        "success": True,
        "code": 0,
        "message": _ALL_SENTINELS,
        "smtpId": sentinels.SMTP_ID,
        "count": 1,
        "uids": [sentinels.UID],
        "folders": [sentinels.FOLDER],
        "messages": [_MAIL],
        "messageLogs": [_LOG],
    },
    "registration": {
        "success": True,
        "code": "000",
        "description": _ALL_SENTINELS,
        "sessionId": sentinels.SESSION,
        "users": [_PERSON],
        "patient": [_PERSON],
    },
    "token": {
        "access_token": sentinels.TOKEN,
        "refresh_token": sentinels.REFRESH_TOKEN,
        "token_type": "Bearer",
        "expires_in": 3600,
        "unknown": _ALL_SENTINELS,
    },
}


_SERVICES = {"mailbox": "message", "tuser": "message"}
for _case in OPERATIONS.values():
    if not isinstance(_case.response, bytes):  # add the members that are not planted above
        _response: Any = _case.response
        _body = _SUCCESS_BODIES[_SERVICES.get(_case.facade, _case.facade)]
        _body.update({**_response, **_body})


async def respond_success(exchange: Exchange) -> None:
    service, *rest = exchange.request.target[1:].split("/")
    pulled = service == "signing" and (rest[-1] == "pull" or (exchange.request.method == "GET" and rest[-1] != "info"))
    await responses.respond(base64.b64encode(sentinels.PDF) if pulled else _SUCCESS_BODIES[service])(exchange)


partial_response: Responder = responses.respond_in_chunks(
    b'{"success": true, "messages": [{"uid": 1, "subject": "' + _ALL_SENTINELS.encode(), responses.Pause(900)
)
"""A successful response that stops in the middle."""


def respond_after_login(responder: Responder) -> Responder:
    async def chosen(exchange: Exchange) -> None:
        await (respond_success if exchange.request.target.endswith("/login") else responder)(exchange)

    return chosen


def is_verification_request(target: str) -> bool:
    return target.endswith("/info") or "/GetPatientAddressByMeta/" in target


def respond_to_verification(verification: Responder, responder: Responder) -> Responder:
    """Return a responder that accepts logins, and has separate responders for verifications and other requests."""

    async def chosen(exchange: Exchange) -> None:
        await (verification if is_verification_request(exchange.request.target) else respond_after_login(responder))(
            exchange
        )

    return chosen


def _respond_raw(answer: str) -> Responder:
    content = answer.replace("\n", "\r\n").replace("@", _ALL_SENTINELS).encode()
    return responses.close_after(responses.send_raw(content))


def _make_rejection(status: int, **members: Any) -> Responder:
    named = {
        "success": False,
        "message": _ALL_SENTINELS,
        "error": _ALL_SENTINELS,
        "error_description": _ALL_SENTINELS,
        "description": _ALL_SENTINELS,
    }
    return responses.respond(named | members, status, X_Planted=_ALL_SENTINELS)


async def _echo_request(exchange: Exchange) -> None:
    await exchange.read()
    request = exchange.request
    said = json.dumps({"success": False, "message": f"{request.target} {request.headers} {request.body!r}"}).encode()
    await exchange.write(responses.make_head(500, len(said)) + said)


FAILURE_RESPONSES: dict[str, Responder] = {
    "refused": _make_rejection(400, code=3),
    "refused with a good status": _make_rejection(200, code=2),
    "refused with a code": _make_rejection(200, code="208"),
    "refused as OAuth does": responses.respond(
        {"error": "invalid_grant", "error_description": _ALL_SENTINELS, "error_uri": _ALL_SENTINELS}, 400
    ),
    "request echoed": _echo_request,
    "401": _make_rejection(401),
    "403": _make_rejection(403),
    "429": _make_rejection(429),
    "503 with Retry-After": responses.respond(_ALL_SENTINELS.encode(), 503, Retry_After="1"),
    "Retry-After that is none": responses.respond(_ALL_SENTINELS.encode(), 503, Retry_After=_ALL_SENTINELS),
    "500": responses.respond(_ALL_SENTINELS.encode(), 500, Content_Type=_ALL_SENTINELS),
    "redirect": responses.respond(b"", 302, Location=f"http://127.0.0.1:9/{_ALL_SENTINELS.replace(' ', '')}"),
    "malformed": responses.respond(b'{"success": true, ' + _ALL_SENTINELS.encode()),
    "misfit": responses.respond(
        {
            "success": True,
            "code": 0,
            "messages": _ALL_SENTINELS,
            "identifier": [_ALL_SENTINELS],
            "users": {_ALL_SENTINELS: 1},
        }
    ),
    "refused at its end": responses.respond({"messages": [_MAIL], "message": _ALL_SENTINELS, "success": False}),
    "truncated": responses.truncate({"success": True, "message": _ALL_SENTINELS}),
    "cookies": responses.respond(
        {"success": False, "code": 3}, 400, Set_Cookie=f"{_ALL_SENTINELS}; Path={_ALL_SENTINELS}"
    ),
    "media type": responses.respond(b"no", Content_Type=f"text/plain; charset={_ALL_SENTINELS}"),
    "media type that is none": responses.respond(b"no", Content_Type=_ALL_SENTINELS),
    "coding": responses.respond(_ALL_SENTINELS.encode(), Content_Encoding="gzip"),
    "not HTTP": _respond_raw("220 @\n\n"),
    "status line": _respond_raw("HTTP/1.1 2x0 @\n\n"),
    "header without a name": _respond_raw("HTTP/1.1 200 OK\n@\n\n"),
    "header twice": _respond_raw("HTTP/1.1 200 OK\nContent-Length: @\nContent-Length: 7\n\n@"),
    "chunk size": _respond_raw("HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n@\n@\n"),
    "long header": _respond_raw("HTTP/1.1 200 OK\nX-Planted: " + "@" * 20 + "\n\n"),
    "more than was announced": _respond_raw("HTTP/1.1 200 OK\nContent-Length: 3\n\n{} @"),
    "reset": responses.reset,
    "hang up": responses.hang_up,
    "half a head": responses.send_partial_head,
    "silence": responses.never_respond,
}
"""The failing responses, by name."""


SECRET_VARIANTS = sentinels.encode_variants(sentinels.SECRETS)
ALL_VARIANTS = sentinels.encode_variants(sentinels.ALL_SENTINELS)
ALL_BUT_IDENTIFIERS = sentinels.encode_variants({*sentinels.ALL_SENTINELS} - {sentinels.DOCUMENT, str(sentinels.UID)})
"""The sentinels that reprs of responses and frames must not contain. They may contain identifiers."""
VERIFICATION_OPERATIONS = {"GetDocInfo", "GetDoc", "GetPatientAddressByMeta"}
DEBUG = pytest.mark.parametrize("debug", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["", "debug"])


@pytest.fixture
def captured() -> Iterator[OutputCapture]:
    """Capture the output of a test, which runs in virtual time, and assert that it contains nothing planted."""
    with OutputCapture() as capture:
        yield capture
    assert find_leaks(capture.collect_texts(), ALL_VARIANTS) == []


def make_suite(server: ScriptedServer, token: Token = sentinels.TOKEN, **others: Any) -> ds.DirectSuite:
    settings = make_settings(server, **({"circuit_failures": 0, "max_response_bytes": 100_000} | others))
    return ds.DirectSuite(settings, token=token, login=sentinels.LOGIN, clock=LoopClock())


async def await_outcome(call: sentinels.SuiteCall, suite: ds.DirectSuite) -> object:
    try:
        return await call(suite)
    except Exception as error:  # noqa: BLE001  whatever it is, it is looked at
        return error


def find_leaks_in(found: object) -> list[CapturedText]:
    if isinstance(found, BaseException):
        return [
            *find_leaks(collect_error_texts(found), ALL_VARIANTS),
            *find_leaks(collect_frame_locals(found), ALL_BUT_IDENTIFIERS),
            *find_leaks(collect_pickles(found), ALL_VARIANTS),
        ]
    return (
        find_leaks([("repr of the response", repr(found))], ALL_BUT_IDENTIFIERS) if isinstance(found, ds.Model) else []
    )


def find_leaks_in_reprs(suite: ds.DirectSuite) -> list[CapturedText]:
    return find_leaks(collect_reprs(suite, sentinels.get_mailbox(suite), sentinels.get_tuser(suite)), SECRET_VARIANTS)


async def find_leaks_on_cancel(call: asyncio.Future[object]) -> list[CapturedText]:
    call.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:
        await call
    return [
        *find_leaks(collect_error_texts(caught.value), ALL_VARIANTS),
        *find_leaks(collect_frame_locals(caught.value), ALL_BUT_IDENTIFIERS),
    ]


async def find_leaks_by_call(
    calls: Mapping[str, sentinels.SuiteCall], responder: Responder, captured: OutputCapture, **others: Any
) -> dict[str, list[CapturedText]]:
    found: dict[str, list[CapturedText]] = {}
    async with ScriptedServer(responder) as server, make_suite(server, **others) as suite:
        captured.listen(suite)
        for name, call in calls.items():
            found[name] = find_leaks_in(await await_outcome(call, suite))
        found["suite"] = find_leaks_in_reprs(suite)
    return {name: places for name, places in found.items() if places}


@pytest.mark.exhaustive(limit=3)
@DEBUG
@pytest.mark.parametrize("failure", FAILURE_RESPONSES)
async def test_failed_calls_show_nothing(captured: OutputCapture, failure: str, *, debug: bool) -> None:
    asyncio.get_running_loop().set_debug(debug)
    responder = respond_after_login(FAILURE_RESPONSES[failure])
    retry = TWO_ATTEMPTS_POLICY if debug else ds.RetryPolicy.none()
    calls = sentinels.CALLS | sentinels.MULTI_REQUEST_CALLS
    assert await find_leaks_by_call(calls, responder, captured, retry=retry) == {}
    assert captured.operations >= set(METHODS)


async def test_failed_login_shows_nothing(captured: OutputCapture) -> None:
    calls = {"ProvisionIDProofedPatient": sentinels.CALLS["ProvisionIDProofedPatient"]}
    for name, responder in FAILURE_RESPONSES.items():
        assert (name, await find_leaks_by_call(calls, responder, captured)) == (name, {})
    assert captured.operations == {"login", "ProvisionIDProofedPatient"}


async def test_calls_that_go_well_show_nothing(captured: OutputCapture) -> None:
    asyncio.get_running_loop().set_debug(True)  # which logs more
    async with ScriptedServer(respond_success) as server, make_suite(server) as suite:
        captured.listen(suite)
        results = [await call(suite) for call in sentinels.CALLS.values()]
        assert find_leaks_in_reprs(suite) == []
    assert [leak for result in results for leak in find_leaks_in(result)] == []
    assert captured.operations == set(METHODS)


async def test_rejected_arguments_show_nothing(captured: OutputCapture) -> None:
    async with ScriptedServer(respond_success) as server, make_suite(server) as suite:
        for name, call in sentinels.INVALID_CALLS.items():
            with pytest.raises(ds.DirectSuiteError) as caught:
                await call(suite)
            assert (name, find_leaks_in(caught.value)) == (name, [])
        assert server.requests == []


@pytest.mark.parametrize(
    "failures", [pytest.param(0, id="tried"), pytest.param(3, marks=pytest.mark.wide, id="left alone")]
)
async def test_service_that_is_down_shows_nothing(captured: OutputCapture, failures: int) -> None:
    async with ScriptedServer(respond_success) as server, make_suite(server, circuit_failures=failures) as suite:
        captured.listen(suite)
        await suite.registration.login()
        await server.stop()
        for name, call in sentinels.CALLS.items():
            error = await await_outcome(call, suite)
            assert isinstance(error, ds.ConnectFailedError)
            assert (name, find_leaks_in(error)) == (name, [])


def _is_in_flight(server: ScriptedServer, operation: str) -> bool:
    return server.busy > 0 and (operation == "login" or not server.requests[-1].target.endswith("/login"))


@pytest.mark.parametrize(
    "responder",
    [
        pytest.param(responses.never_respond, marks=pytest.mark.wide, id="silence"),
        pytest.param(partial_response, id="half an answer"),
    ],
)
async def test_cancelled_calls_show_nothing(captured: OutputCapture, responder: Responder) -> None:
    async with ScriptedServer(responder) as server, make_suite(server) as suite:
        captured.listen(suite)
        for name, call in sentinels.CALLS.items():
            server.default_responder = responder if name == "login" else respond_after_login(responder)
            task = asyncio.ensure_future(await_outcome(call, suite))
            await yield_until(functools.partial(_is_in_flight, server, name))
            await yield_to_loop()
            assert (name, await find_leaks_on_cancel(task)) == (name, [])
    assert captured.operations == set(METHODS)


@pytest.mark.exhaustive(limit=8)
@pytest.mark.parametrize("failure", FAILURE_RESPONSES)
async def test_calls_that_turn_out_to_have_happened_show_nothing(captured: OutputCapture, failure: str) -> None:
    responder = respond_to_verification(respond_success, FAILURE_RESPONSES[failure])
    assert await find_leaks_by_call(sentinels.VERIFIED_CALLS, responder, captured, retry=ds.RetryPolicy.none()) == {}
    # A provisioned patient needs no field of the response, so this call accepts a misfit response.
    looks = VERIFICATION_OPERATIONS - {"GetPatientAddressByMeta"} if failure == "misfit" else VERIFICATION_OPERATIONS
    assert captured.operations >= looks or failure not in ("500", "truncated", "misfit", "reset", "silence")


@pytest.mark.parametrize(("name", "call"), sentinels.VERIFIED_CALLS.items(), ids=sentinels.VERIFIED_CALLS)
async def test_cancelled_verifications_show_nothing(
    captured: OutputCapture, name: str, call: sentinels.SuiteCall
) -> None:
    async with (
        ScriptedServer(respond_to_verification(responses.never_respond, responses.hang_up)) as server,
        make_suite(server) as suite,
    ):
        captured.listen(suite)
        task = asyncio.ensure_future(await_outcome(call, suite))
        await yield_until(lambda: any(is_verification_request(request.target) for request in server.requests))
        await yield_to_loop()
        assert (name, await find_leaks_on_cancel(task)) == (name, [])


async def test_stream_that_is_left_early_shows_nothing(captured: OutputCapture) -> None:
    async with ScriptedServer(respond_success) as server, make_suite(server) as suite:
        captured.listen(suite)
        async with contextlib.aclosing(sentinels.get_mailbox(suite).stream_messages(sentinels.FOLDER)) as messages:
            assert (await anext(messages)).subject == sentinels.SUBJECT


GRANTS: dict[str, Callable[[str], Token]] = {
    "client credentials": lambda url: ds.ClientCredentials(url, "planted-client", sentinels.CLIENT_SECRET),
    "in the body": lambda url: ds.ClientCredentials(url, "planted-client", sentinels.CLIENT_SECRET, client_auth="body"),
    "refresh token": lambda url: ds.RefreshToken(
        url, "planted-client", sentinels.CLIENT_SECRET, sentinels.REFRESH_TOKEN
    ),
    "authorization code": lambda url: ds.AuthorizationCode(
        url, "planted-client", sentinels.CLIENT_SECRET, sentinels.CODE, "https://app.example.test/", sentinels.VERIFIER
    ),
}


TOKENS = {"access_token": sentinels.TOKEN, "refresh_token": sentinels.REFRESH_TOKEN, "token_type": "Bearer"}
DESCRIPTION = {"error_description": sentinels.CLIENT_SECRET}
TOKEN_RESPONSES: dict[str, Responder] = FAILURE_RESPONSES | {
    "good": respond_success,
    "client rejected": responses.respond({"error": "invalid_client"} | DESCRIPTION, 401),
    "scope rejected with a good status": responses.respond({"error": "invalid_scope"} | DESCRIPTION),
    "other type": responses.respond(TOKENS | {"token_type": sentinels.CLIENT_SECRET}),
    "misfit refresh token": responses.respond(TOKENS | {"refresh_token": [sentinels.CLIENT_SECRET]}),
    "unfit for a header": responses.respond(TOKENS | {"access_token": f"{sentinels.TOKEN}\n"}),
    "too large": responses.respond(" ".join(sentinels.ALL_SENTINELS).encode() * 2000),
}


@pytest.mark.exhaustive(limit=1)
@pytest.mark.parametrize("grant", GRANTS)
async def test_token_requests_show_nothing(captured: OutputCapture, grant: str) -> None:
    for name, responder in TOKEN_RESPONSES.items():
        async with ScriptedServer(responder) as server:
            token = GRANTS[grant](server.url("token"))
            async with make_suite(server, token) as suite:
                captured.listen(suite)
                outcome = await await_outcome(sentinels.CALLS["GetDocInfo"], suite)
                assert (name, find_leaks_in(outcome)) == (name, [])
                assert (name, find_leaks(collect_reprs(suite, token), SECRET_VARIANTS)) == (name, [])
    assert len(captured.operations) == 2


async def test_planted_text_is_found_in_an_error() -> None:
    with pytest.raises(ValueError, match="planted") as caught:
        raise ValueError(f"http://fax.example.test/{sentinels.SESSION}")
    assert len(find_leaks(collect_error_texts(caught.value), SECRET_VARIANTS)) > 3
