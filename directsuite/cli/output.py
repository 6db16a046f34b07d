"""The output of commands: tables and JSON documents on stdout, progress bars on stderr.

Tables and text contain no characters that could control a terminal (`make_printable`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import date, datetime
from itertools import zip_longest
from types import MappingProxyType
from typing import Any, Literal

import attrs
from rich.cells import cell_len
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.text import Text

import directsuite as ds
from directsuite.cli.errors import NotDoneError
from directsuite.cli.process import discard_stdout, make_printable, show_line
from directsuite.core.files import explain_os_error

Unit = Literal["bytes", "pieces", "waiting"]

_NON_TERMINAL_COLUMNS = 1_000  # keeps each row of a file or pipe on one line
_MIN_COLUMN_CHARS = 12
_BAR_DELAY = 1.0  # seconds
_EXCLUDED_FIELDS = ("extra", "source")


def show_json(document: object, *, indent: int | None = 2) -> None:
    """Print one JSON document in ASCII. Times are ISO 8601, models as in `model_to_dict`. indent: None for a line."""
    sys.stdout.write(f"{json.dumps(document, indent=indent, default=_to_json_value)}\n")


def show_effect(show: Callable[[], None], done: str) -> None:
    """Call `show` to print the result of a change. Raises NotDoneError if stdout can't be written.

    done: the change in words, for the error.
    """
    try:
        show()
        sys.stdout.flush()
    except OSError as error:
        discard_stdout()
        raise NotDoneError(
            f"{done}, but stdout can't be written ({explain_os_error(error)}). Don't repeat the command."
        ) from None


def show_change(document: Mapping[str, object], done: str, *, as_json: bool, smtp_id: str | None = None) -> None:
    """Print as JSON the document, or as text the SMTP id. Raises NotDoneError as `show_effect`.

    smtp_id: that of the sent message, empty if the service returned none; None if no message was sent.
    """

    def show() -> None:
        if as_json:
            show_json(document if smtp_id is None else {**document, "smtp_id": smtp_id or None})
        elif smtp_id:
            show_line(smtp_id)

    show_effect(show, f"{done}{f' as {smtp_id}' if smtp_id else ''}")


def model_to_dict(model: object) -> dict[str, Any]:
    """Return a model's fields by their API names, for `show_json`, without secrets and file contents.

    `extra` is included only if the service sent members that are not in the specification.
    """
    kind: Any = type(model)
    names = [field.name for field in attrs.fields(kind) if field.name not in _EXCLUDED_FIELDS]
    names += ["extra"] if getattr(model, "extra", None) else []
    values = {name.rstrip("_"): getattr(model, name) for name in names}
    return {name: value for name, value in values.items() if not isinstance(value, ds.Secret | bytes)}


def show_table(
    titles: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    right: Sequence[str] = (),
    no_wrap: Sequence[str] = (),
    above: Sequence[str] = (),
    styles: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Print a table without borders to stdout.

    If the first title is empty, the table shows one object, a property per line; then times have seconds.

    right: the titles of right-aligned columns. no_wrap: the titles of columns that are never wrapped, because people
    copy their values; if the terminal is too narrow, each value is on a separate line below its row, with the title.
    above: the titles of columns whose values are then above their rows, because they apply to several rows.
    styles: the rich style of cells, by their text.
    """
    sys.stdout.flush()  # otherwise rich would, and end the process without a message if it finds a closed pipe
    console, is_list = make_table_console(), bool(titles[0])
    rows = [tuple(row) for row in rows]
    columns = list[_Column]()
    for index, title in enumerate(titles):
        has_moments = any(isinstance(row[index], datetime) for row in rows)
        columns.append(
            _Column(
                f"{title} ({datetime.now().astimezone().tzname() or 'local'})" if is_list and has_moments else title,
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
        moved = [column for column in moved_columns if row[column.index]]
        lines += [Text(f"{column.title}: {row[column.index]}") for column in moved if column.title in above]
        lines.append(_render_row(console, columns, texts))
        lines += [Text(f"    {column.title}: {row[column.index]}") for column in moved if column.title not in above]
    with console.capture() as captured:
        console.print(Text("\n").join(lines), soft_wrap=True)
    sys.stdout.writelines(f"{line.rstrip()}\n" for line in captured.get().splitlines())


def make_table_console() -> Console:
    """Return a console for stdout that keeps each row on one line if stdout is not a terminal."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = _NON_TERMINAL_COLUMNS
    return console


@attrs.define
class _Column:
    title: str
    index: int
    justify: Literal["left", "right"]
    is_flexible: bool
    """True if its texts may be wrapped."""
    width: int = 0


def _fit_columns(columns: Sequence[_Column], width: int) -> bool:
    """Make flexible columns narrower until all fit. If that is impossible, return False and change none."""
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
    cells = [text.wrap(console, column.width, overflow="fold") for column, text in zip(columns, texts, strict=True)]
    lines = list[Text]()
    for parts in zip_longest(*cells, fillvalue=Text()):
        aligned = [part.copy() for part in parts]
        for part, column in zip(aligned, columns, strict=True):
            part.align(column.justify, column.width)
        lines.append(Text("  ").join(aligned))
    return Text("\n").join(lines)


def show_text(text: str) -> None:
    """Print the lines of a text through `show_line`, with tabs expanded."""
    for line in text.splitlines():
        show_line(line.expandtabs())


def format_cell(value: object) -> str:
    """Return a value as printable text; "" for None."""
    if value is None:
        return ""
    return make_printable(format_time(value) if isinstance(value, datetime) else str(value))


def format_time(value: datetime) -> str:
    """Format a time to the second in this machine's time zone, with the zone's name."""
    value = _to_local_time(value)
    return f"{value.isoformat(' ', 'seconds')[:19]} {value.tzname() or ''}".rstrip()


def format_time_to_minute(value: datetime) -> str:
    """Format a time to the minute in this machine's time zone."""
    return _to_local_time(value).isoformat(" ", "minutes")[:16]


def _to_local_time(value: datetime) -> datetime:
    # A time near year 1 or 9999, or outside the system's range, can't be converted and stays unchanged.
    with contextlib.suppress(OSError, OverflowError, ValueError):
        return value.astimezone()
    return value


class Bar:
    """The progress of a command."""

    def __init__(self, progress: Progress, title: str, total: float | None) -> None:
        self._progress, self._task = progress, progress.add_task(title, total=total)

    def advance(self, count: int = 1) -> None:
        """Add `count` completed items or bytes."""
        self._progress.advance(self._task, count)

    def update(self, done: int, total: int | None) -> None:
        """Set the completed and the total number. total: None if unknown."""
        self._progress.update(self._task, completed=done, total=total)


def format_count(count: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun, such as "2 messages". plural: if it is not the noun with an s."""
    return f"{count} {noun if count == 1 else plural or f'{noun}s'}"


def format_size(count: int) -> str:
    """Format a number of bytes in B, KB or MB."""
    for unit, length in (("MB", 1_000_000), ("KB", 1_000)):
        if count >= length:
            tenths = (20 * count // length + 1) // 2  # a server may report more than floats can hold
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
    """Show a progress bar on a terminal during the context.

    title: the activity, without names of people.
    unit: "waiting" shows only the elapsed time; the others also counts and the remaining time.
    total: None if it is unknown.
    console: None for stderr.
    delay: the seconds before the bar appears.
    """
    console = Console(stderr=True, highlight=False) if console is None else console
    bars = Progress(*_make_progress_columns(unit), console=console, transient=True, disable=not console.is_terminal)
    start_timer = asyncio.get_running_loop().call_later(delay, bars.start)
    try:
        yield Bar(bars, title, total)
    finally:
        start_timer.cancel()
        if console.is_terminal:  # otherwise rich 14 prints an empty line
            bars.stop()


def _make_progress_columns(unit: Unit) -> list[ProgressColumn]:
    title = TextColumn("{task.description}", markup=False)
    if unit == "waiting":
        return [SpinnerColumn(), title, TimeElapsedColumn()]
    counts = [DownloadColumn(), TransferSpeedColumn()] if unit == "bytes" else [MofNCompleteColumn()]
    return [title, BarColumn(bar_width=24), *counts, TimeRemainingColumn()]


def _to_json_value(value: object) -> object:
    if attrs.has(type(value)):
        return model_to_dict(value)
    return value.isoformat() if isinstance(value, date) else str(value)
