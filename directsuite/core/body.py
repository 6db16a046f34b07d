"""Request bodies: each knows its size, whether it can be sent again, and whether anything of it has left.

    RequestBody          what an operation sends: bytes, base64 of a file or a stream, JSON with files inside
      └─ open() ───────► Outgoing      one attempt's copy, an aiohttp payload; `started` is set before its first byte

A request whose body hasn't started can't have been acted upon: that, not a guess from exceptions, is what says that
nothing was sent. For this reason operations without a body send an empty one.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator

import attrs
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import StreamWriter
from aiohttp.payload import Payload

from directsuite.core.cancellation import is_being_cancelled
from directsuite.core.source import Content, InMemory, Piece
from directsuite.errors import Outcome, TransportError
from directsuite.wire import base64

AT_ONCE = 256 * 1024
"""Bytes in memory that are coded without a turn of the event loop."""

_CODED = 72 * 1024  # of them coded at a time: larger texts are pages that the system has to find anew for each
_TURN = 256 * 1024  # bytes written between two turns of the event loop
_GATHERED = 48 * 1024  # bytes below which pieces are gathered: each chunk has its costs
_SOON = 0.05  # seconds that a piece waits for others at the most, counted when the next comes
_SMALL_ONES = 64  # small pieces between two turns of the event loop


def _nothing() -> None:
    return None


@attrs.frozen(kw_only=True, repr=False)
class RequestBody:
    """A body as its chunks, or as content that is in memory. size: bytes on the wire, None where it isn't known.

    to_code: the content is sent as its base64, made only then, so that calls that wait for a connection hold nothing of
    it. begin: called when an attempt begins to send a body in chunks. replayable: can be sent again.
    """

    chunks: Callable[[], AsyncGenerator[bytes]] | None = None
    begin: Callable[[], None] = _nothing
    content: bytes = b""
    to_code: bool = False
    size: int | None = None
    replayable: bool = True

    @classmethod
    def of(cls, content: bytes) -> RequestBody:
        """A body that is in memory."""
        return cls(content=content, size=len(content))

    @classmethod
    def joined(cls, parts: list[RequestBody], begin: Callable[[], None] = _nothing) -> RequestBody:
        """Several bodies as one, each sent after the other."""
        sizes = [part.size for part in parts]

        async def chunks() -> AsyncGenerator[bytes]:
            """The chunks of each part in turn."""
            for part in parts:
                async with contextlib.aclosing(part.stream()) as stream:
                    async for chunk in stream:
                        yield chunk

        size = None if None in sizes else sum(size for size in sizes if size is not None)
        return cls(chunks=chunks, begin=begin, size=size, replayable=all(part.replayable for part in parts))

    @classmethod
    def base64(cls, content: Content, accepted: Callable[[int], None] | None = None) -> RequestBody:
        """The base64 text of a content, coded while it is sent.

        accepted: called with the number of bytes of each piece that the connection has taken.
        """
        size = None if content.size is None else base64.encoded_size(content.size)
        if isinstance(content, InMemory) and len(content.content) <= AT_ONCE and accepted is None:
            return cls(content=content.content, to_code=True, size=size)
        return cls(chunks=lambda: _coded(content, accepted), size=size, replayable=content.replayable)

    async def stream(self) -> AsyncGenerator[bytes]:
        """The chunks from the start; closing it closes their source."""
        if self.chunks is None:
            for text in self.in_memory():
                yield text
            return
        self.begin()
        async with contextlib.aclosing(self.chunks()) as chunks:
            async for chunk in chunks:
                yield chunk

    def in_memory(self) -> Iterator[bytes]:
        """What goes on the wire of a body that is in memory."""
        if not self.to_code:
            yield self.content
            return
        view = memoryview(self.content)
        for start in range(0, len(view), _CODED):
            yield base64.encode(view[start : start + _CODED])

    def open(self, media_type: str | None) -> Outgoing:
        """A copy for one attempt."""
        return Outgoing(self, media_type or "application/json")

    def __repr__(self) -> str:
        return f"RequestBody(size={self.size}, replayable={self.replayable})"


EMPTY = RequestBody.of(b"")


async def _coded(content: Content, accepted: Callable[[int], None] | None) -> AsyncGenerator[bytes]:
    encoder = base64.Encoder()
    async with contextlib.aclosing(_gathered(content)) as pieces:
        async for piece in pieces:
            if coded := encoder.feed(piece):
                yield coded
            if accepted is not None:
                accepted(len(piece))
    if rest := encoder.finish():
        yield rest


async def _gathered(content: Content) -> AsyncGenerator[Piece]:
    """The pieces, with those that are small and come soon after each other in one."""
    time = asyncio.get_running_loop().time
    small, since, count = bytearray(), time(), 0
    piece: Piece = b""
    try:
        async with contextlib.aclosing(content.pieces()) as pieces:
            async for piece in pieces:
                if len(piece) < _GATHERED:
                    count += 1
                    if not count % _SMALL_ONES:
                        await asyncio.sleep(0)
                    small += piece
                    if len(small) < _GATHERED and time() - since < _SOON:
                        continue
                if small:
                    yield bytes(small)
                    small.clear()
                if len(piece) >= _GATHERED:
                    yield piece
                since = time()
        if small:
            yield bytes(small)
    finally:
        small, piece = bytearray(), b""  # the frame may stand in a traceback, and holds nothing of what was sent


class Outgoing(Payload):
    """One attempt's body. `started`: whether any byte may have left. `failure`: what reading its source raised.

    `waiting`: its source is asked for more, and gives nothing yet.

    `flowing` is called whenever the connection has taken another chunk of a body that comes in chunks.
    """

    _autoclose = True

    def __init__(self, body: RequestBody, media_type: str) -> None:
        super().__init__(body, content_type=media_type)
        self._body = body
        self._size = body.size
        self._taken = False
        self.started = False
        self.waiting = False
        self.failure: Exception | None = None
        self.flowing: Callable[[], None] = _nothing

    @property
    def spent(self) -> bool:
        """Whether the body can't be sent again."""
        return self._taken and not self._body.replayable

    @property
    def streamed(self) -> bool:
        """Whether the body comes in chunks."""
        return self._body.chunks is not None

    def __repr__(self) -> str:
        return f"Outgoing({self._body!r}, started={self.started})"

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Never: a body goes on the wire and nowhere else."""
        raise TypeError("a request body is not for reading")

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Write everything, giving way to other tasks at every 256 KB."""
        await self.write_with_length(writer, None)

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        """Write everything: the length announced is the body's own. Nothing, where the connection has ended already."""
        _refuse_ended(writer)
        if self._body.chunks is None:
            self.started = True
            if self._body.content:
                for text in self._body.in_memory():
                    await writer.write(text)
            return
        self._taken = True
        async with contextlib.aclosing(self._body.stream()) as chunks:
            await self._write_stream(writer, chunks)

    async def _write_stream(self, writer: AbstractStreamWriter, chunks: AsyncIterator[bytes]) -> None:
        """Nothing has left before the first chunk is there: aiohttp holds the head back until then."""
        since_turn = largest = 0
        while (chunk := await self._next(chunks)) is not None:
            if not self.started:
                _refuse_ended(writer)  # a source may have taken its time
                self.started = True
            await writer.write(chunk)
            self.flowing()
            since_turn += len(chunk)
            largest = max(largest, len(chunk))
            if since_turn + largest > _TURN:
                since_turn = 0
                await asyncio.sleep(0)
        self.started = True

    async def _next(self, chunks: AsyncIterator[bytes]) -> bytes | None:
        self.waiting = True  # until it gives: who gives up meanwhile sees whose silence it was
        try:
            chunk = await anext(chunks, None)
            self.waiting = False
            return chunk
        except asyncio.CancelledError:
            if is_being_cancelled():
                raise
        except Exception as error:
            self.failure = error
            raise
        # Something that the source waited for was cancelled, not this call; the request stays incomplete.
        self.failure = TransportError("its source was cancelled", outcome=Outcome.FAILED)
        raise self.failure


def _refuse_ended(writer: AbstractStreamWriter) -> None:
    if isinstance(writer, StreamWriter) and (writer.transport is None or writer.transport.is_closing()):
        raise ConnectionResetError("the connection ended before the request")
