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


_HEADS = ("cells", "returned", "unknown, it happened", "unknown, it did not", "refused", "doubled", "false")


def _format_table(named: str, keys: Sequence[str], key: Callable[[Cell], str], cells: list[Cell]) -> str:
    lines = [f"| {named} | {' | '.join(_HEADS)} |", "|---" + "|---:" * len(_HEADS) + "|"]
    for name in [*keys, ""]:
        count = MatrixCount.sum_up(cell for cell in cells if name in ("", key(cell)))
        lines.append(f"| {name or '**all**'} | {' | '.join(map(str, attrs.astuple(count)))} |")
    return "\n".join(lines)


def format_page(cells: list[Cell]) -> str:
    by_row = _format_table("operation", [str(row) for row in ROWS], lambda cell: str(cell.row), cells)
    by_fault = _format_table("fault", [str(fault) for fault in FAULTS], lambda cell: str(cell.fault), cells)
    return f"""# What must not happen twice, and everything that can go wrong

Written by `python -m tests.chaos.matrix_table`, with aiohttp {importlib.metadata.version("aiohttp")}. Each cell is one
call over a socket to the sandbox, with everything new: suite, connection, document, message, folder or patient. The
fault strikes once, always, or, the slow ones apart, every operation always. What the caller is told stands beside what
the sandbox's ledger says: `returned` is exactly one effect and the answer that belongs to it; `unknown`
(OutcomeUnknownError) one or none; any other error, `refused`, none. `doubled` are more than one, `false` is all else.
Calls have {TIMEOUT:g} seconds, which pass at once.

Outside the matrix: a service that acts and then answers 429, or 503 with Retry-After, is taken at its word, and asked
again.

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
