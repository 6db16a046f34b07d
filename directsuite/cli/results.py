"""What a command prints on stdout: a table for people, one JSON document for machines.

Texts that came over the wire may hold what a terminal would act upon; people are shown a sign in its place.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime
from typing import Any, cast

import attrs
from rich.console import Console
from rich.table import Table
from rich.text import Text

from directsuite.core.system_errors import reason_of
from directsuite.secret import Secret

_WIDTH = 1_000  # columns where nobody says how many there are, so that a line stays a line
_LEFT_OUT = ("extra", "source")
_REPLACED = "\N{REPLACEMENT CHARACTER}"
_ACTED_UPON = frozenset(("Cc", "Cs", "Zl", "Zp"))  # controls, halves of pairs, separators of lines
_TURNING = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")  # the direction of what follows


def show_json(document: object) -> None:
    """One JSON document, in ASCII, whatever the encoding of stdout. Moments are ISO 8601."""
    sys.stdout.write(f"{json.dumps(document, indent=2, default=_plain)}\n")


def show_effect(show: Callable[[], None], done: str) -> bool:
    """Whether stdout took what `show` writes of an effect that is done; where it didn't, stderr says `done`."""
    try:
        show()
        sys.stdout.flush()
    except OSError as error:
        write_nowhere()
        sys.stderr.write(
            f"directsuite: {done}, and stdout can't be written ({reason_of(error)}): don't give the command again\n"
        )
        return False
    return True


def members_of(model: object) -> dict[str, Any]:
    """A model's fields by their names in the API, for `show_json`: without secrets and without files' contents.

    extra: only where the service sent something that the specification doesn't know.
    """
    kind: Any = type(model)
    names = [field.name for field in attrs.fields(kind) if field.name not in _LEFT_OUT]
    names += ["extra"] if getattr(model, "extra", None) else []
    values = {name.rstrip("_"): getattr(model, name) for name in names}
    return {name: _member(value) for name, value in values.items() if not isinstance(value, Secret | bytes)}


def show_table(titles: Sequence[str], rows: Iterable[Sequence[object]], *, right: Sequence[str] = ()) -> None:
    """A table without lines, whose cells are made printable. right: the titles of columns of numbers."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in titles:
        table.add_column(title, overflow="fold", justify="right" if title in right else "left")
    for row in rows:
        table.add_row(*(Text(cell(each)) for each in row))
    console = Console(highlight=False)
    if console.is_terminal:
        console.print(table)
        return
    console.width = _WIDTH
    with console.capture() as captured:
        console.print(table)
    sys.stdout.writelines(f"{line.rstrip()}\n" for line in captured.get().splitlines())


def show_text(text: str) -> None:
    """Lines for people, each made printable and none of them cut."""
    for line in text.splitlines():
        sys.stdout.write(f"{printable(line.expandtabs())}\n")


def cell(value: object) -> str:
    """A value as people read it; nothing for None."""
    if value is None:
        return ""
    return printable(moment(value) if isinstance(value, datetime) else str(value))


def moment(value: datetime) -> str:
    """A moment in the time zone of this machine; as it came, where it has none there."""
    with contextlib.suppress(
        OSError, OverflowError, ValueError
    ):  # beyond the years 1 to 9999, or what the system knows
        value = value.astimezone()
    return value.isoformat(" ", "seconds")


def printable(text: str) -> str:
    """The text without anything that a terminal would act upon, or that would hide or turn what stands there."""
    return "".join(
        _REPLACED if letter in _TURNING or unicodedata.category(letter) in _ACTED_UPON else letter for letter in text
    )


def write_nowhere() -> None:
    """Have stdout take what is written from now on, and what it still holds: its reader has gone."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, sys.stdout.fileno())
    finally:
        os.close(nowhere)


def _member(value: object) -> object:
    if isinstance(value, list):
        return [_member(each) for each in cast("list[object]", value)]
    return members_of(value) if attrs.has(type(value)) else value


def _plain(value: object) -> str:
    return value.isoformat() if isinstance(value, date) else str(value)
