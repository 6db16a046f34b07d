"""One array of a document, element by element, against the whole document parsed at once."""

from __future__ import annotations

import json
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from directsuite.wire.parsing import ArraySplitter, MismatchError, parse
from tests.wire.model_classes import JSON_VALUES
from tests.wire.split_documents import KEY, split_document, split_into_bytes


def _whole(document: bytes) -> tuple[list[Any], dict[str, Any]] | None:
    try:
        value = parse(document)
    except MismatchError:
        return None
    if not isinstance(value, dict):
        return None
    members = cast("dict[str, Any]", value)
    found: Any = members.get(KEY)
    if not isinstance(found, dict | list):
        return [], members
    elements: list[Any] = [found] if isinstance(found, dict) else msgspec.convert(found, list[Any])
    return elements, members | {KEY: []}


def _assert_equal_or_both_refused(pieces: list[bytes]) -> None:
    expected = _whole(b"".join(pieces))
    if expected is None:
        with pytest.raises(MismatchError):
            split_document(pieces)
    else:
        assert split_document(pieces) == expected


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


@pytest.mark.parametrize("text", [*FIXED, *MALFORMED])
def test_every_cut_gives_the_same_or_is_rejected_as_the_complete_one_is(text: bytes) -> None:
    for position in range(len(text) + 1):
        _assert_equal_or_both_refused([text[:position], text[position:]])
    _assert_equal_or_both_refused(split_into_bytes(text))


@given(st.lists(JSON_VALUES, min_size=1, max_size=5))
def test_an_element_comes_as_soon_as_it_is_whole(values: list[Any]) -> None:
    splitter = ArraySplitter(KEY)
    assert list(splitter.feed(b'{"messages":[')) == []
    for value in values:
        assert list(splitter.feed(json.dumps(value).encode() + b",")) == [value]


def test_nothing_is_given_from_after_the_end() -> None:
    splitter = ArraySplitter(KEY)
    assert list(splitter.feed(b'{"messages":[1]}{"messages":[2]},"messages":[3],')) == [1]
