"""Fixtures for the tests of delivery tracking."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.jobs.delivery.clinic import open_clinic
from tests.jobs.delivery.trackers import TrackerFactory


@pytest.fixture
async def trackers(tmp_path: Path) -> AsyncIterator[TrackerFactory]:
    async with open_clinic() as opened:
        yield TrackerFactory(opened, tmp_path)
