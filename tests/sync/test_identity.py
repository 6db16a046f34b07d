"""Comparing messages and their metadata with rows: either can prove that a message is the recorded one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import attrs
import pytest

from directsuite.messaging.models import MessageDetail
from directsuite.sync.decide import (
    Match,
    compute_digest,
    compute_identity,
    find_match,
    has_content,
    read_received_ms,
    read_size,
)
from directsuite.sync.model import MessageRow, MessageState

RECEIVED = datetime(2026, 5, 1, 12, 0, 0, 123_000, tzinfo=UTC)
STRONG = MessageDetail(
    uid=1, msg_id="<1@x>", received_date=RECEIVED, size=100, sender="a@b.test", subject="Referral", body="Text"
)
WEAK = attrs.evolve(STRONG, msg_id=None)


def recorded(message: MessageDetail) -> MessageRow:
    return MessageRow(
        folder=1,
        uid_validity=1,
        uid=1,
        state=MessageState.LIVE,
        identity=compute_identity(message, read_received_ms(message), read_size(message)),
        digest=compute_digest(message),
        size=read_size(message),
        received_ms=read_received_ms(message),
    )


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({}, Match.SAME),
        ({"size": None}, Match.SAME),
        ({"size": 107}, Match.SAME),
        ({"received_date": RECEIVED.replace(microsecond=0)}, Match.SAME),
        ({"received_date": None}, Match.SAME),
        ({"sender": None, "subject": None}, Match.SAME),
        ({"received_date": RECEIVED + timedelta(seconds=1)}, Match.DIFFERENT),
        ({"msg_id": None}, Match.UNPROVEN),
        ({"msg_id": "<2@x>"}, Match.DIFFERENT),
    ],
)
def test_metadata_prove_the_message_by_its_message_id(changes: dict[str, Any], match: Match) -> None:
    assert find_match(attrs.evolve(STRONG, **changes), recorded(STRONG)) is match


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({}, Match.LIKELY),
        ({"size": None}, Match.UNPROVEN),
        ({"received_date": None}, Match.UNPROVEN),
        ({"subject": "Another"}, Match.UNPROVEN),
        ({"msg_id": "<1@x>"}, Match.DIFFERENT),
    ],
)
def test_metadata_without_message_id_prove_nothing(changes: dict[str, Any], match: Match) -> None:
    assert find_match(attrs.evolve(WEAK, **changes), recorded(WEAK)) is match


def test_row_that_was_made_from_metadata_is_compared_with_metadata() -> None:
    metadata = attrs.evolve(STRONG, size=None, received_date=None, body=None)
    row = attrs.evolve(recorded(metadata), size=-1, digest=None)
    assert find_match(metadata, row) is Match.SAME


@pytest.mark.exhaustive
@pytest.mark.parametrize("first", [{}, {"received_date": None}, {"size": None}, {"size": None, "received_date": None}])
@pytest.mark.parametrize("second", [{}, {"received_date": None}, {"size": None}])
def test_content_is_the_same_without_a_date_or_size(first: dict[str, Any], second: dict[str, Any]) -> None:
    row = recorded(attrs.evolve(STRONG, **first))
    assert has_content(attrs.evolve(STRONG, **second), row)
    assert not has_content(attrs.evolve(STRONG, **second, body="Other"), row)


def test_content_differs_if_two_known_dates_or_sizes_do() -> None:
    assert not has_content(attrs.evolve(STRONG, size=101), recorded(STRONG))
    assert not has_content(attrs.evolve(STRONG, received_date=RECEIVED + timedelta(hours=1)), recorded(STRONG))
