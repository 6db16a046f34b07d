"""All operations of the specification, from the facade's method to the effect in the sandbox and back."""

from __future__ import annotations

import pytest

from tests.specification import METHODS

from . import mailbox_exercises, sending_exercises, signing_exercises
from .world import World

EXERCISES = {**signing_exercises.EXERCISES, **sending_exercises.EXERCISES, **mailbox_exercises.EXERCISES}


def test_every_operation_has_an_exercise() -> None:
    assert set(EXERCISES) == set(METHODS)


@pytest.mark.parametrize("operation", METHODS)
async def test_operation_has_its_effect(operation: str, world: World) -> None:
    # A delay of nothing changes nothing, and counts the requests that reach the route of this name.
    number = world.sandbox.inject_fault(operation, "latency", seconds=0, times=None)
    await EXERCISES[operation](world)
    applied = {fault["id"]: fault["applied"] for fault in world.sandbox.faults()}
    assert applied[number] >= 1
    assert world.clock.slept == []
