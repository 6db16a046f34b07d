"""What every step of the demo works with: a sandbox of its own, a suite for it, the folder, the progress."""

from __future__ import annotations

import re
import tempfile
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol

import attrs
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from directsuite.cli.options import DemoOptions
from directsuite.sandbox.server import Sandbox
from directsuite.suite import DirectSuite

DOMAIN = "direct.example.test"
CLINIC = f"clinic@{DOMAIN}"
PATIENT_USERNAME = "ada"
PATIENT = f"{PATIENT_USERNAME}@{DOMAIN}"
MAILBOX_PASSWORD = "sandbox"  # noqa: S105  of a mailbox that lives as long as the demo


class CheckFailedError(Exception):
    """Something did not come out as it should; the text says what."""


def check_condition(condition: object, message: str) -> None:
    """Raise NotHeldError unless the condition holds."""
    if not condition:
        raise CheckFailedError(message)


class StepProgress(Protocol):
    """Told by a step how far it has come."""

    def begin_step(self, title: str) -> None:
        """A step begins, how long it will be is not known yet."""
        ...

    def set_total(self, total: int) -> None:
        """The step under way has so many pieces."""
        ...

    def advance(self, count: int = 1) -> None:
        """So many more pieces are done."""
        ...


class NoStepProgress:
    """Shows nothing."""

    def begin_step(self, title: str) -> None:
        """A step begins."""

    def set_total(self, total: int) -> None:
        """The step under way has so many pieces."""

    def advance(self, count: int = 1) -> None:
        """So many more pieces are done."""


class BarStepProgress:
    """Shows a bar for the step under way, and leaves those of the steps before it standing."""

    def __init__(self, bars: Bars) -> None:
        self._bars = bars
        self._task: TaskID | None = None

    def begin_step(self, title: str) -> None:
        """Finish the last step's bar and begin one for the next."""
        self._finish_step()
        self._task = self._bars.add_task(title, total=None)

    def set_total(self, total: int) -> None:
        """The bar's length."""
        if self._task is not None:
            self._bars.update(self._task, total=total)

    def advance(self, count: int = 1) -> None:
        """Fill the bar a little."""
        if self._task is not None:
            self._bars.advance(self._task, count)

    def _finish_step(self) -> None:
        if self._task is not None:
            self._bars.stop_task(self._task)


@contextmanager
def show_step_progress(console: Console) -> Generator[StepProgress]:
    """Bars on a terminal, nothing on anything else; a terminal is left as it was found, whatever happens."""
    if not console.is_terminal:
        yield NoStepProgress()
        return
    columns = (
        SpinnerColumn(finished_text="[green]✓[/]"),
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Bars(*columns, console=console, transient=True) as bars:
        yield BarStepProgress(bars)


@attrs.frozen(kw_only=True)
class DemoContext:
    """A sandbox of the demo's own, and a suite that finds it through the sandbox's environment."""

    sandbox: Sandbox
    suite: DirectSuite
    output: Path
    options: DemoOptions
    progress: StepProgress

    def advance_clock(self, **span: float) -> None:
        """Let time pass in the sandbox, given as for timedelta, in place of waiting."""
        self.sandbox.clock.advance(timedelta(**span))

    def reset_clock(self) -> None:
        """Give the sandbox the machine's own time again, so that what is signed next bears no future date."""
        self.sandbox.clock.set(datetime.now(UTC))


@asynccontextmanager
async def open_context(output: Path, options: DemoOptions, progress: StepProgress) -> AsyncGenerator[DemoContext]:
    """A sandbox with a clinic's mailbox, in a folder that is gone afterwards, and a suite for it."""
    with tempfile.TemporaryDirectory(prefix="directsuite-demo-") as folder:
        async with Sandbox(Path(folder)) as sandbox, DirectSuite.from_env(sandbox.environment) as suite:
            await sandbox.add_reseller(
                sandbox.environment["DIRECTSUITE_LOGIN_USERNAME"],
                sandbox.environment["DIRECTSUITE_LOGIN_PASSWORD"],
                [DOMAIN],
            )
            await sandbox.add_account(CLINIC, MAILBOX_PASSWORD)
            yield DemoContext(sandbox=sandbox, suite=suite, output=output, options=options, progress=progress)


@attrs.frozen(kw_only=True)
class StepOutcome:
    """count: of how many of a `thing`. checked: what held, a short sentence each. files: what it wrote."""

    count: int
    unit: str
    passed_checks: tuple[str, ...]
    files: tuple[Path, ...] = ()


def clear_folder(folder: Path, name_pattern: str) -> Path:
    """The folder, made where it is missing, without the files whose whole name the pattern `names` matches."""
    folder.mkdir(exist_ok=True)
    for file in folder.iterdir():
        if re.fullmatch(name_pattern, file.name) and file.is_file():
            file.unlink()
    return folder
