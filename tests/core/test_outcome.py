"""The table of core/outcome.py without a network: what is read from a response, and the texts and scopes of errors."""

from __future__ import annotations

import errno
import os
import socket
import ssl
from collections.abc import Iterator
from typing import Any
from unittest import mock

import aiohttp
import attrs
import pytest

import directsuite as ds
from directsuite import errors
from directsuite.core.operation import FaultFormat, Operation, ServiceFault
from directsuite.core.outcome import (
    ConnectionDroppedError,
    ErrorScope,
    classify_status,
    convert_exception,
    find_error_scope,
    find_service_error,
    interpret,
)
from directsuite.core.session import BufferedResponse
from directsuite.errors import DirectSuiteError, Outcome, ServiceError
from directsuite.messaging import operations as messaging
from directsuite.oauth.source import TOKEN
from directsuite.registration import operations as registration
from directsuite.registration.models import SUCCESS_CODE
from directsuite.signing import operations as signing
from directsuite.signing.operations import GET_DOC_INFO, SAVE, SIGN
from directsuite.wire.codec import Codec

SEND, LOGIN = messaging.SEND, registration.LOGIN
UNKNOWN, NOT_SENT, REJECTED, FAILED = Outcome.UNKNOWN, Outcome.NOT_SENT, Outcome.REJECTED, Outcome.FAILED

_URL = "https://api.example.test/session"
_KEY: Any = mock.Mock(host="api.example.test", port=443, ssl=True)
_REQUEST: Any = mock.Mock(real_url=_URL)


def _make_tls_error(reason: str) -> ssl.SSLError:
    error = ssl.SSLError(1, _URL)
    error.reason = reason
    return error


def _make_certificate_error(code: int) -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(1, _URL)
    error.verify_code = code
    return error


def _make_connect_error(number: int) -> aiohttp.ClientConnectorError:
    return aiohttp.ClientConnectorError(_KEY, OSError(number, os.strerror(number)))


_NO_CONNECTION = "no connection to the messaging service"
_CLOSED = "the connection closed before the request was sent"
_BROKEN = "the response is incomplete or not valid HTTP"
_LOST = "the connection was lost before a response was received"
ERRORS: dict[str, tuple[type[DirectSuiteError], Outcome]] = {
    _NO_CONNECTION: (ds.ConnectFailedError, NOT_SENT),
    _CLOSED: (ds.ConnectFailedError, NOT_SENT),
    _BROKEN: (ds.ResponseDecodeError, UNKNOWN),
    _LOST: (ds.ConnectionLostError, UNKNOWN),
}
_DNS, _TLS = aiohttp.ClientConnectorDNSError, aiohttp.ClientConnectorSSLError
_BAD_CERTIFICATE = aiohttp.ClientConnectorCertificateError(_KEY, _make_certificate_error(66))
_OTHER_CERTIFICATE = aiohttp.ServerFingerprintMismatch(b"", b"", "api.example.test", 443)
_CLOSED_BY_SERVER = aiohttp.ClientConnectorError(_KEY, ConnectionResetError())
_REJECTED_BY_PROXY = aiohttp.ClientHttpProxyError(_REQUEST, (), status=407)
_TIMED_OUT = aiohttp.ClientOSError(errno.ETIMEDOUT, _URL)
_NO_PROXY = aiohttp.ClientProxyConnectionError(_KEY, ConnectionResetError())
_RESET = ConnectionDroppedError(ConnectionResetError(104, _URL))
_DISCONNECTED = ConnectionDroppedError(aiohttp.ServerDisconnectedError())
_ALERT = "TLSV1_ALERT_PROTOCOL_VERSION"
_NO_NAME_SERVER, _UNKNOWN_HOST = "no name server responded", "the host name was not found"
_NOT_ACCEPTED = "the server's certificate is not accepted, code 66"
_NO_TLS_VERSION = "the server supports none of the TLS versions that this machine permits"
_CLOSED_IN_HANDSHAKE = "the server closed the connection during the TLS handshake"
_WHILE_CONNECTING, _AFTER_CONNECTING = "timed out while connecting", "timed out after connecting"

