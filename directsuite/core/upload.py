"""Request bodies.

    RequestBody          what an operation sends: bytes, the base64 of a Content, or JSON that contains contents
      └────────────────► RequestPayload   the aiohttp payload of one attempt; `started` is set before the first byte

A request whose payload has not started cannot have had an effect: Outcome.NOT_SENT depends on that. Operations without
a body therefore send an empty one.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator

import attrs
import pybase64
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import StreamWriter
from aiohttp.payload import Payload

from directsuite.core.clock import is_being_cancelled
from directsuite.core.content import Content, MemoryContent
from directsuite.core.files import Piece
from directsuite.errors import Outcome, TransportError

MAX_UNINTERRUPTED_BYTES = 256 * 1024
"""The maximum number of bytes in memory that are encoded without letting other tasks run."""

_SMALL_BYTES = 16 * 1024  # a connection accepts this number of bytes at once
# Larger texts would each request memory from the system.
_ENCODED_BYTES_PER_STEP = 72 * 1024
_BYTES_PER_TURN = 1024 * 1024  # bytes written before other tasks run
_MAX_WRITTEN_BYTES = 112 * 1024  # a slow connection must accept them within the attempt's timeout
_MIN_CHUNK_BYTES = 48 * 1024  # smaller pieces are combined
_MAX_GATHER_SECONDS = 0.05  # maximum age of combined pieces, checked when the next one arrives
_SMALL_PIECES_PER_TURN = 64  # small pieces combined before other tasks run


def do_nothing() -> None:
    """Do nothing."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class RequestBody:
    """A body: content in memory, or a function that yields chunks."""

    chunks: Callable[[], AsyncGenerator[bytes]] | None = None
    content: bytes = b""
    needs_base64: bool = False
    """True if `content` is encoded as base64 while it is sent."""
    size: int | None = None
    """The number of bytes to be sent. None if unknown."""
    replayable: bool = True

    @classmethod
    def from_bytes(cls, content: bytes) -> RequestBody:
        """Return a body of these bytes."""
        return cls(content=content, size=len(content))

    @classmethod
    def join(cls, parts: list[RequestBody], on_begin: Callable[[], None] = do_nothing) -> RequestBody:
        """Return a body that consists of the parts, in their order.

        on_begin: called when an attempt starts to send the body.
        """
        sizes = [part.size for part in parts]

        async def chunks() -> AsyncGenerator[bytes]:
            on_begin()
            for part in parts:
                async with contextlib.aclosing(part.stream()) as stream:
                    async for chunk in stream:
                        yield chunk
                        del chunk  # releases its memory before the next one is made

        size = None if None in sizes else sum(size for size in sizes if size is not None)
        return cls(chunks=chunks, size=size, replayable=all(part.replayable for part in parts))

    @classmethod
    def from_content(
        cls,
        content: Content,
        on_accepted: Callable[[int], None] | None = None,
        on_begin: Callable[[], None] = do_nothing,
    ) -> RequestBody:
        """Return a body that is the base64 text of a content, encoded while it is sent.

        on_accepted: called with the number of bytes of each piece, when the connection has accepted it.
        on_begin: called when an attempt starts to send the body.
        """
        size = None if content.size is None else (content.size + 2) // 3 * 4
        if (
            isinstance(content, MemoryContent)
            and len(content.content) <= MAX_UNINTERRUPTED_BYTES
            and on_accepted is None
        ):
            return cls(content=content.content, needs_base64=True, size=size)
        return cls(
            chunks=lambda: _encode_content(content, on_accepted, on_begin), size=size, replayable=content.replayable
        )

    def stream(self) -> AsyncGenerator[bytes]:
        """Yield the chunks from the start. Closing this closes the source."""
        if self.chunks is None:
            return self._stream_memory_chunks()
        return self.chunks()

    async def _stream_memory_chunks(self) -> AsyncGenerator[bytes]:
        for text in self.iter_memory_chunks():
            yield text

    def iter_memory_chunks(self) -> Iterator[bytes]:
        """Yield the chunks of a body in memory."""
        if not self.needs_base64:
            yield self.content
            return
        view = memoryview(self.content)
        for start in range(0, len(view), _ENCODED_BYTES_PER_STEP):
            yield pybase64.b64encode(view[start : start + _ENCODED_BYTES_PER_STEP])

    def __repr__(self) -> str:
        return f"RequestBody(size={self.size}, replayable={self.replayable})"


EMPTY_BODY = RequestBody.from_bytes(b"")


async def _encode_content(
    content: Content, on_accepted: Callable[[int], None] | None, on_begin: Callable[[], None]
) -> AsyncGenerator[bytes]:
    on_begin()
    rest = b""  # the one or two bytes that are not encoded yet
    async with contextlib.aclosing(_coalesce_pieces(content)) as pieces:
        async for piece in pieces:
            complete = rest + piece if rest else piece
            end = len(complete) - len(complete) % 3
            rest = bytes(complete[end:])
            if end:
                yield pybase64.b64encode(memoryview(complete)[:end])
            if on_accepted is not None:
                on_accepted(len(piece))
    if rest:
        yield pybase64.b64encode(rest)


