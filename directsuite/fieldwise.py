"""attrs classes that compare, hash and show themselves field by field, with methods that are written once.

attrs generates these methods for each class anew, which takes a third of the time in which a class is made: of a
hundred of them, a good part of the time in which a program starts.
"""

from __future__ import annotations

from typing import Any

import attrs


@attrs.frozen(eq=False, repr=False)
class Fieldwise:
    """A base for attrs classes that are made with eq=False and repr=False; it does what attrs' own methods would."""

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return all(getattr(self, field.name) == getattr(other, field.name) for field in _compared(self))

    def __hash__(self) -> int:
        return hash((type(self), *(getattr(self, field.name) for field in _compared(self))))

    def __repr__(self) -> str:
        shown = (f"{field.name}={getattr(self, field.name)!r}" for field in attrs.fields(type(self)) if field.repr)
        return f"{type(self).__name__}({', '.join(shown)})"


def _compared(record: Fieldwise) -> list[attrs.Attribute[Any]]:
    return [field for field in attrs.fields(type(record)) if field.eq]
