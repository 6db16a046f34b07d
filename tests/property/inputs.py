"""Strategies for valid, damaged and hostile responses, for texts of headers, and for places to cut."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import strategies as st

from .hostile import BODIES, CODES, CONTENT_TYPES, DEPTHS, RETRY_AFTERS, STATUSES, VALUES, nest
from .sample_responses import MARKER, OPERATIONS, SAMPLE_RESPONSES, Place, list_member_names, list_places, replace_value

OPERATION = st.sampled_from(OPERATIONS)
STATUS = st.integers(0, 999) | st.sampled_from(STATUSES)
CUTS = st.lists(st.integers(min_value=0, max_value=100_000), max_size=6)

TEXT = st.text(max_size=60) | st.sampled_from([*RETRY_AFTERS, *CONTENT_TYPES])
HEADERS = st.fixed_dictionaries({}, optional={"Retry-After": TEXT, "Content-Type": TEXT})

_NAME = st.sampled_from(
    sorted(set[str]().union(*map(list_member_names, SAMPLE_RESPONSES.values())) | {"code", "error"})
)
_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
_HOSTILE = st.sampled_from([msgspec.Raw(value) for value in (*VALUES, *CODES)])
_LEAF = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.just(MARKER) | _TEXT | _HOSTILE
_DOCUMENT: st.SearchStrategy[Any] = st.recursive(
    _LEAF, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_NAME | _TEXT, inner, max_size=6), max_leaves=30
)


@st.composite
def _spoil_response(draw: st.DrawFn) -> bytes:
    document = draw(st.sampled_from(list(SAMPLE_RESPONSES.values())))
    for _ in range(draw(st.integers(1, 2))):
        spots = list[Place](list_places(document))
        document = replace_value(document, draw(st.sampled_from(spots)), draw(_DOCUMENT))
    return msgspec.json.encode(document)


@st.composite
def _damage_body(draw: st.DrawFn) -> bytes:
    body = draw(_spoil_response() | st.sampled_from(BODIES))
    start = draw(st.integers(0, len(body)))
    return body[:start] + draw(st.binary(max_size=8)) + body[draw(st.integers(start, len(body))) :]


_DEEP = st.builds(
    nest, st.sampled_from([b"[", b'{"a":', b'{"messages":[', b'{"metaData":']), st.just(b""), st.sampled_from(DEPTHS)
)

BODY = st.one_of(
    st.binary(max_size=200),
    st.sampled_from(BODIES),
    _DOCUMENT.map(msgspec.json.encode),
    _spoil_response(),
    _damage_body(),
    _DEEP,
)
"""Any bytes, most of them similar to a response."""

STREAM = BODY | st.text('{}[]",:\\ messages01é', max_size=80).map(str.encode) | st.text("YQ= \r\n/+").map(str.encode)
"""Any bytes, most of them similar to a stream."""
