"""1,000 messages take as many requests as one, where they are sent together, and few more where they are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.jobs.delivery.thousand import LONG, ROWS, measured, one_by_one

AT_MOST = {"one, never confirmed": 11, "1,000 at once": 11, "1,000 within 100 seconds": 40}


@pytest.mark.by_default(1)
@pytest.mark.parametrize(("messages", "every", "words"), ROWS, ids=[words for *_, words in ROWS])
async def test_all_come_to_their_ends_in_few_requests(messages: int, every: float, words: str, tmp_path: Path) -> None:
    figures = await measured(tmp_path, messages, every)
    assert sum(figures.ends.values()) == messages
    assert figures.ends["NO MDN Received"] == max(1, messages // 10)
    assert figures.requests <= AT_MOST[words]


@pytest.mark.slow
async def test_those_of_an_hour_take_a_fraction_of_what_they_would_take_one_by_one(tmp_path: Path) -> None:
    messages, every, _ = LONG
    figures = await measured(tmp_path, messages, every)
    assert sum(figures.ends.values()) == messages
    assert figures.requests <= 800
    assert one_by_one(messages) == 4_400
