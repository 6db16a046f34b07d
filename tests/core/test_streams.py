"""A large response, read message by message while it is received."""

from __future__ import annotations

import asyncio
import io
import json

import pytest

import directsuite as ds

from . import responses
from .scripted_server import Exchange, Responder, ScriptedServer
from .scripted_suite import ALICE, PASSWORD, assert_no_leaks, expect_error, open_suite
from .virtual_time import yield_to_loop

MESSAGES = [{"uid": number, "subject": f"message {number}"} for number in range(1, 6)]
WHOLE = json.dumps({"success": True, "messages": MESSAGES}).encode()
FIRST = WHOLE.index(b"}, {") + 3
"""The position of the second message."""


async def read(suite: ds.DirectSuite, seen: list[int | None], timeout: float | None = None) -> None:
    async for message in suite.mailbox(ALICE, PASSWORD).stream_messages(timeout=timeout):
        seen.append(message.uid)  # noqa: PERF401  an extend would keep nothing of what came before the failure


@pytest.mark.parametrize("size", [1, 7, 64, 100_000])
async def test_messages_come_in_order_however_the_response_is_cut(server: ScriptedServer, size: int) -> None:
    server.enqueue(responses.respond_in_chunks(*(WHOLE[start : start + size] for start in range(0, len(WHOLE), size))))
    seen: list[int | None] = []
    async with open_suite(server) as suite:
        await read(suite, seen)
        assert_no_leaks(suite)
    assert seen == [1, 2, 3, 4, 5]


async def test_message_is_given_before_the_next_has_come(server: ScriptedServer) -> None:
    gate = asyncio.Event()

    async def waits(exchange: Exchange) -> None:
        await exchange.read()
        await exchange.write(responses.make_head(200, len(WHOLE)) + WHOLE[:FIRST])
        await gate.wait()
        await exchange.write(WHOLE[FIRST:])

    server.enqueue(waits)
    async with open_suite(server) as suite, suite.mailbox(ALICE, PASSWORD).stream_messages() as messages:
        assert (await anext(messages)).uid == 1
        gate.set()
        assert [message.uid async for message in messages] == [2, 3, 4, 5]


BROKEN: dict[str, tuple[Responder, type[ds.DirectSuiteError]]] = {
    "broken off": (responses.respond_in_chunks(WHOLE[:120], length=len(WHOLE)), ds.ResponseDecodeError),
    "ends too early": (responses.respond(WHOLE[:120]), ds.ResponseDecodeError),
    "pause": (responses.respond_in_chunks(WHOLE[:120], responses.Pause(1000)), ds.ConnectionLostError),
    "malformed": (responses.respond(WHOLE[:100] + b"}}]"), ds.ResponseDecodeError),
    "refused at its end": (
        responses.respond(b'{"messages": [{"uid": 1}, {"uid": 2}], "success": false, "code": 3}'),
        ds.ServiceError,
    ),
    "no success at its end": (responses.respond(b'{"messages": [{"uid": 1}, {"uid": 2}]}'), ds.ResponseDecodeError),
}


@pytest.mark.parametrize("broken", BROKEN)
async def test_response_that_breaks_raises_after_the_messages_before(server: ScriptedServer, broken: str) -> None:
    play, kind = BROKEN[broken]
    server.enqueue(play)
    seen: list[int | None] = []
    async with open_suite(server) as suite:
        error = await expect_error(kind, read(suite, seen))
        assert_no_leaks(suite)
    assert error.operation == "GetMessages"
    assert seen[:2] == [1, 2]
    assert len(server.requests) == 1


async def test_page_of_a_proxy_is_named_by_its_media_type(server: ScriptedServer, suite: ds.DirectSuite) -> None:
    server.default_responder = responses.respond(b"<html>", Content_Type="text/html; charset=utf-8")
    text = "the response (text/html) does not fit the operation: $ should be "
    error = await expect_error(ds.ResponseDecodeError, read(suite, []))
    assert error.explanation == f"{text}JSON"
    error = await expect_error(ds.ResponseDecodeError, suite.signing.download("doc", io.BytesIO()))
    assert error.explanation == f"{text}base64 text"


@pytest.mark.parametrize("play", [responses.reset, responses.respond(b"", 429), responses.respond(b"", 500)])
async def test_failure_before_the_first_byte_is_tried_again(server: ScriptedServer, play: Responder) -> None:
    server.enqueue(play, responses.respond(WHOLE))
    seen: list[int | None] = []
    async with open_suite(server) as suite:
        await read(suite, seen)
    assert seen == [1, 2, 3, 4, 5]
    assert len(server.requests) == 2


async def test_rejection_in_place_of_the_stream_is_typed(server: ScriptedServer, suite: ds.DirectSuite) -> None:
    server.enqueue(
        responses.respond({"success": False, "code": 1}, 401), responses.respond({"success": False, "code": 1})
    )
    for _ in range(2):
        error = await expect_error(ds.AuthenticationError, read(suite, []))
        assert error.code == 1


@pytest.mark.parametrize("ending", ["context manager", "aclose", "cancellation"])
async def test_leaving_early_closes_the_connection_immediately(server: ScriptedServer, ending: str) -> None:
    server.enqueue(responses.respond_in_chunks(WHOLE[:120], responses.Pause(1000), length=len(WHOLE)))
    async with open_suite(server) as suite:
        messages = suite.mailbox(ALICE, PASSWORD).stream_messages()
        if ending == "context manager":
            async with messages:
                await anext(messages)
        elif ending == "aclose":
            await anext(messages)
            await messages.aclose()
        else:
            task = await server.begin(_drain(messages))
            await yield_to_loop()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert task.cancelled()
        assert_no_leaks(suite)
        server.close_idle()
        await suite.mailbox(ALICE, PASSWORD).get_message_count()
    assert [request.connection for request in server.requests] == [1, 2]


async def _drain(messages: ds.Listing[ds.MessageDetail]) -> None:
    async for _ in messages:
        pass


@pytest.mark.parametrize("timeout", [6, None])
async def test_batch_that_trickles_in_ends_with_the_timeout(server: ScriptedServer, timeout: float | None) -> None:
    trickle = (part for _ in range(100) for part in (b" ", responses.Pause(1)))
    server.enqueue(responses.respond({"success": True, "uids": [1, 2]}))
    server.default_responder = responses.respond_in_chunks(b'{"success": true, "messages": [', *trickle, b"]}")
    async with open_suite(server, timeout=6 if timeout is None else 60) as suite:
        messages = suite.mailbox(ALICE, PASSWORD).iter_messages(timeout=timeout)
        error = await expect_error(ds.DeadlineExceededError, anext(messages))
        await messages.aclose()
    assert error.elapsed == pytest.approx(6)


async def test_time_out_of_its_own_bounds_a_stream(server: ScriptedServer, suite: ds.DirectSuite) -> None:
    server.enqueue(
        responses.respond_in_chunks(*(part for byte in WHOLE[:60] for part in (bytes([byte]), responses.Pause(1))))
    )
    error = await expect_error(ds.DeadlineExceededError, read(suite, [], timeout=10))
    assert error.elapsed == pytest.approx(10)
