"""Bodies that can be sent again, and those that cannot: never after their first byte."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

import directsuite as ds

from . import plays
from .opened import GET_DOC_INFO, PDF, SAVE_STREAM, failure_of, opened
from .scripted_server import Exchange, Play, ScriptedServer

LIMITED = plays.answer(b"", 429)

SPENT: dict[str, Play] = {
    "reset": plays.reset,
    "429": LIMITED,
    "503 with Retry-After": plays.answer(b"", 503, Retry_After="1"),
    "500": plays.answer(b"", 500),
    "malformed": plays.answer(b"{"),
    "truncated": plays.truncated({"identifier": "doc"}),
    "401": plays.answer(b"", 401),
    "429 before the body was read": plays.early(b"", 429),
}


@pytest.mark.parametrize("spent", SPENT)
async def test_body_that_cannot_be_replayed_is_never_sent_again(server: ScriptedServer, spent: str) -> None:
    async def token() -> str:
        return "fresh"

    server.plays(SPENT[spent])
    async with opened(server, token=token) as suite:
        error = await failure_of(SAVE_STREAM.call(suite))
    assert len(server.requests) == error.attempts == 1


async def test_body_that_cannot_be_replayed_is_sent_again_where_nothing_of_it_had_left(server: ScriptedServer) -> None:
    async with opened(server, max_connections=1, timeout=5) as suite:
        server.otherwise = plays.silence
        error = await failure_of(GET_DOC_INFO.call(suite))
        server.otherwise = plays.answer({"identifier": "doc"})
        await SAVE_STREAM.call(suite)
    assert isinstance(error, ds.DeadlineExceededError)
    assert len(server.to("pdf")) == 2


@pytest.mark.parametrize("spent", [name for name in SPENT if name != "401"])
async def test_body_in_a_file_is_sent_again(server: ScriptedServer, spent: str, tmp_path: Path) -> None:
    file = tmp_path / "a.pdf"
    file.write_bytes(PDF * 50_000)
    server.plays(SPENT[spent], plays.answer({"identifier": "doc"}))
    async with opened(server) as suite:
        await suite.signing.save(file)
    last = server.requests[-1]
    assert len(last.body) == int(last.headers["content-length"]) > len(PDF) * 50_000
    assert len(server.requests) == 2


class BrokenSourceError(Exception):
    """The user's own."""


@pytest.mark.parametrize("after", [0, 1, 3])
@pytest.mark.parametrize("kind", [BrokenSourceError, OSError, TimeoutError, ValueError, ConnectionResetError])
async def test_error_of_the_user_s_own_source_comes_out_as_it_is(
    server: ScriptedServer, kind: type[Exception], after: int
) -> None:
    broken = kind("of the user's")

    async def source() -> AsyncGenerator[bytes]:
        for _ in range(after):
            yield PDF * 1000
        raise broken

    async with opened(server) as suite:
        with pytest.raises(kind) as caught:
            await suite.signing.save(source())
    assert caught.value is broken
    assert len(server.requests) <= 1


async def test_file_that_shrinks_before_it_is_sent_again_is_told(server: ScriptedServer, tmp_path: Path) -> None:
    file = tmp_path / "a.pdf"
    file.write_bytes(PDF * 50_000)

    async def shrink(exchange: Exchange) -> None:
        await exchange.read()
        file.write_bytes(PDF)
        exchange.reset()

    server.plays(shrink, plays.silence)
    async with opened(server) as suite:
        error = await failure_of(suite.signing.save(file))
    assert type(error) is ds.TransportError
    assert "became shorter" in str(error)
    assert error.operation == "Save"
