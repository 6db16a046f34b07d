"""`python -m tests.chaos.matrix_table`: runs the whole matrix and records it as a table, beside bare aiohttp.

Takes some minutes. Its exit status is 0 where nothing was doubled and nobody was told a falsehood.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.metadata
import logging
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import attrs

from .matrix_faults import FAULTS, TIMEOUT
from .matrix_rows import ROWS
from .matrix_runs import RETURNED, UNKNOWN, Cell, matrix
from .matrix_time import LeapingLoop

RESULTS = Path("benchmarks/results/matrix.md")


@attrs.define
class Count:
    """What so many cells came to."""

    cells: int = 0
    returned: int = 0
    unknown_happened: int = 0
    unknown_not: int = 0
    refused: int = 0
    doubled: int = 0
    false: int = 0

    def add(self, cell: Cell) -> None:
        """Count one more."""
        self.cells += 1
        if cell.effects > 1:
            self.doubled += 1
        elif not cell.consistent:
            self.false += 1
        elif cell.told == RETURNED:
            self.returned += 1
        elif cell.told == UNKNOWN:
            self.unknown_happened += cell.effects
            self.unknown_not += 1 - cell.effects
        else:
            self.refused += 1

    @classmethod
    def of(cls, cells: Iterable[Cell]) -> Count:
        """The sum of these."""
        count = cls()
        for cell in cells:
            count.add(cell)
        return count


async def _all() -> tuple[list[Cell], list[Cell]]:
    """The client's cells, and bare aiohttp's."""
    ours: list[Cell] = []
    plain: list[Cell] = []
    for row in ROWS:
        async with matrix() as running:
            for fault in FAULTS:
                ours += [await running.call(row, fault, times) for times in (1, None)]
                if not fault.slow:
                    ours.append(await running.call(row, fault, None, everywhere=True))
                if row.operation not in {cell.row.operation for cell in plain if cell.row is not row}:
                    plain += [await running.plain(row, fault, times) for times in (1, None)]
        sys.stderr.write(f"{row}\n")
    return ours, plain


_HEADS = (
    ("directsuite: cells", "returned", "unknown, it happened", "unknown, it did not", "refused", "doubled", "false"),
    ("bare aiohttp: cells", "returned", "failed, did not happen", "failed though it happened", "doubled"),
)


def _table(named: str, keys: Sequence[str], key: Callable[[Cell], str], ours: list[Cell], plain: list[Cell]) -> str:
    heads = [named, *_HEADS[0], *_HEADS[1]]
    lines = ["| " + " | ".join(heads) + " |", "|---" + "|---:" * (len(heads) - 1) + "|"]
    for name in [*keys, ""]:
        count = Count.of(cell for cell in ours if name in ("", key(cell)))
        bare = Count.of(cell for cell in plain if name in ("", key(cell)))
        figures = [*attrs.astuple(count), bare.cells, bare.returned, bare.refused, bare.false, bare.doubled]
        texts = [str(figure) for figure in figures] if bare.cells else [*map(str, figures[:7]), *[""] * 5]
        lines.append("| " + " | ".join([name or "**all**", *texts]) + " |")
    return "\n".join(lines)


def page(ours: list[Cell], plain: list[Cell]) -> str:
    """The table as Markdown."""
    by_row = _table("operation", [str(row) for row in ROWS], lambda cell: str(cell.row), ours, plain)
    by_fault = _table("fault", [str(fault) for fault in FAULTS], lambda cell: str(cell.fault), ours, plain)
    return f"""# What must not happen twice, and everything that can go wrong

Written by `python -m tests.chaos.matrix_table`, with aiohttp {importlib.metadata.version("aiohttp")}. Each cell is one
call over a socket to the sandbox, with everything new: suite, connection, document, message, folder or patient. The
fault strikes once, always, or, the slow ones apart, every operation always. What the caller is told stands beside what
the sandbox's ledger says: `returned` is exactly one effect and the answer that belongs to it; `unknown`
(OutcomeUnknownError) one or none; any other error, `refused`, none. `doubled` are more than one, `false` is all else.
Calls have {TIMEOUT:g} seconds, which pass at once.

Bare aiohttp makes the same requests, with `raise_for_status()` and a look at the answer, once for each operation, the
fault once and always. It sends PUT again by itself when a connection breaks; its errors do not say whether it happened.

Outside the matrix: a service that acts and then answers 429, or 503 with Retry-After, is taken at its word, and asked
again.

{by_row}

{by_fault}
"""


def main(arguments: Sequence[str]) -> int:
    """Run, record, and give the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.matrix_table", description=__doc__)
    parser.add_argument("--output", type=Path, default=RESULTS, help="where the table goes (%(default)s)")
    chosen = parser.parse_args(arguments)
    logging.getLogger("directsuite").setLevel(logging.CRITICAL)
    with asyncio.Runner(loop_factory=LeapingLoop) as runner:
        ours, plain = runner.run(_all())
    chosen.output.write_text(page(ours, plain), encoding="utf-8")
    wrong = [str(cell) for cell in ours if not cell.consistent]
    sys.stderr.writelines(f"{line}\n" for line in wrong)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
