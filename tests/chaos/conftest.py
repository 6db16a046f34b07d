"""The sandbox and the suite of the tests of verification, and virtual time for the tests of leaks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

import pytest

from tests.core.virtual_time import VirtualTimeLoop

from .verification_scenario import VerificationScenario, open_scenario


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    if "captured" in getattr(item, "fixturenames", ()):
        return {"virtual time": VirtualTimeLoop}
    return {"real time": asyncio.new_event_loop}


@pytest.fixture
async def scenario() -> AsyncIterator[VerificationScenario]:
    async with open_scenario() as running:
        yield running
