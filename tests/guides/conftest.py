"""A sandbox with Alice's mailbox, and a suite on it."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

import directsuite as ds
from directsuite.sandbox import Sandbox
from tests.guides.documents import ALICE


@pytest.fixture
async def sandbox() -> AsyncGenerator[Sandbox]:
    async with Sandbox() as running:
        await running.add_account(*ALICE)
        yield running


@pytest.fixture
def environment(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the variables with which programs use the sandbox."""
    for name, value in sandbox.environment.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
async def suite(sandbox: Sandbox) -> AsyncGenerator[ds.DirectSuite]:
    async with ds.DirectSuite.from_env(sandbox.environment) as suite:
        yield suite
