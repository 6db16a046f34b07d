"""Read the CSV form of the delivery report. It has ten columns, in the order of the specification (section 2.C).

A *border* is a line before or after the records, as in a PEM file: `-----BEGIN MESSAGE LOG DATA-----`.
"""

from __future__ import annotations

import contextlib
import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from directsuite.errors import ResponseDecodeError
from directsuite.wire.parsing import MismatchError
from directsuite.wire.values import read_datetime

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


def read_rows(document: bytes, status: Callable[[str], Any]) -> Iterator[dict[str, Any]]:
    """Yield the records of a CSV report as arguments for DirectMessageLog, without column titles and borders.

    An unreadable size or time is None, and its text is in `extra`, because the specification does not define their
    formats, and one unusual value must not hide a delivery. Values after the tenth column are in `extra` under
    `columns`. Raises ResponseDecodeError if the document is not CSV.

    document: the report, in UTF-8. Invalid bytes are replaced.
    status: converts a non-empty status.
    """
    text = document.decode("utf-8-sig", "replace")
    for cells in _skip_titles(_read_lines(text, _detect_separator(text))):
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


def _skip_titles(lines: Iterable[list[str]]) -> Iterator[list[str]]:
    """Yield the records. Only the first line, and the first after a border, may be titles."""
    first = True
    for cells in lines:
        if _BORDER.fullmatch(cells[0].strip()) and not any(cells[1:]):
            first = True
        elif not first or tuple(cell.strip().lower() for cell in cells[:2]) != _TITLES:
            first = False
            yield cells
        else:
            first = False


def _detect_separator(text: str) -> str:
    def count_columns(separator: str) -> int:
        try:
            return next(
                (len(cells) for cells in _read_lines(text, separator) if not _BORDER.fullmatch(cells[0].strip())), 0
            )
        except ResponseDecodeError:
            return 0

    return max(_SEPARATORS, key=count_columns)


def _read_lines(text: str, separator: str) -> Iterator[list[str]]:
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, skipinitialspace=True)
    with contextlib.suppress(csv.Error):  # such as a value longer than the csv module allows
        yield from (cells for cells in reader if any(map(str.strip, cells)))  # skips blank lines
        return
    raise ResponseDecodeError("the delivery report is not CSV", path="$.csvData")
