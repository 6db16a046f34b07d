"""Once a suite is closed no call goes on: not on a session that stays open, nor at a destination that takes long."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest

import directsuite as ds
from directsuite.core.events import CircuitOpened, Event

from . import plays
from .opened import FLATTEN, GET_DOC_INFO, GET_MESSAGE_COUNT, SEND, failure_of, opened
from .scripted_server import Play, ScriptedServer
from .virtual_time import elapsed, turns, until

BODY = plays.pieces(b'{"success": ', plays.Pause(1e6))


@pytest.mark.parametrize("play", [plays.silence, BODY], ids=["head", "body"])
@pytest.mark.parametrize("grace", [0.0, 5.0])
async def test_closing_ends_the_calls_on_a_session_that_stays_open(
    server: ScriptedServer, play: Play, grace: float
) -> None:
    server.otherwise = play
    async with aiohttp.ClientSession(connector=ds.FreshConnector()) as shared:
        others: dict[str, Any] = {"session_factory": lambda: shared, "close_session": False}
        async with opened(server, leaky=True, **others) as suite:
            flattening, sending, counting = (
                asyncio.ensure_future(failure_of(ask.call(suite))) for ask in (FLATTEN, SEND, GET_MESSAGE_COUNT)
            )
            await until(lambda: len(server.requests) == 3)
            await turns()
            assert await elapsed(suite.aclose(grace=grace)) == pytest.approx(grace)
            ended = asyncio.gather(flattening, sending, counting)
            assert await elapsed(ended) == 0
        assert not shared.closed
    assert isinstance(flattening.result(), ds.OutcomeUnknownError)
    assert isinstance(sending.result(), ds.OutcomeUnknownError)
    assert isinstance(counting.result(), ds.ClosedError | ds.ConnectionLostError)


async def test_closing_ends_a_call_in_the_queue_of_a_session_that_stays_open(server: ScriptedServer) -> None:
    server.otherwise = plays.silence
    async with aiohttp.ClientSession(connector=ds.FreshConnector()) as shared:
        others: dict[str, Any] = {"session_factory": lambda: shared, "close_session": False, "max_connections": 1}
        async with opened(server, leaky=True, **others) as suite:
            first = asyncio.ensure_future(failure_of(FLATTEN.call(suite)))
            await until(lambda: len(server.requests) == 1)
            queued = asyncio.ensure_future(failure_of(FLATTEN.call(suite)))
            await turns()
            await suite.aclose(grace=0)
            assert await elapsed(asyncio.gather(first, queued)) == 0
    assert isinstance(first.result(), ds.OutcomeUnknownError)
    assert not isinstance(queued.result(), ds.OutcomeUnknownError)
    assert queued.result().outcome is ds.Outcome.NOT_SENT
    assert len(server.requests) == 1


async def test_closing_ends_a_call_whose_destination_takes_long(server: ScriptedServer) -> None:
    async def hang(piece: bytes) -> None:
        """A destination."""
        assert piece
        taken.set()
        await asyncio.sleep(1e6)

    taken = asyncio.Event()
    server.otherwise = plays.answer(b"QUJD" * 100)
    async with opened(server, leaky=True) as suite:
        downloading = asyncio.ensure_future(failure_of(suite.signing.download("doc", hang)))
        await taken.wait()
        await suite.aclose(grace=0)
        assert await elapsed(downloading) == 0


@pytest.mark.parametrize("strategy", ["wait", "stop"])
async def test_closing_ends_a_call_whose_retry_policy_takes_long(server: ScriptedServer, strategy: str) -> None:
    async def hang(_: Any) -> Any:
        """A wait or a stop."""
        taken.set()
        await asyncio.sleep(1e6)

    taken = asyncio.Event()
    server.otherwise = plays.answer(b"", status=503)
    policy: dict[str, Any] = {strategy: hang}
    async with opened(server, leaky=True, retry=ds.RetryPolicy(**policy)) as suite:
        asking = asyncio.ensure_future(failure_of(GET_DOC_INFO.call(suite)))
        await taken.wait()
        await suite.aclose(grace=0)
        assert await elapsed(asking) == 0
    assert isinstance(asking.result(), ds.ClosedError)


async def test_destination_that_closes_the_suite_is_not_cancelled(server: ScriptedServer) -> None:
    async def closes(piece: bytes) -> None:
        """A destination."""
        assert piece
        await suite.aclose(grace=0)
        await asyncio.sleep(1)
        closed.set()

    closed = asyncio.Event()
    server.otherwise = plays.pieces(b"QUJD" * 100, plays.Pause(10), b"QUJD")
    async with opened(server, leaky=True) as suite:
        error = await failure_of(suite.signing.download("doc", closes))
    assert closed.is_set()
    assert isinstance(error, ds.ClosedError | ds.TransportError | ds.ResponseDecodeError)


async def test_cancelled_call_stays_cancelled_when_the_suite_closes(server: ScriptedServer) -> None:
    server.otherwise = plays.silence
    async with opened(server, leaky=True) as suite:
        asking = asyncio.ensure_future(GET_DOC_INFO.call(suite))
        await until(lambda: len(server.requests) == 1)
        asking.cancel()
        await suite.aclose(grace=0)
        with pytest.raises(asyncio.CancelledError):
            await asking


async def test_closing_is_no_silence_of_the_service(server: ScriptedServer) -> None:
    heard: list[Event] = []
    server.otherwise = plays.silence
    async with aiohttp.ClientSession(connector=ds.FreshConnector()) as shared:
        suite = opened(
            server,
            listeners=[heard.append],
            session_factory=lambda: shared,
            close_session=False,
            circuit_failures=3,
            leaky=True,
        )
        async with suite as opened_suite:
            calls = [asyncio.ensure_future(failure_of(FLATTEN.call(opened_suite))) for _ in range(4)]
            await until(lambda: len(server.requests) == 4)
            await opened_suite.aclose(grace=0)
            errors = await asyncio.gather(*calls)
    assert all(isinstance(error, ds.OutcomeUnknownError) for error in errors)
    assert not any(isinstance(event, CircuitOpened) for event in heard)
