"""How slow the caller's own source or destination is says nothing of the service, and is told as what it is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pybase64
import pytest

import directsuite as ds

from . import plays
from .opened import GET_DOC_INFO, GET_MESSAGE_COUNT, PDF, failure_of, opened
from .scripted_server import ScriptedServer

CODED = pybase64.b64encode(PDF * 9)
INFO = plays.answer({"identifier": "doc"})
ONCE = ds.RetryPolicy.none()


async def takes_for_ever(piece: bytes) -> None:
    """A destination."""
    assert piece
    await asyncio.sleep(1e6)


async def gives_nothing() -> AsyncGenerator[bytes]:
    """A source."""
    await asyncio.sleep(1e6)
    yield PDF


async def test_slow_destination_opens_no_circuit(server: ScriptedServer) -> None:
    server.otherwise = plays.answer(CODED)
    async with opened(server, attempt_timeout=5, circuit_failures=2, retry=ONCE) as suite:
        for _ in range(3):
            error = await failure_of(suite.signing.download("doc", takes_for_ever))
            assert isinstance(error, ds.ConnectionLostError)
            assert "its answer was not received whole in the time of one attempt" in str(error)
        server.otherwise = INFO
        await GET_DOC_INFO.call(suite)


async def test_silence_in_the_middle_of_an_answer_opens_no_circuit(server: ScriptedServer) -> None:
    server.otherwise = plays.pieces(b'{"success": ', plays.Pause(1000))
    async with opened(server, attempt_timeout=5, circuit_failures=2, retry=ONCE) as suite:
        for _ in range(3):
            assert "not received whole" in str(await failure_of(GET_MESSAGE_COUNT.call(suite)))


async def test_silence_in_a_stream_is_told_as_such(server: ScriptedServer) -> None:
    async def read() -> None:
        """All of it."""
        async with suite.signing.stream_doc("doc") as pieces:
            async for _ in pieces:
                pass

    server.otherwise = plays.pieces(CODED[:400], plays.Pause(1000))
    async with opened(server, attempt_timeout=5, retry=ONCE) as suite:
        error = await failure_of(read())
    assert "not received whole" in str(error)


@pytest.mark.parametrize("timeout", [5, 60], ids=["the call's time", "an attempt's time"])
async def test_source_that_gives_nothing_opens_no_circuit(server: ScriptedServer, timeout: float) -> None:
    server.otherwise = INFO
    async with opened(server, attempt_timeout=5, timeout=timeout, circuit_failures=2, retry=ONCE) as suite:
        for _ in range(3):
            error = await failure_of(suite.signing.save(gives_nothing()))
            assert isinstance(error, ds.DeadlineExceededError if timeout == 5 else ds.ConnectFailedError)
            assert error.outcome is ds.Outcome.NOT_SENT
            assert "its source gave nothing" in str(error)
        await GET_DOC_INFO.call(suite)


async def test_service_that_never_answers_a_stored_stream_still_opens_the_circuit(server: ScriptedServer) -> None:
    async def source() -> AsyncGenerator[bytes]:
        """One that gives at once."""
        yield PDF

    server.otherwise = plays.silence
    async with opened(server, attempt_timeout=5, circuit_failures=2, retry=ONCE) as suite:
        for _ in range(2):
            assert "no answer" in str(await failure_of(suite.signing.save(source())))
        assert isinstance(await failure_of(GET_DOC_INFO.call(suite)), ds.CircuitOpenError)


@pytest.mark.parametrize("pieces", [1, 2])
async def test_source_that_stalls_in_the_middle_opens_no_circuit(server: ScriptedServer, pieces: int) -> None:
    async def stalls() -> AsyncGenerator[bytes]:
        """Gives something, and no more."""
        for _ in range(pieces):
            yield PDF + bytes(180_000)
        await asyncio.sleep(1e6)

    server.otherwise = INFO
    async with opened(server, attempt_timeout=5, circuit_failures=2, retry=ONCE) as suite:
        for _ in range(3):
            error = await failure_of(suite.signing.save(stalls()))
            assert isinstance(error, ds.ConnectionLostError)
            assert error.outcome is ds.Outcome.UNKNOWN
            assert "its source gave nothing more" in str(error)
        await GET_DOC_INFO.call(suite)
