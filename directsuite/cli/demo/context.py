"""The context of the demo's steps: a temporary sandbox, a suite for it, the output folder, the progress."""

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

from directsuite.cli.demo import DemoOptions
from directsuite.sandbox.server import Sandbox
from directsuite.suite import DirectSuite

DOMAIN = "direct.example.test"
CLINIC = f"clinic@{DOMAIN}"
PATIENT_USERNAME = "ada"
PATIENT = f"{PATIENT_USERNAME}@{DOMAIN}"
MAILBOX_PASSWORD = "sandbox"  # noqa: S105  of a mailbox that exists only during the demo


class CheckFailedError(Exception):
    """A check of the demo failed. The text describes the difference."""


def check_condition(condition: object, message: str) -> None:
    """Raise CheckFailedError unless the condition is true."""
    if not condition:
        raise CheckFailedError(message)


class StepProgress(Protocol):
    """Receives the progress of the steps."""

    def begin_step(self, title: str) -> None:
        """Start a step. The number of its items is set later."""
        ...

    def set_total(self, total: int) -> None:
        """Set the number of items of the current step."""
        ...

    def advance(self, count: int = 1) -> None:
        """Record that `count` more items are done."""
        ...


class NoStepProgress:
    """Shows no progress."""

    def begin_step(self, title: str) -> None:
        """Do nothing."""

    def set_total(self, total: int) -> None:
        """Do nothing."""

    def advance(self, count: int = 1) -> None:
        """Do nothing."""


class BarStepProgress:
    """Shows a bar for each step."""

    def __init__(self, bars: Bars) -> None:
        self._bars = bars
        self._task: TaskID | None = None

    def begin_step(self, title: str) -> None:
        """Finish the bar of the previous step, and add one."""
        self._finish_step()
        self._task = self._bars.add_task(title, total=None)

    def set_total(self, total: int) -> None:
        """Set the length of the bar."""
        if self._task is not None:
            self._bars.update(self._task, total=total)

    def advance(self, count: int = 1) -> None:
        """Advance the bar."""
        if self._task is not None:
            self._bars.advance(self._task, count)

    def _finish_step(self) -> None:
        if self._task is not None:
            self._bars.stop_task(self._task)


@contextmanager
def show_step_progress(console: Console) -> Generator[StepProgress]:
    """Yield a progress that shows bars if the console is a terminal."""
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
    """A sandbox, and a suite for it. output: the folder for files."""

    sandbox: Sandbox
    suite: DirectSuite
    output: Path
    options: DemoOptions
    progress: StepProgress

    def advance_clock(self, **span: float) -> None:
        """Advance the sandbox's clock. The arguments are those of timedelta."""
        self.sandbox.clock.advance(timedelta(**span))

    def reset_clock(self) -> None:
        """Set the sandbox's clock to the current time: later signatures must not be in the future."""
        self.sandbox.clock.set(datetime.now(UTC))


@asynccontextmanager
async def open_context(output: Path, options: DemoOptions, progress: StepProgress) -> AsyncGenerator[DemoContext]:
    """Start a sandbox in a temporary folder, with a clinic's mailbox, and open a suite for it."""
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
    """The outcome of a step that passed.

    unit: name of a counted item, in the singular. passed_checks: a short description of each check.
    """

    count: int
    unit: str
    passed_checks: tuple[str, ...]
    files: tuple[Path, ...] = ()


def clear_folder(folder: Path, name_pattern: str) -> Path:
    """Create the folder if it is missing, and delete files whose complete name matches the pattern."""
    folder.mkdir(exist_ok=True)
    for file in folder.iterdir():
        if re.fullmatch(name_pattern, file.name) and file.is_file():
            file.unlink()
    return folder
