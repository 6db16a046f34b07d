"""One response, read while it is received: a slow reader stops the server, and only the server's pauses are limited."""

from __future__ import annotations

import asyncio
import json

import pytest

import directsuite as ds
from tests.core import responses
from tests.core.scripted_server import Exchange, ScriptedServer
from tests.core.scripted_suite import ALICE, PASSWORD, open_suite

pytestmark = pytest.mark.wide

MB = 1024 * 1024
COUNT = 64
ROOM = 16 * MB
"""More bytes than the buffers of client, server and kernel hold; a quarter of the response."""
METHODS = ["iter_metadata", "stream_messages"]


class LargeAnswer:
    """COUNT messages of 1 MB; `written` is the number of bytes sent."""

    def __init__(self) -> None:
        self.written = 0

    async def __call__(self, exchange: Exchange) -> None:
        await exchange.read()
        parts = [b"," * (uid > 0) + json.dumps({"uid": uid, "body": "x" * MB}).encode() for uid in range(COUNT)]
        parts = [b'{"success": true, "messages": [', *parts, b"]}"]
        await exchange.write(responses.make_head(200, sum(map(len, parts))))
        for part in parts:
            await exchange.write(part)
            self.written += len(part)


@pytest.mark.parametrize("method", METHODS)
async def test_slow_reader_stops_the_server(server: ScriptedServer, method: str) -> None:
    answer = LargeAnswer()
    server.enqueue(answer)
    async with open_suite(server) as suite, getattr(suite.mailbox(ALICE, PASSWORD), method)() as messages:
        assert (await anext(messages)).uid == 0
        for _ in range(3):
            await asyncio.sleep(1000)  # until nothing moves any more
        stopped_at = answer.written
        assert stopped_at < ROOM
        await asyncio.sleep(1000)
        assert answer.written == stopped_at
        assert [message.uid async for message in messages] == list(range(1, COUNT))


@pytest.mark.parametrize(
    ("pause", "reader", "uids"), [(8, 6, [1, 2]), (8, 100, [1, 2]), (4, 0, [1, 2]), (8, 0, [1]), (8, 2, [1])]
)
@pytest.mark.parametrize("method", METHODS)
async def test_pause_of_the_server_counts_from_where_the_reader_waits(
    server: ScriptedServer, method: str, pause: float, reader: float, uids: list[int]
) -> None:
    parts = (b'{"success": true, "messages": [{"uid": 1}, ', responses.Pause(pause), b'{"uid": 2}], "code": 0}')
    server.enqueue(responses.respond_in_chunks(*parts))
    seen: list[int] = []
    failure: ds.DirectSuiteError | None = None
    async with open_suite(server, attempt_timeout=5) as suite:
        try:
            async for message in getattr(suite.mailbox(ALICE, PASSWORD), method)():
                seen.append(message.uid)
                await asyncio.sleep(reader)
        except ds.DirectSuiteError as error:
            failure = error
    assert seen == uids
    assert (failure is None) == (uids == [1, 2])
    assert failure is None or isinstance(failure, ds.ConnectionLostError)