# An exception, whether the request had been started, and the explanation, its detail and the reason of the error.
NETWORK_FAILURES: list[tuple[Exception, bool, str, str, str | None]] = [
    (_make_connect_error(errno.ECONNREFUSED), True, _NO_CONNECTION, "Connection refused", "connection refused"),
    (_make_connect_error(errno.ETIMEDOUT), False, _NO_CONNECTION, "Connection timed out", _WHILE_CONNECTING),
    (_make_connect_error(errno.EHOSTDOWN), False, _NO_CONNECTION, "Host is down", "host not reachable"),
    (aiohttp.ConnectionTimeoutError(), True, _NO_CONNECTION, "ConnectionTimeoutError", _WHILE_CONNECTING),
    (TimeoutError(), False, _CLOSED, "TimeoutError", _WHILE_CONNECTING),
    (TimeoutError(), True, _LOST, "TimeoutError", _AFTER_CONNECTING),
    (aiohttp.SocketTimeoutError(), True, _LOST, "SocketTimeoutError", _AFTER_CONNECTING),
    (_TIMED_OUT, True, _LOST, "Connection timed out", _AFTER_CONNECTING),
    (ConnectionDroppedError(_TIMED_OUT), True, _LOST, "Connection timed out", _AFTER_CONNECTING),
    (_DNS(_KEY, OSError(socket.EAI_AGAIN, _URL)), False, _NO_CONNECTION, _NO_NAME_SERVER, _NO_NAME_SERVER),
    (_DNS(_KEY, OSError(socket.EAI_NONAME, _URL)), False, _NO_CONNECTION, _UNKNOWN_HOST, "host name not found"),
    (UnicodeError(_URL), False, _NO_CONNECTION, "UnicodeError", "host name not found"),
    (_OTHER_CERTIFICATE, True, _NO_CONNECTION, "ServerFingerprintMismatch", "certificate not accepted"),
    (_BAD_CERTIFICATE, False, _NO_CONNECTION, _NOT_ACCEPTED, "certificate not accepted"),
    (_TLS(_KEY, ssl.SSLError(1, _URL)), False, _NO_CONNECTION, "the TLS handshake failed", "TLS handshake failed"),
    (_TLS(_KEY, _make_tls_error(_ALERT)), False, _NO_CONNECTION, _NO_TLS_VERSION, "TLS handshake failed"),
    (_CLOSED_BY_SERVER, False, _NO_CONNECTION, _CLOSED_IN_HANDSHAKE, "TLS handshake failed"),
    (_NO_PROXY, False, _NO_CONNECTION, "the proxy cannot be reached", "proxy failed"),
    (_REJECTED_BY_PROXY, True, _NO_CONNECTION, "the proxy rejected the connection, HTTP 407", "proxy failed"),
    (aiohttp.InvalidURL(_URL), True, _NO_CONNECTION, "the proxy's URL is not valid", "proxy failed"),
    (aiohttp.ClientPayloadError(), False, _CLOSED, "ClientPayloadError", "connection closed"),
    (_RESET, False, _CLOSED, "ConnectionResetError, errno 104", "connection reset"),
    (aiohttp.ClientPayloadError(_URL), True, _BROKEN, "ClientPayloadError", None),
    (aiohttp.ClientResponseError(_REQUEST, ()), True, _BROKEN, "ClientResponseError", None),
    (_DISCONNECTED, True, _LOST, "ServerDisconnectedError", "connection closed"),
    (OSError(32, _URL), True, _LOST, "BrokenPipeError, errno 32", "connection reset"),
]


@pytest.mark.parametrize(("error", "started", "explanation", "detail", "reason"), NETWORK_FAILURES)
def test_failure_on_the_network_is_explained_without_its_own_text(
    error: Exception, started: bool, explanation: str, detail: str, reason: str | None
) -> None:
    failure = convert_exception(error, SEND, started=started)
    assert failure is not None
    assert (type(failure), failure.outcome) == ERRORS[explanation]
    assert failure.explanation == f"{explanation} ({detail})"
    assert getattr(failure, "reason", None) == reason
    assert ("proxy" in detail) is (failure.advice == "check the setting proxy")
    assert (failure.operation, failure.service) == ("Send", "messaging")


@pytest.mark.parametrize(("error", "started"), [(UnicodeError(), True), (ValueError(), True), (ValueError(), False)])
def test_failure_that_is_not_of_the_network_is_left_unchanged(error: Exception, started: bool) -> None:
    assert convert_exception(error, SEND, started=started) is None


@pytest.mark.parametrize(
    ("operation", "item"), [(SAVE, ""), (GET_DOC_INFO, ", or the requested item no longer exists")]
)
def test_404_mentions_an_item_only_if_one_is_requested(operation: Operation[Any], item: str) -> None:
    failure = find_service_error(operation, 404, {}, None, b"")
    assert failure is not None
    assert failure.advice == f"check the setting signing_url, which may be incomplete{item}"


