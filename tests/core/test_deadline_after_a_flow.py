"""Only pauses limit a response in progress; the call's time limits the next attempt until its response starts."""

from __future__ import annotations

import asyncio
import io

import pybase64
import pytest

import directsuite as ds

from . import responses
from .scripted_server import Exchange, ScriptedServer
from .scripted_suite import PDF, catch_error, open_suite

CODED = pybase64.b64encode(PDF * 900)
TIMEOUT = 12
FLOWS_AND_BREAKS = responses.respond_in_chunks(CODED[:4000], responses.Pause(2), CODED[4000:8000], length=len(CODED))


async def test_next_attempt_waits_for_a_connection_within_the_time_of_the_call(server: ScriptedServer) -> None:
    async def flows_until_another_waits(exchange: Exchange) -> None:
        """Start a call that occupies the only connection for long, while the response is being received."""
        holding.append(asyncio.create_task(hold()))
        await FLOWS_AND_BREAKS(exchange)

    async def hold() -> None:
        async with suite.signing.stream_doc("other") as pieces:
            async for _ in pieces:
                await asyncio.sleep(1e6)

    holding: list[asyncio.Task[None]] = []
    server.enqueue(flows_until_another_waits)
    server.default_responder = responses.respond(CODED)
    async with open_suite(server, max_connections=1, timeout=TIMEOUT, attempt_timeout=5) as suite:
        error = await catch_error(asyncio.wait_for(suite.signing.download("doc", io.BytesIO()), 1000))
        for task in holding:
            task.cancel()
        await asyncio.gather(*holding, return_exceptions=True)
    assert isinstance(error, ds.DeadlineExceededError)
    assert error.outcome is ds.Outcome.UNKNOWN
    assert error.elapsed == pytest.approx(TIMEOUT)


async def test_next_attempt_waits_for_its_response_within_the_time_of_the_call(server: ScriptedServer) -> None:
    server.enqueue(FLOWS_AND_BREAKS)
    server.default_responder = responses.never_respond
    async with open_suite(server, timeout=TIMEOUT, attempt_timeout=100) as suite:
        error = await catch_error(suite.signing.download("doc", io.BytesIO()))
    assert isinstance(error, ds.DeadlineExceededError)
    assert error.elapsed == pytest.approx(TIMEOUT)


async def test_response_of_the_next_attempt_flows_as_long_as_it_likes(server: ScriptedServer) -> None:
    slow = [part for start in range(0, len(CODED), 1200) for part in (CODED[start : start + 1200], responses.Pause(4))]
    server.enqueue(FLOWS_AND_BREAKS, responses.respond_in_chunks(*slow))
    file = io.BytesIO()
    async with open_suite(server, timeout=TIMEOUT, attempt_timeout=5) as suite:
        await suite.signing.download("doc", file)
    assert file.getvalue() == PDF * 900
