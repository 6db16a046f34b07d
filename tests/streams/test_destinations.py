"""Downloads to a file object, to a callable and as a stream, and their state after a failure."""

from __future__ import annotations

import hashlib
import io
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pybase64
import pytest

import directsuite as ds
from tests.core import responses
from tests.core.scripted_server import Responder, ScriptedServer
from tests.core.scripted_suite import SIGNATURE, UNSIGNED, assert_no_leaks, catch_error, expect_error, open_suite
from tests.core.virtual_time import yield_until

from .samples import CODED, HALF, PDF, Pipe

LINES = pybase64.encodebytes(PDF)


class Passed:
    """An async callable."""

    def __init__(self, fails: Exception | None = None) -> None:
        self.content = b""
        self.largest = 0
        self.fails = fails

    async def __call__(self, piece: bytes) -> None:
        if self.fails is not None:
            raise self.fails
        self.content += piece
        self.largest = max(self.largest, len(piece))


ANSWERS: dict[str, Responder] = {
    "whole": responses.respond(CODED),
    "lines": responses.respond(LINES),
    "chunked": responses.respond_in_chunks(*(CODED[start : start + 99_991] for start in range(0, len(CODED), 99_991))),
}


@pytest.mark.exhaustive(limit=1)
@pytest.mark.parametrize("answer", ANSWERS)
async def test_document_is_complete_at_every_destination(server: ScriptedServer, answer: str, tmp_path: Path) -> None:
    server.default_responder = ANSWERS[answer]
    file, pipe, passed = io.BytesIO(), Pipe(), Passed()
    async with open_suite(server) as suite:
        assert await suite.signing.download("doc", tmp_path / "a.pdf") == tmp_path / "a.pdf"
        assert await suite.signing.download("doc", file) is file
        assert await suite.signing.download("doc", pipe) is pipe
        assert await suite.signing.download("doc", passed) == len(PDF)
        streamed = [piece async for piece in suite.signing.stream_doc("doc")]
    assert (tmp_path / "a.pdf").read_bytes() == file.getvalue() == pipe.content == passed.content == PDF
    assert b"".join(streamed) == PDF
    assert max(map(len, streamed)) <= 192 * 1024
    assert passed.largest <= 192 * 1024
    assert not file.closed
    assert threading.get_ident() not in pipe.threads


@pytest.mark.parametrize("make", [Pipe, Passed])
async def test_what_was_passed_on_is_not_requested_again(server: ScriptedServer, make: type[Pipe | Passed]) -> None:
    server.enqueue(HALF)
    destination = make()
    async with open_suite(server) as suite:
        await expect_error(ds.ResponseDecodeError, suite.signing.download("doc", destination))
        assert_no_leaks(suite)
    assert len(server.requests) == 1
    assert PDF.startswith(destination.content)


@pytest.mark.parametrize("make", [Pipe, Passed])
async def test_failure_before_the_first_byte_is_tried_again(server: ScriptedServer, make: type[Pipe | Passed]) -> None:
    server.enqueue(responses.respond(b"", 500))
    destination = make()
    async with open_suite(server) as suite:
        await suite.signing.download("doc", destination)
    assert destination.content == PDF


OWN: list[Exception] = [
    ValueError("own"),
    ConnectionResetError("own"),
    aiohttp.ClientConnectionError(),
    TimeoutError(),
    OSError("the upload failed", "text as errno"),
    OSError(2**70, "a large errno"),
]


@pytest.mark.exhaustive(limit=2)
@pytest.mark.parametrize("own", OWN, ids=["value", "reset", "connection", "timeout", "errno of text", "large errno"])
async def test_error_of_a_callable_is_raised_unchanged(server: ScriptedServer, own: Exception) -> None:
    async with open_suite(server) as suite:
        with pytest.raises(type(own)) as caught:
            await suite.signing.download("doc", Passed(own))
        error = await catch_error(suite.signing.sign_and_pull("doc", SIGNATURE, destination=Passed(own)))
    assert caught.value is own
    assert not hasattr(own, "__notes__")
    assert isinstance(error, ds.OutcomeUnknownError)
    assert error.happened
    assert error.__cause__ is own
    assert len(server.requests) == 2


