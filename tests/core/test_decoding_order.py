"""A large response is decoded after the next waiting request was sent."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import Any

import pytest

from directsuite.core import attempt
from directsuite.core.operation import Operation
from directsuite.core.outcome import interpret, parse_large
from directsuite.core.session import BufferedResponse

from . import api, responses
from .scripted_server import Exchange, Responder, ScriptedServer
from .scripted_suite import ALICE, PASSWORD, SUCCESS_BODY, open_suite

LONG = responses.respond({"success": True, "count": 7, "padding": "x" * 20_000})
SHORT = responses.respond({"success": True, "count": 7})


class Decodings:
    """Records for each decoded response whether another request has reached the server before."""

    def __init__(self, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> None:
        self.another_was_sent: list[bool] = []
        self._server = server
        monkeypatch.setattr(attempt, "interpret", self._interpret)

    def _interpret(self, operation: Operation[object], answer: BufferedResponse, *others: Any) -> object:
        self.another_was_sent.append(any(map(_has_bytes, self._server._exchanges.values())))
        return interpret(operation, answer, *others)


def _has_bytes(exchange: Exchange) -> bool:
    peer: socket.socket = exchange._writer.get_extra_info("socket")
    with socket.socket(fileno=os.dup(peer.fileno())) as look:
        look.setblocking(False)
        try:
            return bool(look.recv(1, socket.MSG_PEEK))
        except BlockingIOError:
            return False


@pytest.mark.parametrize(("play", "sent"), [(LONG, True), (SHORT, False)], ids=["long", "short"])
async def test_next_request_leaves_before_a_long_response_is_decoded(
    play: Responder, sent: bool, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.default_responder = play
    decodings = Decodings(server, monkeypatch)
    async with open_suite(server, max_connections=1) as suite:
        box = suite.mailbox(ALICE, PASSWORD)
        await asyncio.gather(*(box.get_message_count() for _ in range(3)))
    assert decodings.another_was_sent == [sent, sent, False]


@pytest.mark.parametrize(("ask", "free"), [(api.GET_MESSAGE_COUNT, 1), (api.SEND, 0)], ids=str)
async def test_connection_is_released_before_decoding_if_repeatable(
    ask: api.ApiCall, free: int, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.default_responder = responses.respond(SUCCESS_BODY | {"padding": "x" * 20_000})
    seen: list[int] = []

    async with open_suite(server, max_connections=1) as suite:

        def decode(operation: Operation[object], answer: BufferedResponse, *others: Any) -> object:
            seen.append(suite._transport._endpoints[operation.service].limits._free_slots)
            return interpret(operation, answer, *others)

        monkeypatch.setattr(attempt, "interpret", decode)
        await ask(suite)
    assert seen == [free]


async def test_undecodable_response_is_retried(server: ScriptedServer) -> None:
    server.enqueue(responses.respond({"success": True, "count": [], "padding": "x" * 20_000}))
    async with open_suite(server, max_connections=1) as suite:
        box = suite.mailbox(ALICE, PASSWORD)
        assert set(await asyncio.gather(box.get_message_count(), box.get_message_count())) == {7}
    assert len(server.requests) == 3


async def test_complete_response_is_kept_if_decoding_takes_long(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def parse_slowly(*given: Any) -> Any:
        await asyncio.sleep(60)
        return await parse_large(*given)

    monkeypatch.setattr(attempt, "parse_large", parse_slowly)
    server.default_responder = responses.respond({"success": True, "messages": [{"uid": 7}], "padding": "x" * 300_000})
    async with open_suite(server, timeout=20.0, attempt_timeout=5.0) as suite:
        [message] = await suite.mailbox(ALICE, PASSWORD).get_messages()
    assert (message.uid, len(server.requests)) == (7, 1)
