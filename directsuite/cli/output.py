"""What a command prints: a table for people or one JSON document for machines on stdout, and progress bars on stderr.

Texts that came over the wire may hold what a terminal would act upon; people are shown a sign in its place.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import date, datetime
from itertools import zip_longest
from typing import Any, Literal, TypedDict, Unpack, cast

import attrs
from rich.cells import cell_len
from rich.console import Console
from rich.live import Live
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.text import Text

from directsuite.cli.process import discard_stdout, echo_err, make_printable, show_line
from directsuite.core.failures import explain_os_error
from directsuite.secret import Secret

Unit = Literal["bytes", "pieces", "waiting"]

_NON_TERMINAL_COLUMNS = 1_000  # columns where nobody says how many there are, so that a line stays a line
_MIN_COLUMN_CHARS = 12  # columns of text that is broken into lines
_BAR_DELAY = 1.0  # seconds before a bar is shown
_EXCLUDED_FIELDS = ("extra", "source")


def show_json(document: object, *, indent: int | None = 2) -> None:
    """Print one JSON document, in ASCII, whatever the encoding of stdout. Moments are ISO 8601.

    indent: None for a single line.
    """
    sys.stdout.write(f"{json.dumps(document, indent=indent, default=_to_json_text)}\n")


def show_effect(show: Callable[[], None], done: str) -> bool:
    """Print with `show` what was done. Return False where stdout didn't take it: then stderr says `done`."""
    try:
        show()
        sys.stdout.flush()
    except OSError as error:
        discard_stdout()
        echo_err(f"{done}, and stdout can't be written ({explain_os_error(error)}): don't give the command again")
        return False
    return True


def model_to_dict(model: object) -> dict[str, Any]:
    """A model's fields by their names in the API, for `show_json`: without secrets and without files' contents.

    `extra` is left out unless the service sent something that the specification doesn't know.
    """
    kind: Any = type(model)
    names = [field.name for field in attrs.fields(kind) if field.name not in _EXCLUDED_FIELDS]
    names += ["extra"] if getattr(model, "extra", None) else []
    values = {name.rstrip("_"): getattr(model, name) for name in names}
    return {name: _value_to_json(value) for name, value in values.items() if not isinstance(value, Secret | bytes)}


def show_table(titles: Sequence[str], rows: Iterable[Sequence[object]], **options: Unpack[TableOptions]) -> None:
    """Print a table: the parameters are those of `table`."""
    console = make_table_console()
    with console.capture() as captured:
        console.print(build_table(console, titles, rows, **options), soft_wrap=True)
    sys.stdout.writelines(f"{line.rstrip()}\n" for line in captured.get().splitlines())


def make_table_console() -> Console:
    """Stdout, where a row stays a line if nobody says how wide it is."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = _NON_TERMINAL_COLUMNS
    return console


class TableOptions(TypedDict, total=False):
    """The options of `table`."""

    right: Sequence[str]
    """The titles of columns of numbers."""
    no_wrap: Sequence[str]
    """The titles of columns of ids, addresses and file names, which people copy: they are never broken. Where the
    terminal is too narrow, each stands with its title on a line of its own below the row.
    """
    styles: Mapping[str, str]
    """The colours of cells, by their text."""


def build_table(
    console: Console, titles: Sequence[str], rows: Iterable[Sequence[object]], **options: Unpack[TableOptions]
) -> Text:
    """A table without lines, whose cells are made printable."""
    right, no_wrap, styles = options.get("right", ()), options.get("no_wrap", ()), options.get("styles", {})
    rows = [tuple(row) for row in rows]
    is_list = bool(titles[0])  # and not one thing, with what it has in a line each
    columns = list[_Column]()
    for index, title in enumerate(titles):
        has_moments = any(isinstance(row[index], datetime) for row in rows)
        columns.append(
            _Column(
                f"{title} ({_get_zone_name()})" if is_list and has_moments else title,
                index,
                justify="right" if title in right else "left",
                is_flexible=not (title in no_wrap or title in right or has_moments),
            )
        )
    cells = [
        [format_time_to_minute(each) if is_list and isinstance(each, datetime) else format_cell(each) for each in row]
        for row in rows
    ]
    for column in columns:
        column.width = max(cell_len(text) for text in (column.title, *(row[column.index] for row in cells)))
    no_wrap_columns = [column for column, title in zip(columns, titles, strict=True) if title in no_wrap]
    moved_columns = list[_Column]()
    while not _fit_columns(columns, console.width) and no_wrap_columns:
        moved_columns.insert(0, no_wrap_columns.pop())
        columns.remove(moved_columns[0])
    lines = [_render_row(console, columns, [Text(column.title, "dim") for column in columns])]
    for row in cells:
        texts = [Text(row[column.index], styles.get(row[column.index], "")) for column in columns]
        lines.append(_render_row(console, columns, texts))
        lines += [Text(f"    {column.title}: {row[column.index]}") for column in moved_columns if row[column.index]]
    return Text("\n").join(lines)


@attrs.define
class _Column:
    title: str
    index: int
    justify: Literal["left", "right"]
    is_flexible: bool
    """Whether its texts may be broken into lines."""
    width: int = 0


def _fit_columns(columns: Sequence[_Column], width: int) -> bool:
    """Make what may be broken narrower until the columns fit; False where they can't, with all as they were."""
    widths = [column.width for column in columns]
    while sum(widths) + 2 * len(widths) - 2 > width:
        widest = max((n for n, each in enumerate(columns) if each.is_flexible), key=lambda n: widths[n], default=None)
        if widest is None or widths[widest] <= _MIN_COLUMN_CHARS:
            return False
        widths[widest] -= 1
    for column, new_width in zip(columns, widths, strict=True):
        column.width = new_width
    return True


