"""Virtual time, and a scripted server on loopback with the document of the samples."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.core.conftest import clock, pytest_asyncio_loop_factories, suite
from tests.core.scripted_server import ScriptedServer
from tests.core.scripted_suite import make_service

from .samples import PDF

__all__ = ["clock", "pytest_asyncio_loop_factories", "server", "suite"]


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with ScriptedServer(make_service(PDF)) as running:
        yield running
