"""JSON documents with an array, in every spelling that JSON allows, and the splitter's results."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import msgspec
from hypothesis import strategies as st

from directsuite.wire.parsing import ArraySplitter, MismatchError

KEY = "messages"

Member = tuple[str, str]
"""A name and a value in JSON."""
Split = tuple[list[Any], dict[str, Any]]
"""The elements, and the rest of the document."""

_SPACES = st.sampled_from(["", "", "", " ", "\r\n\t", "  "])
_UNITS = st.sampled_from(
    [
        *"aé☃😀\u2028\u007f{}[],: ",
        r"\"",
        r"\\",
        r"\/",
        r"\n",
        r"\u0041",
        r"\u005c",
        r"\u0022",
        r"\ud83d\ude00",
        '},{\\"uid\\"',
    ]
)
STRINGS = st.lists(_UNITS, max_size=5).map(lambda units: f'"{"".join(units)}"')
_KEYS = st.sampled_from([f'"{KEY}"', f'"{KEY}"', r'"m\u0065ssages"'])
_SCALARS = st.sampled_from(["null", "true", "false", "0", "-1", "1.5e3", "-0.0", "12345678901234567890"]) | STRINGS


@st.composite
def _build_spaced(draw: st.DrawFn, parts: st.SearchStrategy[list[str]], brackets: str) -> str:
    inside = ",".join(f"{draw(_SPACES)}{part}{draw(_SPACES)}" for part in draw(parts))
    return f"{brackets[0]}{inside or draw(_SPACES)}{brackets[1]}"


def _build_arrays(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return _build_spaced(st.lists(values, max_size=4), "[]")


def _build_objects(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    members = st.builds(_format_member, st.tuples(_KEYS | STRINGS, values), _SPACES)
    return _build_spaced(st.lists(members, max_size=3), "{}")


def _format_member(member: Member, space: str) -> str:
    return f"{member[0]}{space}:{space}{member[1]}"


VALUES = st.recursive(_SCALARS, lambda inner: _build_arrays(inner) | _build_objects(inner), max_leaves=8)


@st.composite
def _build_records(draw: st.DrawFn) -> str:
    """Draw an array of similar objects, some of which contain a text like the next one."""
    inner = st.sampled_from(['[{"uid":1},{"uid":2}]', '{"uid":{"uid":3}}', '"},{\\"uid\\":4"']) | VALUES
    before, after = draw(_SPACES), draw(_SPACES)
    values = draw(st.lists(inner, max_size=6))
    records = [before + "{" + after + f'"uid"{after}:{value}' + "}" for value in values]
    return f"[{','.join(records)}]"


ARRAYS = _build_arrays(VALUES) | _build_records()
MEMBERS = st.lists(
    st.tuples(_KEYS, ARRAYS | VALUES | _build_objects(VALUES)) | st.tuples(_KEYS | STRINGS, VALUES),
    min_size=1,
    max_size=4,
)


def format_document(members: Iterable[Member], space: str = "") -> bytes:
    content = f"{space},{space}".join(_format_member(member, space) for member in members)
    return f"{space}{{{space}{content}}}{space}".encode()


DOCUMENTS = st.builds(format_document, MEMBERS, _SPACES)


def compute_expected(members: Iterable[Member]) -> Split:
    elements: list[Any] = []
    rest: dict[str, Any] = {}
    for name, text in members:
        value: Any = msgspec.json.decode(text)
        if msgspec.json.decode(name) == KEY and isinstance(value, list):
            elements += msgspec.convert(value, list[Any])
            value = []
        rest[msgspec.json.decode(name)] = value
    return elements, rest


def split_at(text: bytes, cuts: Iterable[int]) -> list[bytes]:
    edges = [0, *sorted(position % (len(text) + 1) for position in cuts), len(text)]
    return [text[start:end] for start, end in pairwise(edges)]


def collect_outcome(pieces: Iterable[bytes]) -> str:
    splitter, elements = ArraySplitter(KEY), list[Any]()
    try:
        for piece in pieces:
            elements.extend(splitter.feed(piece))  # also keeps elements before a failure
        return repr((elements, splitter.finish()))
    except MismatchError as mismatch:
        return repr((elements, str(mismatch)))


def assert_same_outcome(text: bytes, cuts: Iterable[int] = ()) -> str:
    """Return the outcome of a document, which must be the same wherever the document is divided."""
    expected = collect_outcome([text])
    assert collect_outcome(text[at : at + 1] for at in range(len(text))) == expected
    assert collect_outcome(split_at(text, cuts)) == expected
    for position in range(1, min(len(text), 150)):
        assert collect_outcome([text[:position], text[position:]]) == expected
    return expected
