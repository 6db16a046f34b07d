"""The process of the server. It prints its port, and ends when its standard input ends."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import re
import sys
import time
from collections.abc import Iterator

from benchmarks.processes import SERVER_CORE, pin_to_core
from benchmarks.server.responses import make_head, respond

_LENGTH = re.compile(rb"\r\ncontent-length:\s*(\d+)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:", re.IGNORECASE)
_MAX_KEPT_BYTES = 262_144  # of a request's body; more is only counted
_WRITE_BUFFER_BYTES = 1_048_576


class Connection(asyncio.Protocol):
    """Reads one request after another, with a Content-Length. Writes responses no faster than the client reads."""

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
        self._transport = transport  # type: ignore[assignment]  # uvloop's transport is not a subclass of asyncio's
        self._open_transport.set_write_buffer_limits(high=_WRITE_BUFFER_BYTES)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._pieces = iter(())

    def data_received(self, data: bytes) -> None:
        if self._line is None:
            data = self._read_head(self._head + data if self._head else data)
            if self._line is None:
                return
        self._received += len(data)
        if self._received <= _MAX_KEPT_BYTES:
            self._body.append(data)
        if self._received >= self._length:
            self._respond()

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._write()

    @property
    def _open_transport(self) -> asyncio.Transport:
        assert self._transport is not None
        return self._transport

    def _read_head(self, data: bytes) -> bytes:
        """Return the data after the head. Store an incomplete head; there is no request line then."""
        end = data.find(b"\r\n\r\n")
        if end < 0:
            self._head = data
            return b""
        lines, self._head = data[:end], b""
        if _CHUNKED.search(lines):
            self._open_transport.write(make_head(0, status=b"411 Length Required"))
            self._open_transport.close()
            return b""
        length = _LENGTH.search(lines)
        self._length = 0 if length is None else int(length[1])
        self._line = lines.partition(b"\r\n")[0].decode("latin-1")
        return data[end + 4 :]

    def _respond(self) -> None:
        assert self._line is not None
        start = time.monotonic()
        pieces, delay = respond(self._line, b"".join(self._body), self._received)
        self._line, self._body, self._received = None, [], 0
        self._pieces = iter(pieces)
        if delay:  # it includes the time for making the response
            asyncio.get_running_loop().call_later(delay - (time.monotonic() - start), self._write)
        else:
            self._write()

    def _write(self) -> None:
        while not self._paused and self._transport is not None:
            piece = next(self._pieces, None)
            if piece is None:
                return
            self._transport.write(piece)


async def _serve() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Connection, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)  # closing the server would wait for its clients


def main() -> None:
    """Serve, with uvloop if it is installed."""
    pin_to_core(SERVER_CORE)
    factory = None
    with contextlib.suppress(ImportError):
        factory = importlib.import_module("uvloop").new_event_loop
    with contextlib.suppress(KeyboardInterrupt), asyncio.Runner(loop_factory=factory) as runner:
        runner.run(_serve())


if __name__ == "__main__":
    main()