async def test_proven_pull_is_not_passed_on_a_second_time(server: ScriptedServer, suite: ds.DirectSuite) -> None:
    server.enqueue(HALF)
    passed = Passed()
    error = await catch_error(suite.signing.sign_and_pull(UNSIGNED, SIGNATURE, destination=passed))
    assert isinstance(error, ds.OutcomeUnknownError)
    assert error.happened
    assert PDF.startswith(passed.content)
    assert [request.path for request in server.requests] == ["pdf/doc/sign/pull", "pdf/doc/info"]


async def test_proven_pull_goes_to_a_file_that_can_seek(server: ScriptedServer, suite: ds.DirectSuite) -> None:
    server.enqueue(HALF)
    file = io.BytesIO()
    assert await suite.signing.sign_and_pull(UNSIGNED, SIGNATURE, destination=file) is file
    assert file.getvalue() == PDF


async def test_file_appears_only_if_the_digest_matches(suite: ds.DirectSuite, tmp_path: Path) -> None:
    path, right = tmp_path / "a.pdf", hashlib.sha256(PDF).hexdigest()
    error = await expect_error(ds.ResponseDecodeError, suite.signing.download("doc", path, sha256="0" * 64))
    assert os.listdir(tmp_path) == []  # noqa: PTH208  a Path would be refused in a coroutine
    await suite.signing.download("doc", path, sha256=right.upper())
    assert error.explanation == "the document's SHA-256 digest is not the given one"
    assert right not in str(error)
    assert path.read_bytes() == PDF


class Drained:
    """A writer with `drain`."""

    def write(self, piece: bytes, /) -> None: ...

    async def drain(self) -> None: ...


class AsyncFile:
    """An object with an async `write`."""

    async def write(self, piece: bytes) -> None: ...


REJECTED: list[tuple[Any, dict[str, Any], str]] = [
    (io.StringIO(), {}, "destination"),
    (io.BufferedReader(io.BytesIO()), {}, "destination"),
    (AsyncFile(), {}, "destination"),
    (Drained(), {}, "destination"),
    *((function, {}, "destination") for function in (print, bytes, PDF.find)),
    (5, {}, "destination"),
    (None, {}, "destination"),
    (io.BytesIO(), {"sha256": "abc"}, "sha256"),
    (io.BytesIO(), {"progress": AsyncFile().write}, "progress"),
    *((io.BytesIO(), {"max_bytes": max_bytes}, "max_bytes") for max_bytes in (0, -1, True, 2.0, "5", 2**64)),
]


@pytest.mark.exhaustive(limit=6)
@pytest.mark.parametrize(("destination", "options", "parameter"), REJECTED)
async def test_invalid_destination_is_rejected(
    server: ScriptedServer, suite: ds.DirectSuite, destination: Any, options: dict[str, Any], parameter: str
) -> None:
    download: Any = suite.signing.download
    error = await expect_error(ds.InvalidArgumentError, download("doc", destination, **options))
    assert error.parameter == parameter
    assert server.requests == []


@pytest.mark.exhaustive(limit=2)
@pytest.mark.parametrize(
    "spoilt", [HALF, responses.respond(b"<html>"), responses.respond(b""), responses.respond(CODED[:-2])]
)
async def test_malformed_stream_raises_at_the_break(server: ScriptedServer, spoilt: Responder) -> None:
    server.enqueue(spoilt)
    seen: list[bytes] = []
    async with open_suite(server) as suite:
        await expect_error(ds.ResponseDecodeError, _read(suite.signing.stream_doc("doc"), seen))
        assert_no_leaks(suite)
    assert PDF.startswith(b"".join(seen))
    assert len(server.requests) == 1


