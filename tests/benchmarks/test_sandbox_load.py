"""The sandbox under load: every request succeeds, and failures are counted."""

from __future__ import annotations

import re
from pathlib import Path

import aiohttp
import pytest

from benchmarks.__main__ import main
from benchmarks.sandbox_load import (
    Load,
    OperationLoad,
    RunningSandbox,
    find_failures,
    format_page,
    list_problems,
    measure_operations,
    run_load,
    run_sandbox,
)
from benchmarks.sandbox_requests import OPERATIONS, PREPARATIONS, SandboxResponse
from tests.operations import METHODS

if TYPE_CHECKING:
    from pathlib import Path


def test_every_operation_is_called() -> None:
    assert {name: method for name, (method, *_) in OPERATIONS.items()} == METHODS
    assert PREPARATIONS.keys() <= METHODS.keys()


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
