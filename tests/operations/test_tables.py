"""The tables of operations compared with the specification's other descriptions, and with the types of the methods."""

from __future__ import annotations

import ast
import inspect
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import pytest

import directsuite as ds
from directsuite.sandbox.server import load_openapi_document

from . import OPERATIONS
from .case import Facade, OperationCase

FACADES: dict[Facade, type] = {
    "signing": ds.Signing,
    "fax": ds.Fax,
    "mailbox": ds.Mailbox,
    "tuser": ds.TUser,
    "registration": ds.Registration,
}
_PUBLIC = Path(__file__).parents[1] / "typing" / "public.py"


def test_path_texts_are_those_of_the_openapi_document() -> None:
    listed = {name: len(case.path_texts) for name, case in OPERATIONS.items() if case.path_texts}
    assert Counter(listed) == Counter(_find_path_texts())


def _find_path_texts() -> Iterator[str]:
    """Yield the operation of each path parameter for which a caller may choose any text."""
    for item in load_openapi_document()["paths"].values():
        for operation in item.values():
            for parameter in operation.get("parameters", ()):
                schema = parameter["schema"]
                is_text = schema.get("type") == "string" and "pattern" not in schema
                if parameter["in"] == "path" and is_text and parameter["name"] != "sessionId":
                    yield operation["operationId"]


@pytest.mark.parametrize("case", OPERATIONS.values(), ids=str)
def test_result_has_the_annotated_type(case: OperationCase) -> None:
    method: Callable[..., Any] = getattr(FACADES[case.facade], case.function)
    annotation = get_type_hints(method)["return"]
    if annotation is Any:  # The overloads of a method with a destination are in tests/typing/public.py.
        assert case.function.endswith("_and_pull")
    elif issubclass(get_origin(annotation) or annotation, list):
        result: Any = case.result
        assert {type(each) for each in result} == set(get_args(annotation))
    else:
        assert annotation is type(case.result)


@pytest.mark.parametrize("facade", FACADES)
def test_each_method_is_typed_by_a_row_or_by_the_typed_program(facade: Facade) -> None:
    functions = {name for name, value in vars(FACADES[facade]).items() if inspect.isfunction(value)}
    public = {name for name in functions if not name.startswith("_")}
    rows = {case.function for case in OPERATIONS.values() if case.facade == facade}
    called = {node.attr for node in ast.walk(ast.parse(_PUBLIC.read_text("utf-8"))) if isinstance(node, ast.Attribute)}
    assert public - called - rows == set()
