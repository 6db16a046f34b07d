"""A session factory that returns no session is rejected when the suite is opened."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest

import directsuite as ds

from .scripted_server import ScriptedServer
from .scripted_suite import open_suite


async def makes_one_later() -> aiohttp.ClientSession:
    return aiohttp.ClientSession()


class Looks:
    pass


@pytest.mark.exhaustive(limit=1)
@pytest.mark.parametrize("factory", [makes_one_later, lambda: None, Looks], ids=["async", "none", "another"])
@pytest.mark.parametrize("close_session", [True, False])
async def test_factory_that_gives_no_session_is_rejected(
    server: ScriptedServer, factory: Callable[[], Any], *, close_session: bool
) -> None:
    with pytest.raises(ds.ConfigurationError, match=r"session_factory must return .*a plain function") as caught:
        async with open_suite(server, session_factory=factory, close_session=close_session):
            pass
    assert "ClientSession" in str(caught.value)
    del caught
    gc.collect()  # a coroutine that was never awaited causes a warning here
    await asyncio.sleep(0)
