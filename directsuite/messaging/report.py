"""The CSV form of the delivery report: ten columns in the specification's order (section 2.C)."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from directsuite.errors import ResponseDecodeError
from directsuite.wire.dates import read_datetime
from directsuite.wire.parsing import MismatchError

COLUMNS = (
    "from_",
    "to",
    "message_id",
    "message_size",
    "status",
    "ts",
    "xdr_id",
    "source_id",
    "unique_id",
    "patient_id",
)
_TITLES = ("from", "to")
_SEPARATORS = ",;\t"
_BORDER = re.compile(r"-{3,}+\s*+(BEGIN|END)\b.*---", re.IGNORECASE)
"""A line before or after the records, as around a PEM document: `-----BEGIN MESSAGE LOG DATA-----`."""


def rows(document: bytes, status: Callable[[str], Any]) -> Iterator[dict[str, Any]]:
    """The records of a CSV report as arguments for DirectMessageLog; titles and borders are passed over.

    Blanks around a cell are none of it. A size or a time that can't be read is None, with the text as it came in
    `extra`: the report's formats are not specified, and one odd cell should not hide a delivery.
    """
    text = document.decode("utf-8-sig", "replace")
    for cells in _without_titles(_lines(text, _separator(text))):
        record: dict[str, Any] = {name: cell.strip() or None for name, cell in zip(COLUMNS, cells, strict=False)}
        extra: dict[str, Any] = {"columns": cells[len(COLUMNS) :]} if len(cells) > len(COLUMNS) else {}
        for name, wire, read in (("message_size", "messageSize", int), ("ts", "ts", read_datetime)):
            cell = record.get(name)
            try:
                record[name] = None if cell is None else read(cell)
            except (ValueError, MismatchError):
                record[name], extra[wire] = None, cell
        if record.get("status"):
            record["status"] = status(record["status"])
        yield {**record, "extra": extra}


def _without_titles(lines: Iterable[list[str]]) -> Iterator[list[str]]:
    """The records' lines. Titles stand before the first, or behind a border, since a report may hold several tables."""
    first = True
    for cells in lines:
        if _BORDER.fullmatch(cells[0].strip()) and not any(cells[1:]):
            first = True
        elif not first or tuple(cell.strip().lower() for cell in cells[:2]) != _TITLES:
            first = False
            yield cells
        else:
            first = False


def _separator(text: str) -> str:
    """The separator of cells: the one of those possible that cuts the first line into the most."""

    def width(separator: str) -> int:
        try:
            return next((len(cells) for cells in _lines(text, separator) if not _BORDER.fullmatch(cells[0].strip())), 0)
        except ResponseDecodeError:
            return 0

    return max(_SEPARATORS, key=width)


def _lines(text: str, separator: str) -> Iterator[list[str]]:
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, skipinitialspace=True)
    while True:
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error:  # a cell longer than any report's
            break
        if cells:
            yield cells
    raise ResponseDecodeError("the report is not CSV", path="$.csvData")
