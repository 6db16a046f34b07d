"""A large document whose arrays are parsed one element at a time gives what the same document gives as a whole."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from directsuite.messaging.models import GetMessageResponse
from directsuite.wire import parsing
from directsuite.wire.codec import Codec
from directsuite.wire.models import Model, get_model_fields, is_model
from directsuite.wire.parsing import MismatchError
from tests.examples import scale_examples

from .model_classes import MODEL_CLASSES, build_instances

CODEC = Codec()

LISTING = [cls for cls in MODEL_CLASSES if any(is_model(field.item) for field in get_model_fields(cls))]
"""Models with lists of models. Others are always parsed completely."""

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(0, 9) | st.sampled_from(["null", "", "x", "QUJD"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["uid", "content", "x"]), inner),
    max_leaves=6,
)
DOCUMENTS = st.lists(
    st.tuples(st.sampled_from(["messages", "success", "code", "message", "unheardOf"]), VALUES), max_size=5
)


def read(cls: type[Model], document: bytes, *, large: int) -> Model | str:
    """Return the model or the mismatch. large: the minimum size in bytes of a large document."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(parsing, "MIN_LAZY_BYTES", large)
        try:
            return CODEC.decode(cls, document)
        except MismatchError as mismatch:
            return f"{mismatch.path}: {mismatch.expected}"


def alike(cls: type[Model], document: bytes) -> None:
    assert read(cls, document, large=0) == read(cls, document, large=1_000_000)


@pytest.mark.exhaustive(limit=5)
@pytest.mark.parametrize("cls", LISTING, ids=lambda cls: cls.__name__)
@settings(max_examples=scale_examples(40))
@given(data=st.data())
def test_models_are_the_same(cls: type[Model], data: st.DataObject) -> None:
    alike(cls, CODEC.encode(data.draw(build_instances(cls))))


@given(members=DOCUMENTS)
def test_odd_documents_are_read_alike(members: list[tuple[str, Any]]) -> None:
    text = ", ".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in members)
    alike(GetMessageResponse, f" {{{text}}}".encode())


@given(members=DOCUMENTS, place=st.integers(0), inserted=st.binary(max_size=2), removed=st.integers(0, 2))
def test_malformed_documents_are_rejected_alike(
    members: list[tuple[str, Any]], place: int, inserted: bytes, removed: int
) -> None:
    document = json.dumps(dict([("messages", [{"uid": 1, "subject": "\u00e9"}]), *members])).encode()
    place %= len(document)
    spoilt = document[:place] + inserted + document[place + removed :]
    in_parts, whole = (read(GetMessageResponse, spoilt, large=large) for large in (0, 1_000_000))
    assert in_parts == whole or (isinstance(in_parts, str) and isinstance(whole, str))  # of two faults, either is told
