"""The package's namespace: all public names exist, and modules are loaded on first use."""

from __future__ import annotations

import ast
import functools
import inspect
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar, get_args, get_overloads, get_type_hints

import pytest

import directsuite as ds
from directsuite import types
from directsuite.wire.models import Model, _FieldDocs

NAMES = dir(ds)
SOURCE = ast.parse(Path(ds.__file__).read_text(encoding="utf-8"))

HEAVY = ["aiohttp", "attrs", "cattrs", "tenacity", "msgspec", "yarl", "asyncio", "directsuite.suite"]


def _run(program: str) -> str:
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return result.stdout.strip()


@pytest.mark.process
def test_importing_the_package_loads_nothing_heavy() -> None:
    loaded = _run(f"import sys, directsuite; print([name for name in {HEAVY} if name in sys.modules])")
    assert loaded == "[]"


@pytest.mark.process
def test_star_import_gives_every_name() -> None:
    found = _run("from directsuite import *; import directsuite; print(set(directsuite.__all__) - set(globals()))")
    assert found == "set()"


def test_names_exist_and_are_sorted_unique_and_what_dir_shows() -> None:
    assert vars(ds)["__all__"] == NAMES == sorted(set(NAMES))
    assert [name for name in NAMES if getattr(ds, name) is None] == []


