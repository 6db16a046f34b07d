"""Requests, statements, commits and memory of the usual work: none takes more than it did."""

from __future__ import annotations

import json

import pytest

from benchmarks.counts import COUNTS_PATH, VERSION, find_regressions, measure_counts


@pytest.mark.process
def test_nothing_takes_more_than_it_did() -> None:
    kept = json.loads(COUNTS_PATH.read_text(encoding="utf-8"))
    found = measure_counts()
    assert found.keys() == kept["counts"].keys(), "count anew: python -m benchmarks counts"
    assert find_regressions(kept["counts"], found, memory=kept["python"] == VERSION) == []


def test_one_request_more_is_worse_and_a_little_memory_is_not() -> None:
    kept = {"a call": {"requests": 1, "peak": 1_000}}
    assert find_regressions(kept, {"a call": {"requests": 1, "peak": 1_250}}, memory=True) == []
    assert find_regressions(kept, {"a call": {"requests": 2, "peak": 1_300}}, memory=True) == [
        "a call: 2 requests, 1 before",
        "a call: 1,300 peak, 1,000 before",
    ]
    assert find_regressions(kept, {"a call": {"requests": 1, "peak": 9_000}}, memory=False) == []
