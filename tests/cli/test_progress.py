"""Bars on a terminal, after a second, and nothing elsewhere."""

from __future__ import annotations

import asyncio
import io

import pytest
from rich.console import Console

from directsuite.cli.progress import Unit, progress


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
        bar.expect(2)
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
