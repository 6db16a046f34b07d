"""The control API held to its own OpenAPI document by generated requests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest
import requests
import schemathesis
from hypothesis import strategies as st
from schemathesis import GenerationMode

from directsuite.sandbox.control import build_control_document

from .sandbox_thread import SandboxThread, run_sandbox
from .test_conformance import QUICK

pytestmark = pytest.mark.wide

SCHEMA: Any = schemathesis.openapi.from_dict(build_control_document())
OPERATIONS = [item["operationId"] for path in build_control_document()["paths"].values() for item in path.values()]


@pytest.fixture(scope="module")
def running() -> Iterator[SandboxThread]:
    with run_sandbox() as sandbox:
        yield sandbox


def test_the_sandbox_serves_the_document(running: SandboxThread) -> None:
    assert requests.get(f"{running.root}/_sandbox/openapi.json", timeout=30).json() == build_control_document()


def test_every_control_has_a_unique_id() -> None:
    assert len(set(OPERATIONS)) == len(OPERATIONS) == 24


@pytest.mark.exhaustive(limit=8)
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=lambda mode: mode.value)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_responses_are_documented(operation: str, mode: GenerationMode, running: SandboxThread) -> None:
    definition: Any = SCHEMA.find_operation_by_id(operation)
    if mode is GenerationMode.NEGATIVE and not definition.body:
        return  # nothing about it can be wrong
    cases: st.SearchStrategy[Any] = definition.as_strategy(mode)

    @hypothesis.settings(QUICK, max_examples=15)
    @hypothesis.given(case=cases)
    def explore(case: Any) -> None:
        response = case.call(base_url=running.root)
        assert str(response.status_code) in definition.definition.raw["responses"], case.as_curl_command()
        document = response.json()
        assert isinstance(document, dict)
        if response.status_code >= 400:
            assert document["description"]

    explore()
