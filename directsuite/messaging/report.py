"""The CSV form of the delivery report: ten columns in the specification's order (section 2.C)."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from typing import Any

from directsuite.errors import ResponseDecodeError
from directsuite.wire.dates import read_datetime
from directsuite.wire.mismatch import MismatchError

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
_HEADER = ("from", "to")


def rows(document: bytes, status: Callable[[str], Any]) -> Iterator[dict[str, Any]]:
    """The records of a CSV report as arguments for DirectMessageLog; a heading line is passed over.

    Blanks around a cell are none of it. A size or a time that can't be read is None, with the text as it came in
    `extra`: the report's formats are not specified, and one odd cell should not hide a delivery.
    """
    for number, cells in enumerate(_lines(document)):
        if not cells or (number == 0 and tuple(cell.strip().lower() for cell in cells[:2]) == _HEADER):
            continue
        record: dict[str, Any] = {name: cell.strip() or None for name, cell in zip(COLUMNS, cells, strict=False)}
        extra: dict[str, Any] = {"columns": cells[len(COLUMNS) :]} if len(cells) > len(COLUMNS) else {}
        for name, wire, read in (("message_size", "messageSize", int), ("ts", "ts", read_datetime)):
            text = record.get(name)
            try:
                record[name] = None if text is None else read(text)
            except (ValueError, MismatchError):
                record[name], extra[wire] = None, text
        if record.get("status"):
            record["status"] = status(record["status"])
        yield {**record, "extra": extra}


def _lines(document: bytes) -> Iterator[list[str]]:
    reader = csv.reader(io.StringIO(document.decode("utf-8-sig", "replace"), newline=""))
    while True:
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error:  # a cell longer than any report's
            break
        yield cells
    raise ResponseDecodeError("the report is not CSV", path="$.csvData")
