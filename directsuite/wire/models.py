"""What the models of all services share: the base class, the mark for a wire name, enums that stay open.

A model is a frozen, slotted, keyword-only attrs class. Its fields are snake_case here and camelCase on the wire;
`Annotated[..., Wire("GMTOffset")]` gives the specification's spelling where it is another. Fields that the
specification doesn't know stay in `extra` and go back out. A `repr` shows only what `_shown` lists: never a name,
an address, a subject or a body.
"""

from __future__ import annotations

import enum
from typing import Annotated, Any, ClassVar, Self

import attrs

from directsuite.fieldwise import Fieldwise


@attrs.frozen
class Wire:
    """How a field stands on the wire, where that isn't its own name in camelCase.

    name: the specification's spelling. also: other spellings that real servers send, read but never written. always:
    written even where it has its default value, because the specification requires it. local: never on the wire.
    """

    name: str | None = None
    also: tuple[str, ...] = ()
    always: bool = False
    local: bool = False


@attrs.frozen(kw_only=True, repr=False, eq=False)
class Model(Fieldwise):
    """The base of every type of the specification."""

    _shown: ClassVar[tuple[str, ...]] = ()
    _loose: ClassVar[bool] = False
    """Whether the specification leaves the type's fields open: what can't be read as expected stays in `extra`."""

    extra: dict[str, Any] = attrs.field(factory=dict[str, Any])
    """Members of the JSON object that the specification doesn't list, as they came."""

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self._shown)
        return f"{type(self).__name__}({shown})"


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
