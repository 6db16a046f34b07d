"""What a program may give: checks that name the parameter, and validators for the fields of models.

Models that are read from an answer do not come here: the codec has checks of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar, cast

import attrs

from directsuite.errors import InvalidArgumentError
from directsuite.secret import Secret

T = TypeVar("T")


def text(value: object, parameter: str) -> str:
    """A text that is not empty."""
    if not isinstance(value, str) or not value:
        raise InvalidArgumentError("give a text that is not empty", parameter=parameter)
    return value


def instance(value: object, cls: type[T], parameter: str) -> T:
    """An instance of this class."""
    if not isinstance(value, cls):
        raise InvalidArgumentError(f"give a {cls.__name__}", parameter=parameter)
    return value


def instances(values: object, cls: type[T], parameter: str) -> list[T]:
    """Instances of this class, from anything that can be iterated over."""
    listed = list(cast("Iterable[object]", values)) if isinstance(values, Iterable) else [None]
    if not all(isinstance(value, cls) for value in listed):
        raise InvalidArgumentError(f"give a list of {cls.__name__}", parameter=parameter)
    return cast("list[T]", listed)


def needs_text(_model: object, field: attrs.Attribute[Any], value: object) -> None:
    """A validator: the field, or the secret in it, is a text that is not empty."""
    text(value.reveal() if isinstance(value, Secret) else value, field.name)


def needs_bytes(_model: object, field: attrs.Attribute[Any], value: object) -> None:
    """A validator: the field is bytes, or None where that is its default. A text would go out as it stands."""
    if not isinstance(value, bytes) and not (value is None and field.default is None):
        raise InvalidArgumentError("give bytes", parameter=field.name)
