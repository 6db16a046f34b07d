"""What the models of all services share: base classes, the mark for a wire name, enums that stay open, validators.

A model is a frozen, slotted, keyword-only attrs class. Its fields are snake_case here and camelCase on the wire;
`Annotated[..., Wire("GMTOffset")]` gives the specification's spelling where it is another. Fields that the
specification doesn't know stay in `extra` and go back out. A `repr` shows only what `_shown` lists: never a name,
an address, a subject or a body.
"""

from __future__ import annotations

import enum
import sys
from collections.abc import Iterable
from typing import Annotated, Any, ClassVar, Self, TypeVar, cast

import attrs

from directsuite.errors import InvalidArgumentError
from directsuite.secret import Secret

T = TypeVar("T")


@attrs.frozen
class Wire:
    """How a field stands on the wire, where that isn't its own name in camelCase."""

    name: str | None = None
    """The specification's spelling."""
    also: tuple[str, ...] = ()
    """Other spellings, which real servers send: read but never written."""
    always: bool = False
    """Whether it is written even where it has its default value, because the specification requires it."""
    local: bool = False
    """Whether it is never on the wire."""


@attrs.frozen(eq=False, repr=False)
class ValueSemantics:
    """A base for attrs classes that are made with eq=False and repr=False; it does what attrs' own methods would.

    attrs generates these methods for each class anew, which takes a third of the time in which a class is made: of a
    hundred of them, a good part of the time in which a program starts.
    """

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return all(getattr(self, field.name) == getattr(other, field.name) for field in _compared(self))

    def __hash__(self) -> int:
        return hash((type(self), *(getattr(self, field.name) for field in _compared(self))))

    def __repr__(self) -> str:
        shown = (f"{field.name}={getattr(self, field.name)!r}" for field in attrs.fields(type(self)) if field.repr)
        return f"{type(self).__name__}({', '.join(shown)})"


def _compared(record: ValueSemantics) -> list[attrs.Attribute[Any]]:
    return [field for field in attrs.fields(type(record)) if field.eq]


@attrs.frozen(kw_only=True, repr=False, eq=False)
class Model(ValueSemantics):
    """The base of every type of the specification."""

    _shown: ClassVar[tuple[str, ...]] = ()
    _loose: ClassVar[bool] = False
    """Whether the specification leaves the type's fields open: what can't be read as expected stays in `extra`."""

    extra: dict[str, Any] = attrs.field(factory=dict[str, Any])
    """Members of the JSON object that the specification doesn't list, as they came."""

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self._shown)
        return f"{type(self).__name__}({shown})"


def is_loose(cls: type[Model]) -> bool:
    """Return True if the specification leaves the fields of this model open."""
    return cls._loose  # pyright: ignore[reportPrivateUsage]


Uid = Annotated[int, "uid"]
"""A message's number in its folder, where an answer without a good one is of no use."""
MAX_UID = 2**63 - 1


class OpenEnum(enum.StrEnum):
    """An enum that keeps a value it doesn't know: a member of its own, equal to its text, with `is_known` False."""

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        if not isinstance(value, str):
            return None
        member = str.__new__(cls, value)
        member._name_ = value
        member._value_ = value
        return member

    @property
    def is_known(self) -> bool:
        """Whether the specification lists this value."""
        return self._value_ in type(self)._value2member_map_


def require_text(value: object, parameter: str) -> str:
    """The argument, if it is a text that is not empty; else InvalidArgumentError."""
    if not isinstance(value, str) or not value:
        raise InvalidArgumentError("give a text that is not empty", parameter=parameter)
    return value


def require_instance(value: object, cls: type[T], parameter: str) -> T:
    """The argument, if it is an instance of this class; else InvalidArgumentError."""
    if not isinstance(value, cls):
        raise InvalidArgumentError(f"give a {cls.__name__}", parameter=parameter)
    return value


def require_instances(values: object, cls: type[T], parameter: str) -> list[T]:
    """The argument as a list, if it holds instances of this class only; else InvalidArgumentError."""
    listed = list(cast("Iterable[object]", values)) if isinstance(values, Iterable) else [None]
    if not all(isinstance(value, cls) for value in listed):
        raise InvalidArgumentError(f"give a list of {cls.__name__}", parameter=parameter)
    return cast("list[T]", listed)


def is_number(value: object) -> bool:
    """Return True for an int or a float, but not for True, False, NaN and what is too large for a float."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def needs_text(_model: object, field: attrs.Attribute[Any], value: object) -> None:
    """A validator: the field, or the secret in it, is a text that is not empty."""
    require_text(value.reveal() if isinstance(value, Secret) else value, field.name)


def needs_bytes(_model: object, field: attrs.Attribute[Any], value: object) -> None:
    """A validator: the field is bytes, or None where that is its default. A text would go out as it stands."""
    if not isinstance(value, bytes) and not (value is None and field.default is None):
        raise InvalidArgumentError("give bytes", parameter=field.name)


def needs_number(_model: object, field: attrs.Attribute[Any], value: object) -> None:
    """A validator: the field is a finite number, or None. JSON has no other, and null would go out in its place."""
    if value is not None and not is_number(value):
        raise InvalidArgumentError("give a finite number", parameter=field.name)


def needs_whole_number(_model: object, field: attrs.Attribute[Any], value: object) -> None:
    """A validator: the field is a whole number, or None."""
    if value is not None and not (isinstance(value, int) and is_number(value)):
        raise InvalidArgumentError("give a whole number", parameter=field.name)
