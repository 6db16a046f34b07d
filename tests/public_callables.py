"""Finds every public callable of the package, and calls each with planted values."""

from __future__ import annotations

import contextlib
import enum
import importlib
import inspect
import pkgutil
import re
from collections.abc import AsyncIterable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from types import FunctionType
from typing import Any

import attrs

import directsuite as ds
import directsuite.jobs
from directsuite.core.privacy import SCRUBBED_DUNDERS
from tests.chaos.leak_capture import collect_error_texts, collect_frame_locals

MARKER = "sentinel-jane-doe"
_IMPORT = re.compile(r"^\s*from (directsuite[\w.]*) import ", re.MULTILINE)
_MODULES = (
    "directsuite",
    "directsuite.types",
    "directsuite.sync",
    "directsuite.sync.fleet",
    "directsuite.sync.postgres",
    "directsuite.sync.shared_limits",
    "directsuite.testing",
)


@attrs.frozen
class PublicCallable:
    """A function, a constructor or a method that users may call."""

    owner: type[Any] | None
    """The public class of a method or constructor."""
    name: str
    function: Callable[..., Any]
    """What is defined, without `self` bound."""
    is_bound_to_class: bool = False

    def __str__(self) -> str:
        return self.name if self.owner is None else f"{self.owner.__qualname__}.{self.name}"


def list_public_modules() -> list[str]:
    """Return the modules that users import from: the list above, the jobs, and the imports in guides."""
    jobs = [each.name for each in pkgutil.iter_modules(directsuite.jobs.__path__, "directsuite.jobs.")]
    guides = Path(ds.__file__).parent / "guides"
    named = {name for guide in guides.glob("*.md") for name in _IMPORT.findall(guide.read_text(encoding="utf-8"))}
    client = {name for name in named if not name.startswith("directsuite.sandbox")}
    return sorted({*_MODULES, *jobs, *client})


def list_public_objects() -> list[object]:
    """Return the public classes and functions of the package, each once."""
    found: dict[int, object] = {}
    for name in list_public_modules():
        module = importlib.import_module(name)
        for each in module.__all__:
            value = getattr(module, each)
            found.setdefault(id(value), value)
    return [each for each in found.values() if inspect.isclass(each) or inspect.isfunction(each)]


def list_public_callables() -> Iterator[PublicCallable]:
    """Yield every public callable, without those of exceptions, enums and protocols."""
    for each in list_public_objects():
        if inspect.isfunction(each):
            yield PublicCallable(None, each.__name__, each)
        elif inspect.isclass(each) and not _is_plain(each):
            yield from _list_members(each)


def _is_plain(cls: type[Any]) -> bool:
    return issubclass(cls, BaseException | enum.Enum) or getattr(cls, "_is_protocol", False)


def _list_members(cls: type[Any]) -> Iterator[PublicCallable]:
    names = {name for base in cls.__mro__ if base.__module__.startswith("directsuite") for name in vars(base)}
    for name in sorted(names):
        if name.startswith("_") and name not in SCRUBBED_DUNDERS:
            continue
        member = inspect.getattr_static(cls, name)
        function: object = getattr(member, "__func__", member)
        if isinstance(function, FunctionType):
            yield PublicCallable(cls, name, function, is_bound_to_class=member is not function)


def make_arguments(
    function: Callable[..., Any], plant: Callable[[inspect.Parameter], object]
) -> inspect.BoundArguments:
    """Return arguments for every parameter of a function but `self`, made by `plant`."""
    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())
    if parameters and parameters[0].name in ("self", "cls"):
        parameters = parameters[1:]
    bound = signature.replace(parameters=parameters).bind_partial()
    for each in parameters:
        value = plant(each)
        if each.kind is each.VAR_POSITIONAL:
            bound.arguments[each.name] = (value,)
        elif each.kind is each.VAR_KEYWORD:
            bound.arguments[each.name] = {MARKER.replace("-", "_"): value}
        else:
            bound.arguments[each.name] = value
    return bound


async def finish(outcome: object) -> None:
    """Await, iterate or enter what a callable returned, as its user would."""
    if inspect.isawaitable(outcome):
        outcome = await outcome
    if isinstance(outcome, AbstractAsyncContextManager):
        async with outcome as entered:  # pyright: ignore[reportUnknownVariableType]
            outcome = entered  # pyright: ignore[reportUnknownVariableType]
            if isinstance(outcome, AsyncIterable):
                async for _ in outcome:  # pyright: ignore[reportUnknownVariableType]
                    break
        return
    if isinstance(outcome, AsyncIterable) and not isinstance(outcome, ds.DirectSuite):
        iterator = aiter(outcome)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        with contextlib.suppress(StopAsyncIteration):
            await anext(iterator)  # pyright: ignore[reportUnknownArgumentType]
        close = getattr(iterator, "aclose", None)  # pyright: ignore[reportUnknownArgumentType]
        if close is not None:
            await close()
    elif isinstance(outcome, AbstractContextManager):
        with outcome:
            pass


def find_leaks(error: BaseException) -> list[str]:
    """Return the places in which an error shows a planted value."""
    texts = (*collect_error_texts(error), *collect_frame_locals(error))
    return [place for place, text in texts if MARKER in text]


def make_plain_value(parameter: inspect.Parameter) -> object:
    """Return a value of the kind that a parameter expects, with the marker in it."""
    if parameter.name == "timeout":
        return 20.0
    expected = str(parameter.annotation)
    if expected.startswith(("Iterable[int", "Sequence[int", "list[int")):
        return [7]
    if "[str]" in expected or "str | AsyncIterable" in expected:
        return [MARKER]
    for name, value in _BY_TYPE.items():
        if re.search(rf"\b{name}\b", expected):
            return value() if callable(value) else value
    return MARKER


_BY_TYPE: dict[str, Any] = {
    "datetime": datetime(2026, 1, 1, tzinfo=UTC),
    "timedelta": -1,
    "MessageWithHeader": lambda: ds.MessageWithHeader(subject=MARKER, recipients=[ds.Recipient("a@b.test")]),
    "Message": lambda: ds.Message(subject=MARKER, body=MARKER, recipients=[ds.Recipient("a@b.test")]),
    "Recipient": lambda: [ds.Recipient(f"{MARKER}@direct.example.test")],
    "RawMessage": lambda: [ds.RawMessage(data=MARKER.encode())],
    "UserPassword": lambda: [ds.UserPassword(MARKER, MARKER)],
    "IDProofedIndividualRESTful": lambda: ds.IDProofedIndividualRESTful(first_name=MARKER),
    "IDProofedIndividual": lambda: ds.IDProofedIndividual(first_name=MARKER),
    "Source": f"%PDF-1.7 {MARKER}".encode(),
    "bytes": MARKER.encode(),
    "bool": True,
    "int": 7,
    "float": 0.001,
}
