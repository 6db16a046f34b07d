"""A server that writes down each request exactly as it came over the socket, and answers what it is told to.

It reads HTTP/1.1 itself, so that no library decodes, normalises or merges anything on the way: the request target
is the one of the request line.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """One request: target as it stood in the request line, header names in lower case, body without its framing."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class CannedResponse:
    """What the server says to a request."""

    body: bytes
    media_type: str = "application/json"
    status: str = "200 OK"


class Recorder:
    """The recording server on 127.0.0.1, an async context manager; `requests` in the order of their arrival."""

    def __init__(self, answer: Callable[[RecordedRequest], CannedResponse]) -> None:
        self.requests: list[RecordedRequest] = []
        self._answer = answer
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        """The server's root, without a slash at its end."""
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return f"http://127.0.0.1:{port}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._connections:
            writer.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        try:
            while (request := await _read_request(reader)) is not None:
                self.requests.append(request)
                writer.write(_frame(self._answer(request)))
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()
            self._connections.discard(writer)


async def _read_request(reader: asyncio.StreamReader) -> RecordedRequest | None:
    """The next request of a connection, or None at its end."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    request_line, *lines = head.decode("latin-1").split("\r\n")[:-2]
    method, target, _version = request_line.split(" ")
    headers: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        assert name.lower() not in headers, f"header {name} was sent twice"
        headers[name.lower()] = value.strip()
    return RecordedRequest(method, target, headers, await _read_body(reader, headers))


async def _read_body(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> bytes:
    if headers.get("transfer-encoding") == "chunked":
        chunks: list[bytes] = []
        while size := int(await reader.readuntil(b"\r\n"), 16):
            chunks.append(await reader.readexactly(size))
            await reader.readexactly(2)
        await reader.readexactly(2)
        return b"".join(chunks)
    return await reader.readexactly(int(headers.get("content-length", "0")))


def _frame(answer: CannedResponse) -> bytes:
    head = (
        f"HTTP/1.1 {answer.status}\r\nContent-Type: {answer.media_type}\r\nContent-Length: {len(answer.body)}\r\n\r\n"
    )
    return head.encode("ascii") + answer.body
