"""The lists by hand that hold one operation a row, and that no test goes through operation by operation, are whole."""

from __future__ import annotations

import ast
import inspect
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import directsuite as ds
from directsuite.sandbox.server import load_openapi_document
from tests.contract.test_invalid_identifiers import PATH_PARAMETERS
from tests.facades import test_fax, test_mailbox, test_registration, test_sending, test_signing
from tests.specification import METHODS

if TYPE_CHECKING:
    from collections.abc import Iterator

_PUBLIC = Path(__file__).parent / "typing" / "public.py"


def test_the_typical_answer_of_each_is_read() -> None:
    rows = [module.ROWS for module in (test_fax, test_mailbox, test_registration, test_sending, test_signing)]
    assert {row.operation for of_service in rows for row in of_service} == set(METHODS)


def test_each_text_in_a_path_is_refused_where_it_would_change_the_path() -> None:
    assert Counter(at.operation for at in PATH_PARAMETERS) == Counter(_texts_in_paths())


def _texts_in_paths() -> Iterator[str]:
    """The operation of each path parameter for which a caller may give any text."""
    for item in load_openapi_document()["paths"].values():
        for operation in item.values():
            for parameter in operation.get("parameters", ()):
                schema = parameter["schema"]
                is_text = schema.get("type") == "string" and "pattern" not in schema
                if parameter["in"] == "path" and is_text and parameter["name"] != "sessionId":
                    yield operation["operationId"]


@pytest.mark.parametrize("facade", [ds.Signing, ds.Fax, ds.Mailbox, ds.TUser, ds.Registration])
def test_each_method_is_in_the_typed_program(facade: type[object]) -> None:
    methods = {name for name, value in vars(facade).items() if inspect.isfunction(value) and not name.startswith("_")}
    called = {node.attr for node in ast.walk(ast.parse(_PUBLIC.read_text("utf-8"))) if isinstance(node, ast.Attribute)}
    assert methods - called == set()
