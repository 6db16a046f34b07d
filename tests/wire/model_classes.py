"""The model classes of `directsuite.types`, and hypothesis strategies for their instances."""

from __future__ import annotations

import types
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

import attrs
import hypothesis.strategies as st

from directsuite import Model, OpenEnum, Secret
from directsuite import types as specification
from directsuite.core.content import Content
from directsuite.wire.models import MAX_UID, validate_text

MODEL_CLASSES: list[type[Model]] = [
    cls
    for name in vars(specification)["__all__"]
    if isinstance(cls := getattr(specification, name), type) and issubclass(cls, Model)
]

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
"""Texts that can be encoded in UTF-8."""

JSON_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)

UNKNOWN_MEMBERS: st.SearchStrategy[dict[str, Any]] = st.dictionaries(
    TEXTS.map(lambda text: f"x-{text}"), JSON_VALUES, max_size=2
)

_BASE64_OF_NULL = b"\x9e\xe9e"

_LEAVES: dict[Any, st.SearchStrategy[Any]] = {
    str: TEXTS | st.sampled_from(["null", "", "true", "0", "2016-07-05"]),
    int: st.integers() | st.sampled_from([2**63, 2**64, -(2**63) - 1]),
    float: st.floats(allow_nan=False, allow_infinity=False),
    bool: st.booleans(),
    bytes: st.binary(max_size=40) | st.just(_BASE64_OF_NULL),
    datetime: st.datetimes(timezones=st.just(UTC)),
    Secret: st.builds(Secret, TEXTS | st.just("null")),
    Path: st.nothing(),  # never on the wire
    Content: st.nothing(),
}


def _is_no_day(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return text != "null"  # empty in a date
    return False


def build_values(annotation: Any) -> st.SearchStrategy[Any]:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (types.UnionType, Union):
        kinds = set(arguments) - {type(None)}
        found = st.dates() | TEXTS.filter(_is_no_day) if kinds == {date, str} else build_values(kinds.pop())
        return st.none() | found if type(None) in arguments else found
    if origin is list:
        return st.lists(build_values(arguments[0]), max_size=2)
    if origin is dict:
        return st.dictionaries(TEXTS | st.sampled_from(["key", "value"]), TEXTS, max_size=3)
    if issubclass(annotation, Model):
        return build_instances(annotation)
    if issubclass(annotation, OpenEnum):
        return st.sampled_from(list(annotation)) | TEXTS.filter(lambda text: text != "null").map(annotation)
    return _LEAVES[annotation]


def list_field_types(cls: type[Model]) -> dict[str, Any]:
    hints = get_type_hints(cls)
    return {field.name: hints[field.name] for field in attrs.fields(cls) if field.name != "extra"}


def build_instances(cls: type[Model]) -> st.SearchStrategy[Model]:
    fields = {name: build_values(annotation) for name, annotation in list_field_types(cls).items()}
    for field in attrs.fields(cls):
        if field.validator is validate_text:
            fields[field.name] = fields[field.name].filter(bool)
    if "uids" in fields:
        fields["uids"] = st.lists(st.integers(0, MAX_UID), max_size=2)
    return st.builds(cls, **fields, extra=UNKNOWN_MEMBERS)
