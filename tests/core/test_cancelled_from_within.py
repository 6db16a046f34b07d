"""What a call waits for may be cancelled by others: that ends as an error, and never as a silent cancellation."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pybase64
import pytest
from aiohttp.abc import AbstractResolver, ResolveResult

import directsuite as ds
from directsuite.core.session import FreshConnector

from . import plays
from .opened import FLATTEN, GET_MESSAGE_COUNT, PDF, failure_of, opened
from .scripted_server import Play, ScriptedServer
from .virtual_time import turns, until

CODED = pybase64.b64encode(PDF * 9)


async def waits_for_what_was_cancelled(piece: bytes) -> None:
    """A destination of the caller's, whose own helper somebody ended."""
    assert piece
    cancelled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    cancelled.cancel()
    await cancelled


async def test_destination_that_was_cancelled_ends_a_download_with_an_error(server: ScriptedServer) -> None:
    server.otherwise = plays.answer(CODED)
    async with opened(server) as suite:
        error = await failure_of(suite.signing.download("doc", waits_for_what_was_cancelled))
    assert type(error) is ds.TransportError
    assert "its destination was cancelled" in str(error)
    assert len(server.requests) == 1


async def test_change_whose_destination_was_cancelled_is_known_to_have_happened(server: ScriptedServer) -> None:
    server.otherwise = plays.answer(CODED)
    async with opened(server) as suite:
        error = await failure_of(suite.signing.flatten_and_pull("doc", destination=waits_for_what_was_cancelled))
    assert isinstance(error, ds.OutcomeUnknownError)
    assert error.happened
    assert isinstance(error.__cause__, ds.TransportError)


async def test_caller_who_leaves_a_destination_is_cancelled(server: ScriptedServer) -> None:
    async def takes_long(piece: bytes) -> None:
        """A destination that is left."""
        assert piece
        taking.set()
        await asyncio.sleep(1e6)

    taking = asyncio.Event()
    server.otherwise = plays.answer(CODED)
    async with opened(server) as suite:
        task = asyncio.ensure_future(suite.signing.flatten_and_pull("doc", destination=takes_long))
        await taking.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


class NeverResolves(AbstractResolver):
    """Looks names up for ever."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def resolve(self, host: str, port: int = 0, family: Any = 0) -> list[ResolveResult]:
        """Wait."""
        self.asked.set()
        await asyncio.sleep(1e6)
        return []

    async def close(self) -> None:
        """Nothing is open."""


async def test_session_closed_by_another_before_a_connection_is_told(server: ScriptedServer) -> None:
    resolver = NeverResolves()
    shared = aiohttp.ClientSession(connector=FreshConnector(resolver=resolver))
    others: dict[str, Any] = {"session_factory": lambda: shared, "close_session": False}
    others |= {"signing_url": "http://slow.example.test", "allow_insecure_http": True}
    async with opened(server, leaky=True, **others) as suite:
        flattening = asyncio.ensure_future(failure_of(FLATTEN.call(suite)))
        await resolver.asked.wait()
        await shared.close()
        error = await flattening
    assert isinstance(error, ds.ClosedError | ds.ConnectFailedError)


@pytest.mark.parametrize("play", [plays.silence, plays.pieces(b'{"success": ', plays.Pause(1e6))], ids=["head", "body"])
async def test_session_closed_by_another_while_an_answer_comes_is_told(server: ScriptedServer, play: Play) -> None:
    server.otherwise = play
    shared = aiohttp.ClientSession(connector=FreshConnector())
    others: dict[str, Any] = {"session_factory": lambda: shared, "close_session": False}
    async with opened(server, leaky=True, **others) as suite:
        asking = [asyncio.ensure_future(failure_of(ask.call(suite))) for ask in (FLATTEN, GET_MESSAGE_COUNT)]
        await until(lambda: len(server.requests) == len(asking))
        await turns()
        await shared.close()
        flattened, counted = await asyncio.gather(*asking)
    assert isinstance(flattened, ds.OutcomeUnknownError)
    assert isinstance(counted, ds.ClosedError | ds.TransportError | ds.ResponseDecodeError)
