"""The sandbox under load: every request succeeds, and failures are counted."""

from __future__ import annotations

import re
from pathlib import Path

import aiohttp
import pytest

from benchmarks.sandbox_load import measure_sandbox, run_load
from benchmarks.server import make_scenario_url, run_server


@pytest.mark.process
async def test_every_request_succeeds(tmp_path: Path) -> None:
    page, problems = await measure_sandbox(tmp_path, 2, 0)
    assert problems == []
    assert len(re.findall(r"\| \w+ \| 2 \| [\d.]+ \| \d+ \|", page)) == 8


@pytest.mark.process
async def test_failed_requests_are_counted() -> None:
    with run_server() as url:
        async with aiohttp.ClientSession() as http:
            load = await run_load(http, [("GET", f"{make_scenario_url(url)}/unknown", None)], 3, 0)
    assert (len(load.seconds), load.failures) == (3, 3)
