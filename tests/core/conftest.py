"""Fixtures of the core's tests, which run in virtual time against a scripted server on loopback."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING

import pytest

from .scripted_server import ScriptedServer
from .scripted_suite import DOCUMENT, make_service, open_suite
from .virtual_time import LoopClock, VirtualTimeLoop

if TYPE_CHECKING:
    import asyncio

    import directsuite as ds


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"virtual time": VirtualTimeLoop}


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    """Return a server on which all calls succeed, unless scripted otherwise."""
    async with ScriptedServer(make_service(DOCUMENT)) as running:
        yield running


@pytest.fixture
async def suite(server: ScriptedServer) -> AsyncIterator[ds.DirectSuite]:
    """Return a suite on the scripted server, which may leave no slot, connection or task behind."""
    async with open_suite(server) as running:
        yield running


@pytest.fixture
def clock() -> LoopClock:
    return LoopClock()
