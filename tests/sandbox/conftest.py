"""A fresh sandbox for each test, with a clock that stands still, and an HTTP client."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import aiohttp
import pytest

from directsuite.sandbox.clock import Clock
from directsuite.sandbox.server import Sandbox

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    clock = Clock()
    clock.freeze(datetime(2026, 5, 1, 12, tzinfo=UTC))
    async with Sandbox(clock=clock) as running:
        yield running


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


@pytest.fixture
def bearer(sandbox: Sandbox) -> dict[str, str]:
    """The Authorization header of the demo account."""
    return {"Authorization": f"Bearer {sandbox.environment['DIRECTSUITE_TOKEN']}"}
