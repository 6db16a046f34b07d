"""ValueSemantics behaves like the methods that attrs generates."""

from __future__ import annotations

from typing import Any

import attrs
from hypothesis import given
from hypothesis import strategies as st

from directsuite.wire.models import ValueSemantics


@attrs.frozen
class Generated:
    """The class with attrs' methods."""

    number: int
    text: str = ""
    hidden: str = attrs.field(default="", repr=False)
    note: str = attrs.field(default="", eq=False)


@attrs.frozen(eq=False, repr=False)
class Written(ValueSemantics):
    """The same class with the methods of ValueSemantics."""

    number: int
    text: str = ""
    hidden: str = attrs.field(default="", repr=False)
    note: str = attrs.field(default="", eq=False)


VALUES = st.tuples(st.integers(0, 1), *[st.sampled_from(["", "a"])] * 3)


@given(VALUES, VALUES)
def test_equality_and_hash_are_those_of_attrs(one: Any, other: Any) -> None:
    equal = Generated(*one) == Generated(*other)
    assert (Written(*one) == Written(*other)) is equal
    assert (Written(*one) != Written(*other)) is not equal
    assert len({Written(*one), Written(*other)}) == len({Generated(*one), Generated(*other)})
    assert Written(*one) != Generated(*one)


@given(VALUES)
def test_repr_is_that_of_attrs(values: Any) -> None:
    assert repr(Written(*values)) == repr(Generated(*values)).replace("Generated", "Written")
