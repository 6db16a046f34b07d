"""All operations of the specification, from the facade's method to the effect in the sandbox and back."""

from __future__ import annotations

import pytest

from tests.specification import METHODS

from . import mailbox_exercises, sending_exercises, signing_exercises
from .scenario import Scenario

EXERCISES = {**signing_exercises.EXERCISES, **sending_exercises.EXERCISES, **mailbox_exercises.EXERCISES}


def test_every_operation_has_an_exercise() -> None:
    assert set(EXERCISES) == set(METHODS)


@pytest.mark.exhaustive
@pytest.mark.parametrize("operation", METHODS)
async def test_operation_has_its_effect(operation: str, scenario: Scenario) -> None:
    # A delay of nothing changes nothing, and counts the requests that reach the route of this name.
    number = scenario.sandbox.inject_fault(operation, "latency", seconds=0, times=None)
    await EXERCISES[operation](scenario)
    applied = {fault["id"]: fault["applied"] for fault in scenario.sandbox.faults()}
    assert applied[number] >= 1
    assert scenario.clock.slept == []
