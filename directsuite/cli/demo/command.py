"""The demo from its options to its exit status."""

from __future__ import annotations

import errno
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from directsuite.cli.command import Command
from directsuite.cli.demo.progress import Progress, progress_on
from directsuite.cli.demo.report import Report, document, show
from directsuite.cli.demo.scene import Sizes, scene
from directsuite.cli.demo.steps import STEPS, Step, StepResult, run_step

if TYPE_CHECKING:
    from collections.abc import Sequence


def demonstrate(output: Path, sizes: Sizes, *, as_json: bool, steps: Sequence[Step] = STEPS) -> int:
    """Run the steps and report; 0 where all of them held, 1 where not, or where the demo cannot begin.

    The report goes to stdout. Progress goes to stderr with `as_json`, so that stdout holds the document alone.
    """
    try:
        folder = writable(output)
    except OSError as error:
        return _cannot(
            f"the output folder {output} cannot be written: {error.strerror or error}; give another --output"
        )

    async def run() -> int:
        """The exit status."""
        console = Console(stderr=as_json, highlight=False)
        try:
            with progress_on(console) as progress:
                report = await perform(folder, sizes, progress, steps)
        except OSError as error:
            if error.errno == errno.ENOSPC:
                raise
            return _cannot(f"the sandbox cannot start: {error}")
        if as_json:
            sys.stdout.write(f"{document(report)}\n")
        else:
            show(report, console)
        return 0 if report.held else 1

    return Command(resume="give the same command again: it begins anew").run(run)


async def perform(output: Path, sizes: Sizes, progress: Progress, steps: Sequence[Step] = STEPS) -> Report:
    """Run the steps one after the other, on a sandbox of their own. A step that fails does not keep others from it.

    Raises OSError where the sandbox cannot start.
    """
    began = time.monotonic()
    results: list[StepResult] = []
    async with scene(output, sizes, progress) as stage:
        for step in steps:
            progress.begin(step.title)
            results.append(await run_step(step, stage))
    return Report(results=results, output=output, seconds=time.monotonic() - began)


def writable(folder: Path) -> Path:
    """The folder, made where it is missing, as an absolute path. Raises OSError where it can't be written to."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        return folder.resolve()


def _cannot(text: str) -> int:
    sys.stderr.write(f"directsuite: {text}\n")
    return 1
