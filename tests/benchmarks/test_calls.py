"""The CPU of a small call."""

from __future__ import annotations

import pytest

from benchmarks.calls import CLIENTS, measure_clients
from benchmarks.server import make_scenario_url, run_server


@pytest.mark.process
async def test_clients_take_turns_in_one_process() -> None:
    with run_server() as url:
        figures = await measure_clients(make_scenario_url(url), 2, 2, 4, CLIENTS)
    assert set(figures) == {*CLIENTS}
    assert min(figures.values()) > 0
