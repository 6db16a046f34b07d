"""1,000 messages need as many requests as one if they are sent together, and few more if they are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.jobs.delivery.thousand import LONG_ROW, ROWS, count_single_requests, measure_tracking

AT_MOST = {"1, without confirmation": 11, "1,000 at once": 11, "1,000 within 100 seconds": 40}


@pytest.mark.exhaustive(limit=1)
@pytest.mark.parametrize(("messages", "every", "words"), ROWS, ids=[words for *_, words in ROWS])
async def test_all_messages_become_final_with_few_requests(
    messages: int, every: float, words: str, tmp_path: Path
) -> None:
    figures = await measure_tracking(tmp_path, messages, every)
    assert sum(figures.ends.values()) == messages
    assert figures.ends["NO MDN Received"] == max(1, messages // 10)
    assert figures.requests <= AT_MOST[words]


@pytest.mark.slow
async def test_batched_polls_take_few_requests_for_an_hour(tmp_path: Path) -> None:
    messages, every, _ = LONG_ROW
    figures = await measure_tracking(tmp_path, messages, every)
    assert sum(figures.ends.values()) == messages
    assert figures.requests <= 800
    assert count_single_requests(messages) == 4_400
