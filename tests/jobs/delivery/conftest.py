"""What the tests of delivery tracking start from."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.jobs.delivery.scene import clinic
from tests.jobs.delivery.trackers import Scene


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with clinic() as opened:
        yield Scene(opened, tmp_path)
