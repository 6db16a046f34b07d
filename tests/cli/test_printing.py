"""Only a few functions write to the terminal. All others call them, because they filter their output."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from directsuite import cli
from directsuite.cli import process

ROOT = Path(cli.__file__).parent
WRITERS = {
    "guide.show_guide",
    "process.show_line",
    "process.echo_err_line",
    "output.show_json",  # ASCII
    "output.show_table",  # made of printable cells
    "guide._show_markdown",  # a text of the package
    "command.confirm",  # a question without a line break, made printable
    "process.end_line",
}


def list_writers() -> set[str]:
    """Return the functions that write to sys.stdout or sys.stderr, or call print."""
    found = set[str]()
    for file in sorted(ROOT.rglob("*.py")):
        module = ".".join(file.relative_to(ROOT).with_suffix("").parts)
        tree = ast.parse(file.read_text("utf-8"))
        for function in ast.walk(tree):
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            calls = [ast.unparse(each.func) for each in ast.walk(function) if isinstance(each, ast.Call)]
            if any(name == "print" or name.startswith(("sys.stdout.write", "sys.stderr.write")) for name in calls):
                found.add(f"{module}.{function.name}")
    return found


def test_only_filtering_functions_write_to_the_terminal() -> None:
    assert list_writers() - WRITERS == set()


@pytest.mark.exhaustive
@pytest.mark.parametrize("write", [process.show_line, process.echo_err, process.echo_err_line])
@pytest.mark.parametrize(
    "letter", ["\x1b", "\x07", "\r", "\n", "\x7f", "\x9b", "\u2028", "\u202e", "\u2066", "\u200f", "\u061c", "\ud800"]
)
def test_what_a_terminal_acts_upon_is_replaced(write: object, letter: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert callable(write)
    write(f"a{letter}b")
    captured = capsys.readouterr()
    assert (captured.out + captured.err).removeprefix("directsuite: ") == "a\N{REPLACEMENT CHARACTER}b\n"
