"""One turn of ours under cProfile, in this process: where does the CPU go?"""

from __future__ import annotations

import asyncio
import cProfile
import pstats
import tempfile
from pathlib import Path

from benchmarks.measuring.rounds import Stage
from benchmarks.measuring.worker import prepared
from benchmarks.scenarios.rows import OURS, Row
from benchmarks.server import served

_LINES = 30


def profile(row: Row) -> None:
    """Print the functions that took most of a turn, by their own time."""
    if row.scripts:
        print(f"{row.name} starts an interpreter: see python -X importtime")
        return
    profiler = cProfile.Profile()
    with tempfile.TemporaryDirectory() as folder, served() as server:
        stage = Stage(python=Path(), server=server, folder=Path(folder), missing={})
        asyncio.run(_turn(row, stage, profiler))
    print(row.title)
    pstats.Stats(profiler).strip_dirs().sort_stats("tottime").print_stats(_LINES)


async def _turn(row: Row, stage: Stage, profiler: cProfile.Profile) -> None:
    async with prepared(stage.order(row, OURS)) as turn:
        profiler.enable()
        await turn()
        profiler.disable()
