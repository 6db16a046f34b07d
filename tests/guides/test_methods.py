"""The tables of the guide `methods`: the method of each operation of the specification, and the fields of responses."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

import directsuite as ds
from directsuite.core.operation import Operation
from directsuite.testing.responses import _get_operations, find_parameters, find_required_fields
from directsuite.wire.models import get_model_fields, is_model
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
    found = rows(read_document("methods").partition("Other methods:")[0])
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
    assert inspect.iscoroutinefunction(getattr(FACADES[facade], method, None)), f"{named} is not an awaitable method"


_COMMON_FIELDS = {"success", "code", "message", "error_message"}


def describe_responses() -> Iterator[str]:
    """Yield a table row for each set of fields: the operations, the required fields and the others."""
    rows = dict[tuple[str, str], list[str]]()
    for name, operation in _get_operations().items():
        required = find_required_fields(operation)
        others = [
            field.name
            for field in list_fields(operation.response)
            if field.name not in _COMMON_FIELDS.union(required) and field.name not in only_in_path(operation)
        ]
        rows.setdefault((quote(required), quote(others)), []).append(name)
    for (required_names, other_names), operations in rows.items():
        yield f"| {', '.join(operations)} | {required_names} | {other_names} |"


def only_in_path(operation: Operation[Any]) -> set[str]:
    """Return the parameters of an operation of the signing service, which are fields with the same value."""
    return set(find_parameters(operation)) & {"identifier"}


def describe_elements() -> Iterator[str]:
    """Yield a table row for each class inside a response: the class, the fields with it, and its names in JSON."""
    holders = dict[Any, dict[str, None]]()
    waiting = [operation.response for operation in _get_operations().values()]
    while waiting:
        for field in list_fields(waiting.pop(0)):
            kind = field.kind if field.item is None else field.item
            if is_model(kind):
                waiting += [] if kind in holders else [kind]
                holders.setdefault(kind, {})[field.name] = None
    for kind, names in holders.items():
        keys = [field.key for field in list_fields(kind)]
        yield f"| {kind.__name__} | {quote(names)} | {quote(keys)} |"


def list_fields(response: Any) -> Iterable[Any]:
    return get_model_fields(response) if is_model(response) else ()


def quote(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def test_fields_of_responses_are_those_of_the_models() -> None:
    _, section = read_document("methods").split("## Fields of responses")
    rows = [line for line in section.split("\n## ")[0].splitlines() if line.startswith("| ")]
    headings = ("| operation |", "| class |")
    found = [row for row in rows if not row.startswith(headings)]
    assert found == [*describe_responses(), *describe_elements()]
