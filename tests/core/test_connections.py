"""A connection is reused only if it is clean, and each attempt sends one request: aiohttp repeats none by itself."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
import pytest

import directsuite as ds
from directsuite.core.session import READ_BYTES, FreshConnector, SessionFactory

from . import responses
from .failing_networks import closed_before_request
from .scripted_server import Exchange, Responder, ScriptedServer
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

FIRST = {"success": True, "count": 7, "identifier": "doc"}
SECOND = {"success": True, "count": 666, "identifier": "of another", "smtpId": "of another"}


def and_later(extra: bytes) -> Responder:
    """Send a valid response, and unexpected bytes a second later."""

    async def play(exchange: Exchange) -> None:
        text = responses.encode_body(FIRST)
        await exchange.read()
        await exchange.write(responses.make_head(200, len(text)) + text)
        await asyncio.sleep(1)
        await exchange.write(extra)

    return play


def whole(document: object) -> bytes:
    text = responses.encode_body(document)
    return responses.make_head(200, len(text)) + text


def fresh() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(connector=FreshConnector())


def closing() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True))


UNASKED = {
    "a second answer": whole(SECOND),
    "two more": whole(SECOND) * 2,
    "408": responses.make_head(408, 0),
    "103": b"HTTP/1.1 103 Early Hints\r\n\r\n",
    "not HTTP": b"220 mail.example.test ESMTP\r\n\r\n",
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("extra", UNASKED)
@pytest.mark.parametrize("ask", [GET_MESSAGE_COUNT, GET_DOC_INFO, SEND, FLATTEN], ids=str)
@pytest.mark.parametrize("factory", [None, fresh, closing], ids=["our session", "fresh connector", "force_close"])
async def test_unrequested_response_is_discarded(
    server: ScriptedServer, ask: ApiCall, extra: str, factory: SessionFactory | None
) -> None:
    server.enqueue(and_later(UNASKED[extra]), responses.respond(b"", 400))
    async with open_suite(server, session_factory=factory) as suite:
        await GET_MESSAGE_COUNT.call(suite)
        await asyncio.sleep(5)
        await yield_to_loop()
        error = await catch_error(ask.call(suite))
    assert isinstance(error, ds.BadRequestError)
    assert [request.connection for request in server.requests] == [1, 2]


@pytest.mark.parametrize("ask", [GET_MESSAGE_COUNT, GET_DOC_INFO, SEND, FLATTEN], ids=str)
async def test_connection_that_ended_before_the_request_was_written_sent_nothing(
    server: ScriptedServer, tmp_path: Path, ask: ApiCall
) -> None:
    async with closed_before_request(server, tmp_path) as network, open_suite(server, **network) as suite:
        error = await catch_error(ask.call(suite))
    assert type(error) is ds.ConnectFailedError
    assert (error.outcome, error.attempts, len(server.requests)) == (ds.Outcome.NOT_SENT, 2, 0)


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


@pytest.mark.parametrize("turns", [0, 20])
@pytest.mark.parametrize("ask", [SEND, FLATTEN], ids=str)
async def test_idle_connection_that_the_server_closed_is_not_used(
    server: ScriptedServer, ask: ApiCall, turns: int
) -> None:
    async with open_suite(server, retry=ONCE) as suite:
        await GET_MESSAGE_COUNT.call(suite)
        server.close_idle()
        await yield_to_loop(turns)
        await ask.call(suite)
    assert [request.connection for request in server.requests] == [1, 2]


async def test_connection_is_kept_alive_after_a_rejection_that_was_read(server: ScriptedServer) -> None:
    server.enqueue(responses.respond({"error": "no"}, 400), responses.respond(b"", 500))
    async with open_suite(server, retry=ONCE) as suite:
        for _ in range(2):
            await catch_error(GET_DOC_INFO.call(suite))
        await GET_MESSAGE_COUNT.call(suite)
    assert server.connections == 1


async def test_only_a_download_of_known_size_is_read_in_large_chunks(server: ScriptedServer) -> None:
    document = b"AAAA" * 500_000
    server.enqueue(
        responses.respond(document),
        responses.respond_in_chunks(document[: len(document) // 2]),
        responses.respond(FIRST),
    )
    largest = list[int]()
    async with open_suite(server) as suite:

        async def write(_: bytes) -> None:
            for each in suite._session.open_responses:
                if (connection := each._response.connection) is not None:  # type: ignore[union-attr]
                    largest.append(connection.transport.max_size)  # type: ignore[union-attr]

        await suite.signing.download("doc", write)
        assert largest[0] > READ_BYTES
        largest.clear()
        await suite.signing.download("doc", write)
        assert set(largest) == {READ_BYTES}
        await GET_MESSAGE_COUNT.call(suite)
        [protocol] = [each for pool in suite._session.http.connector._conns.values() for each, _ in pool]  # type: ignore[union-attr]
        assert protocol.transport.max_size == READ_BYTES  # type: ignore[union-attr]
