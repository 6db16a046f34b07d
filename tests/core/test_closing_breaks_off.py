"""Calls end when the suite is closed, also with a shared session or a slow destination."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest

import directsuite as ds
from directsuite.core.events import CircuitOpened, Event

from . import responses
from .scripted_server import Responder, ScriptedServer
from .scripted_suite import FLATTEN, GET_DOC_INFO, GET_MESSAGE_COUNT, SEND, catch_error, open_suite
from .virtual_time import measure_elapsed, yield_to_loop, yield_until

BODY = responses.respond_in_chunks(b'{"success": ', responses.Pause(1e6))


@pytest.mark.exhaustive
@pytest.mark.parametrize("play", [responses.never_respond, BODY], ids=["head", "body"])
@pytest.mark.parametrize("grace", [0.0, 5.0])
async def test_closing_ends_the_calls_on_a_session_that_stays_open(
    server: ScriptedServer, play: Responder, grace: float
) -> None:
    server.default_responder = play
    async with aiohttp.ClientSession(connector=ds.FreshConnector()) as shared:
        others: dict[str, Any] = {"session_factory": lambda: shared, "close_session": False}
        async with open_suite(server, leaky=True, **others) as suite:
            flattening, sending, counting = (
                asyncio.ensure_future(catch_error(ask.call(suite))) for ask in (FLATTEN, SEND, GET_MESSAGE_COUNT)
            )
            await yield_until(lambda: len(server.requests) == 3)
            await yield_to_loop()
            assert await measure_elapsed(suite.aclose(grace=grace)) == pytest.approx(grace)
            ended = asyncio.gather(flattening, sending, counting)
            assert await measure_elapsed(ended) == 0
        assert not shared.closed
    assert isinstance(flattening.result(), ds.OutcomeUnknownError)
    assert isinstance(sending.result(), ds.OutcomeUnknownError)
    assert isinstance(counting.result(), ds.ClosedError | ds.ConnectionLostError)


async def test_closing_ends_a_call_in_the_queue_of_a_session_that_stays_open(server: ScriptedServer) -> None:
    server.default_responder = responses.never_respond
    async with aiohttp.ClientSession(connector=ds.FreshConnector()) as shared:
        others: dict[str, Any] = {"session_factory": lambda: shared, "close_session": False, "max_connections": 1}
        async with open_suite(server, leaky=True, **others) as suite:
            first = asyncio.ensure_future(catch_error(FLATTEN.call(suite)))
            await yield_until(lambda: len(server.requests) == 1)
            queued = asyncio.ensure_future(catch_error(FLATTEN.call(suite)))
            await yield_to_loop()
            await suite.aclose(grace=0)
            assert await measure_elapsed(asyncio.gather(first, queued)) == 0
    assert isinstance(first.result(), ds.OutcomeUnknownError)
    assert not isinstance(queued.result(), ds.OutcomeUnknownError)
    assert queued.result().outcome is ds.Outcome.NOT_SENT
    assert len(server.requests) == 1


async def test_closing_ends_a_call_whose_destination_takes_long(server: ScriptedServer) -> None:
    async def hang(piece: bytes) -> None:
        assert piece
        taken.set()
        await asyncio.sleep(1e6)

    taken = asyncio.Event()
    server.default_responder = responses.respond(b"QUJD" * 100)
    async with open_suite(server, leaky=True) as suite:
        downloading = asyncio.ensure_future(catch_error(suite.signing.download("doc", hang)))
        await taken.wait()
        await suite.aclose(grace=0)
        assert await measure_elapsed(downloading) == 0


@pytest.mark.parametrize("strategy", ["wait", "stop"])
async def test_closing_ends_a_call_whose_retry_policy_takes_long(server: ScriptedServer, strategy: str) -> None:
    async def hang(_: Any) -> Any:
        taken.set()
        await asyncio.sleep(1e6)

    taken = asyncio.Event()
    server.default_responder = responses.respond(b"", status=503)
    policy: dict[str, Any] = {strategy: hang}
    async with open_suite(server, leaky=True, retry=ds.RetryPolicy(**policy)) as suite:
        asking = asyncio.ensure_future(catch_error(GET_DOC_INFO.call(suite)))
        await taken.wait()
        await suite.aclose(grace=0)
        assert await measure_elapsed(asking) == 0
    assert isinstance(asking.result(), ds.ClosedError)


async def test_destination_that_closes_the_suite_is_not_cancelled(server: ScriptedServer) -> None:
    async def closes(piece: bytes) -> None:
        assert piece
        await suite.aclose(grace=0)
        await asyncio.sleep(1)
        closed.set()

    closed = asyncio.Event()
    server.default_responder = responses.respond_in_chunks(b"QUJD" * 100, responses.Pause(10), b"QUJD")
    async with open_suite(server, leaky=True) as suite:
        error = await catch_error(suite.signing.download("doc", closes))
    assert closed.is_set()
    assert isinstance(error, ds.ClosedError | ds.TransportError | ds.ResponseDecodeError)


async def test_cancelled_call_stays_cancelled_when_the_suite_closes(server: ScriptedServer) -> None:
    server.default_responder = responses.never_respond
    async with open_suite(server, leaky=True) as suite:
        asking = asyncio.ensure_future(GET_DOC_INFO.call(suite))
        await yield_until(lambda: len(server.requests) == 1)
        asking.cancel()
        await suite.aclose(grace=0)
        with pytest.raises(asyncio.CancelledError):
            await asking


async def test_closing_does_not_count_as_silence_of_the_service(server: ScriptedServer) -> None:
    heard: list[Event] = []
    server.default_responder = responses.never_respond
    async with aiohttp.ClientSession(connector=ds.FreshConnector()) as shared:
        suite = open_suite(
            server,
            listeners=[heard.append],
            session_factory=lambda: shared,
            close_session=False,
            circuit_failures=3,
            leaky=True,
        )
        async with suite as opened_suite:
            calls = [asyncio.ensure_future(catch_error(FLATTEN.call(opened_suite))) for _ in range(4)]
            await yield_until(lambda: len(server.requests) == 4)
            await opened_suite.aclose(grace=0)
            errors = await asyncio.gather(*calls)
    assert all(isinstance(error, ds.OutcomeUnknownError) for error in errors)
    assert not any(isinstance(event, CircuitOpened) for event in heard)
