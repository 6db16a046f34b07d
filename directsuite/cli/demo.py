"""`directsuite demo`: use all four services of a sandbox, and check every response. `demo_steps` has the steps."""

from __future__ import annotations

import asyncio
import signal
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from rich.console import Console

import directsuite as ds
from directsuite.cli.command import CommandParameter, Work, handle_signals
from directsuite.cli.options import Flag, convert_path, integer_parameter, make_app, record
from directsuite.cli.output import show_json, show_progress, show_table
from directsuite.cli.process import require_extra, show_line

if TYPE_CHECKING:
    from directsuite.cli.demo_steps import DemoContext, StepResult

    Step = Callable[[DemoContext], Awaitable[StepResult]]

app = make_app("demo", "--messages 20 --documents 2", "--messages 20 --documents 2 --keep")


@record
class DemoOptions:
    """Options of `demo`."""

    output: Annotated[Path, Parameter(converter=convert_path)] = Path("demo-output")
    """The folder for the signed PDFs and the messages."""
    json: Annotated[bool, Flag] = False
    """Print the report as one JSON document instead of text."""
    messages: Annotated[int, integer_parameter(gte=1, lte=10_000)] = 300
    """The number of messages to read from a mailbox."""
    documents: Annotated[int, integer_parameter(gte=1, lte=500)] = 12
    """The number of PDFs to sign."""
    faxes: Annotated[int, integer_parameter(gte=1, lte=1_000)] = 35
    """The number of faxes to list."""
    keep: Annotated[bool, Flag] = False
    """Keep the sandbox and its page running afterwards, until Ctrl-C."""


@app.default
def demo(*, command: CommandParameter, options: DemoOptions = DemoOptions()) -> Work:
    """Use all four services of a sandbox, and check their effects.

    The demo starts its own sandbox; with --keep, its page stays available afterwards. Exit status 0 means that every
    check passed.
    """
    require_extra("sandbox")
    from directsuite.cli.demo_steps import STEPS

    command.resume_hint = "the same command starts again from the beginning"
    options.output.mkdir(parents=True, exist_ok=True)
    return run_demo(options, options.output.resolve(), STEPS)


@asynccontextmanager
async def open_context(output: Path, options: DemoOptions) -> AsyncGenerator[DemoContext]:
    """Start a sandbox in a temporary folder, with a clinic's mailbox, and open a suite for it."""
    from directsuite.cli.demo_steps import CLINIC, DOMAIN, PASSWORD, DemoContext
    from directsuite.sandbox.server import Sandbox

    with tempfile.TemporaryDirectory(prefix="directsuite-demo-") as folder:
        async with Sandbox(Path(folder)) as sandbox, ds.DirectSuite.from_env(sandbox.environment) as suite:
            name, password = (sandbox.environment[f"DIRECTSUITE_LOGIN_{each}"] for each in ("USERNAME", "PASSWORD"))
            await sandbox.add_reseller(name, password, [DOMAIN])
            await sandbox.add_account(CLINIC, PASSWORD)
            counts = {"messages": options.messages, "documents": options.documents, "faxes": options.faxes}
            yield DemoContext(sandbox=sandbox, suite=suite, output=output, **counts)


async def run_demo(options: DemoOptions, output: Path, steps: Mapping[str, Step]) -> int:
    """Run the steps in a sandbox, and print the report. Return 1 if one failed, else 0."""
    console, began = Console(stderr=options.json, highlight=False), time.monotonic()
    async with open_context(output, options) as context:
        reports = list[dict[str, Any]]()
        for name, step in steps.items():
            async with show_progress(name, console=console, delay=0.0):
                reports.append(await run_step(name, step, context))
        seconds = round(time.monotonic() - began, 1)
        failed = [each for each in reports if each["problem"] is not None]
        if options.json:
            report = {"held": not failed, "version": ds.__version__, "seconds": seconds, "output": str(output)}
            show_json(report | {"failed": [each["name"] for each in failed], "steps": reports})
        else:
            members = ("name", "title", "count", "thing", "seconds")
            rows = [[*(each[member] for member in members), "yes" if each["held"] else "NO"] for each in reports]
            show_table(
                ("step", "what was done", "count", "unit", "seconds", "passed"), rows, right=("count", "seconds")
            )
            for each in failed:
                show_line(f"{each['name']} failed: {each['problem']}")
            show_line(f"Signed PDFs and messages are in {output}.")
            if not failed:
                show_line(f"All checks passed, in {seconds} s.")
        sys.stdout.flush()
        if options.keep:
            stop = asyncio.Event()
            with handle_signals(lambda _: stop.set(), (signal.SIGINT, signal.SIGTERM)):
                console.print(f"The sandbox runs until Ctrl-C; its page: {context.sandbox.root_url}/", soft_wrap=True)
                await stop.wait()
    return 1 if failed else 0


async def run_step(name: str, step: Step, context: DemoContext) -> dict[str, Any]:
    """Run a step. Return its report, in which `problem` is the reason why it failed, or None."""
    began = time.monotonic()
    report: dict[str, Any] = {"name": name, "title": step.__doc__, "held": True}
    report |= {"count": None, "thing": None, "files": [], "problem": None}
    try:
        report["count"], report["thing"], files = await step(context)
        report["files"] = [path.relative_to(context.output).as_posix() for path in files]
    except Exception as error:  # noqa: BLE001  the report names the step in which any error occurred
        is_own = isinstance(error, AssertionError | ds.DirectSuiteError)
        report |= {"held": False, "problem": str(error) if is_own else f"{type(error).__name__}: {error}"}
    context.sandbox.clock.set(datetime.now(UTC))  # later signatures must not be in the future
    return report | {"seconds": round(time.monotonic() - began, 3)}
