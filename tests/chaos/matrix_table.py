"""Run the complete matrix and write it as a table.

`python -m tests.chaos.matrix_table` takes some minutes. Its exit status is 0 if no effect was doubled and every result
was correct.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import logging
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import attrs

from .matrix_faults import FAULTS, TIMEOUT
from .matrix_rows import ROWS
from .matrix_runs import RETURNED, UNKNOWN, Cell, open_matrix
from .matrix_time import LeapingLoop

RESULTS = Path("benchmarks/results/matrix.md")


@attrs.define
class MatrixCount:
    """The results of several cells."""

    cells: int = 0
    returned: int = 0
    unknown_happened: int = 0
    unknown_not_happened: int = 0
    rejected: int = 0
    duplicated: int = 0
    false_reports: int = 0

    def add(self, cell: Cell) -> None:
        self.cells += 1
        if cell.effects > 1:
            self.duplicated += 1
        elif not cell.is_report_correct:
            self.false_reports += 1
        elif cell.reported == RETURNED:
            self.returned += 1
        elif cell.reported == UNKNOWN:
            self.unknown_happened += cell.effects
            self.unknown_not_happened += 1 - cell.effects
        else:
            self.rejected += 1

    @classmethod
    def sum_up(cls, cells: Iterable[Cell]) -> MatrixCount:
        count = cls()
        for cell in cells:
            count.add(cell)
        return count


async def _run_all() -> list[Cell]:
    cells: list[Cell] = []
    for row in ROWS:
        async with open_matrix() as running:
            for fault in FAULTS:
                cells += [await running.call(row, fault, times) for times in (1, None)]
                if not fault.delay:
                    cells.append(await running.call(row, fault, None, everywhere=True))
        sys.stderr.write(f"{row}\n")
    return cells


_HEADS = ("calls", "returned", "unknown, had happened", "unknown, had not", "failed", "duplicates", "incorrect")


def _format_table(named: str, keys: Sequence[str], key: Callable[[Cell], str], cells: list[Cell]) -> str:
    lines = [f"| {named} | {' | '.join(_HEADS)} |", "|---" + "|---:" * len(_HEADS) + "|"]
    for name in [*keys, ""]:
        count = MatrixCount.sum_up(cell for cell in cells if name in ("", key(cell)))
        lines.append(f"| {name or '**all**'} | {' | '.join(map(str, attrs.astuple(count)))} |")
    return "\n".join(lines)


def format_page(cells: list[Cell]) -> str:
    by_row = _format_table("operation", [str(row) for row in ROWS], lambda cell: str(cell.row), cells)
    by_fault = _format_table("fault", [str(fault) for fault in FAULTS], lambda cell: str(cell.fault), cells)
    return f"""# Operations with effects under each fault

Written by `python -m tests.chaos.matrix_table`, with aiohttp {importlib.metadata.version("aiohttp")}. Each call is made
over a socket to the sandbox, with a new suite and connection, and a new document, message, folder or patient. Each
fault applies once to the operation, always to the operation, and, if it is not a slow one, always to every operation.
The result of each call is compared with the effects that the sandbox recorded in its ledger:

| column | result of the call | effects in the ledger |
|---|---|---|
| returned | the correct response | 1 |
| unknown, had happened | OutcomeUnknownError | 1 |
| unknown, had not | OutcomeUnknownError | 0 |
| failed | another error | 0 |
| duplicates | any | 2 or more |
| incorrect | any other combination | |

A call has {TIMEOUT:g} seconds, on a simulated clock. One case is not in the table: if a service processes a request and
responds 429, or 503 with Retry-After, the request is sent again, because these statuses mean that it was not processed.

{by_row}

{by_fault}
"""


def main() -> int:
    """Run the matrix and write the page. Return 0 if every result was correct, else 1."""
    logging.getLogger("directsuite").setLevel(logging.CRITICAL)
    with asyncio.Runner(loop_factory=LeapingLoop) as runner:
        cells = runner.run(_run_all())
    RESULTS.write_text(format_page(cells), encoding="utf-8")
    wrong = [str(cell) for cell in cells if not cell.is_report_correct]
    sys.stderr.writelines(f"{line}\n" for line in wrong)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