def _render_row(console: Console, columns: Sequence[_Column], texts: Sequence[Text]) -> Text:
    """The lines of a row; what is longer than its column goes on in the next line."""
    cells = [text.wrap(console, column.width, overflow="fold") for column, text in zip(columns, texts, strict=True)]
    lines = list[Text]()
    for parts in zip_longest(*cells, fillvalue=Text()):
        aligned = [part.copy() for part in parts]
        for part, column in zip(aligned, columns, strict=True):
            part.align(column.justify, column.width)
        lines.append(Text("  ").join(aligned))
    return Text("\n").join(lines)


def _get_zone_name() -> str:
    """The name of this machine's time zone."""
    return datetime.now().astimezone().tzname() or "local"


def show_text(text: str) -> None:
    """Print lines for people, each made printable and none of them cut."""
    for line in text.splitlines():
        show_line(line.expandtabs())


def format_cell(value: object) -> str:
    """A value as people read it; nothing for None."""
    if value is None:
        return ""
    return make_printable(format_time(value) if isinstance(value, datetime) else str(value))


def format_time(value: datetime) -> str:
    """A moment in the time zone of this machine, with its name."""
    value = _to_local_time(value)
    return f"{value.isoformat(' ', 'seconds')[:19]} {value.tzname() or ''}".rstrip()


def format_time_to_minute(value: datetime) -> str:
    """A moment to the minute, in the time zone that the column's title names."""
    return _to_local_time(value).isoformat(" ", "minutes")[:16]


def _to_local_time(value: datetime) -> datetime:
    """A moment in the time zone of this machine; as it came, where it has none there."""
    # Beyond the years 1 to 9999, or what the system knows, it has none.
    with contextlib.suppress(OSError, OverflowError, ValueError):
        return value.astimezone()
    return value


class Bar:
    """How far a command has come; shown where there is a `progress` to show it on."""

    def __init__(self, progress: Progress | None = None, title: str = "", total: float | None = None) -> None:
        self._progress = progress
        self._task = None if progress is None else progress.add_task(title, total=total)

    def advance(self, count: int = 1) -> None:
        """Add `count` to what is done."""
        if self._progress is not None and self._task is not None:
            self._progress.advance(self._task, count)

    def update(self, done: int, total: int | None) -> None:
        """Set what is done: what the `progress=` of a facade's method takes. total: None while nobody knows."""
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=done, total=total)


def format_size(count: int) -> str:
    """A count of bytes in the unit that people read it in."""
    for unit, length in (("MB", 1_000_000), ("KB", 1_000)):
        if count >= length:
            tenths = (20 * count // length + 1) // 2  # whole numbers, since a server may tell of more than floats hold
            return f"{tenths // 10}.{tenths % 10} {unit}"
    return f"{count} B"


@asynccontextmanager
async def show_progress(
    title: str,
    *,
    unit: Unit = "waiting",
    total: int | None = None,
    console: Console | None = None,
    delay: float = _BAR_DELAY,
) -> AsyncGenerator[Bar]:
    """A bar with rate and remaining time, or for `waiting` the time that has passed; gone at the end.

    It is shown on a terminal alone, and after `delay` seconds. title: what is done, which names nobody.
    """
    console = Console(stderr=True, highlight=False) if console is None else console
    if not console.is_terminal:
        yield Bar()
        return
    bars = Progress(*_make_progress_columns(unit), console=console, transient=True)
    start_timer = asyncio.get_running_loop().call_later(delay, bars.start)
    try:
        yield Bar(bars, title, total)
    finally:
        start_timer.cancel()
        bars.stop()


@contextlib.contextmanager
def show_live(render: Callable[[Console], Text], *, console: Console | None = None) -> Generator[None]:
    """Show what `render` gives, anew each second, on a terminal alone; gone at the end. It runs in another thread."""
    console = Console(stderr=True, highlight=False) if console is None else console
    if not console.is_terminal:
        yield
        return
    with Live(console=console, transient=True, refresh_per_second=1, get_renderable=lambda: render(console)):
        yield


class _RateColumn(ProgressColumn):
    """Pieces per second."""

    def render(self, task: Task) -> Text:
        """The rate, as far as it is known."""
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:.1f}/s", style="progress.data.speed")


def _make_progress_columns(unit: Unit) -> list[ProgressColumn]:
    title = TextColumn("{task.description}", markup=False)
    if unit == "waiting":
        return [SpinnerColumn(), title, TimeElapsedColumn()]
    counts = [DownloadColumn(), TransferSpeedColumn()] if unit == "bytes" else [MofNCompleteColumn(), _RateColumn()]
    return [title, BarColumn(bar_width=24), *counts, TimeRemainingColumn()]


def _value_to_json(value: object) -> object:
    if isinstance(value, list):
        return [_value_to_json(each) for each in cast("list[object]", value)]
    return model_to_dict(value) if attrs.has(type(value)) else value


def _to_json_text(value: object) -> str:
    return value.isoformat() if isinstance(value, date) else str(value)
