"""If memory or the stack is exhausted, no frame of the error's traceback contains the response."""

from __future__ import annotations

import functools
import itertools
import json
import traceback
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest

import directsuite as ds
from directsuite.messaging.models import GetCountResponse, MessageDetail

from . import responses
from .scripted_server import ScriptedServer
from .scripted_suite import ALICE, GET_MESSAGE_COUNT, PASSWORD, PATIENT, catch_error, open_suite
from .test_privacy import catch_exception, list_package_frames

OUT_OF_MEMORY: Callable[..., Any] = functools.partial(next, map(bytes, itertools.repeat(2**62)))
"""Raises MemoryError without a frame in this module."""


def too_deep() -> Callable[..., Any]:
    nested: list[Any] = []
    for _ in range(50_000):
        nested = [nested]
    return functools.partial(next, map(repr, itertools.repeat(nested)))


def frames_of(error: BaseException) -> str:
    """Return all frames of an error's traceback below the test, with their locals."""
    told = traceback.TracebackException.from_exception(error, capture_locals=True)
    return "\n".join(f"{frame.filename} {frame.name} {frame.locals}" for frame in told.stack[1:])


async def test_memory_error_while_decoding_keeps_no_response_data(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.default_responder = responses.respond({"success": True, "count": 7, "note": PATIENT})
    async with open_suite(server) as suite:
        reader: Any = suite._transport.codec.converter.get_structure_hook(GetCountResponse)
        monkeypatch.setitem(reader.read.__globals__, "new", OUT_OF_MEMORY)
        error = await catch_exception(GET_MESSAGE_COUNT.call(suite))
    assert isinstance(error, MemoryError)
    assert PATIENT not in frames_of(error)
    assert list_package_frames(error) == []


async def test_memory_error_while_receiving_has_no_aiohttp_frame(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aiohttp.StreamReader, "_read_nowait_chunk", staticmethod(OUT_OF_MEMORY))
    server.default_responder = responses.respond({"success": True, "count": 7, "note": PATIENT})
    async with open_suite(server) as suite:
        error = await catch_exception(GET_MESSAGE_COUNT.call(suite))
    assert isinstance(error, MemoryError)
    assert "aiohttp" not in frames_of(error)


@pytest.mark.parametrize("kind", [MemoryError, RecursionError])
async def test_exhaustion_anywhere_shows_the_callers_frames_alone(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch, kind: type[Exception]
) -> None:
    async def fail(_self: object) -> None:
        raise kind

    monkeypatch.setitem(fail.__globals__, "__name__", "directsuite.core.attempt")
    monkeypatch.setattr("directsuite.core.attempt.Attempt.run", fail)
    async with open_suite(server) as suite:
        error = await catch_exception(GET_MESSAGE_COUNT.call(suite))
    assert isinstance(error, kind)
    assert list_package_frames(error) == []


@pytest.mark.parametrize("name", ["messages", "items"])
async def test_too_deeply_nested_streamed_message_is_a_decode_error(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    server.default_responder = responses.respond(json.dumps({"success": True, name: [{"uid": 1}]}).encode())

    async def read(suite: ds.DirectSuite) -> None:
        async for _ in suite.mailbox(ALICE, PASSWORD).stream_messages():
            pass

    async with open_suite(server) as suite:
        reader: Any = suite._transport.codec.converter.get_structure_hook(MessageDetail)
        monkeypatch.setitem(reader.read.__globals__, "new", too_deep())
        error = await catch_error(read(suite))
    assert isinstance(error, ds.ResponseDecodeError)
    assert error.path == "$.messages[0]"
