"""What is seen while the demo runs."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from directsuite.cli.demo.context import NoStepProgress, show_step_progress


def _screen(*, terminal: bool) -> tuple[Console, io.StringIO]:
    text = io.StringIO()
    return Console(file=text, force_terminal=terminal, width=100, legacy_windows=False), text


def test_a_pipe_sees_nothing() -> None:
    console, text = _screen(terminal=False)
    with show_step_progress(console) as progress:
        progress.begin_step("Sign PDFs")
        progress.set_total(12)
        progress.advance(12)
        assert isinstance(progress, NoStepProgress)
    assert text.getvalue() == ""


def test_a_terminal_sees_each_step_and_how_far_it_is() -> None:
    console, text = _screen(terminal=True)
    with show_step_progress(console) as progress:
        progress.set_total(3)  # before any step: nothing to show it on
        progress.advance()
        progress.begin_step("Sign PDFs")
        progress.set_total(12)
        progress.advance(5)
        progress.advance()
        progress.begin_step("List faxes")
    shown = text.getvalue()
    assert "Sign PDFs" in shown
    assert "List faxes" in shown
    assert "6/12" in "".join(character for character in shown if character.isdigit() or character == "/")


def test_a_terminal_is_left_with_its_cursor_after_an_interrupt() -> None:
    console, text = _screen(terminal=True)
    with pytest.raises(KeyboardInterrupt), show_step_progress(console):
        raise KeyboardInterrupt
    shown = text.getvalue()
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l")
