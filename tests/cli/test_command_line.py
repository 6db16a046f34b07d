"""Options, exit statuses, and messages about invalid input."""

from __future__ import annotations

import inspect
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from directsuite import __version__
from directsuite.cli import app, main, process
from directsuite.cli.app import build_app
from directsuite.cli.command import Command
from directsuite.errors import AuthenticationError
from tests.cli.conftest import COMMANDS, EXAMPLES


def run_python(program: str, *flags: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *flags, "-c", program]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


COMMON_GROUP = "Options of every command that calls a service"
TOP_COMMANDS = [name for name in COMMANDS if " " not in name]
HEAVY = ("aiohttp", "cattrs", "msgspec", "pikepdf", "pyhanko", "directsuite.suite", "directsuite.sandbox")
OF_OTHER_COMMANDS = ("directsuite.sync", "directsuite.jobs", "directsuite.sandbox", "pikepdf", "keyring")


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]], ids=["none", "help", "h"])
def test_help_lists_the_commands(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 0
    told = capsys.readouterr()
    lines = [line.strip("│ ").split() for line in told.out.splitlines() if line.startswith("│")]
    assert [line[0] for line in lines if not line[0].startswith("--")] == TOP_COMMANDS  # each on one line, in order
    assert told.err == ""


def test_summaries_are_the_first_lines_of_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    commands = [COMMANDS[name].default_command for name in TOP_COMMANDS]
    summaries = [f"{command.__doc__}".splitlines()[0] for command in commands if command is not None]
    assert [each for each in summaries if each not in shown] == []


def test_version_is_the_package_s(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == __version__


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["sned"], "did you mean send?"),
        (["inbox", "lsit"], "did you mean list?"),
        (["demo", "--nonsense"], "There is no option --nonsense"),
        (["send", "--sub", "Ada"], "did you mean --subject?"),
        (["send", "-Ada"], "There is no such option"),
        (["send", "--Ada Example"], "There is no such option"),
        (["Ada Example"], "The commands are send, inbox, "),
        (["inbox", "read", "Ada Example"], "UID: give an integer. See"),
        (["inbox", "list", "--since", "Ada"], "--since: give a date"),
        (["inbox", "list", "--unread=Ada"], "--unread: it takes no value"),
        (["doctor", "--timeout", "Ada"], "--timeout: give a number"),
        (["--install-completion", "--shell", "Ada"], "--shell: give one of bash, fish, "),
        (["patient", "find", "Ada", "--domian=Ada"], "--domain is missing"),
        (["inbox", "read"], "UID is missing"),
        (["send", "--subject"], "--subject has no value. See"),
        (["send", "--body", "-5 mg for Ada"], "--body has no value; write a value that begins with - as --body=…. See"),
        (["--json", "inbox", "list"], "Give the command before its options. The commands are send, "),
        (["send", "--boby=Ada"], "did you mean --body?"),
        (["send", "--password", "Ada"], "did you mean --password-file?"),
        (["fax", "list", "1", "--token=Ada"], "did you mean --token-file?"),
        (["demo", "stray"], "1 argument too many"),
        (["inbox", "save", "1,2"], "UID: give an integer; separate several by spaces."),
        (["inbox", "folders", "Ada"], "put an option's name before its value, and a value with spaces in quotes."),
        (["send", "Dear", "Ada"], "2 arguments too many"),
        (["send", "--subject", "a", "--subject", "Ada"], "--subject is given more than once"),
        (["demo", "--messages", "0"], "--messages: give at least 1"),
        (["demo", "--faxes", "1001"], "--faxes: give at most 1000"),
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
    assert len(told.err.splitlines()) == 1
    assert told.err.startswith("directsuite: ")
    assert "--help`" in told.err
    assert "Ada" not in told.err


@pytest.mark.parametrize(
    ("arguments", "suggestion"),
    [
        (["send", "--nonsense"], ""),
        (["demo", "--massage", "1"], "(did you mean --messages?)"),
        (["inbox", "saved", "1"], "(did you mean save?)"),
        (["sign", "--page", "1"], ""),
        (["send", "--comand", "x"], ""),
    ],
)
def test_distant_command_is_not_suggested(
    arguments: list[str], suggestion: str, capsys: pytest.CaptureFixture[str]
) -> None:
    main(arguments)
    told = capsys.readouterr().err
    assert ("did you mean" in told, suggestion in told) == (bool(suggestion), True)


@pytest.mark.process
@pytest.mark.parametrize(
    ("command", "module"),
    [
        ("send --to a@b.test", "aiohttp"),
        ("sync run --mailbox a@b.test", "directsuite.cli.command"),
        ("sign in --output out --name a", "aiohttp"),
        ("doctor", "cyclopts"),
        ("sandbox --memory", "asyncio"),
        ("inbox list", "directsuite.cli.process"),
    ],
)
def test_interrupt_while_a_command_is_being_imported_says_how_to_go_on(
    command: str, module: str, tmp_path: Path
) -> None:
    program = f"""
import sys
from directsuite.cli import main

class Interrupted:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            sys.meta_path.remove(self)  # Ctrl-C comes once
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupted())
sys.exit(main({command.split()!r}))
"""
    (tmp_path / "in").mkdir()
    result = run_python(program, folder=tmp_path)
    assert (result.returncode, result.stdout) == (130, "")
    assert result.stderr == "directsuite: stopped; nothing was changed: run the same command again\n"


@pytest.mark.process
def test_almost_nothing_is_imported_before_an_interrupt_is_heard() -> None:
    program = f"""
import sys
sys.path[:] = {sys.path!r}
before = set(sys.modules)
from directsuite.cli import main
print(*sorted(sys.modules.keys() - before))
"""
    result = run_python(program, "-S")
    assert result.stderr == ""
    assert result.stdout.split() == ["__future__", "directsuite", "directsuite._version", "directsuite.cli"]


def test_interrupt_during_command_does_not_claim_no_change(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def work() -> int:
        return 0

    def interrupted(_: object) -> int:
        Command().run(work)
        raise KeyboardInterrupt

    monkeypatch.setattr(app, "run", interrupted)
    assert main(["demo"]) == 130
    told = capsys.readouterr()
    assert (told.out, told.err) == ("", "directsuite: interrupted\n")


def test_state_of_a_command_does_not_reach_the_next_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def reject() -> int:
        raise AuthenticationError("DIRECTSUITE_PROFILE", status=403, service="messaging")

    def use_state(_: object) -> int:
        process.state.secret_sources["mailbox_password"] = "the keyring"
        process.state.secret_owners["mailbox_password"] = "alice@direct.example.test"
        process.state.options_of_variables["DIRECTSUITE_PROFILE"] = "--profile"
        return Command().run(reject)

    monkeypatch.setenv("DIRECTSUITE_VERBOSE", "1")
    monkeypatch.setattr(app, "run", use_state)
    assert main(["demo"]) == 3
    first = capsys.readouterr().err
    assert "--profile" in first
    assert "(the password of alice@direct.example.test is from the keyring)" in first

    def leave_state(_: object) -> int:
        return Command().run(reject)

    monkeypatch.setattr(app, "run", leave_state)
    assert main(["demo"]) == 3
    second = capsys.readouterr().err
    assert "DIRECTSUITE_PROFILE" in second
    assert "is from" not in second


@pytest.mark.parametrize(
    "moment", ["asyncio.run", "asyncio.ensure_future"], ids=["before the loop", "at its first step"]
)
def test_interrupt_before_the_first_step_leaves_no_work_unawaited(
    moment: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    works = list[Coroutine[Any, Any, int]]()

    async def work() -> int:
        return 0

    def begin() -> Coroutine[Any, Any, int]:
        works.append(work())
        return works[0]

    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(moment, interrupted)
    assert Command().run(begin) == 130
    assert inspect.getcoroutinestate(works[0]) == inspect.CORO_CLOSED
    assert capsys.readouterr().err == "directsuite: stopped; nothing was changed: run the same command again\n"


def test_internal_error_is_reported_by_place_not_message(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(_: object) -> int:
        raise ValueError("Ada Example")

    monkeypatch.setattr(app, "run", broken)
    assert main(["inbox"]) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("directsuite: This is a bug in directsuite (ValueError at test_command_line.py:")
    assert "Ada" not in told.err


@pytest.mark.process
@pytest.mark.parametrize(
    ("arguments", "status", "others"),
    [
        *(("--help", 0, HEAVY), ("--version", 0, HEAVY), ("--nonsense", 2, HEAVY), ("nonsense", 2, HEAVY)),
        ("inbox list --mailbox x", 2, OF_OTHER_COMMANDS),
    ],
)
def test_no_command_imports_another_one_s_work(arguments: str, status: int, others: tuple[str, ...]) -> None:
    program = f"""
import sys
from directsuite.cli import main
assert main({arguments.split()!r}) == {status}
print("imported", *(name for name in {others!r} if name in sys.modules))
"""
    result = run_python(program)
    assert (result.returncode, result.stdout.splitlines()[-1]) == (0, "imported")
    assert len(result.stderr.splitlines()) == (status == 2)


@pytest.mark.process
@pytest.mark.skipif(sys.platform == "win32", reason="its shells are others")
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_are_taught_the_commands_and_options(shell: str, tmp_path: Path) -> None:
    environment = {**os.environ, "HOME": str(tmp_path), "SHELL": f"/bin/{shell}"}
    for variable in ("BASH_VERSION", "ZSH_VERSION", "FISH_VERSION", "XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        environment.pop(variable, None)
    command = [sys.executable, "-W", "error", "-m", "directsuite", "--install-completion", "--shell", shell]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
    assert (result.returncode, result.stderr) == (0, "")
    assert "Completion script installed to" in result.stdout
    script = "".join(path.read_text() for path in tmp_path.rglob("*directsuite*") if path.is_file())
    assert [word for word in (*TOP_COMMANDS, "body-file", "watch") if word not in script] == []


@pytest.mark.exhaustive(limit=5)
@pytest.mark.parametrize("command", COMMANDS)
def test_usage_names_each_argument_and_groups_have_one_order(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command.split(), "--help"]) == 0
    shown = capsys.readouterr().out
    usage = shown.splitlines()[0]
    subject = COMMANDS[command]
    arguments: Any = subject.assemble_argument_collection() if subject.default_command else ()
    for argument in arguments:
        if argument.index is not None:
            name = argument.name.upper()
            assert re.search(rf"[ \[]{name}(\]| |$)", usage)
            assert (argument.token_count()[1], name.endswith("…")) in ((True, True), (False, False))
    order = ["Arguments", "Parameters", None, "Sandbox to control", COMMON_GROUP, "Commands"]
    groups = re.findall("^╭─ (.*?) ─", shown, flags=re.MULTILINE)
    places = [order.index(each if each in order else None) for each in groups]
    assert places == sorted(places)


@pytest.mark.exhaustive(limit=5)
@pytest.mark.parametrize("command", EXAMPLES)
def test_help_ends_with_examples_that_can_be_given(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command.split(), "--help"]) == 0
    shown = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert len(EXAMPLES[command]) >= 2
    for example in EXAMPLES[command]:
        build_app().parse_args(shlex.split(example)[1:], exit_on_error=False, print_error=False)
        assert example in shown