async def _read(pieces: ds.Listing[bytes], seen: list[bytes]) -> None:
    async for piece in pieces:
        seen.append(piece)  # noqa: PERF401  an extend would keep nothing of what came before the failure


async def test_leaving_a_stream_early_ends_its_request(server: ScriptedServer, suite: ds.DirectSuite) -> None:
    server.enqueue(responses.send_endlessly(responses.make_head(200, 10**9), CODED))
    async with suite.signing.stream_doc("doc") as pieces:
        assert (await anext(pieces)).startswith(b"%PDF-")
    assert_no_leaks(suite)


async def test_entering_a_stream_sends_the_request_and_iterating_starts_with_the_first_piece(
    server: ScriptedServer, suite: ds.DirectSuite
) -> None:
    stream = suite.signing.stream_doc("doc")
    assert server.requests == []
    async with stream as pieces:
        assert len(server.requests) == 1
        first = await pieces.asend(None)
        assert first + b"".join([piece async for piece in pieces]) == PDF
    async with stream as pieces:
        assert [piece async for piece in pieces] == []
    assert len(server.requests) == 1


@pytest.mark.parametrize("is_begun", [False, True])
async def test_stream_that_is_entered_again_loses_no_piece(suite: ds.DirectSuite, is_begun: bool) -> None:
    stream = suite.signing.stream_doc("doc")
    seen = [await anext(stream)] if is_begun else []
    async with stream, stream as pieces:
        await _read(pieces, seen)
    assert b"".join(seen) == PDF


@pytest.mark.parametrize("leave", ["close", "throw"])
async def test_piece_received_on_entering_is_dropped_with_the_stream(server: ScriptedServer, leave: str) -> None:
    server.enqueue(responses.send_endlessly(responses.make_head(200, 10**9), CODED))
    async with open_suite(server) as suite, suite.signing.stream_doc("doc") as pieces:
        if leave == "close":
            await pieces.aclose()
        else:
            with pytest.raises(LookupError):
                await pieces.athrow(LookupError())
        with pytest.raises((StopAsyncIteration, ds.TransportError)):
            await anext(pieces)
        assert_no_leaks(suite)


@pytest.mark.parametrize(
    ("script", "expected", "requests"),
    [
        ([responses.respond({"error": "gone"}, 400)], ds.BadRequestError, 1),
        ([responses.respond(b"<html>")], ds.ResponseDecodeError, 1),
        ([responses.respond(b"")], ds.ResponseDecodeError, 1),
        ([responses.reset] * 2, ds.ConnectionLostError, 2),
    ],
    ids=["rejected", "page", "empty", "lost"],
)
async def test_stream_that_does_not_start_raises_on_entering(
    server: ScriptedServer, script: list[Responder], expected: type[ds.DirectSuiteError], requests: int
) -> None:
    server.enqueue(*script)
    entered = False
    async with open_suite(server) as suite:
        with pytest.raises(expected):
            async with suite.signing.stream_doc("doc"):
                entered = True
        assert_no_leaks(suite)
    assert not entered
    assert len(server.requests) == requests


TO_A_DESTINATION: dict[str, tuple[object, ...]] = {
    "download": ("doc",),
    "flatten_and_pull": ("doc",),
    "clear_unsigned_fields_and_pull": ("doc",),
    "sign_and_pull": ("doc", SIGNATURE),
    "multi_sign_and_pull": ("doc", [SIGNATURE]),
}