async def _coalesce_pieces(content: Content) -> AsyncGenerator[Piece]:
    """Yield the content, with small pieces that follow each other quickly combined to at least _MIN_CHUNK_BYTES."""
    time = asyncio.get_running_loop().time
    small, since, count = bytearray(), time(), 0
    piece: Piece = b""
    try:
        async with contextlib.aclosing(content.pieces()) as pieces:
            async for piece in pieces:
                if len(piece) < _MIN_CHUNK_BYTES:
                    count += 1
                    if not count % _SMALL_PIECES_PER_TURN:
                        await asyncio.sleep(0)
                    small += piece
                    if len(small) < _MIN_CHUNK_BYTES and time() - since < _MAX_GATHER_SECONDS:
                        continue
                if small:
                    yield bytes(small)
                    small.clear()
                if len(piece) >= _MIN_CHUNK_BYTES:
                    yield piece
                since = time()
        if small:
            yield bytes(small)
    finally:
        small, piece = bytearray(), b""  # tracebacks expose local variables


class RequestPayload(Payload):
    """The body of one attempt, for aiohttp."""

    _autoclose = True
    _is_source_opened = False
    started = False
    """True if a byte may have been sent."""
    waiting_on_source = False
    """True while waiting for the source, so that a timeout can be attributed to it."""
    failure: Exception | None = None
    """The exception raised by the source."""

    def __init__(self, body: RequestBody, media_type: str | None) -> None:
        super().__init__(body, content_type=media_type or "application/json")
        self._body = body
        self._size = body.size
        self.on_progress: Callable[[], None] = do_nothing
        """Called when the connection has accepted another chunk of a body that is not in memory."""

    @property
    def small_content(self) -> bytes | None:
        """The body if it is in memory and small, otherwise None."""
        body = self._body
        if body.chunks is not None or body.needs_base64 or len(body.content) > _SMALL_BYTES:
            return None
        return body.content

    def start(self, writer: AbstractStreamWriter) -> None:
        """Set `started` before the first byte is written. Raises ConnectionResetError if the connection has ended."""
        _raise_if_disconnected(writer)
        self.started = True

    @property
    def exhausted(self) -> bool:
        """True if the body cannot be sent again."""
        return self._is_source_opened and not self._body.replayable

    def __repr__(self) -> str:
        return f"RequestPayload({self._body!r}, started={self.started})"

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Raise TypeError."""
        raise TypeError("A request body can only be sent. decode() is not supported.")

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Write the body, as aiohttp requires."""
        await self.write_with_length(writer, None)

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        """Write the body. Ignore `content_length`.

        Raises ConnectionResetError if the connection has ended, and the source's exceptions, also stored in `failure`.
        """
        body = self._body
        if body.chunks is None:
            self.start(writer)
            if body.content:
                for text in body.iter_memory_chunks():
                    await writer.write(text)
            return
        _raise_if_disconnected(writer)
        self._is_source_opened = True
        async with contextlib.aclosing(self._body.stream()) as chunks:
            await self._write_stream(writer, chunks)

    async def _write_stream(self, writer: AbstractStreamWriter, chunks: AsyncIterator[bytes]) -> None:
        """Write the chunks, and let other tasks run regularly.

        aiohttp delays the headers until the first chunk. Raises ConnectionResetError if the connection has ended before
        it.
        """
        since_turn = largest = 0
        while (chunk := await self._read_chunk(chunks)) is not None:
            if not self.started:
                self.start(writer)  # the source may have been slow
            size = len(chunk)
            for start in range(0, size, _MAX_WRITTEN_BYTES):
                # asyncio would copy the unsent rest of bytes
                await writer.write(memoryview(chunk)[start : start + _MAX_WRITTEN_BYTES])
                self.on_progress()
            del chunk
            since_turn += size
            largest = max(largest, size)
            if since_turn + largest > _BYTES_PER_TURN:
                since_turn = 0
                await asyncio.sleep(0)
        self.started = True

    async def _read_chunk(self, chunks: AsyncIterator[bytes]) -> bytes | None:
        self.waiting_on_source = True
        try:
            chunk = await anext(chunks, None)
            self.waiting_on_source = False
            return chunk
        except asyncio.CancelledError:
            if is_being_cancelled():
                raise
        except Exception as error:
            self.failure = error
            raise
        # A task that the source awaited was cancelled. The request stays incomplete.
        self.failure = TransportError("reading its source was cancelled", outcome=Outcome.FAILED)
        raise self.failure


def _raise_if_disconnected(writer: AbstractStreamWriter) -> None:
    if isinstance(writer, StreamWriter) and ((transport := writer.transport) is None or transport.is_closing()):
        raise ConnectionResetError("The connection ended before the request was sent.")
