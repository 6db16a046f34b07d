"""The effect of each operation in the sandbox, called with the client."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from . import OPERATIONS

if TYPE_CHECKING:
    from tests.integration.scenario import Scenario


@pytest.mark.exhaustive
@pytest.mark.parametrize("operation", OPERATIONS)
async def test_operation_has_its_effect(operation: str, scenario: Scenario) -> None:
    # A latency of 0 seconds changes nothing, and counts the requests of the operation.
    number = scenario.sandbox.inject_fault(operation, "latency", seconds=0, times=None)
    await OPERATIONS[operation].exercise(scenario)
    applied = {fault["id"]: fault["applied"] for fault in scenario.sandbox.faults()}
    assert applied[number] >= 1
    assert scenario.clock.sleeps == []
