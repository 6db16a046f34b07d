"""A table or JSON on stdout, every line whole and printable; bars on a terminal, after a second."""

from __future__ import annotations

import asyncio
import io
import json
import re
import sys
import time
from datetime import UTC, date, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from directsuite.cli.output import Unit, cell, members_of, progress, show_json, show_table, show_text
from directsuite.cli.process import printable
from directsuite.registration.models import DirectUser, UserStateType
from directsuite.secret import Secret


@given(st.text())
def test_nothing_is_left_that_a_terminal_acts_upon(text: str) -> None:
    shown = printable(text)
    assert len(shown) == len(text)
    assert all(letter.isprintable() or letter not in "\x1b\x07\x08\r\n\t\x9b\u2028\u202e" for letter in shown)
    shown.encode()  # no half of a pair
    assert printable(shown) == shown


@pytest.mark.parametrize("text", ["Grüße", "می‌خواهم", "李小龍", "👩‍⚕️", "a b"])
def test_names_stay_what_they_are(text: str) -> None:
    assert printable(text) == text


def test_a_row_is_a_line_however_long_it_is(capsys: pytest.CaptureFixture[str]) -> None:
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


def test_a_secret_of_a_model_is_left_out() -> None:
    user = DirectUser(username="ada", endpoint_password=Secret("hunter2"), extra={"new": UserStateType.ACTIVATED})
    members = members_of(user)
    assert (members["username"], members["extra"]) == ("ada", {"new": "activated"})
    assert "hunter2" not in json.dumps(members)


def test_a_terminal_gets_a_table_of_its_width(
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


def listed(columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> list[str]:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", str(columns))
    show_table(("to", "sent", "details", "SMTP id"), ROWS, whole=("to", "SMTP id"))
    return re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).splitlines()


@pytest.mark.parametrize("columns", [40, 60, 80, 100, 120, 200])
def test_what_is_copied_is_never_broken(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = listed(columns, monkeypatch, capsys)
    for address, _, words, smtp_id in ROWS:
        assert any(address in line for line in lines)
        assert any(smtp_id in line for line in lines)
        assert " ".join(" ".join(lines).split()).count(words.split()[0]) >= words.count(words.split()[0])
    assert [line for line in lines if len(line) > columns and "@" not in line] == []


def test_what_does_not_fit_stands_below_its_row_with_its_title(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    header, first, below, *_ = listed(80, monkeypatch, capsys)
    assert header.split()[0:2] == ["to", "sent"]
    assert "SMTP id" not in header
    assert first.startswith("bob@direct.example.test  ")
    assert below == "    SMTP id: <1234567890@direct.example.test>"


@pytest.mark.skipif(sys.platform == "win32", reason="it has no tzset")
@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/New_York"])
def test_a_moment_at_the_ends_of_time_is_shown_as_it_came(monkeypatch: pytest.MonkeyPatch, zone: str) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        for value in (datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)):
            assert cell(value).startswith(f"{value.year:04}-")
        assert cell(datetime(2026, 5, 1, 12, tzinfo=UTC)) in ("2026-05-01 21:00:00 JST", "2026-05-01 08:00:00 EDT")
    finally:
        monkeypatch.undo()
        time.tzset()


def terminal() -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=100, color_system=None)


async def timer_due() -> None:
    """A timer of no time has gone off."""
    for _ in range(2):
        await asyncio.sleep(0)


def shown(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize(("unit", "words"), [("pieces", ("3/4", "/s", "0:")), ("bytes", ("3/4 bytes", "0:"))])
async def test_a_terminal_sees_counts_rate_and_remaining_time(unit: Unit, words: tuple[str, ...]) -> None:
    console = terminal()
    async with progress("signing", unit=unit, total=4, console=console, delay=0.0) as bar:
        await timer_due()
        bar.tell(1, 4)
        bar.advance(2)
    told = shown(console)
    assert "signing" in told
    assert [word for word in words if word not in told] == []


async def test_what_is_quick_shows_nothing() -> None:
    console = terminal()
    async with progress("asking", console=console):
        await timer_due()
    assert shown(console) == ""


async def test_what_is_no_terminal_sees_nothing() -> None:
    console = Console(file=io.StringIO(), force_terminal=False)
    async with progress("signing", unit="pieces", console=console, delay=0.0) as bar:
        bar.advance()
        bar.tell(2, None)
        await timer_due()
    assert shown(console) == ""


async def test_a_terminal_is_left_as_it_was_when_it_goes_wrong() -> None:
    console = terminal()

    async def fail() -> None:
        async with progress("[b]signing", console=console, delay=0.0):
            await timer_due()
            raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        await fail()
    told = shown(console)
    assert "[b]signing" in told
    assert told.count("\x1b[?25l") == told.count("\x1b[?25h") == 1  # the cursor is hidden, and shown again
