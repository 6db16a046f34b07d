"""A connection is reused only if it is clean; if it closed before the request was written, nothing was sent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import aiohttp
import pytest

import directsuite as ds
from directsuite.core.session import FreshConnector, SessionFactory

from . import responses
from .failing_networks import closed_before_request, make_service_urls
from .scripted_server import Exchange, Responder, ScriptedServer
from .scripted_suite import FLATTEN, GET_DOC_INFO, GET_MESSAGE_COUNT, SEND, ApiCall, catch_error, open_suite
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


@pytest.mark.parametrize("name", ["localhost"])
@pytest.mark.parametrize("jar", [aiohttp.CookieJar, lambda: aiohttp.CookieJar(unsafe=True)])
async def test_cookie_jar_of_the_user_s_session_is_not_for_mailboxes(
    server: ScriptedServer, name: str, jar: Callable[[], aiohttp.CookieJar]
) -> None:
    server.default_responder = responses.respond(FIRST, Set_Cookie="JSESSIONID=of-another-mailbox; Path=/")

    def factory() -> aiohttp.ClientSession:
        return aiohttp.ClientSession(connector=FreshConnector(), cookie_jar=jar())

    network = make_service_urls(f"http://{name}:{server.port}")
    async with open_suite(server, session_factory=factory, **network) as suite:
        await SEND.call(suite)
        await SEND.call(suite)
    assert len(server.requests) == 2
    assert not any("cookie" in request.headers for request in server.requests)
