"""The sandbox conforms to its OpenAPI documents, for generated valid and invalid requests."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any, cast
from urllib.parse import quote

import hypothesis
import pytest
import schemathesis
from hypothesis import strategies as st
from schemathesis import GenerationMode

from directsuite.sandbox.control import build_control_document

from .documented import DOCUMENT, OPERATIONS, DocumentedOperation, is_success
from .real_values import PDF, RealValues, run_sandbox

pytestmark = pytest.mark.wide

# Any: the classes of schemathesis are generic in types that only it can name.
SCHEMA: Any = schemathesis.openapi.from_dict(DOCUMENT)

QUICK = hypothesis.settings(
    max_examples=8,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.filter_too_much],
    phases=[hypothesis.Phase.generate],
)
_EXHAUSTIVE = hypothesis.settings(QUICK, max_examples=150, derandomize=False, phases=list(hypothesis.Phase))
_TIMEOUT = 60  # seconds: GetDocInfo of a document that other requests have signed often is slow under load

each_operation = pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)


def test_sandbox_serves_the_document(real_values: RealValues) -> None:
    response = real_values.http.get(f"{real_values.root}/openapi.json", timeout=30)
    assert response.headers["Content-Type"].startswith("application/json")
    assert response.json() == DOCUMENT


@pytest.mark.exhaustive(limit=4)
@each_operation
def test_responses_to_valid_requests_are_documented(operation: DocumentedOperation, real_values: RealValues) -> None:
    _explore(operation, real_values, GenerationMode.POSITIVE, QUICK)


@pytest.mark.exhaustive(limit=4)
@each_operation
def test_responses_to_invalid_requests_are_documented(operation: DocumentedOperation, real_values: RealValues) -> None:
    _explore(operation, real_values, GenerationMode.NEGATIVE, QUICK)


@pytest.mark.slow
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=lambda mode: mode.value)
@each_operation
def test_responses_to_many_requests_are_documented(
    operation: DocumentedOperation, mode: GenerationMode, real_values: RealValues
) -> None:
    _explore(operation, real_values, mode, _EXHAUSTIVE)


def _explore(
    operation: DocumentedOperation, real_values: RealValues, mode: GenerationMode, settings: hypothesis.settings
) -> None:
    """Send generated requests with valid credentials, half of them about things that exist, and check the responses.

    Of the valid requests about things that exist, one must succeed. Otherwise the operation was never reached.
    """
    outcomes: list[bool] = []

    @settings
    @hypothesis.given(case=_cases(operation, mode), about_real_things=st.sampled_from([True, False]))
    def explore(case: Any, about_real_things: bool) -> None:
        _authorize(case, operation, real_values)
        if about_real_things:
            _make_real(case, operation, real_values)
        response = case.call(base_url=real_values.root, session=real_values.http, timeout=_TIMEOUT)
        _assert_documented(operation, case, response)
        outcomes.append(is_success(response.status_code, response.content))

    explore()
    if mode is GenerationMode.POSITIVE:
        assert any(outcomes), f"{operation.name} was never carried out"


def _cases(operation: DocumentedOperation, mode: GenerationMode) -> st.SearchStrategy[Any]:
    cases: st.SearchStrategy[Any] = SCHEMA.find_operation_by_id(operation.name).as_strategy(mode)
    return cases


def _assert_documented(operation: DocumentedOperation, case: Any, response: Any) -> None:
    try:
        media_type = response.headers.get("content-type", [""])[0]
        operation.assert_describes(response.status_code, media_type, response.content)
    except (AssertionError, ValueError) as error:
        error.add_note(f"Reproduce with: {case.as_curl_command()}")
        raise


def _authorize(case: Any, operation: DocumentedOperation, real_values: RealValues) -> None:
    for name in [name for name in case.headers if name.lower() == "content-length"]:
        del case.headers[name]  # with a wrong one the request is not HTTP
    if operation.takes_bearer:
        case.headers["Authorization"] = f"Bearer {real_values.token}"
    credentials = operation.definition.get("x-credentials", {})
    body = _object(case.body)
    if credentials.get("in") == "body" and body is not None:
        valid = real_values.credentials(operation)
        case.body = {**body, **({credentials["member"]: valid} if "member" in credentials else valid)}
    if "sessionId" in operation.path_parameters:
        case.path_parameters = {**case.path_parameters, "sessionId": real_values.session}


def _make_real(case: Any, operation: DocumentedOperation, real_values: RealValues) -> None:
    """Replace what must name something that exists."""
    real = {name: quote(value, safe="") for name, value in real_values.path_parameters(operation).items()}
    case.path_parameters = {**case.path_parameters, **real}
    body = _object(case.body)
    if operation.name == "Save":
        case.body = base64.b64encode(PDF).decode()
    elif operation.name == "SetPatientsPasswords":
        case.body = real_values.passwords()
    elif body is not None:
        case.body = real_values.body(operation, body)


def _object(body: Any) -> dict[str, Any] | None:
    return cast("dict[str, Any]", body) if isinstance(body, dict) else None


CONTROL_DOCUMENT = build_control_document()
CONTROL_SCHEMA: Any = schemathesis.openapi.from_dict(CONTROL_DOCUMENT)
CONTROLS = [item["operationId"] for path in CONTROL_DOCUMENT["paths"].values() for item in path.values()]


def _sort_alternatives(members: dict[str, Any]) -> dict[str, Any]:
    """Sort the members of `anyOf`, because Python caches unions, whose order may differ."""
    return members | {"anyOf": sorted(map(str, members["anyOf"]))} if "anyOf" in members else members


def test_the_sandbox_serves_the_document_of_the_controls(real_values: RealValues) -> None:
    served = real_values.http.get(f"{real_values.root}/_sandbox/openapi.json", timeout=30).text
    found, expected = (
        json.loads(text, object_hook=_sort_alternatives) for text in (served, json.dumps(CONTROL_DOCUMENT))
    )
    assert found == expected


def test_every_control_has_a_unique_id() -> None:
    assert len(set(CONTROLS)) == len(CONTROLS) == 22


@pytest.fixture(scope="module")
def control_root() -> Iterator[str]:
    """The URL of another sandbox, because controls delete what the other tests need."""
    with run_sandbox() as running:
        yield running.root


@pytest.mark.exhaustive(limit=8)
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=lambda mode: mode.value)
@pytest.mark.parametrize("operation", CONTROLS)
def test_responses_of_controls_are_documented(operation: str, mode: GenerationMode, control_root: str) -> None:
    definition: Any = CONTROL_SCHEMA.find_operation_by_id(operation)
    if mode is GenerationMode.NEGATIVE and not definition.body:
        return  # nothing about it can be wrong
    cases: st.SearchStrategy[Any] = definition.as_strategy(mode)

    @hypothesis.settings(QUICK, max_examples=15)
    @hypothesis.given(case=cases)
    def explore(case: Any) -> None:
        response = case.call(base_url=control_root)
        assert str(response.status_code) in definition.definition.raw["responses"], case.as_curl_command()
        document = response.json()
        assert isinstance(document, dict)
        if response.status_code >= 400:
            assert document["description"]

    explore()
