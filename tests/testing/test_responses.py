"""`directsuite.testing.response`: each operation accepts its own response."""

from __future__ import annotations

import string
from typing import Any

import pytest

import directsuite as ds
from directsuite.core.outcome import interpret
from directsuite.core.session import BufferedResponse
from directsuite.testing import response
from directsuite.testing.responses import _get_codec, _get_operations


def test_response_has_the_request_and_the_fields() -> None:
    answer = response("GetUIDs", folder="In box", uids=[1, 2])
    assert (answer.method, answer.path, answer.status) == ("POST", "GetUIDs/In%20box", 200)
    assert answer.json == {"success": True, "uids": [1, 2]}


def test_pdf_is_base64_text() -> None:
    assert response("GetDoc", identifier="d", pdf=b"%PDF-1.7").body == b"JVBERi0xLjc="


def test_failure_is_a_typed_error() -> None:
    answer = response("GetMessageCount", folder="INBOX", success=False, code=1, message="wrong password")
    result: object = interpret(
        _get_operations()["GetMessageCount"], BufferedResponse(answer.status, {}, answer.body), 1000, _get_codec()
    )
    assert isinstance(result, ds.AuthenticationError)


@pytest.mark.parametrize(
    ("operation", "values", "error", "text"),
    [
        ("GetUID", {}, ValueError, "there is no operation 'GetUID'. Similar names: GetUIDs"),
        ("GetUIDs", {"uids": [1]}, ValueError, "the path of GetUIDs needs folder"),
        ("GetUIDs", {"folder": "INBOX", "uid": [1]}, TypeError, "uid"),
        ("GetDoc", {"identifier": "d", "content": b""}, TypeError, "is a PDF, and has no field content"),
    ],
)
def test_wrong_names_are_rejected(operation: str, values: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        response(operation, **values)


@pytest.mark.parametrize("name", _get_operations())
def test_each_operation_accepts_its_response(name: str) -> None:
    operation = _get_operations()[name]
    values: dict[str, Any] = {
        parameter: "1" for _, parameter, _, _ in string.Formatter().parse(operation.path) if parameter
    }
    values |= {field: 1 if field == "count" else "1" for field in operation.required_fields if "[]" not in field}
    answer = response(name, **values)
    received = BufferedResponse(answer.status, {}, answer.body or b"JVBERi0=")
    assert not isinstance(interpret(operation, received, 10_000, _get_codec()), Exception)
