"""Streams are read the same however they are cut."""

from __future__ import annotations

import pytest

from .hostile import BODIES, VALUES
from .inputs import CUTS, STREAM
from .oracles import check_split_equals_unsplit
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
