"""The table of the guide `methods` that says which method does which operation of the specification."""

from __future__ import annotations

import inspect
import re

import pytest

import directsuite as ds
from directsuite.testing.responses import _get_operations
from tests.guides.documents import read_document
from tests.operations import METHODS

FACADES: dict[str, type] = {
    "signing": ds.Signing,
    "fax": ds.Fax,
    "mailbox": ds.Mailbox,
    "tuser": ds.TUser,
    "registration": ds.Registration,
}


def rows(text: str) -> list[list[str]]:
    """Return the cells of each table row that begins with the name of an operation."""
    lines = [[cell.strip().strip("`") for cell in line.strip().strip("|").split("|")] for line in text.splitlines()]
    return [cells for cells in lines if len(cells) > 1 and cells[0] in METHODS]


@pytest.fixture(scope="module")
def table() -> dict[str, list[str]]:
    found = rows(read_document("methods"))
    assert found, "the guide has no table with rows such as | GetMessageCount | POST | `mailbox.get_message_count` |"
    names = [cells[0] for cells in found]
    assert sorted(names) == sorted(set(names)), "an operation stands in the table twice"
    return {cells[0]: cells[1:] for cells in found}


def test_table_has_each_operation_once(table: dict[str, list[str]]) -> None:
    assert set(METHODS) - set(table) == set()


@pytest.mark.exhaustive
@pytest.mark.parametrize("operation", METHODS)
def test_row_names_the_http_method_and_an_awaitable_method(operation: str, table: dict[str, list[str]]) -> None:
    assert operation in table, f"the guide's table of operations lacks {operation}"
    http_method, named, path, *_ = [*table[operation], "", "", ""]
    assert http_method == METHODS[operation]
    assert path == (_get_operations()[operation].path or "/")
    parts = re.fullmatch(r"(?:suite\.)?(\w+)\.(\w+)", named)
    assert parts is not None, f"{operation}: {named!r} is not of the form facade.method"
    facade, method = parts.groups()
    assert inspect.iscoroutinefunction(getattr(FACADES[facade], method, None)), f"{named} is no awaitable method"
