"""The size of responses is limited while they are received, also without a Content-Length."""

from __future__ import annotations

import functools
import random
import tracemalloc
import zlib
from collections.abc import Awaitable, Callable
from pathlib import Path

import pybase64
import pytest

import directsuite as ds
from directsuite.core import session, transport
from directsuite.core.call import SKIP_DECODING, ExchangeInfo

from . import api, responses
from .scripted_server import Responder, ScriptedServer
from .scripted_suite import ALICE, PASSWORD, assert_no_leaks, catch_error, expect_error, open_suite, stream_messages

pytestmark = pytest.mark.wide

LIMIT = 1000


HINTS: list[tuple[api.SuiteCall, str]] = [
    (lambda suite: suite.signing.get_doc("doc"), "download"),
    (lambda suite: suite.mailbox(ALICE, PASSWORD).get_message_metadata(), "read it with iter_metadata, or raise"),
    (lambda suite: suite.mailbox(ALICE, PASSWORD).get_unread_messages(), ": raise max_response_bytes"),
    (lambda suite: suite.mailbox(ALICE, PASSWORD).get_messages(), "stream_messages"),
    (lambda suite: suite.mailbox(ALICE, PASSWORD).get_raw_messages_by_uids("INBOX", [1]), "fewer uids at a time"),
    (lambda suite: suite.signing.flatten_and_pull("doc"), "destination="),
    (api.GET_DOC_INFO, "max_response_bytes"),
    (api.SAVE, "max_response_bytes"),
]


@pytest.mark.parametrize(("call", "hint"), HINTS)
@pytest.mark.parametrize("chunked", [False, True])
async def test_response_beyond_the_limit_names_what_to_do_and_is_not_repeated(
    server: ScriptedServer, call: api.SuiteCall, hint: str, *, chunked: bool
) -> None:
    large = b'{"success": true, "x": "%b"}' % (b"A" * LIMIT)
    server.default_responder = (
        responses.respond_in_chunks(large[:500], large[500:]) if chunked else responses.respond(large)
    )
    async with open_suite(server, max_response_bytes=LIMIT) as suite:
        error = await catch_error(call(suite))
        assert_no_leaks(suite)
    failure = error.__cause__ if isinstance(error, ds.OutcomeUnknownError) else error
    assert isinstance(failure, ds.ResponseDecodeError)
    assert failure.too_large
    assert hint in str(failure)
    assert "max_response_bytes" in str(failure)
    assert len(server.requests) == 1


@pytest.mark.parametrize(("size", "fits"), [(LIMIT, True), (LIMIT + 1, False)])
async def test_limit_itself_still_fits(server: ScriptedServer, size: int, *, fits: bool) -> None:
    text = b'{"identifier": "doc"}'
    server.default_responder = responses.respond(text + b" " * (size - len(text)))
    async with open_suite(server, max_response_bytes=LIMIT) as suite:
        if fits:
            assert (await suite.signing.get_doc_info("doc")).identifier == "doc"
        else:
            assert isinstance(await catch_error(suite.signing.get_doc_info("doc")), ds.ResponseDecodeError)


@functools.cache
def bomb(megabytes: int, encoding: str, byte: bytes = b"\0", head: bytes = b"") -> Responder:
    compressor = zlib.compressobj(9, zlib.DEFLATED, 31 if encoding == "gzip" else 15)
    pieces = (compressor.compress(byte * 2**20) for _ in range(megabytes))
    coded = compressor.compress(head) + b"".join(pieces) + compressor.flush()
    return responses.respond(coded, Content_Encoding=encoding)


async def catch_and_measure(call: Awaitable[object]) -> tuple[ds.DirectSuiteError, int]:
    """Return the error of a call, and the most memory that it used."""
    tracemalloc.start()
    try:
        return await catch_error(call), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("encoding", "limit", "most"), [("gzip", 1, 16), ("deflate", 1, 16), ("gzip", 32, 32 + 8)])
async def test_compression_bomb_is_stopped_early_and_held_once(
    server: ScriptedServer, encoding: str, limit: int, most: int
) -> None:
    server.default_responder = bomb(200, encoding)
    async with open_suite(server, max_response_bytes=limit * 2**20) as suite:
        error, peak = await catch_and_measure(api.GET_DOC_INFO(suite))
    assert isinstance(error, ds.ResponseDecodeError)
    assert error.too_large
    assert len(error.body) == session.MAX_ERROR_BODY_BYTES
    assert len(server.requests) == 1
    assert peak < most * 2**20


