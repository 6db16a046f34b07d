"""The demo from its options to its exit status: the table of the steps, what is seen while they run, and the report."""

from __future__ import annotations

import asyncio
import errno
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, cast

import attrs
from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.table import Table

from directsuite._version import __version__
from directsuite.cli.command import Command, signals_call
from directsuite.cli.demo.scene import Done, NotHeldError, Scene, progress_on, scene
from directsuite.cli.demo.services import provision_patient, read_mailbox, send_message, sign_documents, walk_faxes
from directsuite.cli.errors import ending_of
from directsuite.cli.options import DemoOptions
from directsuite.cli.output import show_json
from directsuite.cli.process import say
from directsuite.errors import DirectSuiteError
from directsuite.sandbox.server import Sandbox


@attrs.frozen
class Step:
    """One row of the table. name: for machines; title: for people."""

    name: str
    title: str
    run: Callable[[Scene], Awaitable[Done]]


STEPS = (
    Step("patient", "Provision a patient", provision_patient),
    Step("message", "Send a message, follow its delivery", send_message),
    Step("mailbox", "Read a mailbox", read_mailbox),
    Step("signing", "Sign PDFs", sign_documents),
    Step("fax", "Walk fax records", walk_faxes),
)


@attrs.frozen(kw_only=True)
class StepResult:
    """What became of a step. seconds: how long it took. problem: why it did not hold, None where it did."""

    step: Step
    seconds: float
    done: Done | None = None
    problem: str | None = None

    @property
    def held(self) -> bool:
        """Whether all that the step checked came out as it should."""
        return self.problem is None


def demonstrate(options: DemoOptions, steps: Sequence[Step] = STEPS) -> int:
    """Run the steps and report; 0 where all of them held, 1 where not, or where the demo cannot begin.

    The report goes to stdout. Progress goes to stderr with `json`, so that stdout holds the document alone.
    """
    try:
        folder = writable(options.output)
    except OSError as error:
        return _cannot(
            f"the output folder {options.output} cannot be written: {error.strerror or error}; give another --output"
        )

    async def run() -> int:
        """The exit status."""
        console = Console(stderr=options.json, highlight=False)
        async with AsyncExitStack() as staying:
            with progress_on(console) as progress:
                try:
                    stage = await staying.enter_async_context(scene(folder, options, progress))
                except OSError as error:
                    if error.errno == errno.ENOSPC:
                        raise
                    return _cannot(f"the sandbox cannot start: {error}")
                report = await perform(stage, steps)
            if options.json:
                show_json(document(report))
                sys.stdout.flush()
            else:
                show(report, console)
            if options.keep:
                await _keep_running(stage.sandbox, console)
        return 0 if report.held else 1

    return Command(resume="give the same command again: it begins anew").run(run)


async def perform(stage: Scene, steps: Sequence[Step] = STEPS) -> Report:
    """Run the steps one after the other. A step that fails does not keep others from it."""
    began = time.monotonic()
    results: list[StepResult] = []
    for step in steps:
        stage.progress.begin(step.title)
        results.append(await run_step(step, stage))
    return Report(results=results, output=stage.output, seconds=time.monotonic() - began)


async def _keep_running(sandbox: Sandbox, console: Console) -> None:
    """Leave the sandbox to whoever opens its page, until SIGINT or SIGTERM comes: both are meant to end it."""
    stop = asyncio.Event()
    with signals_call(lambda _: stop.set(), (signal.SIGINT, signal.SIGTERM)):
        console.print(f"The sandbox runs until Ctrl-C; its page: [bold]{sandbox.root_url}/[/]", soft_wrap=True)
        await stop.wait()


def writable(folder: Path) -> Path:
    """The folder, made where it is missing, as an absolute path. Raises OSError where it can't be written to."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        return folder.resolve()


def _cannot(text: str) -> int:
    say(text)
    return 1


async def run_step(step: Step, scene: Scene) -> StepResult:
    """Run one step; what goes wrong in it is in its result."""
    began = time.monotonic()
    done: Done | None = None
    problem: str | None = None
    try:
        done = await step.run(scene)
    except Exception as error:  # noqa: BLE001  whatever it is, the report names the step that met it
        problem = _explanation(error)
    scene.return_to_present()
    return StepResult(step=step, seconds=time.monotonic() - began, done=done, problem=problem)


def _explanation(error: Exception) -> str:
    if isinstance(error, ExceptionGroup):  # tasks that ran side by side: the first that failed speaks for them
        return _explanation(cast("ExceptionGroup[Exception]", error).exceptions[0])
    if isinstance(error, NotHeldError | DirectSuiteError):
        return str(error)
    if isinstance(error, OSError):
        return ending_of(error)[1]
    return f"{type(error).__name__}: {error}"


@attrs.frozen(kw_only=True)
class Report:
    """All steps' results, and where the files are."""

    results: Sequence[StepResult]
    output: Path
    seconds: float

    @property
    def held(self) -> bool:
        """Whether every step held."""
        return all(result.held for result in self.results)

    @property
    def failed(self) -> list[StepResult]:
        """The steps that did not hold."""
        return [result for result in self.results if not result.held]


def document(report: Report) -> Mapping[str, Any]:
    """Return the report for JSON. seconds: wall time; files: relative to `output`."""
    return {
        "held": report.held,
        "version": __version__,
        "seconds": round(report.seconds, 3),
        "output": str(report.output),
        "failed": [result.step.name for result in report.failed],
        "steps": [_members(result, report.output) for result in report.results],
    }


def show(report: Report, console: Console) -> None:
    """Print the table, what failed, and where the files are."""
    table = Table(title=f"directsuite {__version__}: four services, one sandbox", title_justify="left", expand=False)
    table.add_column("Step", no_wrap=True)
    table.add_column("What was done")
    table.add_column("Count", justify="right", no_wrap=True)
    table.add_column("Time", justify="right", no_wrap=True)
    table.add_column("Held?", justify="center", no_wrap=True)
    for result in report.results:
        table.add_row(
            result.step.name,
            _description(result),
            "" if result.done is None else _count(result.done),
            f"{result.seconds:.1f} s",
            "[green]yes[/]" if result.held else "[bold red]no[/]",
            end_section=True,
        )
    console.print(table)
    where = f"Signed PDFs and messages are in [bold]{escape(str(report.output))}[/]"
    console.print(where, soft_wrap=True)
    if report.held:
        console.print(f"[green]All of it held[/], in {report.seconds:.1f} s.")
        return
    for result in report.failed:
        text = f"[bold red]{result.step.name} did not hold[/]: {escape(result.problem or '')}"
        console.print(text, soft_wrap=True)


def _description(result: StepResult) -> RenderableType:
    """The step's title, and below it what held, as a list whose lines hang."""
    checked = Table.grid(padding=(0, 1))
    for line in () if result.done is None else result.done.checked:
        checked.add_row("-", escape(line))
    return Group(f"[bold]{escape(result.step.title)}[/]", checked)


def _count(done: Done) -> str:
    return f"{done.count}\n{done.thing}{'' if done.count == 1 else 's'}"


def _members(result: StepResult, output: Path) -> dict[str, Any]:
    done = result.done
    return {
        "name": result.step.name,
        "title": result.step.title,
        "held": result.held,
        "seconds": round(result.seconds, 3),
        "count": None if done is None else done.count,
        "thing": None if done is None else done.thing,
        "checked": [] if done is None else list(done.checked),
        "files": [] if done is None else [file.relative_to(output).as_posix() for file in done.files],
        "problem": result.problem,
    }
