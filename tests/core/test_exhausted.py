"""Where memory or the stack is at its end, no frame of the error holds what was answered."""

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

from . import plays
from .opened import ALICE, GET_MESSAGE_COUNT, PASSWORD, PATIENT, failure_of, opened
from .scripted_server import ScriptedServer
from .test_privacy import caught, inner_frames

OUT_OF_MEMORY: Callable[..., Any] = functools.partial(next, map(bytes, itertools.repeat(2**62)))
"""Raises MemoryError, in no frame of its own."""


def too_deep() -> Callable[..., Any]:
    """What raises RecursionError, in no frame of its own."""
    nested: list[Any] = []
    for _ in range(50_000):
        nested = [nested]
    return functools.partial(next, map(repr, itertools.repeat(nested)))


def frames_of(error: BaseException) -> str:
    """Every frame of an error's traceback below the test's own, with its locals."""
    told = traceback.TracebackException.from_exception(error, capture_locals=True)
    return "\n".join(f"{frame.filename} {frame.name} {frame.locals}" for frame in told.stack[1:])


async def test_memory_that_ends_while_an_answer_is_read_leaves_nothing_of_it(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.otherwise = plays.answer({"success": True, "count": 7, "note": PATIENT})
    async with opened(server) as suite:
        structure = suite._transport.codec.converter.get_structure_hook(GetCountResponse)
        monkeypatch.setitem(structure.__globals__, "new", OUT_OF_MEMORY)
        error = await caught(GET_MESSAGE_COUNT.call(suite))
    assert isinstance(error, MemoryError)
    assert PATIENT not in frames_of(error)
    assert inner_frames(error) == []


async def test_memory_that_ends_while_an_answer_comes_leaves_no_frame_of_aiohttp_s(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aiohttp.StreamReader, "_read_nowait_chunk", staticmethod(OUT_OF_MEMORY))
    server.otherwise = plays.answer({"success": True, "count": 7, "note": PATIENT})
    async with opened(server) as suite:
        error = await caught(GET_MESSAGE_COUNT.call(suite))
    assert isinstance(error, MemoryError)
    assert "aiohttp" not in frames_of(error)


@pytest.mark.parametrize("kind", [MemoryError, RecursionError])
async def test_exhaustion_anywhere_shows_the_callers_frames_alone(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch, kind: type[Exception]
) -> None:
    async def fail(_self: object) -> None:
        """Fail deep within."""
        raise kind

    monkeypatch.setitem(fail.__globals__, "__name__", "directsuite.core.attempt")
    monkeypatch.setattr("directsuite.core.attempt.Attempt.run", fail)
    async with opened(server) as suite:
        error = await caught(GET_MESSAGE_COUNT.call(suite))
    assert isinstance(error, kind)
    assert inner_frames(error) == []


@pytest.mark.parametrize("name", ["messages", "items"])
async def test_streamed_message_that_is_nested_too_deeply_is_an_answer_that_does_not_fit(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    server.otherwise = plays.answer(json.dumps({"success": True, name: [{"uid": 1}]}).encode())

    async def read(suite: ds.DirectSuite) -> None:
        async for _ in suite.mailbox(ALICE, PASSWORD).stream_messages():
            pass

    async with opened(server) as suite:
        structure = suite._transport.codec.converter.get_structure_hook(MessageDetail)
        monkeypatch.setitem(structure.__globals__, "new", too_deep())
        error = await failure_of(read(suite))
    assert isinstance(error, ds.ResponseDecodeError)
    assert error.path == "$.messages[0]"
