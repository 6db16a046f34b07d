"""The package's own namespace: every public name is there, and nothing is loaded before it is used."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import directsuite as ds

SOURCE = ast.parse(Path(ds.__file__).read_text(encoding="utf-8"))

HEAVY = ["aiohttp", "attrs", "cattrs", "tenacity", "msgspec", "yarl", "asyncio", "directsuite.suite"]


def _run(program: str) -> str:
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return result.stdout.strip()


def test_importing_the_package_loads_nothing_heavy() -> None:
    loaded = _run(f"import sys, directsuite; print([name for name in {HEAVY} if name in sys.modules])")
    assert loaded == "[]"


def test_a_star_import_gives_every_name() -> None:
    found = _run("from directsuite import *; import directsuite; print(set(directsuite.__all__) - set(globals()))")
    assert found == "set()"


@pytest.mark.parametrize("name", ds.__all__)
def test_every_public_name_can_be_had(name: str) -> None:
    assert getattr(ds, name) is not None


def test_the_names_are_sorted_unique_and_what_dir_shows() -> None:
    assert ds.__all__ == sorted(set(ds.__all__))
    assert dir(ds) == sorted(ds.__all__)


def test_checkers_see_the_same_names_as_the_interpreter() -> None:
    branch = next(node for node in SOURCE.body if isinstance(node, ast.If))
    for_checkers = {
        (node.module, alias.name) for node in branch.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    origins = next(node.value for node in branch.orelse if isinstance(node, ast.Assign))
    at_run_time = {(module, name) for module, names in ast.literal_eval(origins).items() for name in names}
    assert for_checkers == at_run_time
    assert {name for _, name in at_run_time} | {"__version__"} == set(ds.__all__)


def test_classes_say_where_they_are_from() -> None:
    for name in ds.__all__:
        value = getattr(ds, name)
        if isinstance(value, type):
            assert value.__module__.startswith("directsuite."), name


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        getattr(ds, "nothing")  # noqa: B009  type checkers refuse the attribute


NAMES_OF_THE_PUBLIC_FACE = [
    "Settings",
    "RetryPolicy",
    "Login",
    "DirectSuite",
    "AccessToken",
    "TokenSource",
    "Secret",
    "Signature",
    "Widget",
    "StoredDocument",
    "DocumentInfo",
    "DocumentUpdate",
    "DocumentSignature",
    "FormField",
    "Page",
    "FaxMessageInformation",
    "FaxMessage",
    "Message",
    "MessageWithHeader",
    "Recipient",
    "RecipientType",
    "Attachment",
    "MessageHeader",
    "MessageDetail",
    "RawMessage",
    "RawResponse",
    "SendMessageResponse",
    "DirectMessageStatusReportResponse",
    "DirectMessageLog",
    "DirectUserType",
    "DirectUserDetail",
    "UserStateType",
    "UserPassword",
    "LoginResponse",
    "AddUsersResponseV2",
    "IDProofedIndividual",
    "IDProofedIndividualRESTful",
    "Mailbox",
]


@pytest.mark.parametrize("name", NAMES_OF_THE_PUBLIC_FACE)
def test_the_public_face_s_names_are_importable(name: str) -> None:
    assert name in ds.__all__