async def test_large_response_is_held_once_while_it_is_received(server: ScriptedServer) -> None:
    """Joining its chunks at the end would need its size twice, and block the event loop."""
    size, peaks, head = 32 * 2**20, list[int](), b'{"success": true}'

    def observe(exchanged: ExchangeInfo) -> object:
        peaks.append(tracemalloc.get_traced_memory()[1])
        assert exchanged.response.body == head + b" " * size
        return SKIP_DECODING

    server.default_responder = bomb(32, "gzip", b" ", head)
    async with open_suite(server) as suite:
        tracemalloc.start()
        try:
            await suite.mailbox(ALICE, PASSWORD).with_observer(observe).get_messages()
        finally:
            tracemalloc.stop()
    [peak] = peaks
    assert size < peak < 1.4 * size


async def _stream_doc(suite: ds.DirectSuite, _: Path) -> object:
    return [len(piece) async for piece in suite.signing.stream_doc("doc")]


DOCUMENTS: dict[str, Callable[[ds.DirectSuite, Path], Awaitable[object]]] = {
    "download": lambda suite, folder: suite.signing.download("doc", folder / "a.pdf"),
    "pull": lambda suite, folder: suite.signing.flatten_and_pull("doc", destination=folder / "a.pdf"),
    "stream": _stream_doc,
    "in memory": lambda suite, _: suite.signing.get_doc("doc"),
}


@pytest.mark.exhaustive(limit=2)
@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
@pytest.mark.parametrize("fetch", DOCUMENTS)
async def test_document_that_expands_beyond_reason_is_rejected(
    server: ScriptedServer, suite: ds.DirectSuite, fetch: str, encoding: str, tmp_path: Path
) -> None:
    server.default_responder = bomb(300, encoding, b"A")
    error, peak = await catch_and_measure(DOCUMENTS[fetch](suite, tmp_path))
    assert_no_leaks(suite)
    if fetch == "pull":
        assert isinstance(error, ds.OutcomeUnknownError)
        assert isinstance(error.__cause__, ds.ResponseDecodeError)
        error = error.__cause__
    assert isinstance(error, ds.ResponseDecodeError)
    assert error.too_large
    assert "20 times" in str(error)
    assert len(server.requests) == 1
    assert list(tmp_path.iterdir()) == []  # noqa: ASYNC240  a folder of the test's own
    assert peak < 32 * 2**20


@pytest.mark.parametrize("fetch", DOCUMENTS)
async def test_document_is_asked_for_uncompressed_and_read_even_so(
    server: ScriptedServer, suite: ds.DirectSuite, fetch: str, tmp_path: Path
) -> None:
    pdf = b"%PDF-1.7 " + random.Random(1).randbytes(3 * 2**20) + bytes(2**20)
    coded = zlib.compress(pybase64.b64encode(pdf), wbits=31)
    server.default_responder = responses.respond(coded, Content_Encoding="gzip")
    await DOCUMENTS[fetch](suite, tmp_path)
    assert [request.headers["accept-encoding"] for request in server.requests] == ["identity"]


async def test_small_document_may_expand_as_it_likes(server: ScriptedServer, suite: ds.DirectSuite) -> None:
    server.default_responder = responses.respond(zlib.compress(b"A" * 2**20, wbits=31), Content_Encoding="gzip")
    assert await suite.signing.get_doc("doc") == bytes(3 * 2**18)


@pytest.mark.exhaustive(limit=1)
@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
async def test_message_that_expands_without_end_is_stopped_early(
    server: ScriptedServer, encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "_MAX_ELEMENT_BYTES", 4 * 2**20)
    server.default_responder = bomb(300, encoding, b"A", b'{"success": true, "messages": [{"uid": 1, "textBody": "')
    async with open_suite(server, max_response_bytes=2**20) as suite:
        error, peak = await catch_and_measure(stream_messages(suite))
        assert_no_leaks(suite)
    assert isinstance(error, ds.ResponseDecodeError)
    assert error.too_large
    assert "max_response_bytes" in str(error)
    assert peak < 24 * 2**20


async def test_compressed_response_is_read(server: ScriptedServer, suite: ds.DirectSuite) -> None:
    text = zlib.compress(b'{"identifier": "doc"}', wbits=31)
    server.default_responder = responses.respond(text, Content_Encoding="gzip")
    assert (await suite.signing.get_doc_info("doc")).identifier == "doc"


async def test_stream_may_be_large_but_none_of_its_messages(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "_MAX_ELEMENT_BYTES", LIMIT)
    small = b'{"uid": 1, "subject": "%b"}' % (b"A" * (LIMIT // 2))
    server.enqueue(
        responses.respond_in_chunks(b'{"success": true, "messages": [', *[small + b", "] * 20, small + b"]}"),
        responses.respond_in_chunks(b'{"success": true, "messages": [{"uid": 1, "subject": "', *[b"A" * 500] * 1000),
    )
    async with open_suite(server, max_response_bytes=LIMIT // 10) as suite:
        assert len(await stream_messages(suite)) == 21
        error = await expect_error(ds.ResponseDecodeError, stream_messages(suite))
    assert error.too_large
    assert "max_response_bytes" in str(error)
