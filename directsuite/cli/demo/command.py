"""`directsuite demo`: the list of steps, their execution, and the report."""

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
from directsuite.cli.command import Command, handle_signals
from directsuite.cli.demo import DemoOptions
from directsuite.cli.demo.context import CheckFailedError, DemoContext, StepOutcome, open_context, show_step_progress
from directsuite.cli.demo.services import provision_patient, read_faxes, read_mailbox, send_message, sign_documents
from directsuite.cli.errors import exit_for_error
from directsuite.cli.output import show_json
from directsuite.cli.process import echo_err
from directsuite.errors import DirectSuiteError
from directsuite.sandbox.server import Sandbox


@attrs.frozen
class DemoStep:
    """A step of the demo. name: key in the JSON report. title: text for people."""

    name: str
    title: str
    run: Callable[[DemoContext], Awaitable[StepOutcome]]


STEPS = (
    DemoStep("patient", "Provision a patient", provision_patient),
    DemoStep("message", "Send a message, follow its delivery", send_message),
    DemoStep("mailbox", "Read a mailbox", read_mailbox),
    DemoStep("signing", "Sign PDFs", sign_documents),
    DemoStep("fax", "List faxes", read_faxes),
)


@attrs.frozen(kw_only=True)
class StepResult:
    """The result of a step. outcome: None if the step failed. problem: the reason why it failed; None if it passed."""

    step: DemoStep
    seconds: float
    outcome: StepOutcome | None = None
    problem: str | None = None

    @property
    def passed(self) -> bool:
        """True if all checks of the step passed."""
        return self.problem is None


def run_demo(options: DemoOptions, steps: Sequence[DemoStep] = STEPS) -> int:
    """Run the steps, and print the report. Return 0 if all passed, 1 if one failed or the demo could not start.

    With `options.json`, progress is shown on stderr instead of stdout.
    """
    try:
        folder = prepare_output_folder(options.output)
    except OSError as error:
        return _report_failure(
            f"The output folder {options.output} cannot be written: {error.strerror or error}. Give another --output."
        )

    async def run() -> int:
        """Run the steps."""
        console = Console(stderr=options.json, highlight=False)
        async with AsyncExitStack() as staying:
            with show_step_progress(console) as progress:
                try:
                    context = await staying.enter_async_context(open_context(folder, options, progress))
                except OSError as error:
                    if error.errno == errno.ENOSPC:
                        raise
                    return _report_failure(f"The sandbox cannot start: {error}.")
                report = await run_steps(context, steps)
            if options.json:
                show_json(report_to_dict(report))
                sys.stdout.flush()
            else:
                show_report(report, console)
            if options.keep:
                await _wait_for_signal(context.sandbox, console)
        return 0 if report.passed else 1

    return Command(resume_hint="the same command starts again from the beginning").run(run)


async def run_steps(context: DemoContext, steps: Sequence[DemoStep] = STEPS) -> DemoReport:
    """Run the steps in order. If a step fails, the others are still run."""
    began = time.monotonic()
    results: list[StepResult] = []
    for step in steps:
        context.progress.begin_step(step.title)
        results.append(await run_step(step, context))
    return DemoReport(results=results, output=context.output, seconds=time.monotonic() - began)


async def _wait_for_signal(sandbox: Sandbox, console: Console) -> None:
    stop = asyncio.Event()
    with handle_signals(lambda _: stop.set(), (signal.SIGINT, signal.SIGTERM)):
        console.print(f"The sandbox runs until Ctrl-C; its page: [bold]{sandbox.root_url}/[/]", soft_wrap=True)
        await stop.wait()


