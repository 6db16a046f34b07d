"""The demo's report: a table for people, a JSON document for machines."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
from rich.console import Group
from rich.markup import escape
from rich.table import Table

from directsuite._version import __version__

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from directsuite.cli.demo.outcome import Done
    from directsuite.cli.demo.steps import StepResult


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


def document(report: Report) -> str:
    """The report as one JSON document. seconds: wall time; files: relative to `output`."""
    members = {
        "held": report.held,
        "version": __version__,
        "seconds": round(report.seconds, 3),
        "output": str(report.output),
        "failed": [result.step.name for result in report.failed],
        "steps": [_members(result, report.output) for result in report.results],
    }
    return json.dumps(members, indent=2)


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
