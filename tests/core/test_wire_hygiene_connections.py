"""A connection is used again only as it was left; what ended before the request was written sent nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import aiohttp
import pytest

import directsuite as ds
from directsuite.core.session import FreshConnector, SessionFactory

from . import plays
from .failing_networks import ends_before_the_request, everywhere
from .opened import FLATTEN, GET_DOC_INFO, GET_MESSAGE_COUNT, SEND, Ask, failure_of, opened
from .scripted_server import Exchange, Play, ScriptedServer
from .virtual_time import turns

FIRST = {"success": True, "count": 7, "identifier": "doc"}
SECOND = {"success": True, "count": 666, "identifier": "of another", "smtpId": "of another"}


def and_later(extra: bytes) -> Play:
    """A good answer, and a second later bytes that nobody asked for."""

    async def play(exchange: Exchange) -> None:
        text = plays.content(FIRST)
        await exchange.read()
        await exchange.write(plays.head(200, len(text)) + text)
        await asyncio.sleep(1)
        await exchange.write(extra)

    return play


def whole(document: object) -> bytes:
    text = plays.content(document)
    return plays.head(200, len(text)) + text


def fresh() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(connector=FreshConnector())


def closing() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True))


UNASKED = {
    "a second answer": whole(SECOND),
    "two more": whole(SECOND) * 2,
    "408": plays.head(408, 0),
    "103": b"HTTP/1.1 103 Early Hints\r\n\r\n",
    "not HTTP": b"220 mail.example.test ESMTP\r\n\r\n",
}


@pytest.mark.parametrize("extra", UNASKED)
@pytest.mark.parametrize("ask", [GET_MESSAGE_COUNT, GET_DOC_INFO, SEND, FLATTEN], ids=str)
@pytest.mark.parametrize("factory", [None, fresh, closing], ids=["our session", "fresh connector", "force_close"])
async def test_answer_that_nobody_asked_for_is_nobody_s_answer(
    server: ScriptedServer, ask: Ask, extra: str, factory: SessionFactory | None
) -> None:
    server.plays(and_later(UNASKED[extra]), plays.answer(b"", 400))
    async with opened(server, session_factory=factory) as suite:
        await GET_MESSAGE_COUNT.call(suite)
        await asyncio.sleep(5)
        await turns()
        error = await failure_of(ask.call(suite))
    assert isinstance(error, ds.BadRequestError)
    assert [request.connection for request in server.requests] == [1, 2]


@pytest.mark.parametrize("ask", [GET_MESSAGE_COUNT, GET_DOC_INFO, SEND, FLATTEN], ids=str)
async def test_connection_that_ended_before_the_request_was_written_sent_nothing(
    server: ScriptedServer, tmp_path: Path, ask: Ask
) -> None:
    async with ends_before_the_request(server, tmp_path) as network, opened(server, **network) as suite:
        error = await failure_of(ask.call(suite))
    assert type(error) is ds.ConnectFailedError
    assert (error.outcome, error.attempts, len(server.requests)) == (ds.Outcome.NOT_SENT, 2, 0)


@pytest.mark.parametrize("name", ["localhost"])
@pytest.mark.parametrize("jar", [aiohttp.CookieJar, lambda: aiohttp.CookieJar(unsafe=True)])
async def test_cookie_jar_of_the_user_s_session_is_not_for_mailboxes(
    server: ScriptedServer, name: str, jar: Callable[[], aiohttp.CookieJar]
) -> None:
    server.otherwise = plays.answer(FIRST, Set_Cookie="JSESSIONID=of-another-mailbox; Path=/")

    def factory() -> aiohttp.ClientSession:
        return aiohttp.ClientSession(connector=FreshConnector(), cookie_jar=jar())

    network = everywhere(f"http://{name}:{server.port}")
    async with opened(server, session_factory=factory, **network) as suite:
        await SEND.call(suite)
        await SEND.call(suite)
    assert len(server.requests) == 2
    assert not any("cookie" in request.headers for request in server.requests)
