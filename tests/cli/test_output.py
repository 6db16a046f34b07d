"""Tables and JSON on stdout with complete, printable lines; progress bars on a terminal, after a second."""

from __future__ import annotations

import ast
import asyncio
import io
import json
import sys
import time
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from directsuite import cli
from directsuite.cli import process
from directsuite.cli.output import Unit, format_cell, model_to_dict, show_json, show_progress, show_table, show_text
from directsuite.cli.process import make_printable
from directsuite.registration.models import DirectUser, UserStateType
from directsuite.wire.models import Secret


@given(st.text())
def test_nothing_is_left_that_a_terminal_acts_upon(text: str) -> None:
    shown = make_printable(text)
    assert len(shown) == len(text)
    assert all(letter.isprintable() or letter not in "\x1b\x07\x08\r\n\t\x9b\u2028\u202e" for letter in shown)
    shown.encode()  # no half of a surrogate pair
    assert make_printable(shown) == shown


@pytest.mark.parametrize("text", ["Grüße", "می‌خواهم", "李小龍", "👩‍⚕️", "a b"])
def test_names_stay_what_they_are(text: str) -> None:
    assert make_printable(text) == text


def test_row_is_a_line_however_long_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    show_table(("uid", "subject"), [(1, "x" * 900), (22, "[bold]a\nb[/]"), (3, None)], right=("uid",))
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["uid  subject", f"  1  {'x' * 900}", " 22  [bold]a\ufffdb[/]", "  3"]


def test_lines_of_a_text_stay_lines(capsys: pytest.CaptureFixture[str]) -> None:
    show_text("a\tb\r\n\r\n\x1b[1mc")
    assert capsys.readouterr().out == "a       b\n\n\ufffd[1mc\n"


def test_json_is_ascii_and_has_moments_in_iso_8601(capsys: pytest.CaptureFixture[str]) -> None:
    show_json({"at": datetime(2026, 5, 1, 12, tzinfo=UTC), "on": date(2026, 5, 1), "name": "Grüße \ud800"})
    told = capsys.readouterr().out
    assert told.isascii()
    assert json.loads(told) == {"at": "2026-05-01T12:00:00+00:00", "on": "2026-05-01", "name": "Grüße \ud800"}


def test_secret_of_a_model_is_left_out() -> None:
    user = DirectUser(username="ada", endpoint_password=Secret("hunter2"), extra={"new": UserStateType.ACTIVATED})
    members = model_to_dict(user)
    assert (members["username"], members["extra"]) == ("ada", {"new": "activated"})
    assert "hunter2" not in json.dumps(members)


def test_terminal_gets_a_table_of_its_width(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "20")
    show_table(("subject",), [("x" * 50,)])
    assert all(line.count("x") <= 20 for line in capsys.readouterr().out.splitlines())


ROWS = [
    (
        "bob@direct.example.test",
        datetime(2026, 5, 1, 12, tzinfo=UTC),
        "a few words",
        "<1234567890@direct.example.test>",
    ),
    ("carol@a-very-long-domain.example.test", None, "delivered " * 5, "<abc@direct.example.test>"),
]


