"""The CSV report: ten columns, and malformed cells."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

import directsuite as ds
from directsuite.messaging.report import read_rows

HEADING = "From,To,Message ID,Message Size,Status,Sent Time,XDR Message ID,XDR Source ID,XDR Unique ID,XDR Patient ID"
LINE = "a@x,b@y,<1@x>,2048,Waiting,1467740835000,m,s,u,p"


def _records(text: str | bytes) -> list[ds.DirectMessageLog]:
    document = text.encode() if isinstance(text, str) else text
    return [ds.DirectMessageLog(**row) for row in read_rows(document, ds.MessageStatus)]


EXPECTED = ds.DirectMessageLog(
    from_="a@x",
    to="b@y",
    message_id="<1@x>",
    message_size=2048,
    status=ds.MessageStatus.WAITING,
    ts=datetime(2016, 7, 5, 17, 47, 15, tzinfo=UTC),
    xdr_id="m",
    source_id="s",
    unique_id="u",
    patient_id="p",
)

DOCUMENTS = {
    "one line": LINE,
    "a line end": f"{LINE}\r\n",
    "a heading": f"{HEADING}\r\n{LINE}\r\n",
    "a heading in capitals": f"{HEADING.upper()}\n{LINE}\n",
    "blank lines": f"\r\n{LINE}\r\n\r\n",
    "a byte order mark": f"\ufeff{HEADING}\n{LINE}",
    "blanks between": LINE.replace(",", " , "),
    "blank lines before a heading": f"\r\n\r\n{HEADING}\r\n{LINE}\r\n",
    "blanks before quoted cells": '"From", "To"\n' + ", ".join(f'"{cell}"' for cell in LINE.split(",")),
    "semicolons": f"{HEADING}\n{LINE}\n".replace(",", ";"),
    "semicolons without a heading": LINE.replace(",", ";"),
    "tabs": f"{HEADING}\n{LINE}\n".replace(",", "\t"),
    "borders": f"-----BEGIN MESSAGE LOG DATA-----\r\n{HEADING}\r\n{LINE}\r\n-----END MESSAGE LOG DATA-----\r\n",
    "borders without a heading": f"-----BEGIN MESSAGE LOG DATA-----\n{LINE}\n-----END MESSAGE LOG DATA-----",
    "borders and semicolons": f"-----BEGIN MESSAGE LOG DATA-----\n{HEADING}\n{LINE}\n-----END-----".replace(",", ";"),
    "quoted cells": ",".join(f'"{cell}"' for cell in LINE.split(",")),
}


@pytest.mark.exhaustive(limit=6)
@pytest.mark.parametrize("document", DOCUMENTS.values(), ids=DOCUMENTS.keys())
def test_report_is_read_in_every_layout(document: str) -> None:
    assert _records(document) == [EXPECTED]


def test_ten_columns_stand_in_the_specification_s_order() -> None:
    record = _records("1,2,3,4,5,6,7,8,9,10")[0]
    assert (record.from_, record.to, record.message_id, record.message_size, record.status) == ("1", "2", "3", 4, "5")
    assert (record.xdr_id, record.source_id, record.unique_id, record.patient_id) == ("7", "8", "9", "10")


ODD: list[tuple[str, dict[str, object]]] = [
    (
        "a@x,b@y,<1@x>,2 KB,Waiting,yesterday",
        {"message_size": None, "ts": None, "extra": {"messageSize": "2 KB", "ts": "yesterday"}},
    ),
    ("a@x,b@y,<1@x>,,,", {"message_size": None, "status": None, "ts": None, "extra": {}}),
    ("a@x,b@y", {"from_": "a@x", "to": "b@y", "message_id": None, "extra": {}}),
    (f"{LINE},11,12", {"patient_id": "p", "extra": {"columns": ["11", "12"]}}),
    ("a@x,b@y,,1,Lost in Space", {"status": "Lost in Space", "message_id": None}),
    ('a@x,"b, ""B""\r\n@y",,1', {"to": 'b, "B"\r\n@y', "message_size": 1}),
]


@pytest.mark.parametrize(("line", "expected"), ODD)
def test_odd_cell_hides_no_delivery(line: str, expected: dict[str, object]) -> None:
    records = _records(line)
    assert len(records) == 1
    assert {name: getattr(records[0], name) for name in expected} == expected


@pytest.mark.exhaustive(limit=2)
@pytest.mark.parametrize("blank", ["   ", ",,,,,,,,,", "\t", "\xa0", '""'])
def test_blank_line_is_no_record_whose_status_would_never_be_final(blank: str) -> None:
    assert _records(f"{HEADING}\r\n{LINE}\r\n{blank}\r\n") == [EXPECTED]


def test_each_table_of_a_report_may_have_borders_and_a_heading_separately() -> None:
    table = (
        f'-----BEGIN MESSAGE LOG DATA-----\r\n"From", "To", "Message ID"\r\n{LINE}\r\n-----END MESSAGE LOG DATA-----'
    )
    assert _records(f"{table}\r\n\r\n{table}\r\n") == [EXPECTED, EXPECTED]
    assert len(_records(f"{LINE}\n{HEADING}")) == 2  # without borders, a second heading is a record


def test_separator_within_a_cell_is_none() -> None:
    [record] = _records('"Hans; Smith <a@x>",b@y;c@z,<1@x>,2048')
    assert (record.from_, record.to, record.message_size) == ("Hans; Smith <a@x>", "b@y;c@z", 2048)
    [record] = _records('Smith, Hans <a@x>;"b@y, c@z";<1@x>;2048')
    assert (record.from_, record.to, record.message_size) == ("Smith, Hans <a@x>", "b@y, c@z", 2048)


@given(st.lists(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=10, max_size=10), max_size=4))
def test_texts_come_through_as_they_were_written(table: list[list[str]]) -> None:
    written = io.StringIO(newline="")
    csv.writer(written).writerows([["From", "To"], *table])
    records = _records(written.getvalue())
    table = [cells for cells in table if any(map(str.strip, cells))]
    assert [record.from_ for record in records] == [cells[0].strip() or None for cells in table]
    assert [record.patient_id for record in records] == [cells[9].strip() or None for cells in table]


@given(st.binary(max_size=300) | st.text('",\r\n\0aé;').map(str.encode))
def test_any_bytes_are_read_without_an_error(document: bytes) -> None:
    for record in _records(document):
        assert isinstance(record.extra, dict)


def test_cell_longer_than_any_reports_is_a_typed_error() -> None:
    with pytest.raises(ds.ResponseDecodeError) as caught:
        _records("a@x," + "b" * 200_000)
    assert caught.value.path == "$.csvData"
