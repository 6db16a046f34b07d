"""A fresh sandbox with people in it for each test, and a client of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from .world import World, client_of, peopled_sandbox

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from directsuite.sandbox.server import Sandbox


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with peopled_sandbox() as sandbox:
        yield sandbox


@pytest.fixture
async def world(sandbox: Sandbox, tmp_path: Path) -> AsyncIterator[World]:
    async with client_of(sandbox, tmp_path) as world:
        yield world
