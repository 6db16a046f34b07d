"""Sources in tiny pieces, in one large piece, and cancelled ones."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, Awaitable, Callable

import pybase64
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import directsuite as ds
from directsuite.core.content import MemoryContent, make_content
from directsuite.core.files import PIECE_BYTES
from directsuite.core.upload import RequestBody, RequestPayload
from directsuite.messaging.arguments import make_send_body
from directsuite.messaging.models import Authentication, SendRequest
from directsuite.wire.codec import Codec
from directsuite.wire.models import Secret
from tests.core.scripted_server import ScriptedServer
from tests.core.scripted_suite import ALICE, PASSWORD, assert_no_leaks, catch_error, open_suite

from .samples import MAX_BYTES_PER_PASS, PDF, make_message, split
from .test_progress import measure_loop_bytes

MAX_CHUNK_BYTES = PIECE_BYTES // 3 * 4


async def stream(*pieces: bytes) -> AsyncGenerator[bytes]:
    for piece in pieces:
        yield piece


async def chunks_of(body: RequestBody) -> list[bytes]:
    return [chunk async for chunk in body.stream()]


@pytest.mark.parametrize("size", [997, 10_000, 48_000])
async def test_small_pieces_are_gathered(size: int) -> None:
    content = make_content(stream(*split(PDF, size)), parameter="pdf")
    chunks = await chunks_of(RequestBody.from_content(content))
    assert pybase64.b64decode(b"".join(chunks), validate=True) == PDF
    assert all(64 * 1024 <= len(chunk) <= MAX_CHUNK_BYTES for chunk in chunks[:-2])


async def test_connection_that_accepts_a_part_of_a_large_chunk_makes_progress() -> None:
    payload, written = (
        RequestPayload(RequestBody.from_content(MemoryContent(bytes(PIECE_BYTES * 3))), None),
        list[int](),
    )
    progress: list[int] = []
    payload.on_progress = lambda: progress.append(sum(written))

    class Writer:
        async def write(self, part: memoryview) -> None:
            written.append(len(part))

    await payload.write(Writer())  # type: ignore[arg-type]
    assert sum(written) == PIECE_BYTES * 4
    assert max(written) <= 128 * 1024
    assert len(progress) == len(written)


@given(size=st.integers(0, MAX_BYTES_PER_PASS))
@example(size=72 * 1024)
def test_content_in_memory_is_encoded_in_small_texts(size: int) -> None:
    content = (bytes(range(256)) * (size // 256 + 1))[:size]
    body = RequestBody.from_content(MemoryContent(content))
    texts = list(body.iter_memory_chunks())
    assert pybase64.b64decode(b"".join(texts), validate=True) == content
    assert body.size == sum(map(len, texts))
    assert all(0 < len(text) <= 96 * 1024 for text in texts)


@given(sizes=st.lists(st.sampled_from([0, 1, 2, 3, 100, 49_151, 49_152, 49_153, 196_608, PIECE_BYTES]), max_size=9))
async def test_pieces_of_any_size_are_sent_completely(sizes: list[int]) -> None:
    pieces = [bytes([number]) * size for number, size in enumerate(sizes)]
    chunks = await chunks_of(RequestBody.from_content(make_content(stream(*pieces), parameter="pdf")))
    assert pybase64.b64decode(b"".join(chunks), validate=True) == b"".join(pieces)
    assert all(0 < len(chunk) <= MAX_CHUNK_BYTES for chunk in chunks)


@pytest.mark.parametrize("size", [997, 50_000, 262_144])
async def test_source_lets_the_event_loop_turn_after_1_mb(server: ScriptedServer, size: int) -> None:
    async with open_suite(server) as suite, measure_loop_bytes() as cycles:

        async def counted() -> AsyncGenerator[bytes]:
            yield PDF[:2000]
            for piece in split(PDF[2000:], size):
                cycles.add_bytes(max(len(piece), 4096))
                yield piece

        await suite.signing.save(counted())
    assert cycles.max_bytes <= 2**20
    assert pybase64.b64decode(server.requests[0].body) == PDF


IN_MEMORY: dict[str, list[int]] = {
    "one": [3_000_000],
    "many": [40_000] * 20,
    "beside an empty one": [300_000, 0],
    "just too large": [MAX_BYTES_PER_PASS + 1],
}


@pytest.mark.parametrize("kind", IN_MEMORY)
async def test_large_content_in_memory_is_encoded_in_small_chunks(kind: str) -> None:
    attachments = [
        ds.Attachment(content=bytes([number]) * size, content_type="a/b", filename="a")
        for number, size in enumerate(IN_MEMORY[kind])
    ]
    request = SendRequest(
        authentication=Authentication(username=ALICE, password=Secret(PASSWORD)), message=make_message(*attachments)
    )
    body = await make_send_body(Codec(), request)
    chunks = await chunks_of(body)
    assert max(map(len, chunks)) <= MAX_CHUNK_BYTES
    assert body.size == sum(map(len, chunks))
    assert body.replayable


SENDS: dict[str, Callable[[ds.DirectSuite, AsyncGenerator[bytes]], Awaitable[object]]] = {
    "save": lambda suite, source: suite.signing.save(source, size=len(PDF)),
    "send": lambda suite, source: suite.mailbox(ALICE, PASSWORD).send(
        make_message(ds.Attachment.from_stream(source, filename="a", size=len(PDF)))
    ),
}


async def cancelled(after: int) -> AsyncGenerator[bytes]:
    for piece in itertools.islice(split(PDF, 100_000), after):
        yield piece
    other = asyncio.get_running_loop().create_future()
    other.cancel()
    await other


@pytest.mark.exhaustive
@pytest.mark.parametrize("after", [0, 3])
@pytest.mark.parametrize("kind", SENDS)
async def test_cancelled_source_is_not_a_lost_response(server: ScriptedServer, kind: str, after: int) -> None:
    async with open_suite(server) as suite:
        error = await catch_error(SENDS[kind](suite, cancelled(after)))
        assert_no_leaks(suite)
    assert (type(error), error.outcome) == (ds.TransportError, ds.Outcome.FAILED)
    assert error.elapsed == 0
    assert all(request.body == b"" for request in server.requests)
