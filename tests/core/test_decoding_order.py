"""A long answer is decoded after the next request was sent, where one waits for the connection."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import Any

import pytest

from directsuite.core import attempt
from directsuite.core.operation import Operation
from directsuite.core.outcome import interpret
from directsuite.core.response import Answer

from . import plays
from .opened import ALICE, GET_MESSAGE_COUNT, PASSWORD, SEND, Ask, opened
from .scripted_server import Exchange, Play, ScriptedServer

LONG = plays.answer({"success": True, "count": 7, "padding": "x" * 20_000})
SHORT = plays.answer({"success": True, "count": 7})


class Decodings:
    """Notes, for each answer that is decoded, whether another request has reached the server's socket by then."""

    def __init__(self, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> None:
        self.another_was_sent: list[bool] = []
        self._server = server
        monkeypatch.setattr(attempt, "interpret", self._interpret)

    def _interpret(self, operation: Operation[object], answer: Answer, *others: Any) -> object:
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
async def test_next_request_leaves_before_a_long_answer_is_decoded(
    play: Play, sent: bool, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.otherwise = play
    decodings = Decodings(server, monkeypatch)
    async with opened(server, max_connections=1) as suite:
        box = suite.mailbox(ALICE, PASSWORD)
        await asyncio.gather(*(box.get_message_count() for _ in range(3)))
    assert decodings.another_was_sent == [sent, sent, False]


@pytest.mark.parametrize(("ask", "free"), [(GET_MESSAGE_COUNT, 1), (SEND, 0)], ids=str)
async def test_connection_is_free_while_a_long_answer_is_decoded_unless_of_an_effect(
    ask: Ask, free: int, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.otherwise = plays.answer(ask.good | {"padding": "x" * 20_000})
    seen: list[int] = []

    async with opened(server, max_connections=1) as suite:

        def decode(operation: Operation[object], answer: Answer, *others: Any) -> object:
            seen.append(suite._transport._endpoints[operation.service].limits._free)
            return interpret(operation, answer, *others)

        monkeypatch.setattr(attempt, "interpret", decode)
        await ask.call(suite)
    assert seen == [free]


async def test_misfit_is_still_tried_again(server: ScriptedServer) -> None:
    server.plays(plays.answer({"success": True, "count": [], "padding": "x" * 20_000}))
    async with opened(server, max_connections=1) as suite:
        box = suite.mailbox(ALICE, PASSWORD)
        assert set(await asyncio.gather(box.get_message_count(), box.get_message_count())) == {7}
    assert len(server.requests) == 3
