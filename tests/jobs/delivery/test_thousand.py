"""1,000 messages need as many requests as one if they are sent together, and few more if they are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.jobs.delivery.thousand import LONG_ROW, count_single_requests, measure_tracking


@pytest.mark.parametrize(
    ("messages", "every", "most"),
    [
        (1, 0.0, 11),
        pytest.param(100, 0.0, 11, marks=pytest.mark.wide),
        pytest.param(100, 1.0, 40, marks=pytest.mark.wide),
        pytest.param(1_000, 0.0, 11, marks=pytest.mark.slow),
        pytest.param(1_000, 0.1, 40, marks=pytest.mark.slow),
    ],
)
async def test_all_messages_become_final_with_few_requests(
    messages: int, every: float, most: int, tmp_path: Path
) -> None:
    figures = await measure_tracking(tmp_path, messages, every)
    assert sum(figures.ends.values()) == messages
    assert figures.ends["NO MDN Received"] == max(1, messages // 10)
    assert figures.requests <= most


@pytest.mark.slow
async def test_batched_polls_take_few_requests_for_an_hour(tmp_path: Path) -> None:
    messages, every, _ = LONG_ROW
    figures = await measure_tracking(tmp_path, messages, every)
    assert sum(figures.ends.values()) == messages
    assert figures.requests <= 800
    assert count_single_requests(messages) == 4_400
