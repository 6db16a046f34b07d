"""Requests, statements, commits and memory of usual work do not grow."""

from __future__ import annotations

import json

import pytest

from benchmarks.counts import COUNTS_PATH, VERSION, find_regressions, measure_counts


@pytest.mark.process
def test_counts_do_not_grow() -> None:
    recorded = json.loads(COUNTS_PATH.read_text(encoding="utf-8"))
    found = measure_counts()
    assert found.keys() == recorded["counts"].keys(), "Run `python -m benchmarks counts`."
    assert find_regressions(recorded["counts"], found, memory=recorded["python"] == VERSION) == []


def test_one_more_request_is_a_regression_and_a_little_memory_is_not() -> None:
    recorded = {"a call": {"requests": 1, "peak": 1_000}}
    assert find_regressions(recorded, {"a call": {"requests": 1, "peak": 1_250}}, memory=True) == []
    assert find_regressions(recorded, {"a call": {"requests": 2, "peak": 1_300}}, memory=True) == [
        "a call: 2 requests, 1 before",
        "a call: 1,300 peak, 1,000 before",
    ]
    assert find_regressions(recorded, {"a call": {"requests": 1, "peak": 9_000}}, memory=False) == []
