"""`directsuite demo`: use all four services of a sandbox, and check every response. `demo_steps` has the steps."""

from __future__ import annotations

import asyncio
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import attrs
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import directsuite as ds
from directsuite.cli.command import Command, handle_signals
from directsuite.cli.options import DemoOptions, make_app
from directsuite.cli.output import show_json, show_progress
from directsuite.cli.process import echo_err, require_extra

if TYPE_CHECKING:
    from directsuite.cli.demo_steps import Step

app = make_app("demo", "--messages 20 --documents 2", "--messages 20 --documents 2 --keep")


@app.default
def demo(*, options: DemoOptions = DemoOptions()) -> int:
    """Use all four services of a sandbox, and check their effects.

    The demo starts its own sandbox; with --keep, its page stays available afterwards. Exit status 0 means that every
    check passed.
    """
    require_extra("sandbox")
    from directsuite.cli.demo_steps import STEPS

    return run_demo(options, STEPS)


@attrs.frozen(kw_only=True)
class StepResult:
    """The result of a step. problem: why it failed; None if all checks passed, which are in `checked`."""

    name: str
    title: str
    seconds: float
    count: int | None = None
    unit: str | None = None
    checked: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()
    problem: str | None = None


def run_demo(options: DemoOptions, steps: dict[str, Step]) -> int:
    """Run the steps in a sandbox, and print the report. Return 1 if one failed or --output can't be written, else 0."""
    try:
        options.output.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=options.output):
            output = options.output.resolve()
    except OSError as error:
        reason = error.strerror or error
        echo_err(f"The output folder {options.output} cannot be written: {reason}. Give another --output.")
        return 1

    async def run() -> int:
        from directsuite.cli.demo_steps import open_context

        console, began = Console(stderr=options.json, highlight=False), time.monotonic()
        async with open_context(output, options) as context:
            results = list[StepResult]()
            for name, step in steps.items():
                async with show_progress(step.title, console=console, delay=0.0):
                    results.append(await _run_step(name, step, context))
            seconds = time.monotonic() - began
            if options.json:
                show_json(_report_to_dict(results, output, seconds))
                sys.stdout.flush()
            else:
                _show_report(results, output, seconds, console)
            if options.keep:
                stop = asyncio.Event()
                with handle_signals(lambda _: stop.set(), (signal.SIGINT, signal.SIGTERM)):
                    url = f"{context.sandbox.root_url}/"
                    console.print(f"The sandbox runs until Ctrl-C; its page: [bold]{url}[/]", soft_wrap=True)
                    await stop.wait()
        return 0 if all(each.problem is None for each in results) else 1

    return Command(resume_hint="the same command starts again from the beginning").run(run)


async def _run_step(name: str, step: Step, context: Any) -> StepResult:
    began = time.monotonic()
    try:
        outcome: dict[str, Any] = await step.run(context)
    except Exception as error:  # noqa: BLE001  the report names the step in which any error occurred
        outcome = {"problem": _explain_error(error)}
    context.reset_clock()
    return StepResult(name=name, title=step.title, seconds=time.monotonic() - began, **outcome)


def _explain_error(error: BaseException) -> str:
    if isinstance(error, BaseExceptionGroup):  # of parallel tasks: report the first failure
        return _explain_error(cast("BaseExceptionGroup[BaseException]", error).exceptions[0])
    return str(error) if isinstance(error, AssertionError | ds.DirectSuiteError) else f"{type(error).__name__}: {error}"


def _report_to_dict(results: list[StepResult], output: Path, seconds: float) -> dict[str, Any]:
    failed = [each.name for each in results if each.problem is not None]
    steps = [
        {
            "name": each.name,
            "title": each.title,
            "held": each.problem is None,
            "seconds": round(each.seconds, 3),
            "count": each.count,
            "thing": each.unit,
            "checked": list(each.checked),
            "files": [file.relative_to(output).as_posix() for file in each.files],
            "problem": each.problem,
        }
        for each in results
    ]
    report = {"held": not failed, "version": ds.__version__, "seconds": round(seconds, 3), "output": str(output)}
    return {**report, "failed": failed, "steps": steps}


def _show_report(results: list[StepResult], output: Path, seconds: float, console: Console) -> None:
    title = f"directsuite {ds.__version__}: four services, one sandbox"
    table = Table("Step", "What was done", title=title, title_justify="left")
    for column in ("Count", "Time", "Passed?"):
        table.add_column(column, justify="right", no_wrap=True)
    for each in results:
        checked = "".join(f"\n- {escape(line)}" for line in each.checked)
        count = "" if each.count is None else f"{each.count}\n{each.unit}{'' if each.count == 1 else 's'}"
        passed = "[green]yes[/]" if each.problem is None else "[bold red]no[/]"
        what = f"[bold]{escape(each.title)}[/]{checked}"
        table.add_row(each.name, what, count, f"{each.seconds:.1f} s", passed, end_section=True)
    console.print(table)
    console.print(f"Signed PDFs and messages are in [bold]{escape(str(output))}[/]", soft_wrap=True)
    failed = [each for each in results if each.problem is not None]
    for each in failed:
        console.print(f"[bold red]{each.name} failed[/]: {escape(each.problem or '')}", soft_wrap=True)
    if not failed:
        console.print(f"[green]All checks passed[/], in {seconds:.1f} s.")
