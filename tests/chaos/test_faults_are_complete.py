"""What goes wrong in the matrix, in the storm and in the soak: every kind of fault that the sandbox has."""

from __future__ import annotations

import pytest

from benchmarks.soak import trouble
from directsuite.sandbox.faults import KINDS

from . import matrix_faults, storm_stage

LISTS = {
    "matrix": {fault.kind for fault in matrix_faults.FAULTS},
    "storm": {kind for _, kind, _ in storm_stage.FAULTS},
    "soak": {kind for _, kind, _ in trouble.FAULTS},
}


@pytest.mark.parametrize("name", LISTS)
def test_every_kind_of_fault_is_tried(name: str) -> None:
    assert LISTS[name] == set(KINDS)