def test_checkers_see_the_same_names_as_the_interpreter() -> None:
    branch = next(node for node in SOURCE.body if isinstance(node, ast.If))
    for_checkers = {
        alias.asname: node.module for node in branch.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert for_checkers == vars(ds)["_MODULES"]
    assert {*for_checkers, "__version__"} == set(NAMES)


def test_classes_say_where_they_are_from() -> None:
    for name in NAMES:
        value = getattr(ds, name)
        if isinstance(value, type):
            assert value.__module__.startswith("directsuite."), name


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        getattr(ds, "nothing")  # noqa: B009  type checkers refuse the attribute


FACADES = (ds.DirectSuite, ds.Signing, ds.Fax, ds.Mailbox, ds.TUser, ds.Registration)


def _types_in(annotation: Any) -> set[type]:
    found: set[type] = set()
    if isinstance(annotation, type) and issubclass(annotation, ds.Model):
        found = {annotation}.union(*(_types_in(field) for field in get_type_hints(annotation).values()))
    elif isinstance(annotation, type) and issubclass(annotation, ds.OpenEnum):
        found = {annotation}
    return found.union(*(_types_in(argument) for argument in get_args(annotation)))


def test_types_at_the_top_are_those_of_the_methods_and_what_these_hold() -> None:
    members = [member for facade in FACADES for member in inspect.getmembers(facade, inspect.isfunction)]
    methods = [method for name, method in members if name == "__init__" or not name.startswith("_")]
    public = {name: getattr(ds, name) for name in NAMES}
    namespace = public | dict.fromkeys(
        ("Token", "Sharing", "OnPoll"), Any
    )  # at run time they are imported when they are used
    expected = {
        found
        for method in methods
        for hint in get_type_hints(method, localns=namespace).values()
        for found in _types_in(hint)
    }
    at_the_top = {
        value for value in public.values() if isinstance(value, type) and issubclass(value, ds.Model | ds.OpenEnum)
    }
    assert at_the_top - {ds.Model, ds.OpenEnum} == expected


def _below(cls: type) -> Iterator[type]:
    subclasses: list[type] = cls.__subclasses__()
    for subclass in subclasses:
        yield subclass
        yield from _below(subclass)


def test_directsuite_types_has_every_type_of_the_specification() -> None:
    defined = {
        cls for base in (ds.Model, ds.OpenEnum) for cls in _below(base) if cls.__module__.startswith("directsuite.")
    }
    assert {cls.__name__ for cls in defined if not cls.__name__.startswith("Unfrozen")} <= set(vars(types)["__all__"])


def test_types_have_the_same_class_at_the_top() -> None:
    assert all(getattr(ds, name) is getattr(types, name) for name in set(NAMES) & set(vars(types)["__all__"]))


PUBLIC_MODULES = [
    import_module(f"directsuite{name}")
    for name in (
        *("", ".types", ".errors", ".sandbox", ".testing", ".jobs.delivery", ".jobs.signing"),
        *(".sync", ".sync.fleet", ".sync.postgres", ".sync.shared_limits"),
    )
]
NOT_FOR_USERS = {
    "Certificate",  # asn1crypto's, which has no types
    "Services",  # of the sandbox, for its page
    *("Uid", "Wire", "CodeUse"),  # names on the wire; an internal attribute of a grant
    # What a synchronisation and its store say to each other:
    *("ChangeSet", "StoredFolder", "Lease", "MessageRow", "Row", "OperatorRequest"),
    *("Facade", "Piece"),  # the class behind a raw view, and encoded content
    # What the package itself uses of a suite beside its calls, and sees of a call:
    *("Environment", "ExchangeInfo", "LimitsProvider"),
    # What a transaction and our own sinks say to each other:
    *("Database", "Statement", "Tables", "DatabaseRejection", "Values"),
    "Connection",  # psycopg's, by a shorter name
    *("SendRecord", "TrackedMessage", "TrackingState"),  # what a tracker and its journal exchange
    "PostgresDatabase",  # what a signing fleet takes from its journal
    "SharedRate",  # what a suite asks of SharedLimits
    *("ClockState", "SupportsAdvance"),  # how clocks of tests are stored and followed
}
"""Types in signatures that programs do not write: they pass them from one object to another."""


def _public_names(module: ModuleType) -> list[str]:
    own = [name for name, value in vars(module).items() if getattr(value, "__module__", None) == module.__name__]
    return [name for name in getattr(module, "__all__", own) if not name.startswith("_")]


def _annotations_of(cls: type) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the annotations of a class's fields, methods and overloads, each with its module."""
    for base in cls.__mro__:
        fields = {name: kind for name, kind in vars(base).get("__annotations__", {}).items() if name[0] != "_"}
        yield base.__module__, fields
    for name, member in inspect.getmembers_static(cls):
        is_made_by_the_suite = name == "__init__" and cls in FACADES and cls is not ds.DirectSuite
        if name.startswith("_") and (name != "__init__" or is_made_by_the_suite):
            continue
        function = inspect.unwrap(getattr(member, "__func__", getattr(member, "fget", member)))
        if inspect.isfunction(function):
            for each in (function, *get_overloads(function)):
                yield each.__module__, each.__annotations__


@functools.cache
def _names_of_the_package(module: str) -> set[str]:
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("directsuite"):
            found |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return {name for name in found if not isinstance(getattr(sys.modules[module], name, None), TypeVar)}


@functools.cache
def _find_names(annotation: str) -> set[str]:
    return {node.id for node in ast.walk(ast.parse(annotation, mode="eval")) if isinstance(node, ast.Name)}


def test_every_type_in_a_public_signature_can_be_imported() -> None:
    public = {name: getattr(module, name) for module in PUBLIC_MODULES for name in _public_names(module)}
    allowed = public.keys() | NOT_FOR_USERS
    hidden = {
        f"{name} of {cls.__name__}"
        for cls in {each for each in public.values() if isinstance(each, type)}
        if cls.__module__.startswith("directsuite.")
        for written_in, annotations in _annotations_of(cls)
        if written_in.startswith("directsuite.")
        for annotation in annotations.values()
        for name in (_find_names(str(annotation)) - allowed) & _names_of_the_package(written_in)
    }
    assert hidden == set()


BASES = {base for name in NAMES for base in getattr(getattr(ds, name), "__mro__", ())}
MODELS = {base for base in BASES - {Model} if issubclass(base, Model)}
"""The types of the specification that users see, with their base classes."""


def test_help_shows_the_explanation_of_each_field() -> None:
    fields = [(model, name) for model in MODELS for name in vars(model)["__slots__"] if name != "__weakref__"]
    assert [(model, name) for model, name in fields if not inspect.getdoc(vars(model)[name])] == []


def test_help_of_a_model_whose_source_is_missing_has_no_explanations(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> str:
        raise OSError

    monkeypatch.setattr(inspect, "getsource", fail)
    assert _FieldDocs(ds.Signature)["gs_name"] is None
