"""What is seen while the demo runs: a bar for each step on a terminal, nothing elsewhere."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

if TYPE_CHECKING:
    from collections.abc import Generator

    from rich.console import Console
    from rich.progress import TaskID


class Progress(Protocol):
    """Told by a step how far it has come."""

    def begin(self, title: str) -> None:
        """A step begins, how long it will be is not known yet."""
        ...

    def expect(self, total: int) -> None:
        """The step under way has so many pieces."""
        ...

    def advance(self, count: int = 1) -> None:
        """So many more pieces are done."""
        ...


class Quiet:
    """Shows nothing."""

    def begin(self, title: str) -> None:
        """A step begins."""

    def expect(self, total: int) -> None:
        """The step under way has so many pieces."""

    def advance(self, count: int = 1) -> None:
        """So many more pieces are done."""


class Shown:
    """Shows a bar for the step under way, and leaves those of the steps before it standing."""

    def __init__(self, bars: Bars) -> None:
        self._bars = bars
        self._task: TaskID | None = None

    def begin(self, title: str) -> None:
        """Finish the last step's bar and begin one for the next."""
        self._finish()
        self._task = self._bars.add_task(title, total=None)

    def expect(self, total: int) -> None:
        """The bar's length."""
        if self._task is not None:
            self._bars.update(self._task, total=total)

    def advance(self, count: int = 1) -> None:
        """Fill the bar a little."""
        if self._task is not None:
            self._bars.advance(self._task, count)

    def _finish(self) -> None:
        if self._task is not None:
            self._bars.stop_task(self._task)


@contextmanager
def progress_on(console: Console) -> Generator[Progress]:
    """Bars on a terminal, nothing on anything else; a terminal is left as it was found, whatever happens."""
    if not console.is_terminal:
        yield Quiet()
        return
    columns = (
        SpinnerColumn(finished_text="[green]✓[/]"),
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Bars(*columns, console=console, transient=True) as bars:
        yield Shown(bars)
