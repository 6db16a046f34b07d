"""The texts and attributes of the errors of failed attempts: the table of core/outcome.py without a network."""

from __future__ import annotations

import ssl
from typing import Any
from unittest import mock

import aiohttp
import attrs
import pytest

import directsuite as ds
from directsuite.core.operation import Operation
from directsuite.core.outcome import ConnectionDroppedError, convert_exception, find_service_error, needs_new_credential
from directsuite.messaging.operations import SEND
from directsuite.registration.operations import GET_PATIENT_ADDRESS_BY_USERNAME, LOGIN
from directsuite.signing.operations import GET_DOC_INFO, SIGN

UNKNOWN, NOT_SENT, REJECTED, FAILED = (
    ds.Outcome.UNKNOWN,
    ds.Outcome.NOT_SENT,
    ds.Outcome.REJECTED,
    ds.Outcome.FAILED,
)

_REFUSED = ConnectionRefusedError(111, "https://api.example.test/session")
_NO_TLS = ssl.SSLError(1, "https://api.example.test/session")
_KEY: Any = mock.Mock(host="api.example.test", port=443, ssl=True)
_REQUEST: Any = mock.Mock(real_url="https://api.example.test/session")

EXCEPTIONS: list[tuple[Exception, bool, type[ds.DirectSuiteError], ds.Outcome, str]] = [
    (
        aiohttp.ClientConnectorError(_KEY, _REFUSED),
        True,
        ds.ConnectFailedError,
        NOT_SENT,
        "no connection to the messaging service (Connection refused)",
    ),
    (
        aiohttp.ClientConnectorSSLError(_KEY, _NO_TLS),
        False,
        ds.ConnectFailedError,
        NOT_SENT,
        "no connection to the messaging service (ClientConnectorSSLError, errno 1)",
    ),
    (
        aiohttp.ConnectionTimeoutError(),
        True,
        ds.ConnectFailedError,
        NOT_SENT,
        "no connection to the messaging service (ConnectionTimeoutError)",
    ),
    (
        aiohttp.ServerFingerprintMismatch(b"", b"", "api.example.test", 443),
        True,
        ds.ConnectFailedError,
        NOT_SENT,
        "no connection to the messaging service (ServerFingerprintMismatch)",
    ),
    (
        aiohttp.ClientHttpProxyError(_REQUEST, ()),
        True,
        ds.ConnectFailedError,
        NOT_SENT,
        "no connection to the messaging service (ClientHttpProxyError)",
    ),
    (
        aiohttp.InvalidURL("https://api.example.test/session"),
        True,
        ds.ConnectFailedError,
        NOT_SENT,
        "no connection to the messaging service (InvalidURL)",
    ),
    (
        UnicodeError("https://api.example.test/session"),
        False,
        ds.ConnectFailedError,
        NOT_SENT,
        "no connection to the messaging service (UnicodeError)",
    ),
    (
        aiohttp.ClientPayloadError("https://api.example.test/session"),
        True,
        ds.ResponseDecodeError,
        UNKNOWN,
        "the response is incomplete or not valid HTTP (ClientPayloadError)",
    ),
    (
        aiohttp.ClientResponseError(_REQUEST, ()),
        True,
        ds.ResponseDecodeError,
        UNKNOWN,
        "the response is incomplete or not valid HTTP (ClientResponseError)",
    ),
    (
        aiohttp.ClientPayloadError(),
        False,
        ds.ConnectFailedError,
        NOT_SENT,
        "the connection closed before the request was sent (ClientPayloadError)",
    ),
    (
        ConnectionDroppedError(ConnectionResetError(104, "https://api.example.test/session")),
        False,
        ds.ConnectFailedError,
        NOT_SENT,
        "the connection closed before the request was sent (ConnectionResetError, errno 104)",
    ),
    (
        ConnectionDroppedError(aiohttp.ServerDisconnectedError()),
        True,
        ds.ConnectionLostError,
        UNKNOWN,
        "the connection was lost before a response was received (ServerDisconnectedError)",
    ),
    (
        OSError(32, "https://api.example.test/session"),
        True,
        ds.ConnectionLostError,
        UNKNOWN,
        "the connection was lost before a response was received (BrokenPipeError, errno 32)",
    ),
]


@pytest.mark.parametrize(("error", "started", "kind", "outcome", "words"), EXCEPTIONS, ids=range(len(EXCEPTIONS)))
def test_failure_on_the_network_is_named_by_type_and_number_alone(
    error: Exception, started: bool, kind: type[ds.DirectSuiteError], outcome: ds.Outcome, words: str
) -> None:
    failure = convert_exception(error, SEND, started=started)
    assert failure is not None
    assert type(failure) is kind
    assert failure.explanation == words
    assert (failure.operation, failure.service, failure.outcome) == ("Send", "messaging", outcome)


@pytest.mark.parametrize(("error", "started"), [(UnicodeError(), True), (ValueError(), True), (ValueError(), False)])
def test_failure_that_is_not_of_the_network_is_left_unchanged(error: Exception, started: bool) -> None:
    assert convert_exception(error, SEND, started=started) is None


