"""A fresh sandbox with people in it for each test, and a client of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from .scenario import Scenario, open_populated_sandbox, open_scenario

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from directsuite.sandbox.server import Sandbox


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with open_populated_sandbox() as sandbox:
        yield sandbox


@pytest.fixture
async def scenario(sandbox: Sandbox, tmp_path: Path) -> AsyncIterator[Scenario]:
    async with open_scenario(sandbox, tmp_path) as world:
        yield world