def prepare_output_folder(folder: Path) -> Path:
    """Create the folder if it is missing. Return its absolute path. Raises OSError if it is not writable."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        return folder.resolve()


def _report_failure(text: str) -> int:
    echo_err(text)
    return 1


async def run_step(step: DemoStep, context: DemoContext) -> StepResult:
    """Run one step, and return its result. An exception becomes its `problem`."""
    began = time.monotonic()
    outcome: StepOutcome | None = None
    problem: str | None = None
    try:
        outcome = await step.run(context)
    except Exception as error:  # noqa: BLE001  the report names the step in which any error occurred
        problem = _explain_error(error)
    context.reset_clock()
    return StepResult(step=step, seconds=time.monotonic() - began, outcome=outcome, problem=problem)


def _explain_error(error: Exception) -> str:
    if isinstance(error, ExceptionGroup):  # of parallel tasks: report the first failure
        return _explain_error(cast("ExceptionGroup[Exception]", error).exceptions[0])
    if isinstance(error, CheckFailedError | DirectSuiteError):
        return str(error)
    if isinstance(error, OSError):
        return exit_for_error(error)[1]
    return f"{type(error).__name__}: {error}"


@attrs.frozen(kw_only=True)
class DemoReport:
    """The results of all steps. output: the folder with the files. seconds: total duration."""

    results: Sequence[StepResult]
    output: Path
    seconds: float

    @property
    def passed(self) -> bool:
        """True if every step passed."""
        return all(result.passed for result in self.results)

    @property
    def failed(self) -> list[StepResult]:
        """The steps that failed."""
        return [result for result in self.results if not result.passed]


def report_to_dict(report: DemoReport) -> Mapping[str, Any]:
    """Return the report for JSON. The paths in `files` are relative to `output`."""
    return {
        "held": report.passed,
        "version": __version__,
        "seconds": round(report.seconds, 3),
        "output": str(report.output),
        "failed": [result.step.name for result in report.failed],
        "steps": [_result_to_dict(result, report.output) for result in report.results],
    }


def show_report(report: DemoReport, console: Console) -> None:
    """Print the table of the steps, the failures, and the folder of the files."""
    table = Table(title=f"directsuite {__version__}: four services, one sandbox", title_justify="left", expand=False)
    table.add_column("Step", no_wrap=True)
    table.add_column("What was done")
    table.add_column("Count", justify="right", no_wrap=True)
    table.add_column("Time", justify="right", no_wrap=True)
    table.add_column("Passed?", justify="center", no_wrap=True)
    for result in report.results:
        table.add_row(
            result.step.name,
            _render_step(result),
            "" if result.outcome is None else _format_count(result.outcome),
            f"{result.seconds:.1f} s",
            "[green]yes[/]" if result.passed else "[bold red]no[/]",
            end_section=True,
        )
    console.print(table)
    where = f"Signed PDFs and messages are in [bold]{escape(str(report.output))}[/]"
    console.print(where, soft_wrap=True)
    if report.passed:
        console.print(f"[green]All checks passed[/], in {report.seconds:.1f} s.")
        return
    for result in report.failed:
        text = f"[bold red]{result.step.name} failed[/]: {escape(result.problem or '')}"
        console.print(text, soft_wrap=True)


def _render_step(result: StepResult) -> RenderableType:
    checked = Table.grid(padding=(0, 1))
    for line in () if result.outcome is None else result.outcome.passed_checks:
        checked.add_row("-", escape(line))
    return Group(f"[bold]{escape(result.step.title)}[/]", checked)


def _format_count(outcome: StepOutcome) -> str:
    return f"{outcome.count}\n{outcome.unit}{'' if outcome.count == 1 else 's'}"


def _result_to_dict(result: StepResult, output: Path) -> dict[str, Any]:
    outcome = result.outcome
    return {
        "name": result.step.name,
        "title": result.step.title,
        "held": result.passed,
        "seconds": round(result.seconds, 3),
        "count": None if outcome is None else outcome.count,
        "thing": None if outcome is None else outcome.unit,
        "checked": [] if outcome is None else list(outcome.passed_checks),
        "files": [] if outcome is None else [file.relative_to(output).as_posix() for file in outcome.files],
        "problem": result.problem,
    }
