"""How far a command has come, on stderr: only where that is a terminal, and only of what takes over a second."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Literal

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.text import Text

DELAY = 1.0
"""Seconds before anything is shown."""

Unit = Literal["bytes", "pieces", "waiting"]


class Bar:
    """Told how far it has come; shows it or doesn't."""

    def __init__(self, progress: Progress | None = None, title: str = "", total: float | None = None) -> None:
        self._progress = progress
        self._task = None if progress is None else progress.add_task(title, total=total)

    def expect(self, total: int | None) -> None:
        """So many there will be, or None for nobody knows."""
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, total=total)

    def advance(self, count: int = 1) -> None:
        """So many more are done."""
        if self._progress is not None and self._task is not None:
            self._progress.advance(self._task, count)

    def tell(self, done: int, total: int | None) -> None:
        """All that is done: what the `progress=` of a facade's method takes."""
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=done, total=total)


@asynccontextmanager
async def progress(
    title: str,
    *,
    unit: Unit = "waiting",
    total: int | None = None,
    console: Console | None = None,
    delay: float = DELAY,
) -> AsyncGenerator[Bar]:
    """A bar with rate and remaining time, or for `waiting` the time that has passed; gone at the end.

    title: what is done, which names nobody.
    """
    console = Console(stderr=True, highlight=False) if console is None else console
    if not console.is_terminal:
        yield Bar()
        return
    bars = Progress(*_columns(unit), console=console, transient=True)
    starting = asyncio.get_running_loop().call_later(delay, bars.start)
    try:
        yield Bar(bars, title, total)
    finally:
        starting.cancel()
        bars.stop()


class _Rate(ProgressColumn):
    """Pieces per second."""

    def render(self, task: Task) -> Text:
        """As far as it is known."""
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:.1f}/s", style="progress.data.speed")


def _columns(unit: Unit) -> list[ProgressColumn]:
    title = TextColumn("{task.description}", markup=False)
    if unit == "waiting":
        return [SpinnerColumn(), title, TimeElapsedColumn()]
    counts = [DownloadColumn(), TransferSpeedColumn()] if unit == "bytes" else [MofNCompleteColumn(), _Rate()]
    return [title, BarColumn(bar_width=24), *counts, TimeRemainingColumn()]
