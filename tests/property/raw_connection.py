"""A server that responds with any bytes, and the checks of a client that reads them."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import directsuite as ds
from tests.core.scripted_server import Exchange, Responder, ScriptedServer
from tests.core.scripted_suite import ALICE, MESSAGE, PASSWORD, open_suite
from tests.core.virtual_time import VirtualTimeLoop

from .oracles import check_error_is_printable

TIMEOUT = 30.0

ReadingCall = Callable[[ds.DirectSuite], Awaitable[object]]


async def _get_message_count(suite: ds.DirectSuite) -> object:
    return await suite.mailbox(ALICE, PASSWORD).get_message_count()


async def _send(suite: ds.DirectSuite) -> object:
    return await suite.mailbox(ALICE, PASSWORD).send(MESSAGE)


async def _get_doc(suite: ds.DirectSuite) -> object:
    return await suite.signing.get_doc("doc")


async def _login(suite: ds.DirectSuite) -> object:
    return await suite.registration.login()


async def _stream_messages(suite: ds.DirectSuite) -> object:
    return [message async for message in suite.mailbox(ALICE, PASSWORD).stream_messages(timeout=TIMEOUT)]


async def _download(suite: ds.DirectSuite) -> object:
    with tempfile.TemporaryDirectory() as folder:
        try:
            return await suite.signing.download("doc", Path(folder) / "doc.pdf", timeout=TIMEOUT)
        finally:
            assert [path.name for path in Path(folder).iterdir()] in ([], ["doc.pdf"])  # noqa: ASYNC240  a moment


CALLS: list[ReadingCall] = [_get_message_count, _send, _get_doc, _login, _stream_messages, _download]
"""The ways of reading a response."""


def respond_raw(content: bytes, *, closes: bool) -> Responder:
    """Return a responder that writes these bytes, then closes the connection or waits."""

    async def responder(exchange: Exchange) -> None:
        await exchange.read()
        await exchange.write(content)
        if closes:
            exchange.close()
        else:
            await exchange.wait_for_disconnect()

    return responder


def check_call_survives(call: ReadingCall, content: bytes, *, closes: bool) -> None:
    """Check that a call ends in time with a value or a typed error, and releases everything."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(_check_call(call, content, closes=closes))


async def _check_call(call: ReadingCall, content: bytes, *, closes: bool) -> None:
    loop, complaints = asyncio.get_running_loop(), list[object]()
    loop.set_exception_handler(lambda _, context: complaints.append(context))
    async with ScriptedServer(respond_raw(content, closes=closes)) as server:
        began = loop.time()
        async with open_suite(server, timeout=TIMEOUT, max_response_bytes=100_000) as suite:
            try:
                await call(suite)
            except ds.DirectSuiteError as error:
                check_error_is_printable(error)
            assert loop.time() - began <= TIMEOUT + 0.01
    assert complaints == []
