"""A server that answers everything with the same few bytes, in a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
from collections.abc import Generator
from multiprocessing.connection import Connection


class _Canned(asyncio.Protocol):
    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self._received = bytearray()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        while (end := self._received.find(b"\r\n\r\n")) >= 0:
            head = bytes(self._received[:end]).lower()
            length = int(head.split(b"content-length:")[1].split(b"\r\n")[0]) if b"content-length:" in head else 0
            if len(self._received) < end + 4 + length:
                return
            del self._received[: end + 4 + length]
            assert self._transport is not None
            self._transport.write(self._answer)


async def _serve(answer: bytes, ready: Connection) -> None:
    server = await asyncio.get_running_loop().create_server(lambda: _Canned(answer), "127.0.0.1", 0)
    ready.send(server.sockets[0].getsockname()[1])
    await server.serve_forever()


def _run(answer: bytes, ready: Connection) -> None:
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(answer, ready))


@contextlib.contextmanager
def canned_server(body: bytes) -> Generator[str]:
    """The base URL of a server that answers 200 with this JSON body."""
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    receiver, sender = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("spawn").Process(
        target=_run, args=(head.encode() + body, sender), daemon=True
    )
    process.start()
    try:
        yield f"http://127.0.0.1:{receiver.recv()}"
    finally:
        process.terminate()
        process.join()
