"""One turn of ours under cProfile, in this process: where does the CPU go?"""

from __future__ import annotations

import asyncio
import cProfile
import pstats
import tempfile
from pathlib import Path

from benchmarks.measuring.rounds import RowContext
from benchmarks.measuring.worker import prepare_turn
from benchmarks.scenarios.rows import OURS, MeasuredRow
from benchmarks.server import run_server

_LINES = 30


def profile(row: MeasuredRow) -> None:
    """Print the functions that took most of a turn, by their own time."""
    if row.scripts:
        print(f"{row.name} starts an interpreter: see python -X importtime")
        return
    profiler = cProfile.Profile()
    with tempfile.TemporaryDirectory() as folder, run_server() as server:
        stage = RowContext(python=Path(), server=server, folder=Path(folder), missing={})
        asyncio.run(_run_turn(row, stage, profiler))
    print(row.title)
    pstats.Stats(profiler).strip_dirs().sort_stats("tottime").print_stats(_LINES)


async def _run_turn(row: MeasuredRow, stage: RowContext, profiler: cProfile.Profile) -> None:
    async with prepare_turn(stage.make_order(row, OURS)) as turn:
        profiler.enable()
        await turn()
        profiler.disable()
