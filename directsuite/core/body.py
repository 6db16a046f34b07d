"""Request bodies: each knows its size, whether it can be sent again, and whether anything of it has left.

    RequestBody          what an operation sends: bytes, base64 of a file or a stream, JSON with files inside
      └─ open() ───────► Outgoing      one attempt's copy, an aiohttp payload; `started` is set before its first byte

A request whose body hasn't started can't have been acted upon: that, not a guess from exceptions, is what says that
nothing was sent. For this reason operations without a body send an empty one.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable
from os import PathLike
from pathlib import Path

import attrs
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import StreamWriter
from aiohttp.payload import Payload

from directsuite.errors import InvalidArgumentError, Outcome, TransportError
from directsuite.wire import base64

PIECE = 192 * 1024
"""Bytes read at a time: a multiple of 3, so that their base64 needs no padding before the end."""
_TURN = 256 * 1024  # bytes written between two turns of the event loop

Source = bytes | bytearray | memoryview | str | PathLike[str] | AsyncIterable[bytes]


@attrs.frozen(kw_only=True, repr=False)
class RequestBody:
    """A body as its chunks. size: bytes on the wire, None where it isn't known. replayable: can be sent again."""

    chunks: Callable[[], AsyncGenerator[bytes]] | None = None
    content: bytes = b""
    size: int | None = None
    replayable: bool = True

    @classmethod
    def of(cls, content: bytes) -> RequestBody:
        """A body that is in memory."""
        return cls(content=content, size=len(content))

    @classmethod
    def joined(cls, parts: list[RequestBody]) -> RequestBody:
        """Several bodies as one, each sent after the other."""
        if len(parts) == 1:
            return parts[0]
        sizes = [part.size for part in parts]

        async def chunks() -> AsyncGenerator[bytes]:
            """The chunks of each part in turn."""
            for part in parts:
                async with contextlib.aclosing(part.stream()) as stream:
                    async for chunk in stream:
                        yield chunk

        size = None if None in sizes else sum(size for size in sizes if size is not None)
        return cls(chunks=chunks, size=size, replayable=all(part.replayable for part in parts))

    @classmethod
    def base64(cls, source: Source, *, parameter: str) -> RequestBody:
        """The base64 text of bytes, a file, or an async iterable; files and iterables are coded while they are sent."""
        if isinstance(source, bytes | bytearray | memoryview):
            return cls.of(base64.encode(bytes(source)))
        if isinstance(source, str | PathLike):
            path = Path(source)
            size = size_of(path, parameter)
            return cls(chunks=lambda: _coded_file(path, size), size=base64.encoded_size(size))
        if hasattr(source, "__aiter__"):
            return cls(chunks=lambda: _coded(source), replayable=False)
        raise InvalidArgumentError("give it bytes, a path, or an async iterable of bytes", parameter=parameter)

    async def stream(self) -> AsyncGenerator[bytes]:
        """The chunks from the start; closing it closes their source."""
        if self.chunks is None:
            yield self.content
            return
        async with contextlib.aclosing(self.chunks()) as chunks:
            async for chunk in chunks:
                yield chunk

    def open(self, media_type: str | None) -> Outgoing:
        """A copy for one attempt."""
        return Outgoing(self, media_type or "application/json")

    def __repr__(self) -> str:
        return f"RequestBody(size={self.size}, replayable={self.replayable})"


EMPTY = RequestBody.of(b"")


def size_of(path: Path, parameter: str) -> int:
    """The size of a regular file in bytes; InvalidArgumentError where there is none to read."""
    if not path.is_file():
        raise InvalidArgumentError("no such file", parameter=parameter)
    if not os.access(path, os.R_OK):
        raise InvalidArgumentError("the file can't be read", parameter=parameter)
    return path.stat().st_size


async def _coded_file(path: Path, size: int) -> AsyncGenerator[bytes]:
    with path.open("rb") as file:
        while size > 0:
            piece = file.read(min(PIECE, size))
            if not piece:  # the request stays incomplete: no server can act upon it
                raise TransportError("the file became shorter while it was sent", outcome=Outcome.FAILED)
            size -= len(piece)
            yield base64.encode(piece)


async def _coded(source: AsyncIterable[bytes]) -> AsyncGenerator[bytes]:
    encoder = base64.Encoder()
    try:
        async for piece in source:
            if coded := encoder.feed(piece):
                yield coded
        if rest := encoder.finish():
            yield rest
    finally:
        if isinstance(source, AsyncGenerator):
            await source.aclose()


class Outgoing(Payload):
    """One attempt's body. `started`: whether any byte may have left. `failure`: what reading its source raised."""

    _autoclose = True

    def __init__(self, body: RequestBody, media_type: str) -> None:
        super().__init__(body, content_type=media_type)
        self._body = body
        self._size = body.size
        self.started = False
        self.failure: Exception | None = None

    @property
    def spent(self) -> bool:
        """Whether the body can't be sent again."""
        return self.started and not self._body.replayable

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
        if isinstance(writer, StreamWriter) and (writer.transport is None or writer.transport.is_closing()):
            raise ConnectionResetError("the connection ended before the request")
        self.started = True
        if self._body.chunks is None:
            if self._body.content:
                await writer.write(self._body.content)
            return
        async with contextlib.aclosing(self._body.stream()) as chunks:
            await self._write_stream(writer, chunks)

    async def _write_stream(self, writer: AbstractStreamWriter, chunks: AsyncIterator[bytes]) -> None:
        since_turn = 0
        while (chunk := await self._next(chunks)) is not None:
            await writer.write(chunk)
            since_turn += len(chunk)
            if since_turn >= _TURN:
                since_turn = 0
                await asyncio.sleep(0)

    async def _next(self, chunks: AsyncIterator[bytes]) -> bytes | None:
        try:
            return await anext(chunks, None)
        except Exception as error:
            self.failure = error
            raise
