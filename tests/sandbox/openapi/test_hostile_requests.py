"""Requests that no schema would generate: broken bodies, broken paths, missing credentials, missing members."""

from __future__ import annotations

import http.client
import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

import pytest

from .documented import OPERATIONS, DocumentedOperation, is_success

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .real_values import RealValues

BODIES: dict[str, bytes] = {
    "nothing": b"",
    "unfinished": b'{"auth": {',
    "null": b"null",
    "list": b"[]",
    "text": b'"text"',
    "number": b"1e999",
    "not UTF-8": b'{"username": "\xff\xfe"}',
    "UTF-16": '{"username": "a"}'.encode("utf-16"),
    "NaN": b'{"uids": [NaN]}',
    "lone surrogate": b'{"username": "\\ud800", "password": "a"}',
    "NUL": b'{"username": "\\u0000", "password": "a"}',
    "deep": b"[" * 100_000,
    "endless number": b'{"id": ' + b"9" * 5000 + b"}",
    "member of another type": b'{"auth": 1, "authentication": [], "username": {}, "message": "a", "uids": "b"}',
}

JSON = {"Content-Type": "application/json"}

SEGMENTS = ["%00", "%FF", "%C0%AE", "..%2F..%2F", "%25", "%", "a%0D%0Ab", ";", "%F0%9F%98%80", "9" * 400, "a" * 4000]

with_a_body = [operation for operation in OPERATIONS if "requestBody" in operation.definition]
with_path_parameters = [operation for operation in OPERATIONS if operation.path_parameters]


def _names(value: object) -> str:
    return value.name if isinstance(value, DocumentedOperation) else str(value)


def _send(
    real_values: RealValues,
    operation: DocumentedOperation,
    *,
    path: str | None = None,
    body: bytes | None = None,
    headers: Mapping[str, str] = JSON,
    with_token: bool = True,
) -> tuple[int, bytes]:
    target = _real_path(real_values, operation) if path is None else path
    root = urlsplit(real_values.root)
    sent = {"Authorization": f"Bearer {real_values.token}"} if with_token and operation.takes_bearer else {}
    connection = http.client.HTTPConnection(root.hostname or "", root.port, timeout=30)
    try:
        connection.request(operation.method, target, body, {**sent, **headers})
        response = connection.getresponse()
        content = response.read()
    finally:
        connection.close()
    operation.assert_describes(response.status, response.headers.get("Content-Type", ""), content)
    return response.status, content


def _real_path(real_values: RealValues, operation: DocumentedOperation) -> str:
    values = {"sender": "a", "subject": "a", "subscribedFolderOnly": "false", "deleteForever": "false", "offset": "0"}
    values.update(real_values.path_parameters(operation))
    assert set(operation.path_parameters) <= values.keys(), "give each path parameter a value in real_values.py"
    return operation.path.format(**{name: quote(value, safe="") for name, value in values.items()})


@pytest.mark.exhaustive
@pytest.mark.parametrize("operation", with_a_body, ids=_names)
def test_responses_to_broken_bodies_are_documented(operation: DocumentedOperation, real_values: RealValues) -> None:
    path = _real_path(real_values, operation)
    for meaning, body in BODIES.items():
        status, content = _send(real_values, operation, path=path, body=body)
        assert not is_success(status, content), f"{operation.name} took a body: {meaning}"


@pytest.mark.exhaustive
@pytest.mark.parametrize("operation", with_path_parameters, ids=_names)
def test_responses_to_hostile_paths_are_documented(operation: DocumentedOperation, real_values: RealValues) -> None:
    body = json.dumps(_minimal_body(operation, real_values)).encode()
    real = dict.fromkeys(operation.path_parameters, "a") | real_values.path_parameters(operation)
    for name in operation.path_parameters:
        for segment in SEGMENTS:
            path = operation.path.format(**{**real, name: segment})
            _send(real_values, operation, path=path, body=body)


@pytest.mark.exhaustive
@pytest.mark.parametrize("operation", [operation for operation in OPERATIONS if operation.takes_bearer], ids=_names)
@pytest.mark.parametrize("authorization", [None, "", "Bearer", "Bearer wrong", "Basic YTpi", "Bearer \xff"])
def test_a_missing_or_invalid_token_is_a_401(
    operation: DocumentedOperation, authorization: str | None, real_values: RealValues
) -> None:
    headers = {} if authorization is None else {"Authorization": authorization}
    status, _ = _send(real_values, operation, headers=headers, with_token=False)
    assert status == 401


_in_body = [operation for operation in OPERATIONS if operation.definition.get("x-credentials", {}).get("in") == "body"]


@pytest.mark.exhaustive
@pytest.mark.parametrize("operation", _in_body, ids=_names)
@pytest.mark.parametrize("member", ["username", "password"])
def test_wrong_credentials_in_the_body_are_rejected(
    operation: DocumentedOperation, member: str, real_values: RealValues
) -> None:
    body = _minimal_body(operation, real_values)
    credentials = operation.definition["x-credentials"]
    holder = body[credentials["member"]] if "member" in credentials else body
    holder[member] = "wrong@direct.example.test"
    _, content = _send(real_values, operation, body=json.dumps(body).encode())
    response = json.loads(content)
    assert response["success"] is False
    assert response["code"] == ("011" if operation.name == "login" else 1)


@pytest.mark.exhaustive
@pytest.mark.parametrize("operation", with_a_body, ids=_names)
def test_a_body_without_a_required_member_is_rejected(operation: DocumentedOperation, real_values: RealValues) -> None:
    schema = operation.body_schema
    for member in (schema or {}).get("required", []):
        body = _minimal_body(operation, real_values)
        del body[member]
        status, content = _send(real_values, operation, body=json.dumps(body).encode())
        assert not is_success(status, content), f"{operation.name} took a body without {member}"


def _minimal_body(operation: DocumentedOperation, real_values: RealValues) -> dict[str, Any]:
    """A body with real values in all required members and in no other."""
    required: list[str] = (operation.body_schema or {}).get("required", [])
    body = real_values.body(operation, {name: True if name == "subscribed" else {} for name in required})
    credentials = operation.definition.get("x-credentials", {})
    if credentials.get("in") == "body":
        valid = dict(real_values.credentials(operation))
        body.update({credentials["member"]: valid} if "member" in credentials else valid)
    return body
