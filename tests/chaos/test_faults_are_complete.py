"""The matrix, the storm and the soak test use every kind of fault of the sandbox."""

from __future__ import annotations

import pytest

from benchmarks.soak import load
from directsuite.sandbox.faults import FAULT_KINDS

from . import matrix_faults, storm_context

LISTS = {
    "matrix": {fault.kind for fault in matrix_faults.FAULTS},
    "storm": {kind for _, kind, _ in storm_context.FAULTS},
    "soak": {kind for _, kind, _ in load.FAULTS},
}


@pytest.mark.parametrize("name", LISTS)
def test_every_kind_of_fault_is_tried(name: str) -> None:
    assert LISTS[name] == set(FAULT_KINDS)
