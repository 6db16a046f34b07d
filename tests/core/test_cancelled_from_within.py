"""If something that a call waits for is cancelled, the call raises an error instead of CancelledError."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pybase64
import pytest
from aiohttp.abc import AbstractResolver, ResolveResult

import directsuite as ds
from directsuite.core.session import FreshConnector

from . import responses
from .scripted_server import Responder, ScriptedServer
from .scripted_suite import FLATTEN, GET_MESSAGE_COUNT, PDF, catch_error, open_suite
from .virtual_time import yield_to_loop, yield_until

CODED = pybase64.b64encode(PDF * 9)


async def waits_for_what_was_cancelled(piece: bytes) -> None:
    assert piece
    cancelled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    cancelled.cancel()
    await cancelled


async def test_destination_that_was_cancelled_ends_a_download_with_an_error(server: ScriptedServer) -> None:
    server.default_responder = responses.respond(CODED)
    async with open_suite(server) as suite:
        error = await catch_error(suite.signing.download("doc", waits_for_what_was_cancelled))
    assert type(error) is ds.TransportError
    assert "writing to its destination was cancelled" in str(error)
    assert len(server.requests) == 1


async def test_change_whose_destination_was_cancelled_is_known_to_have_happened(server: ScriptedServer) -> None:
    server.default_responder = responses.respond(CODED)
    async with open_suite(server) as suite:
        error = await catch_error(suite.signing.flatten_and_pull("doc", destination=waits_for_what_was_cancelled))
    assert isinstance(error, ds.OutcomeUnknownError)
    assert error.happened
    assert isinstance(error.__cause__, ds.TransportError)


async def test_caller_who_leaves_a_destination_is_cancelled(server: ScriptedServer) -> None:
    async def takes_long(piece: bytes) -> None:
        assert piece
        taking.set()
        await asyncio.sleep(1e6)

    taking = asyncio.Event()
    server.default_responder = responses.respond(CODED)
    async with open_suite(server) as suite:
        task = asyncio.ensure_future(suite.signing.flatten_and_pull("doc", destination=takes_long))
        await taking.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


class NeverResolves(AbstractResolver):
    """A resolver that never responds."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def resolve(self, host: str, port: int = 0, family: Any = 0) -> list[ResolveResult]:
        self.asked.set()
        await asyncio.sleep(1e6)
        return []

    async def close(self) -> None:
        pass


async def test_session_closed_by_another_before_a_connection_is_reported(server: ScriptedServer) -> None:
    resolver = NeverResolves()
    shared = aiohttp.ClientSession(connector=FreshConnector(resolver=resolver))
    others: dict[str, Any] = {"session_factory": lambda: shared, "close_session": False}
    others |= {"signing_url": "http://slow.example.test", "allow_insecure_http": True}
    async with open_suite(server, leaky=True, **others) as suite:
        flattening = asyncio.ensure_future(catch_error(FLATTEN.call(suite)))
        await resolver.asked.wait()
        await shared.close()
        error = await flattening
    assert isinstance(error, ds.ClosedError | ds.ConnectFailedError)


@pytest.mark.parametrize(
    "play",
    [responses.never_respond, responses.respond_in_chunks(b'{"success": ', responses.Pause(1e6))],
    ids=["head", "body"],
)
async def test_session_closed_by_another_while_an_response_comes_is_reported(
    server: ScriptedServer, play: Responder
) -> None:
    server.default_responder = play
    shared = aiohttp.ClientSession(connector=FreshConnector())
    others: dict[str, Any] = {"session_factory": lambda: shared, "close_session": False}
    async with open_suite(server, leaky=True, **others) as suite:
        asking = [asyncio.ensure_future(catch_error(ask.call(suite))) for ask in (FLATTEN, GET_MESSAGE_COUNT)]
        await yield_until(lambda: len(server.requests) == len(asking))
        await yield_to_loop()
        await shared.close()
        flattened, counted = await asyncio.gather(*asking)
    assert isinstance(flattened, ds.OutcomeUnknownError)
    assert isinstance(counted, ds.ClosedError | ds.TransportError | ds.ResponseDecodeError)
