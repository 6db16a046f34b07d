"""The simulation of latency: its figures follow from the schedule."""

from __future__ import annotations

import pytest

from benchmarks.sync.latency import LatencySetting, simulate


@pytest.mark.wide
def test_a_busy_mailbox_is_heard_of_sooner_and_the_others_wait_alike() -> None:
    found = simulate(LatencySetting("few", 200, 0.1), hours=2)
    assert found.messages > 20
    assert found.busy[1] < 12 < found.longest_pause < 34
    assert found.fairness < 1.1
    assert found.rate < 100
    assert found == simulate(LatencySetting("few", 200, 0.1), hours=2)
