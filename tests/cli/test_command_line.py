"""Options, exit statuses, and what is said of what can't be."""

from __future__ import annotations

import subprocess
import sys

import pytest

from directsuite import __version__
from directsuite.cli import app, main
from directsuite.sandbox.serving import DEFAULT_FOLDER, DEFAULT_PORT

HEAVY = ("aiohttp", "cattrs", "msgspec", "pikepdf", "pyhanko", "directsuite.suite", "directsuite.sandbox")


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]], ids=["none", "help", "h"])
def test_help_lists_the_commands(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 0
    told = capsys.readouterr()
    assert "demo" in told.out
    assert "sandbox" in told.out
    assert told.err == ""


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("demo", ["--output", "--json", "--messages", "--documents", "--faxes"]),
        ("sandbox", ["--port", "--host", "--data", "--memory"]),
    ],
)
def test_help_of_a_command_lists_its_options(
    command: str, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "--help"]) == 0
    told = capsys.readouterr().out
    assert [option for option in options if option not in told] == []
    assert "--no-" not in told


def test_help_tells_the_sandbox_s_own_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sandbox", "--help"]) == 0
    told = capsys.readouterr().out
    assert str(DEFAULT_PORT) in told
    assert str(DEFAULT_FOLDER) in told


def test_version_is_the_package_s(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == __version__


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["nonsense"], "nonsense"),
        (["demo", "--nonsense"], "--nonsense"),
        (["demo", "stray"], "stray"),
        (["demo", "--messages", "0"], "--messages"),
        (["demo", "--messages", "many"], "--messages"),
        (["demo", "--documents", "-1"], "--documents"),
        (["demo", "--faxes", "1001"], "--faxes"),
        (["sandbox", "--port", "65536"], "--port"),
        (["sandbox", "--port"], "--port"),
        (["sandbox", "--memory", "--data", "folder"], "--data"),
    ],
)
def test_bad_usage_is_named_on_stderr_with_status_2(
    arguments: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    told = capsys.readouterr()
    assert named in told.err
    assert told.out == ""


def test_interrupt_ends_with_130_and_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(app, "run", interrupted)
    assert main(["demo"]) == 130
    told = capsys.readouterr()
    assert (told.out, told.err) == ("", "\ndirectsuite: interrupted\n")


def test_help_imports_neither_the_client_nor_the_sandbox() -> None:
    program = f"""
import sys
from directsuite.cli import main
assert main(["--help"]) == 0
sys.exit(", ".join(name for name in {HEAVY!r} if name in sys.modules))
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=20, check=False)
    assert ended.stderr.strip() == ""


def test_module_runs_as_the_command_does() -> None:
    command = [sys.executable, "-W", "error", "-m", "directsuite.cli", "--version"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert (ended.returncode, ended.stdout.strip(), ended.stderr) == (0, __version__, "")
