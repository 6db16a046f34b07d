"""Every operation with a side effect meets every fault, and the caller's result is correct.

The sandbox's ledger has the real effects. There is never a second effect, and never an effect after a definite error.
The numbers of unknown outcomes are in benchmarks/results/matrix.md, which `python -m tests.chaos.matrix_table` writes.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from benchmarks.soak import load
from directsuite.core.operation import Operation, Semantics, Service
from directsuite.messaging import operations as messaging
from directsuite.registration import operations as registration
from directsuite.sandbox.faults import FAULT_KINDS
from directsuite.signing import operations as signing
from tests.conftest import DEFAULT_OPERATIONS

from . import storm_context
from .matrix_faults import FAULTS, PDF_FAULTS, REPRESENTATIVE_FAULTS, Fault
from .matrix_rows import ROWS, MatrixRow
from .matrix_runs import RETURNED, Cell, open_matrix
from .matrix_time import LeapingLoop

_ON_PDFS = {record.name for record in vars(signing).values() if isinstance(record, Operation)}
_PROVABLE = [row for row in ROWS if row.variant in ("send_once", "verify=True", "StoredDocument")]
_PROVEN = ("reset after it", "silence after it", "late")
SEND, COPY = [next(row for row in ROWS if row.operation == name) for name in ("Send", "CopyMessagesByUIDs")]


def _run(cells: Any) -> list[Cell]:
    with asyncio.Runner(loop_factory=LeapingLoop) as runner:
        given: list[Cell] = runner.run(cells)
        return given


async def _cells(row: MatrixRow, faults: list[Fault], ways: list[tuple[int | None, bool]]) -> list[Cell]:
    async with open_matrix() as running:
        return [
            await running.call(row, fault, times, everywhere=everywhere)
            for fault in faults
            for times, everywhere in ways
            if not (everywhere and fault.delay)
        ]


@pytest.mark.wide
def test_every_operation_that_must_not_be_repeated_has_a_row() -> None:
    records = [record for module in (signing, messaging, registration) for record in vars(module).values()]
    once = {
        record.name
        for record in records
        if isinstance(record, Operation) and record.semantics is Semantics.NON_IDEMPOTENT
    }
    assert {row.operation for row in ROWS} == once
    assert len(once) == 17
    assert all(record.service is not Service.FAX for record in records if isinstance(record, Operation))


@pytest.mark.parametrize(
    "row",
    [pytest.param(row, marks=[pytest.mark.wide] * (row.operation not in DEFAULT_OPERATIONS)) for row in ROWS],
    ids=str,
)
def test_reported_outcome_is_true(row: MatrixRow) -> None:
    few = PDF_FAULTS if row.operation in _ON_PDFS else REPRESENTATIVE_FAULTS
    faults = [fault for fault in FAULTS if fault.name in few]
    cells = _run(_cells(row, faults, [(1, False)]))
    assert [str(cell) for cell in cells if not cell.is_report_correct] == []
    assert len(cells) == len(few)
    assert cells[0].reported == RETURNED


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_reported_outcome_is_true_for_every_fault(row: MatrixRow) -> None:
    cells = _run(_cells(row, FAULTS, [(1, False), (None, False), (None, True)]))
    assert [str(cell) for cell in cells if not cell.is_report_correct] == []


@pytest.mark.wide
@pytest.mark.parametrize(
    "row", [pytest.param(row, marks=[pytest.mark.slow] * (row.operation in _ON_PDFS)) for row in _PROVABLE], ids=str
)
def test_confirmed_effect_is_returned(row: MatrixRow) -> None:
    cells = _run(_cells(row, [fault for fault in FAULTS if fault.name in _PROVEN], [(None, False)]))
    assert [(cell.reported, cell.effects) for cell in cells] == [(RETURNED, 1)] * len(_PROVEN)


@pytest.mark.wide
@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("row", [SEND, COPY], ids=str)
def test_retry_after_is_trusted_even_after_the_effect(row: MatrixRow, status: int) -> None:
    false = Fault("a falsehood", "status", {"status": status, "retry_after": 1, "processed": True})
    [cell] = _run(_cells(row, [false], [(1, False)]))
    assert (cell.reported, cell.effects) == (RETURNED, 2)


FAULT_LISTS = {
    "matrix": {fault.kind for fault in FAULTS},
    "storm": {kind for _, kind, _ in storm_context.FAULTS},
    "soak": {kind for _, kind, _ in load.FAULTS},
}


@pytest.mark.parametrize("name", FAULT_LISTS)
def test_every_kind_of_fault_is_tried(name: str) -> None:
    assert FAULT_LISTS[name] == set(FAULT_KINDS)
