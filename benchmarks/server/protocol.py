"""HTTP/1.1 as far as the clients go: one request after the other, bodies with a Content-Length."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator

from benchmarks.server.responses import make_head
from benchmarks.server.routes import respond

_LENGTH = re.compile(rb"\r\ncontent-length:\s*(\d+)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:", re.IGNORECASE)
_MAX_BODY_KEPT_BYTES = 262_144  # of a body: more is counted only
_WRITE_BUFFER_BYTES = 1_048_576  # bytes that may wait in the transport
_NO_LENGTH = make_head(0, status=b"411 Length Required")


class Connection(asyncio.Protocol):
    """Reads requests, swallows and counts bodies, and writes answers no faster than they are read."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._head = b""
        self._line: str | None = None
        self._body: list[bytes] = []
        self._received = 0
        self._length = 0
        self._pieces: Iterator[bytes] = iter(())
        self._paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection."""
        # uvloop's transport is no subclass of asyncio's
        self._transport = transport  # type: ignore[assignment]
        self._open_transport.set_write_buffer_limits(high=_WRITE_BUFFER_BYTES)

    def connection_lost(self, exc: Exception | None) -> None:
        """Drop what was still to be written."""
        self._transport = None
        self._pieces = iter(())

    def data_received(self, data: bytes) -> None:
        """Part of a head or a body."""
        if self._line is None:
            data = self._read_head(self._head + data if self._head else data)
            if self._line is None:
                return
        self._received += len(data)
        if self._received <= _MAX_BODY_KEPT_BYTES:
            self._body.append(data)
        if self._received >= self._length:
            self._respond()

    def pause_writing(self) -> None:
        """Wait: the client reads slowly."""
        self._paused = True

    def resume_writing(self) -> None:
        """Go on."""
        self._paused = False
        self._write()

    @property
    def _open_transport(self) -> asyncio.Transport:
        assert self._transport is not None
        return self._transport

    def _read_head(self, data: bytes) -> bytes:
        """What follows the head. Until the head is whole, it is kept and there is no request line."""
        end = data.find(b"\r\n\r\n")
        if end < 0:
            self._head = data
            return b""
        lines, self._head = data[:end], b""
        if _CHUNKED.search(lines):
            self._open_transport.write(_NO_LENGTH)
            self._open_transport.close()
            return b""
        length = _LENGTH.search(lines)
        self._length = 0 if length is None else int(length[1])
        self._line = lines.partition(b"\r\n")[0].decode("latin-1")
        return data[end + 4 :]

    def _respond(self) -> None:
        assert self._line is not None
        came = time.monotonic()
        given = respond(self._line, b"".join(self._body), self._received)
        self._line, self._body, self._received = None, [], 0
        self._pieces = iter(given.pieces)
        if given.delay:
            made = time.monotonic() - came  # the time that the answer took to make is part of the delay
            asyncio.get_running_loop().call_later(given.delay - made, self._write)
        else:
            self._write()

    def _write(self) -> None:
        """Write until the transport has enough; `resume_writing` comes back for the rest."""
        while not self._paused and self._transport is not None:
            piece = next(self._pieces, None)
            if piece is None:
                return
            self._transport.write(piece)
