"""Each attempt sends one request: aiohttp's own retry on a dropped connection is disabled."""

from __future__ import annotations

import aiohttp
import pytest

import directsuite as ds

from . import responses
from .scripted_server import Responder, ScriptedServer
from .scripted_suite import (
    DELETE,
    FLATTEN,
    GET_DOC_INFO,
    GET_MESSAGE_COUNT,
    SAVE,
    SEND,
    ApiCall,
    catch_error,
    open_suite,
)
from .virtual_time import yield_to_loop

ONCE = ds.RetryPolicy.none()
DROPS: dict[str, Responder] = {
    "reset": responses.reset,
    "closed": responses.hang_up,
    "half a head": responses.send_partial_head,
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("drop", DROPS)
@pytest.mark.parametrize("reused", [False, True], ids=["fresh", "reused"])
@pytest.mark.parametrize("ask", [SEND, DELETE, GET_DOC_INFO, SAVE, FLATTEN, GET_MESSAGE_COUNT], ids=str)
async def test_dropped_connection_sees_the_request_once(
    server: ScriptedServer, ask: ApiCall, drop: str, *, reused: bool
) -> None:
    async with open_suite(server, retry=ONCE) as suite:
        if reused:
            await GET_MESSAGE_COUNT.call(suite)
        server.default_responder = DROPS[drop]
        error = await catch_error(ask.call(suite))
    requests = server.requests[reused:]
    assert len(requests) == error.attempts == 1
    assert requests[0].connection == 1


@pytest.mark.parametrize("reused", [False, True], ids=["fresh", "reused"])
async def test_bare_aiohttp_beside_it_sends_twice(server: ScriptedServer, *, reused: bool) -> None:
    async with aiohttp.ClientSession() as session:
        if reused:
            async with session.get(server.url("message")) as response:
                await response.read()
        server.default_responder = responses.reset
        with pytest.raises(aiohttp.ClientError):
            await session.put(server.url("message") + "/Send", json={"message": "once"})
    assert len(server.requests[reused:]) == 2


async def test_send_notices_that_the_server_has_closed_the_idle_connection(server: ScriptedServer) -> None:
    async with open_suite(server, retry=ONCE) as suite:
        await GET_MESSAGE_COUNT.call(suite)
        server.close_idle()
        await SEND.call(suite)
    assert [request.connection for request in server.requests] == [1, 2]


@pytest.mark.parametrize("ask", [SEND, FLATTEN], ids=str)
async def test_connection_closed_long_ago_costs_no_outcome(server: ScriptedServer, ask: ApiCall) -> None:
    async with open_suite(server, retry=ONCE) as suite:
        await GET_MESSAGE_COUNT.call(suite)
        server.close_idle()
        await yield_to_loop()
        await ask.call(suite)
    assert len(server.requests) == 2


async def test_connection_is_kept_alive_after_a_rejection_that_was_read(server: ScriptedServer) -> None:
    server.enqueue(responses.respond({"error": "no"}, 400), responses.respond(b"", 500))
    async with open_suite(server, retry=ONCE) as suite:
        for _ in range(2):
            await catch_error(GET_DOC_INFO.call(suite))
        await GET_MESSAGE_COUNT.call(suite)
    assert server.connections == 1
