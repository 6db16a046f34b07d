"""The elements of an array, wherever its document is divided, compared with those of the complete document."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from directsuite.wire.parsing import ArraySplitter, MismatchError, parse
from tests.examples import scale_examples
from tests.wire.model_classes import JSON_VALUES
from tests.wire.split_documents import (
    KEY,
    MEMBERS,
    Member,
    assert_same_outcome,
    compute_expected,
    format_document,
)

SPACES = st.sampled_from(["", " ", "\t\r\n"])
CUTS = st.lists(st.integers(0, 10_000), max_size=8)
Edit = tuple[str, int, int]
EDITS = st.tuples(
    st.sampled_from(["delete", "insert", "replace"]),
    st.integers(0, 10_000),
    st.sampled_from(b'"\\{}[],: n0-te\xff\xc3\x80\x00\n') | st.integers(0, 255),
)

FIXED = [
    b'{"messages":[]}',
    b' {"messages" : [ ] , "code":0} ',
    b'{"messages":[1,"a",null,{},[],[[2]],{"messages":[3]}],"code":0}',
    b'{"messages":{"uid":1,"messages":[2]}}',
    b'{"messages":null,"success":true}',
    b'{"messages":7}',
    b'{"messages":"text, with [ and {"}',
    b'{"m\\u0065ssages":[1,2]}',
    b'{"a":{"messages":[1]},"b":[{"messages":[2]}],"messages":[3]}',
    b'{"a":"messages","b":[1],"messages":[2]}',
    b'{"a":"\\"messages\\":[1,2]","messages":["]","\\\\",",\\"]"]}',
    b'{"\\"messages":[1],"messages\\\\":[2]}',
    b'{"messages":["\xf0\x9f\x98\x80","\xc3\xa9"]}',
    b'{"messages":["\xff",{"a":"\xc3"},{"a":"\xed\xa0\xbd"},{"a":"b"}]}',
    b'{"messages":[{"a":"\\ud83d"},{"a":"\\ud83d\\ude00"},{"a":"\\\\ud83d"},{"a":"\\udc00"},{"a":1}]}',
    b'{"a\xff":"\xff","\\ud800":"\\ud800","messages":[1]}',
    b'{"messages":{"a\xff":"\\udfff"}}',
    b'{"code":1.5e3,"messages":[-1,0.5,true,false]}',
    b"{}",
]
MALFORMED = [
    b"",
    b"[]",
    b'["messages",[1]]',
    b'[{"messages":[1]}]',
    b"7",
    b'{"messages":[1}',
    b'{"messages":[1,]}',
    b'{"messages":[,1]}',
    b'{"messages":[1 2]}',
    b'{"messages":[1]',
    b'{"messages":[1],}',
    b'{"messages":{"a":1]}',
    b'{"messages":{"a":1}',
    b'{"messages":[1]}}',
    b'{"messages":[1]}{"messages":[2]}',
    b'{"messages":[1][2]}',
    b'{"messages"[1]}',
    b"{messages:[1]}",
    b'{"messages":[\xff]}',
    b'{\xff"a":1,"messages":[1]}',
    b'{"messages":["a',
]


def damage(text: bytes, edit: Edit) -> bytes:
    kind, place, byte = edit
    position = place % len(text)
    changed = b"" if kind == "delete" else bytes([byte])
    return text[:position] + changed + text[position + (kind != "insert") :]


def parse_or_none(text: bytes) -> Any:
    try:
        return parse(text)
    except MismatchError:
        return None


def split(text: bytes) -> tuple[list[Any], dict[str, Any] | None]:
    """Return the elements, and the rest of the document, or None if it is rejected."""
    splitter, elements = ArraySplitter(KEY), list[Any]()
    try:
        elements.extend(splitter.feed(text))
        return elements, splitter.finish()
    except MismatchError:
        return elements, None


@pytest.mark.exhaustive(limit=6)
@pytest.mark.parametrize("text", FIXED)
def test_listed_document_is_split(text: bytes) -> None:
    document: dict[str, Any] = parse(text)
    found: Any = document.get(KEY)
    elements_by_type: dict[Any, list[Any]] = {list: found}
    elements = elements_by_type.get(type(found), [])
    if type(found) in elements_by_type:
        document[KEY] = list[Any]()
    assert assert_same_outcome(text) == repr((elements, document))


@pytest.mark.exhaustive(limit=6)
@pytest.mark.parametrize("text", MALFORMED)
def test_malformed_document_is_rejected(text: bytes) -> None:
    assert_same_outcome(text)
    assert split(text)[1] is None


@settings(max_examples=scale_examples(40))
@given(members=MEMBERS, space=SPACES, cuts=CUTS)
def test_elements_and_rest_are_those_of_the_document(members: list[Member], space: str, cuts: list[int]) -> None:
    assert assert_same_outcome(format_document(members, space), cuts) == repr(compute_expected(members))


@settings(max_examples=scale_examples(40))
@given(members=MEMBERS, space=SPACES, edit=EDITS, cuts=CUTS)
def test_document_is_rejected_if_the_parser_rejects_it(
    members: list[Member], space: str, edit: Edit, cuts: list[int]
) -> None:
    text = damage(format_document(members, space), edit)
    expected, (_, rest) = parse_or_none(text), split(text)
    assert (rest is None) == (not isinstance(expected, dict))
    if rest is not None:
        assert [*rest] == [*expected]
        assert all(repr(rest[name]) == repr(expected[name]) for name in rest if name != KEY)
    assert_same_outcome(text, cuts)


@given(st.lists(JSON_VALUES, min_size=1, max_size=5))
def test_element_is_yielded_when_it_is_complete(values: list[Any]) -> None:
    splitter = ArraySplitter(KEY)
    assert list(splitter.feed(b'{"messages":[')) == []
    for value in values:
        assert list(splitter.feed(json.dumps(value).encode() + b",")) == [value]


def test_nothing_after_the_end_is_yielded() -> None:
    splitter = ArraySplitter(KEY)
    assert list(splitter.feed(b'{"messages":[1]}{"messages":[2]},"messages":[3],')) == [1]


@pytest.mark.parametrize(
    "text", [b'{"messages"::[1,2],"messages":[3]}', b'PHP Warning {"messages":[1,2]}', b'{"messages": null [1,2]}']
)
def test_no_element_is_yielded_if_the_text_before_it_is_not_json(text: bytes) -> None:
    splitter = ArraySplitter(KEY)
    assert list(splitter.feed(text)) == []
    with pytest.raises(MismatchError):
        splitter.finish()
