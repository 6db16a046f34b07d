"""A slow source or destination of the caller is reported as such, and not as a failure of the service."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pybase64
import pytest

import directsuite as ds

from . import responses
from .scripted_server import ScriptedServer
from .scripted_suite import GET_DOC_INFO, GET_MESSAGE_COUNT, PDF, catch_error, open_suite

CODED = pybase64.b64encode(PDF * 9)
INFO = responses.respond({"identifier": "doc"})
ONCE = ds.RetryPolicy.none()


async def takes_for_ever(piece: bytes) -> None:
    assert piece
    await asyncio.sleep(1e6)


async def gives_nothing() -> AsyncGenerator[bytes]:
    await asyncio.sleep(1e6)
    yield PDF


async def test_slow_destination_opens_no_circuit(server: ScriptedServer) -> None:
    server.default_responder = responses.respond(CODED)
    async with open_suite(server, attempt_timeout=5, circuit_failures=2, retry=ONCE) as suite:
        for _ in range(3):
            error = await catch_error(suite.signing.download("doc", takes_for_ever))
            assert isinstance(error, ds.ConnectionLostError)
            assert "its response was not received completely within the attempt timeout" in str(error)
        server.default_responder = INFO
        await GET_DOC_INFO.call(suite)


async def test_silence_in_the_middle_of_an_response_opens_no_circuit(server: ScriptedServer) -> None:
    server.default_responder = responses.respond_in_chunks(b'{"success": ', responses.Pause(1000))
    async with open_suite(server, attempt_timeout=5, circuit_failures=2, retry=ONCE) as suite:
        for _ in range(3):
            assert "not received completely" in str(await catch_error(GET_MESSAGE_COUNT.call(suite)))


@pytest.mark.parametrize("timeout", [5, 60], ids=["the call's time", "an attempt's time"])
async def test_source_that_gives_nothing_opens_no_circuit(server: ScriptedServer, timeout: float) -> None:
    server.default_responder = INFO
    async with open_suite(server, attempt_timeout=5, timeout=timeout, circuit_failures=2, retry=ONCE) as suite:
        for _ in range(3):
            error = await catch_error(suite.signing.save(gives_nothing()))
            assert isinstance(error, ds.DeadlineExceededError if timeout == 5 else ds.ConnectFailedError)
            assert error.outcome is ds.Outcome.NOT_SENT
            assert "its source returned no bytes" in str(error)
        await GET_DOC_INFO.call(suite)


async def test_unanswered_upload_of_stream_opens_the_circuit(server: ScriptedServer) -> None:
    async def source() -> AsyncGenerator[bytes]:
        yield PDF

    server.default_responder = responses.never_respond
    async with open_suite(server, attempt_timeout=5, circuit_failures=2, retry=ONCE) as suite:
        for _ in range(2):
            assert "no response" in str(await catch_error(suite.signing.save(source())))
        assert isinstance(await catch_error(GET_DOC_INFO.call(suite)), ds.CircuitOpenError)


@pytest.mark.parametrize("pieces", [1, 2])
async def test_source_that_stalls_in_the_middle_opens_no_circuit(server: ScriptedServer, pieces: int) -> None:
    async def stalls() -> AsyncGenerator[bytes]:
        for _ in range(pieces):
            yield PDF + bytes(180_000)
        await asyncio.sleep(1e6)

    server.default_responder = INFO
    async with open_suite(server, attempt_timeout=5, circuit_failures=2, retry=ONCE) as suite:
        for _ in range(3):
            error = await catch_error(suite.signing.save(stalls()))
            assert isinstance(error, ds.ConnectionLostError)
            assert error.outcome is ds.Outcome.UNKNOWN
            assert "its source returned no more bytes" in str(error)
        await GET_DOC_INFO.call(suite)
