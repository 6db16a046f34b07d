"""Streams are read the same however they are cut; texts in a date's, header's or report's place are typed."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st

from .hostile import BODIES, RETRY_AFTERS, VALUES
from .inputs import CUTS, DATE, REPORT, STREAM, TEXT
from .oracles import (
    check_date_is_typed,
    check_report_is_typed,
    check_retry_after_is_seconds,
    check_split_equals_unsplit,
)
from .run_lengths import check_property, parametrize_examples

pytestmark = pytest.mark.wide


@parametrize_examples
def test_stream_is_read_the_same_in_pieces(examples: int) -> None:
    check_property(examples, check_split_equals_unsplit, STREAM, CUTS)


@pytest.mark.exhaustive(limit=16)
@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
def test_hostile_element_is_read_the_same_in_pieces(value: bytes) -> None:
    document = b'{"messages":[%s,%s],"success":true}' % (value, value)
    for position in range(0, len(document), max(1, len(document) // 60)):
        check_split_equals_unsplit(document, [position])


@pytest.mark.parametrize("body", BODIES, ids=range(len(BODIES)))
def test_hostile_stream_is_read_the_same_in_pieces(body: bytes) -> None:
    check_split_equals_unsplit(body, range(0, len(body), max(1, len(body) // 20)))


@parametrize_examples
def test_anything_in_a_date_s_place_is_typed(examples: int) -> None:
    check_property(examples, check_date_is_typed, DATE)


@parametrize_examples
def test_any_retry_after_is_seconds_or_nothing(examples: int) -> None:
    check_property(examples, check_retry_after_is_seconds, TEXT | DATES_OF_HTTP, st.floats(0, 4e9))


DATES_OF_HTTP = st.from_regex(r"(Mon, )?[0-9]{1,2}[ -](Jan|feb|x)[ -,][0-9]{0,5} [0-9:]{0,9} ([+-][0-9]{0,6}|GMT)?")


@pytest.mark.parametrize("text", RETRY_AFTERS)
@pytest.mark.parametrize("now", [0.0, 1_500_000_000.0, 250_000_000_000.0])
def test_hostile_retry_after_is_seconds_or_nothing(text: str, now: float) -> None:
    check_retry_after_is_seconds(text, now)


@parametrize_examples
def test_any_bytes_are_a_report_or_a_typed_error(examples: int) -> None:
    check_property(examples, check_report_is_typed, REPORT)
