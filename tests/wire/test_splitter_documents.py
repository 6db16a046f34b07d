"""Whole documents and spoilt ones, cut everywhere, against the reading of the whole."""

from __future__ import annotations

import contextlib
from typing import Any, cast

import pytest
from hypothesis import strategies as st

from directsuite.wire.parsing import ArraySplitter, MismatchError, parse
from tests.property.run_lengths import check_property, parametrize_examples
from tests.wire.split_documents import (
    ARRAYS,
    KEY,
    MEMBERS,
    Member,
    collect_outcome,
    compute_expected,
    format_document,
    split_at,
    split_into_bytes,
)

pytestmark = pytest.mark.wide

_LONGEST = 150  # the places at which a document is cut in two
SPACES = st.sampled_from(["", " ", "\t\r\n"])
CUTS = st.lists(st.integers(0, 10_000), max_size=8)
Edit = tuple[str, int, int]
EDITS = st.tuples(
    st.sampled_from(["delete", "insert", "replace"]),
    st.integers(0, 10_000),
    st.sampled_from(b'"\\{}[],: n0-te\xff\xc3\x80\x00\n') | st.integers(0, 255),
)
AROUND = st.lists(st.sampled_from([('"code"', "0"), ('"success"', "true"), ('"x"', '["]"]')]), max_size=2)


def _spoilt(text: bytes, edit: Edit, start: int = 0) -> bytes:
    kind, place, byte = edit
    position = start + place % (len(text) - start)
    changed = b"" if kind == "delete" else bytes([byte])
    return text[:position] + changed + text[position + (kind != "insert") :]


def _reading(text: bytes) -> Any:
    try:
        return parse(text)
    except MismatchError:
        return None


def _is_seen_wherever_it_is_cut(text: bytes, cuts: list[int], expected: str) -> None:
    assert (
        collect_outcome([text])
        == collect_outcome(split_into_bytes(text))
        == collect_outcome(split_at(text, cuts))
        == expected
    )
    for position in range(1, min(len(text), _LONGEST)):
        assert collect_outcome([text[:position], text[position:]]) == expected


@parametrize_examples
def test_elements_and_rest_are_those_of_the_whole_wherever_it_is_cut(examples: int) -> None:
    def check(members: list[Member], space: str, cuts: list[int]) -> None:
        text, (elements, rest) = format_document(members, space), compute_expected(members)
        assert [*_reading(text)] == [*rest]
        _is_seen_wherever_it_is_cut(text, cuts, repr((elements, rest)))

    check_property(examples, check, MEMBERS, SPACES, CUTS)


@parametrize_examples
def test_what_the_parser_rejects_is_rejected_at_the_latest_at_the_end(examples: int) -> None:
    def check(members: list[Member], space: str, edit: Edit, cuts: list[int]) -> None:
        text = _spoilt(format_document(members, space), edit)
        whole = _reading(text)
        splitter, refused, rest = ArraySplitter(KEY), False, None
        try:
            for _ in splitter.feed(text):
                pass
            rest = splitter.finish()
        except MismatchError:
            refused = True
        assert refused == (not isinstance(whole, dict))
        if rest is not None:
            assert [*rest] == [*whole]
            assert all(repr(rest[name]) == repr(whole[name]) for name in rest if name != KEY)
        _is_seen_wherever_it_is_cut(text, cuts, collect_outcome([text]))

    check_property(examples, check, MEMBERS, SPACES, EDITS, CUTS)


@parametrize_examples
def test_elements_before_damage_are_those_of_intact_part(examples: int) -> None:
    def check(before: list[Member], array: str, after: list[Member], edit: Edit) -> None:
        member = (f'"{KEY}"', array)
        text = format_document([*before, member, *after])
        start = len(format_document([*before, member])) - len(array.encode())  # after the opening bracket
        text = _spoilt(text, edit, start)
        splitter, elements = ArraySplitter(KEY), list[Any]()
        with contextlib.suppress(MismatchError):
            elements.extend(splitter.feed(text))
        ends = [place for place in range(start, len(text)) if text[place] in b",]}"]
        parts = [cast("dict[str, list[Any]] | None", _reading(text[:end] + b"]}")) for end in ends]
        assert repr(elements) == repr(max((part[KEY] for part in parts if part), key=len, default=list[Any]()))

    check_property(examples, check, AROUND, ARRAYS, AROUND, EDITS)