@attrs.frozen
class Answered:
    """A response that is a rejection, and its error."""

    operation: Operation[Any]
    status: int
    document: Any
    kind: type[ds.ServiceError]
    words: str
    outcome: ds.Outcome
    code: int | str | None = None
    message: str | None = None
    headers: dict[str, str] = attrs.field(factory=dict[str, str])
    retry_after: float | None = None


_GOOD_STATUS = "the service reports an error, although the HTTP status is a success"
_NO = {"success": False, "code": 2, "message": "bob"}
_SESSION = {"success": False, "code": "011", "errorMessage": "again", "message": "other"}

ANSWERS = [
    Answered(SEND, 200, _NO, ds.AddressError, "address error (code 2)", FAILED, 2, "bob"),
    Answered(SEND, 500, _NO, ds.AddressError, "address error (code 2)", FAILED, 2, "bob"),
    Answered(SEND, 200, {"success": False}, ds.ServiceError, f"{_GOOD_STATUS} (HTTP 200)", FAILED),
    Answered(SEND, 200, {"success": False, "code": 77}, ds.ServiceError, "other error (code 77)", FAILED, 77),
    Answered(SEND, 200, {"success": False, "code": 1234}, ds.ServiceError, "other error (code 1234)", FAILED, 1234),
    Answered(SEND, 200, {"success": False, "code": -77}, ds.ServiceError, "other error (code -77)", FAILED, -77),
    Answered(
        SEND,
        200,
        {"success": False, "code": 12345},
        ds.ServiceError,
        "other error (code of another form)",
        FAILED,
        12345,
    ),
    Answered(
        SEND,
        200,
        {"success": False, "code": "bob"},
        ds.ServiceError,
        "other error (code of another form)",
        FAILED,
        "bob",
    ),
    Answered(
        SEND,
        429,
        _NO,
        ds.RateLimitedError,
        "too many requests (HTTP 429)",
        REJECTED,
        None,
        "bob",
        {"Retry-After": "7"},
        7.0,
    ),
    Answered(
        GET_PATIENT_ADDRESS_BY_USERNAME,
        200,
        _SESSION,
        ds.AuthenticationError,
        "authentication failed (code 011)",
        REJECTED,
        "011",
        "again",
    ),
    Answered(LOGIN, 200, _SESSION, ds.AuthenticationError, "authentication failed (code 011)", FAILED, "011", "again"),
    Answered(
        SIGN,
        400,
        {"error": "no", "description": "why"},
        ds.BadRequestError,
        "invalid action, or a parameter is missing or invalid (HTTP 400)",
        FAILED,
        None,
        "no: why",
    ),
    Answered(
        SIGN,
        403,
        {"title": "Forbidden", "detail": "blocked until noon"},
        ds.PermissionDeniedError,
        "permission was denied for the requested action (HTTP 403)",
        FAILED,
        None,
        "blocked until noon",
    ),
    Answered(SIGN, 500, {"error": "no"}, ds.ServerError, "the service failed (HTTP 500)", UNKNOWN, None, "no"),
    Answered(GET_DOC_INFO, 503, None, ds.ServerError, "the service failed (HTTP 503)", UNKNOWN),
    Answered(
        GET_DOC_INFO,
        503,
        None,
        ds.ServerError,
        "the service failed (HTTP 503)",
        REJECTED,
        headers={"Retry-After": "0"},
        retry_after=0.0,
    ),
    Answered(
        GET_DOC_INFO,
        500,
        None,
        ds.ServerError,
        "the service failed (HTTP 500)",
        UNKNOWN,
        headers={"Retry-After": "5"},
        retry_after=5.0,
    ),
]


@pytest.mark.parametrize("answered", ANSWERS, ids=range(len(ANSWERS)))
def test_rejection_says_and_carries_what_the_response_did(answered: Answered) -> None:
    body = b"x" * 70_000
    error = find_service_error(answered.operation, answered.status, answered.headers, answered.document, body)
    assert error is not None
    assert type(error) is answered.kind
    assert error.explanation == answered.words
    assert (error.operation, error.service) == (answered.operation.name, answered.operation.service)
    assert (error.status, error.code, error.message) == (answered.status, answered.code, answered.message)
    assert (error.outcome, error.retry_after) == (answered.outcome, answered.retry_after)
    assert error.body == body[:65_536]


@pytest.mark.parametrize(
    ("content_type", "said"), [("text/plain; charset=utf-8", "blocked"), ("text/html", None), (None, None)]
)
def test_rejection_in_plain_text_says_that(content_type: str | None, said: str | None) -> None:
    headers = {} if content_type is None else {"Content-Type": content_type}
    error = find_service_error(SIGN, 403, headers, None, b" blocked\n")
    assert error is not None
    assert error.message == said


@pytest.mark.parametrize(
    ("operation", "status", "asks"),
    [(GET_DOC_INFO, 401, True), (SEND, 401, False), (GET_DOC_INFO, 429, False), (GET_DOC_INFO, 403, False)],
    ids=["token", "password", "rate", "permission"],
)
def test_only_rejected_credential_is_renewed(operation: Operation[Any], status: int, *, asks: bool) -> None:
    error = find_service_error(operation, status, {}, None, b"")
    assert error is not None
    assert needs_new_credential(error) is asks
