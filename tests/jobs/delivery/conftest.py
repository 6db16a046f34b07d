"""Fixtures for the tests of delivery tracking."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from directsuite.jobs.delivery import DeliveryTracker
from tests.jobs.delivery.clinic import Clinic, open_clinic
from tests.jobs.delivery.trackers import TrackerFactory


@pytest.fixture
async def clinic() -> AsyncIterator[Clinic]:
    async with open_clinic() as opened:
        yield opened


@pytest.fixture
def trackers(clinic: Clinic, tmp_path: Path) -> TrackerFactory:
    return TrackerFactory(clinic, tmp_path)


@pytest.fixture
async def tracker(trackers: TrackerFactory) -> AsyncIterator[DeliveryTracker]:
    async with trackers.open_tracker() as tracker:
        yield tracker
