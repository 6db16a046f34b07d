"""Request bodies that can be sent again, and those that cannot after their first byte."""

from __future__ import annotations

import io
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

import directsuite as ds
from directsuite.core import content

from . import api, responses
from .scripted_server import Exchange, Responder, ScriptedServer
from .scripted_suite import PDF, catch_error, expect_error, open_suite

LIMITED = responses.respond(b"", 429)

SPENT: dict[str, Responder] = {
    "reset": responses.reset,
    "429": LIMITED,
    "503 with Retry-After": responses.respond(b"", 503, Retry_After="1"),
    "500": responses.respond(b"", 500),
    "malformed": responses.respond(b"{"),
    "truncated": responses.truncate({"identifier": "doc"}),
    "401": responses.respond(b"", 401),
    "429 before the body was read": responses.respond_early(b"", 429),
}


@pytest.mark.parametrize("spent", SPENT)
async def test_body_that_cannot_be_replayed_is_never_sent_again(server: ScriptedServer, spent: str) -> None:
    async def token() -> str:
        return "fresh"

    server.enqueue(SPENT[spent])
    async with open_suite(server, token=token) as suite:
        error = await catch_error(api.SAVE_STREAM(suite))
    assert len(server.requests) == error.attempts == 1


async def test_unreplayable_body_is_sent_on_retry_if_none_was_sent(server: ScriptedServer) -> None:
    async with open_suite(server, max_connections=1, timeout=5) as suite:
        server.default_responder = responses.never_respond
        await expect_error(ds.DeadlineExceededError, api.GET_DOC_INFO(suite))
        server.default_responder = responses.respond({"identifier": "doc"})
        await api.SAVE_STREAM(suite)
    assert len(server.find_requests("pdf")) == 2


@pytest.mark.parametrize("spent", [name for name in SPENT if name != "401"])
async def test_body_in_a_file_is_sent_again(server: ScriptedServer, spent: str, tmp_path: Path) -> None:
    file = tmp_path / "a.pdf"
    file.write_bytes(PDF * 50_000)
    server.enqueue(SPENT[spent])
    async with open_suite(server) as suite:
        await suite.signing.save(file)
    last = server.requests[-1]
    assert len(last.body) == int(last.headers["content-length"]) > len(PDF) * 50_000
    assert len(server.requests) == 2


class LockedFile(io.BytesIO):
    """A file that fails if it is used without the lock under which other calls read it in threads."""

    def _require_lock(self) -> None:
        assert content._get_lock(self).locked()

    def tell(self) -> int:
        self._require_lock()
        return super().tell()

    def seek(self, offset: int, whence: int = 0, /) -> int:
        self._require_lock()
        return super().seek(offset, whence)

    def read(self, size: int | None = -1, /) -> bytes:
        self._require_lock()
        return super().read(size)


async def test_calls_that_read_the_same_file_do_not_move_its_position_for_each_other(server: ScriptedServer) -> None:
    server.default_responder = responses.respond({"identifier": "doc"})
    async with open_suite(server) as suite:
        await suite.signing.save(LockedFile(PDF * 50_000))
    assert len(server.requests) == 1


async def test_file_object_keeps_its_position_if_nothing_is_sent(server: ScriptedServer) -> None:
    async def token() -> str:
        raise ConnectionError

    file = io.BytesIO(b"header" + PDF)
    file.seek(6)
    async with open_suite(server, token=token, retry=ds.RetryPolicy.none()) as suite:
        await expect_error(ds.TransportError, suite.signing.save(file))
    assert (file.tell(), server.requests) == (6, [])


class BrokenSourceError(Exception):
    pass


async def test_file_object_that_was_read_to_its_end_is_rejected(server: ScriptedServer, suite: ds.DirectSuite) -> None:
    file = io.BytesIO(PDF)
    await suite.signing.save(file)
    with pytest.raises(ds.InvalidArgumentError, match="at its end") as found:
        await suite.signing.save(file)
    assert found.value.parameter == "pdf"
    with pytest.raises(ds.InvalidArgumentError, match="at its end"):
        ds.Attachment.from_file(file, filename="a.pdf")
    assert len(server.requests) == 1


@pytest.mark.exhaustive
@pytest.mark.parametrize("after", [0, 1, 3])
@pytest.mark.parametrize("kind", [BrokenSourceError, OSError, TimeoutError, ValueError, ConnectionResetError])
async def test_error_of_the_user_s_own_source_comes_out_unchanged(
    server: ScriptedServer, suite: ds.DirectSuite, kind: type[Exception], after: int
) -> None:
    broken = kind("of the user's")

    async def source() -> AsyncGenerator[bytes]:
        for _ in range(after):
            yield PDF * 1000
        raise broken

    with pytest.raises(kind) as caught:
        await suite.signing.save(source())
    assert caught.value is broken
    assert len(server.requests) <= 1


async def test_file_that_shrinks_before_it_is_sent_again_is_reported(server: ScriptedServer, tmp_path: Path) -> None:
    file = tmp_path / "a.pdf"
    file.write_bytes(PDF * 50_000)

    async def shrink(exchange: Exchange) -> None:
        await exchange.read()
        file.write_bytes(PDF)
        exchange.reset()

    server.enqueue(shrink, responses.never_respond)
    async with open_suite(server) as suite:
        error = await expect_error(ds.TransportError, suite.signing.save(file))
    assert "became shorter" in str(error)
    assert error.operation == "Save"


async def test_source_of_a_rejected_upload_is_closed_by_then(server: ScriptedServer, suite: ds.DirectSuite) -> None:
    closed: list[bool] = []

    async def pdf() -> AsyncGenerator[bytes]:
        try:
            while True:
                yield b"%PDF-1.7 " * 9000
        finally:
            closed.append(True)

    server.default_responder = responses.respond_early(b"", 400)
    error = await catch_error(suite.signing.save(pdf()))
    assert isinstance(error, ds.ServiceError | ds.TransportError)
    assert closed == [True]