@pytest.mark.exhaustive(limit=1)
@pytest.mark.parametrize("method", TO_A_DESTINATION)
async def test_document_larger_than_max_bytes_is_rejected(server: ScriptedServer, tmp_path: Path, method: str) -> None:
    server.default_responder = responses.respond(LINES)
    arguments, path, file, pipe, passed = TO_A_DESTINATION[method], tmp_path / "a.pdf", io.BytesIO(), Pipe(), Passed()
    async with open_suite(server) as suite:
        call: Any = getattr(suite.signing, method)
        assert await call(*arguments, destination=path, max_bytes=len(PDF)) == path
        assert path.read_bytes() == PDF
        path.unlink()
        for destination in (path, file, pipe, passed):
            error = await catch_error(call(*arguments, destination=destination, max_bytes=len(PDF) - 1))
            if method != "download":  # a change, which may have been made all the same
                assert isinstance(error, ds.OutcomeUnknownError)
                assert error.happened
                assert error.how_to_find_out.startswith("call get_doc(")
                assert isinstance(error.__cause__, ds.ResponseDecodeError)
                error = error.__cause__
            assert isinstance(error, ds.ResponseDecodeError)
            assert error.too_large
            assert f"larger than {len(PDF) - 1} bytes: raise max_bytes" in str(error)
            assert_no_leaks(suite)
    assert os.listdir(tmp_path) == []  # noqa: PTH208  a Path would be refused in a coroutine
    for content in (file.getvalue(), pipe.content, passed.content):
        assert len(content) < len(PDF)
        assert PDF.startswith(content)
    assert len(server.requests) == 5  # none is sent again: the response would be as large


async def test_endless_document_ends_at_max_bytes(server: ScriptedServer, tmp_path: Path) -> None:
    server.default_responder = responses.send_endlessly(responses.make_head(200, 10**12), b"A" * 65_536)
    async with open_suite(server) as suite:
        error = await catch_error(suite.signing.download("doc", tmp_path / "a.pdf", max_bytes=10**6))
        assert_no_leaks(suite)
        await yield_until(lambda: server.busy == 0)  # its connection was closed
    assert type(error) is ds.ResponseDecodeError
    assert os.listdir(tmp_path) == []  # noqa: PTH208  as above


async def test_stream_of_a_document_gives_no_more_than_max_bytes(server: ScriptedServer, suite: ds.DirectSuite) -> None:
    seen: list[bytes] = []
    await _read(suite.signing.stream_doc("doc", max_bytes=len(PDF)), seen)
    assert b"".join(seen) == PDF
    seen.clear()
    error = await catch_error(_read(suite.signing.stream_doc("doc", max_bytes=len(PDF) // 2), seen))
    assert_no_leaks(suite)
    with pytest.raises(ds.InvalidArgumentError) as caught:
        suite.signing.stream_doc("doc", max_bytes=0)
    assert caught.value.parameter == "max_bytes"
    assert type(error) is ds.ResponseDecodeError
    assert error.too_large
    assert "raise max_bytes" in str(error)
    assert 0 < len(b"".join(seen)) <= len(PDF) // 2
    assert len(server.requests) == 2


@pytest.mark.parametrize("destination", [io.BytesIO, Passed, lambda: None])
async def test_proven_pull_that_is_too_large_is_not_requested_again(
    server: ScriptedServer, destination: Callable[[], Any]
) -> None:
    to = destination()
    options: dict[str, Any] = {} if to is None else {"destination": to, "max_bytes": 500}
    async with open_suite(server, max_response_bytes=1000) as suite:
        sign_and_pull: Any = suite.signing.sign_and_pull
        error = await expect_error(ds.OutcomeUnknownError, sign_and_pull(UNSIGNED, SIGNATURE, **options))
    assert error.happened
    assert "the operation succeeded, but the" in str(error)
    assert "raise max_" in str(error)
    assert "download" in error.how_to_find_out
    assert isinstance(error.__cause__, ds.ResponseDecodeError)
    assert error.__cause__.too_large
    paths = ["pdf/doc/sign/pull"] if to is not None else ["pdf/doc/sign/pull", "pdf/doc/info", "pdf/doc"]
    assert [request.path for request in server.requests] == paths
