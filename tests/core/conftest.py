"""Fixtures of the core's tests, which run in virtual time against a scripted server on loopback."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING

import pytest

from . import responses
from .scripted_server import ScriptedServer
from .virtual_time import LoopClock, VirtualTimeLoop

if TYPE_CHECKING:
    import asyncio


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"virtual time": VirtualTimeLoop}


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    """Return a server that responds with a success in the form of the service, unless scripted otherwise."""
    async with ScriptedServer(responses.respond({"success": True, "code": 0, "count": 7})) as running:
        yield running


@pytest.fixture
def clock() -> LoopClock:
    return LoopClock()