@attrs.frozen
class Answered:
    """A response that is a rejection, and its error."""

    operation: Operation[Any]
    status: int
    document: Any
    kind: type[ServiceError]
    words: str
    outcome: Outcome
    code: int | str | None = None
    message: str | None = None
    headers: dict[str, str] = attrs.field(factory=dict[str, str])
    retry_after: float | None = None


_GOOD_STATUS = "the service reports an error, although the HTTP status is a success"
_SERVICE_FAILED = "the service failed (HTTP 503)"
_OTHER_FORM = "the service reported an unknown error (code of another form)"
_INVALID = "the service did not accept the signature or the document (HTTP 400)"
_DENIED = "permission was denied for the requested action (HTTP 403)"
_NO = {"success": False, "code": 2, "message": "bob"}
_SESSION = {"success": False, "code": "011", "errorMessage": "again", "message": "other"}
_BLOCKED = {"title": "Forbidden", "detail": "blocked until noon"}
_PATIENTS = registration.GET_PATIENT_ADDRESS_BY_USERNAME


def _refuse(code: object) -> dict[str, object]:
    return {"success": False, "code": code}


def _wait(seconds: str) -> dict[str, Any]:
    return {"headers": {"Retry-After": seconds}, "retry_after": float(seconds)}


ANSWERS = [
    Answered(SEND, 200, _NO, ds.AddressError, "address error (code 2)", FAILED, 2, "bob"),
    Answered(SEND, 500, _NO, ds.AddressError, "address error (code 2)", FAILED, 2, "bob"),
    Answered(SEND, 200, {"success": False}, ServiceError, f"{_GOOD_STATUS} (HTTP 200)", FAILED),
    *(
        Answered(
            SEND, 200, _refuse(code), ServiceError, f"the service reported an unknown error (code {code})", FAILED, code
        )
        for code in (77, 1234, -77)
    ),
    *(Answered(SEND, 200, _refuse(code), ServiceError, _OTHER_FORM, FAILED, code) for code in (12345, "bob")),
    Answered(
        SEND, 429, _NO, ds.RateLimitedError, "too many requests (HTTP 429)", REJECTED, message="bob", **_wait("7")
    ),
    Answered(
        _PATIENTS, 200, _SESSION, ds.AuthenticationError, "authentication failed (code 011)", REJECTED, "011", "again"
    ),
    Answered(LOGIN, 200, _SESSION, ds.AuthenticationError, "authentication failed (code 011)", FAILED, "011", "again"),
    Answered(SIGN, 400, {"error": "no", "description": "why"}, ds.BadRequestError, _INVALID, FAILED, message="no: why"),
    Answered(SIGN, 403, _BLOCKED, ds.PermissionDeniedError, _DENIED, FAILED, message="blocked until noon"),
    Answered(SIGN, 500, {"error": "no"}, ds.ServerError, "the service failed (HTTP 500)", UNKNOWN, message="no"),
    Answered(GET_DOC_INFO, 503, None, ds.ServerError, _SERVICE_FAILED, UNKNOWN),
    Answered(TOKEN, 503, None, ds.ServerError, "the token endpoint failed (HTTP 503)", UNKNOWN),
    Answered(GET_DOC_INFO, 503, None, ds.ServerError, _SERVICE_FAILED, REJECTED, **_wait("0")),
    Answered(GET_DOC_INFO, 500, None, ds.ServerError, "the service failed (HTTP 500)", UNKNOWN, **_wait("5")),
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


_ADDRESS, _LOGIN = "check the address or user name, and its password", "check the user name and password of the login"


@pytest.mark.parametrize(
    ("operation", "status", "document", "text"),
    [
        (SEND, 200, _refuse(1), f"authentication failed (code 1): {_ADDRESS}"),
        (SEND, 401, None, f"the service rejected the credentials (HTTP 401): {_ADDRESS}"),
        (LOGIN, 200, _SESSION, f"authentication failed (code 011): {_LOGIN}"),
        (_PATIENTS, 200, _SESSION, "authentication failed (code 011)"),  # the session is renewed
        (SIGN, 401, None, "the service rejected the access token (HTTP 401)"),  # TokenCache.explain_rejection has more
    ],
)
def test_rejected_credential_is_named_with_what_to_do(
    operation: Operation[Any], status: int, document: Any, text: str
) -> None:
    error = find_service_error(operation, status, {}, document, b"")
    assert error is not None
    assert f"{operation.name}: {text} (" in str(error)


MESSAGING, REGISTRATION, SIGNING = messaging.FAULT_FORMAT, registration.FAULT_FORMAT, signing.FAULT_FORMAT

REFUSED: list[tuple[FaultFormat, Any, ServiceFault | None]] = [
    (MESSAGING, {"success": True}, None),
    (MESSAGING, {"success": True, "code": 1, "message": "no"}, None),
    (MESSAGING, {"success": "true"}, None),
    (MESSAGING, {}, None),
    (MESSAGING, {"code": 1}, None),
    (MESSAGING, [], None),
    (MESSAGING, None, None),
    (MESSAGING, "false", None),
    (MESSAGING, {"success": None, "code": 1}, None),
    (MESSAGING, {"success": 0, "code": 1}, None),
    (MESSAGING, {"success": False}, ServiceFault(None, None)),
    (MESSAGING, {"success": False, "code": 1, "message": "no"}, ServiceFault(1, "no")),
    (MESSAGING, {"success": "False", "code": "1"}, ServiceFault(1, None)),
    (MESSAGING, {"success": False, "code": "01"}, ServiceFault(1, None)),
    (MESSAGING, {"success": False, "code": "98765"}, ServiceFault("98765", None)),
    (MESSAGING, {"success": False, "code": "one"}, ServiceFault("one", None)),
    (MESSAGING, {"success": False, "code": 98765}, ServiceFault(98765, None)),
    (MESSAGING, {"success": False, "code": True}, ServiceFault(None, None)),
    (MESSAGING, {"success": False, "code": 1.0}, ServiceFault(None, None)),
    (MESSAGING, {"success": False, "message": 5}, ServiceFault(None, None)),
    (REGISTRATION, {"success": True}, None),
    (REGISTRATION, {"code": SUCCESS_CODE}, None),
    (REGISTRATION, {"success": None, "code": SUCCESS_CODE}, None),
    (REGISTRATION, {"success": None}, None),
    (REGISTRATION, {"code": "011"}, ServiceFault("011", None)),
    (REGISTRATION, {"success": False, "code": SUCCESS_CODE}, ServiceFault(SUCCESS_CODE, None)),
    (REGISTRATION, {"success": False, "code": "011", "errorMessage": "a", "message": "b"}, ServiceFault("011", "a")),
    (REGISTRATION, {"success": False, "errorMessage": None, "message": "b"}, ServiceFault(None, "b")),
    (MESSAGING, {"success": False, "code": "null", "message": "null"}, ServiceFault(None, "null")),
    (REGISTRATION, {"success": False, "code": "null", "message": "b"}, ServiceFault(None, "b")),
    (REGISTRATION, {"success": False, "errorMessage": "null", "message": "b"}, ServiceFault(None, "b")),
    (REGISTRATION, {"success": False, "errorMessage": "", "message": "b"}, ServiceFault(None, "b")),
    (REGISTRATION, {"success": "null", "code": "011"}, ServiceFault("011", None)),
    (REGISTRATION, {"success": "null", "code": SUCCESS_CODE}, None),
    (SIGNING, {}, None),
    (SIGNING, {"description": "b"}, None),
    (SIGNING, {"error": 5, "description": "b"}, None),
    (SIGNING, {"error": "a", "description": "b"}, ServiceFault(None, "a: b")),
    (SIGNING, {"error": "a", "description": "a"}, ServiceFault(None, "a")),
    (SIGNING, {"error": ""}, ServiceFault(None, "")),
    (SIGNING, ["error"], None),
]


@pytest.mark.parametrize(("refusals", "document", "refused"), REFUSED)
def test_rejection_is_reported_by_its_service_s_own_form(
    refusals: FaultFormat, document: Any, refused: ServiceFault | None
) -> None:
    assert refusals.read(document) == refused


SUCCESSES: list[tuple[FaultFormat, Any, bool]] = [
    (MESSAGING, {"success": True}, True),
    (MESSAGING, {"success": "True"}, True),
    (MESSAGING, {"success": "yes"}, False),
    (MESSAGING, {"success": 1}, False),
    (MESSAGING, {}, False),
    (MESSAGING, {"code": None}, False),
    (MESSAGING, [], False),
    (MESSAGING, None, False),
    (REGISTRATION, {"success": True}, True),
    (REGISTRATION, {"code": SUCCESS_CODE}, True),
    (REGISTRATION, {"success": None, "code": SUCCESS_CODE}, True),
    (REGISTRATION, {"success": "no", "code": SUCCESS_CODE}, False),
    (REGISTRATION, {"success": False, "code": SUCCESS_CODE}, False),
    (REGISTRATION, {"code": "011"}, False),
    (REGISTRATION, {}, False),
    (SIGNING, {}, True),
    (SIGNING, [], True),
]


@pytest.mark.parametrize(("refusals", "document", "claims"), SUCCESSES)
def test_success_is_recognized_by_form_of_its_service(refusals: FaultFormat, document: Any, claims: bool) -> None:
    assert refusals.is_success(document) is claims


@pytest.mark.parametrize(
    ("status", "error", "words"),
    [
        (200, ServiceError, "the service reports an error, although the HTTP status is a success"),
        (299, ServiceError, "the service reports an error, although the HTTP status is a success"),
        (300, ServiceError, "the service sent a redirect, which is not followed"),
        (399, ServiceError, "the service sent a redirect, which is not followed"),
        (400, ds.BadRequestError, "invalid action, or a parameter is missing or invalid"),
        (402, ServiceError, "the service rejected the request"),
        (499, ServiceError, "the service rejected the request"),
        (500, ds.ServerError, "the service failed"),
        (599, ds.ServerError, "the service failed"),
    ],
)
def test_status_decides_without_service_body(status: int, error: type[ServiceError], words: str) -> None:
    assert classify_status(status) == (error, words)


def read(operation: Operation[Any], body: bytes, status: int = 200, media_type: str = "application/json") -> Any:
    return interpret(operation, BufferedResponse(status, {"Content-Type": media_type}, body), 1000, Codec(None))


UNBROKEN = "text without broken characters"

UNREADABLE: list[tuple[Operation[Any], bytes, int, str, str]] = [
    (messaging.GET_MESSAGE_COUNT, b"", 200, "$", "JSON"),
    (messaging.GET_MESSAGE_COUNT, b"<html>", 200, "$", "JSON"),
    (messaging.GET_MESSAGE_COUNT, b"{}", 200, "$.success", "true"),
    (messaging.GET_MESSAGE_COUNT, b'{"success": true, "count": 1}', 199, "$", "a response with a final status"),
    (registration.LOGIN, b'{"code": "000"}', 200, "$.sessionId", "present"),
    (registration.LOGIN, b'{"code": "000", "sessionId": ""}', 200, "$.sessionId", "present"),
    (registration.LOGIN, b'{"code": "000", "sessionId": "a\\ud800"}', 200, "$.sessionId", UNBROKEN),
    (messaging.GET_UIDS, b'{"success": true, "uids": [1, null]}', 200, "$.uids[1]", "a whole number"),
    (signing.GET_DOC, b"", 200, "$", "base64 text"),
]


@pytest.mark.exhaustive
@pytest.mark.parametrize(("operation", "body", "status", "path", "expected"), UNREADABLE)
def test_response_that_does_not_fit_is_reported_by_its_place(
    operation: Operation[Any], body: bytes, status: int, path: str, expected: str
) -> None:
    error = read(operation, body, status)
    assert isinstance(error, ds.ResponseDecodeError)
    assert error.explanation == (
        f"the response (application/json, {len(body)} bytes) does not fit the operation: {path} should be {expected}"
    )
    assert (error.path, error.body, error.operation) == (path, body, operation.name)


@pytest.mark.parametrize(
    ("header", "named"),
    [
        ("text/html; charset=utf-8", "text/html"),
        (" text/plain ;x", "text/plain"),
        ("", "no media type"),
        ("a b", "no media type"),
        ("text/html\x1b[1m", "no media type"),
    ],
)
def test_media_type_is_named_and_decides_nothing(header: str, named: str) -> None:
    assert f"the response ({named}, 0 bytes)" in read(messaging.GET_MESSAGE_COUNT, b"", 200, header).explanation
    assert read(messaging.GET_MESSAGE_COUNT, b'{"success": true, "count": 1}', 200, header).count == 1


def test_what_is_nested_too_deeply_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def deep(*_: object) -> Any:
        raise RecursionError

    monkeypatch.setattr(Codec, "structure", deep)
    error = read(messaging.SEND, b'{"success": true}')
    assert isinstance(error, ds.ResponseDecodeError)
    assert (error.path, error.explanation.rpartition(": ")[2]) == ("$", "$ should be nested less deeply")


SCOPES: list[tuple[DirectSuiteError, ErrorScope]] = [
    (DirectSuiteError("a store of the caller's"), ErrorScope.CALLER),
    (errors.ConfigurationError("no URL"), ErrorScope.CALLER),
    (errors.InvalidArgumentError("empty", parameter="folder"), ErrorScope.CALLER),
    (errors.UnreadableFileError("empty", parameter="folder"), ErrorScope.CALLER),
    (errors.MissingFileError("empty", parameter="folder"), ErrorScope.CALLER),
    (errors.ClosedError("closed"), ErrorScope.CALLER),
    (errors.TransportError("no token", outcome=NOT_SENT), ErrorScope.SERVICE),
    (errors.TransportError("a source that broke", outcome=FAILED), ErrorScope.UNCERTAIN),
    (errors.ConnectFailedError("refused"), ErrorScope.SERVICE),
    (errors.CircuitOpenError("left alone"), ErrorScope.SERVICE),
    (errors.ConnectionLostError("reset", outcome=UNKNOWN), ErrorScope.UNCERTAIN),
    (errors.DeadlineExceededError("in the queue", outcome=NOT_SENT), ErrorScope.SERVICE),
    (errors.DeadlineExceededError("no answer", outcome=UNKNOWN), ErrorScope.UNCERTAIN),
    (errors.OutcomeUnknownError("perhaps", how_to_find_out="look"), ErrorScope.UNCERTAIN),
    (errors.ResponseDecodeError("no JSON"), ErrorScope.UNCERTAIN),
    (ServiceError("a code of the service's", status=200, code=3, outcome=FAILED), ErrorScope.ITEM),
    (ServiceError("an error with a good status", status=200, outcome=UNKNOWN), ErrorScope.ITEM),
    (ServiceError("a redirect", status=302), ErrorScope.ENDPOINT),
    (ServiceError("wrong method", status=405), ErrorScope.ENDPOINT),
    (ServiceError("no token endpoint", status=404, service="oauth"), ErrorScope.ENDPOINT),
    (ServiceError("a proxy's password", status=407), ErrorScope.ENDPOINT),
    (ServiceError("slow", status=408, outcome=UNKNOWN), ErrorScope.UNCERTAIN),
    (ServiceError("gone", status=410), ErrorScope.ITEM),
    (ServiceError("misdirected", status=421, outcome=REJECTED), ErrorScope.SERVICE),
    (ServiceError("too early", status=425, outcome=REJECTED), ErrorScope.SERVICE),
    (ServiceError("another protocol", status=426), ErrorScope.ENDPOINT),
    (errors.AuthenticationError("who", status=401), ErrorScope.ACCOUNT),
    (errors.PermissionDeniedError("may not", status=403), ErrorScope.ACCOUNT),
    (errors.PaymentError("not debited", status=200, code="021"), ErrorScope.ACCOUNT),
    (errors.NotFoundError("none", status=404), ErrorScope.ITEM),
    (errors.DocumentNotFoundError("gone", status=400), ErrorScope.ITEM),
    (errors.ConflictError("taken", status=200, code="201"), ErrorScope.ITEM),
    (errors.AddressError("no address", status=200, code=2), ErrorScope.ITEM),
    (errors.BadRequestError("wrong", status=400), ErrorScope.ITEM),
    (errors.RateLimitedError("too many", status=429, outcome=UNKNOWN), ErrorScope.SERVICE),
    (errors.ServerError("failed", status=500, outcome=UNKNOWN), ErrorScope.UNCERTAIN),
    (errors.ServerError("by its own word", status=200, code="999", outcome=FAILED), ErrorScope.UNCERTAIN),
    (errors.ServerError("come back", status=503, outcome=REJECTED), ErrorScope.SERVICE),
]


@pytest.mark.parametrize(("error", "scope"), SCOPES, ids=lambda value: type(value).__name__)
def test_error_has_its_scope(error: DirectSuiteError, scope: ErrorScope) -> None:
    assert find_error_scope(error) is scope


def test_every_class_of_error_has_a_row() -> None:
    assert {type(error) for error, _ in SCOPES} == set(_classes(DirectSuiteError))


def _classes(root: type[DirectSuiteError]) -> Iterator[type[DirectSuiteError]]:
    if root.__module__ == errors.__name__:
        yield root
    for child in root.__subclasses__():
        yield from _classes(child)