def set_terminal_width(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    size = {"COLUMNS": str(columns), "LINES": "25"}
    for name, value in {"TTY_COMPATIBLE": "1", "NO_COLOR": "1", "TERM": "dumb", **size}.items():
        monkeypatch.setenv(name, value)


def render_table(columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> list[str]:
    set_terminal_width(columns, monkeypatch)
    show_table(("to", "sent", "details", "SMTP id"), ROWS, no_wrap=("to", "SMTP id"))
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("columns", [40, 60, 80, 100, 120, 200])
def test_copyable_values_are_never_wrapped(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = render_table(columns, monkeypatch, capsys)
    for address, _, words, smtp_id in ROWS:
        assert any(address in line for line in lines)
        assert any(smtp_id in line for line in lines)
        assert " ".join(" ".join(lines).split()).count(words.split()[0]) >= words.count(words.split()[0])
    assert [line for line in lines if len(line) > columns and "@" not in line] == []


def test_what_does_not_fit_stands_below_its_row_with_its_title(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    header, first, below, *_ = render_table(80, monkeypatch, capsys)
    assert header.split()[0:2] == ["to", "sent"]
    assert "SMTP id" not in header
    assert first.startswith("bob@direct.example.test  ")
    assert below == "    SMTP id: <1234567890@direct.example.test>"


def test_value_of_several_rows_is_above_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    set_terminal_width(40, monkeypatch)
    rows = [("bob@direct.example.test", "<1234567890@direct.example.test>"), ("ann@direct.example.test", "")]
    show_table(("to", "SMTP id"), rows, no_wrap=("to", "SMTP id"), above=("SMTP id",))
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["to", "SMTP id: <1234567890@direct.example.test>", *(to for to, _ in rows)]


@pytest.mark.skipif(sys.platform == "win32", reason="it has no tzset")
@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/New_York"])
def test_moment_at_the_ends_of_time_is_shown_as_it_came(monkeypatch: pytest.MonkeyPatch, zone: str) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        for value in (datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)):
            assert format_cell(value).startswith(f"{value.year:04}-")
        assert format_cell(datetime(2026, 5, 1, 12, tzinfo=UTC)) in (
            "2026-05-01 21:00:00 JST",
            "2026-05-01 08:00:00 EDT",
        )
    finally:
        monkeypatch.undo()
        time.tzset()


def make_terminal() -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=100, color_system=None)


async def let_timer_fire() -> None:
    for _ in range(2):
        await asyncio.sleep(0)


def get_output(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize(("unit", "words"), [("pieces", ("3/4", "0:")), ("bytes", ("3/4 bytes", "0:"))])
async def test_terminal_sees_counts_and_remaining_time(unit: Unit, words: tuple[str, ...]) -> None:
    console = make_terminal()
    async with show_progress("signing", unit=unit, total=4, console=console, delay=0.0) as bar:
        await let_timer_fire()
        bar.update(1, 4)
        bar.advance(2)
    told = get_output(console)
    assert "signing" in told
    assert [word for word in words if word not in told] == []


@pytest.mark.parametrize(("is_terminal", "delay"), [(True, 1.0), (False, 0.0)], ids=["short operation", "no terminal"])
async def test_progress_is_shown_after_a_second_and_only_on_a_terminal(is_terminal: bool, delay: float) -> None:
    console = Console(file=io.StringIO(), force_terminal=is_terminal)
    async with show_progress("signing", unit="pieces", console=console, delay=delay) as bar:
        bar.advance()
        bar.update(2, None)
        await let_timer_fire()
    assert get_output(console) == ""


async def test_terminal_is_left_as_it_was_when_it_goes_wrong() -> None:
    console = make_terminal()

    async def fail() -> None:
        async with show_progress("[b]signing", console=console, delay=0.0):
            await let_timer_fire()
            raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        await fail()
    told = get_output(console)
    assert "[b]signing" in told
    assert told.count("\x1b[?25l") == told.count("\x1b[?25h") == 1  # the cursor is hidden, and shown again


SENTENCE = (
    "--to (INBOX.Archive): the mailbox has no such folder. Give --retry-the-same-folder or run `directsuite inbox "
    "folders` to see the folders, such as https://mail.example.org/a-very-long-address-of-a-service-without-any-space."
)


@pytest.mark.parametrize("columns", [20, 33, 34, 35, 40, 79, 80, 200, 500])
def test_terminal_gets_lines_that_break_only_between_words(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    process.echo_err(SENTENCE)
    lines = capsys.readouterr().err.splitlines()
    is_too_long = columns < len("`directsuite inbox folders`")
    assert " ".join(lines) == f"directsuite: {SENTENCE.replace('`', '') if is_too_long else SENTENCE}"
    assert [
        line for line in lines if len(line) > columns and " " in line.replace("directsuite inbox folders", "")
    ] == []
    assert any("directsuite inbox folders" in line for line in lines)
    assert (len(lines) == 1) == (columns > len(SENTENCE))


@pytest.mark.parametrize("columns", [60, 79, 80, 81, 82])
def test_command_longer_than_a_line_has_no_backquotes(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    command = f"directsuite status '<{'0' * 36}@direct.example.test>'"
    process.echo_err(f"The message was sent. `{command}` shows its delivery.")
    assert capsys.readouterr().err.splitlines() == [
        "directsuite: The message was sent.",
        f"`{command}`" if columns >= 81 else command,
        "shows its delivery.",
    ]


def test_message_that_is_not_on_a_terminal_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    process.echo_err(SENTENCE)
    assert capsys.readouterr().err == f"directsuite: {SENTENCE}\n"


ROOT = Path(cli.__file__).parent
WRITERS = {
    "guide.show_guide",
    "process.show_line",
    "process.echo_err",  # through `wrap_on_terminal`
    "process.echo_err_line",
    "output.show_json",  # ASCII
    "output.show_table",  # made of printable cells
    "guide._show_markdown",  # a text of the package
    "command.confirm",  # a question without a line break, made printable
    "process.end_line",
}


def test_only_filtering_functions_write_to_the_terminal() -> None:
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
    assert found - WRITERS == set()


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
