"""Rejections, successes, and other responses in the form of each service, without a network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

import directsuite as ds
from directsuite.core.operation import FaultFormat, Operation, ServiceFault
from directsuite.core.outcome import classify_status, interpret
from directsuite.core.session import BufferedResponse
from directsuite.messaging import operations as messaging
from directsuite.registration import operations as registration
from directsuite.registration.models import SUCCESS_CODE
from directsuite.signing import operations as signing
from directsuite.wire.codec import Codec

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
        (200, ds.ServiceError, "the service reports an error, although the HTTP status is a success"),
        (299, ds.ServiceError, "the service reports an error, although the HTTP status is a success"),
        (300, ds.ServiceError, "the service sent a redirect, which is not followed"),
        (399, ds.ServiceError, "the service sent a redirect, which is not followed"),
        (400, ds.BadRequestError, "invalid action, or a parameter is missing or invalid"),
        (402, ds.ServiceError, "the service rejected the request"),
        (499, ds.ServiceError, "the service rejected the request"),
        (500, ds.ServerError, "the service failed"),
        (599, ds.ServerError, "the service failed"),
    ],
)
def test_status_decides_without_service_body(status: int, error: type[ds.ServiceError], words: str) -> None:
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


def test_response_that_is_too_large_says_what_to_do() -> None:
    cases: list[tuple[Operation[Any], str]] = [
        (messaging.GET_MESSAGES, "read it with stream_messages, or raise"),
        (messaging.SEND, "raise"),
    ]
    for operation, hint in cases:
        error = interpret(operation, BufferedResponse(200, {}, b"x" * 9, too_large=True), 7, Codec(None))
        assert isinstance(error, ds.ResponseDecodeError)
        assert (error.too_large, error.body, error.operation) == (True, b"x" * 9, operation.name)
        assert error.explanation == f"the response is larger than 7 bytes: {hint} max_response_bytes"


def test_redirect_of_a_download_is_not_a_document() -> None:
    error = read(signing.GET_DOC, b"JVBERg==", 300)
    assert (type(error), error.status) == (ds.ServiceError, 300)


def test_elements_that_are_null_are_counted() -> None:
    body = b'{"success": true, "messages": [null, {"uid": 3}, null]}'
    counts = list[Mapping[str, int]]()
    answer = interpret(
        messaging.GET_MESSAGE_METADATA, BufferedResponse(200, {}, body), 1000, Codec(None), counts.append
    )
    assert not isinstance(answer, ds.DirectSuiteError)
    assert ([message.uid for message in answer.messages], counts) == ([3], [{"$.messages[]": 2}])


def test_what_is_nested_too_deeply_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def deep(*_: object) -> Any:
        raise RecursionError

    monkeypatch.setattr(Codec, "structure", deep)
    error = read(messaging.SEND, b'{"success": true}')
    assert isinstance(error, ds.ResponseDecodeError)
    assert (error.path, error.explanation.rpartition(": ")[2]) == ("$", "$ should be nested less deeply")
