"""A server on loopback that handles each request as a test has scripted.

    ScriptedServer ── reads a head ─► Exchange ── next handler of the script ─► response, reset, silence, …

It records the requests, and how many connections were open at a time. The handlers are in `responses`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable, Iterable
from types import TracebackType
from typing import Any, Self, TypeVar

import attrs

from .virtual_time import yield_until

T = TypeVar("T")


@attrs.define
class Request:
    """A received request. connection: the number of its connection, from 1."""

    method: str
    target: str
    headers: dict[str, str]
    connection: int
    body: bytes = b""

    @property
    def path(self) -> str:
        return self.target.split("/", 2)[2]

    @property
    def document(self) -> Any:
        return json.loads(self.body)


class Exchange:
    """A request whose head was received, and its connection."""

    def __init__(self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.request = request
        self._reader = reader
        self._writer = writer

    async def read(self) -> None:
        if self.request.headers.get("transfer-encoding") == "chunked":
            while size := int(await self._reader.readline(), 16):
                self.request.body += (await self._reader.readexactly(size + 2))[:-2]
            await self._reader.readline()
        else:
            self.request.body = await self._reader.readexactly(int(self.request.headers.get("content-length", 0)))

    async def read_some(self) -> None:
        self.request.body = await self._reader.readexactly(1024)

    async def write(self, content: bytes) -> None:
        self._writer.write(content)
        await self._writer.drain()

    async def wait_for_disconnect(self) -> None:
        with contextlib.suppress(ConnectionError):
            while await self._reader.read(65536):
                pass

    def close(self) -> None:
        self._writer.close()

    def send_fin(self) -> None:
        peer: socket.socket = self._writer.get_extra_info("socket")
        peer.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        peer: socket.socket = self._writer.get_extra_info("socket")
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()


Responder = Callable[[Exchange], Awaitable[None]]


class ScriptedServer:
    """Handles each request by the next entry of `script`, and by `otherwise` after the last."""

    def __init__(self, otherwise: Responder, *, tls: ssl.SSLContext | None = None) -> None:
        self.script: list[Responder] = []
        self.default_responder = otherwise
        self.requests: list[Request] = []
        self.connections = 0
        self.refuse_connections = False
        self.busy = 0
        self.busiest = 0
        self.tasks: set[asyncio.Task[None]] = set()
        self._tls = tls
        self._exchanges: dict[int, Exchange] = {}
        self._server: asyncio.Server | None = None
        self.port = 0

    def enqueue(self, *script: Responder) -> None:
        self.script.extend(script)

    async def begin(self, call: Awaitable[T]) -> asyncio.Future[T]:
        """Start a call, and wait until its request is handled."""
        task = asyncio.ensure_future(call)
        await yield_until(lambda: self.busy == 1)
        return task

    def url(self, service: str) -> str:
        """Return the base URL of a service, whose name is the first segment of the path."""
        scheme = "http" if self._tls is None else "https"
        return f"{scheme}://127.0.0.1:{self.port}/{service}"

    def find_requests(self, *fragments: str) -> list[Request]:
        return [request for request in self.requests if all(text in request.target for text in fragments)]

    @property
    def paths(self) -> list[str]:
        return [request.path for request in self.requests]

    @property
    def open_connections(self) -> int:
        return len(self.tasks)

    def close_idle(self) -> None:
        """Close all connections, as servers close idle ones."""
        for exchange in self._exchanges.values():
            exchange.send_fin()

    def stop_listening(self) -> None:
        """Refuse further connections."""
        if self._server is not None:
            self._server.close()
            self._server = None

    async def stop(self) -> None:
        self.stop_listening()
        for task in list(self.tasks):
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.create_task(self._serve(self.connections, reader, writer))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _serve(self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if self.refuse_connections:
                Exchange(Request("", "", {}, number), reader, writer).reset()
                return
            while not writer.is_closing() and (request := await _read_head(reader, number)) is not None:
                exchange = self._exchanges[number] = Exchange(request, reader, writer)
                self.requests.append(request)
                play = self.script.pop(0) if self.script else self.default_responder
                self.busy += 1
                self.busiest = max(self.busiest, self.busy)
                try:
                    await play(exchange)
                finally:
                    self.busy -= 1
        except (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            pass  # the client may disconnect
        finally:
            self._exchanges.pop(number, None)
            writer.close()
            _ignore_close_error(writer)


def _ignore_close_error(writer: asyncio.StreamWriter) -> None:
    """Ignore that a client has disconnected. The finalizer of a stream can report this late."""
    asyncio.ensure_future(writer.wait_closed()).add_done_callback(_retrieve_error)


def _retrieve_error(end: asyncio.Future[None]) -> None:
    if not end.cancelled():
        end.exception()


async def _read_head(reader: asyncio.StreamReader, number: int) -> Request | None:
    try:
        lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    method, target, _ = lines[0].split(" ")
    return Request(method, target, _parse_headers(lines[1:]), number)


def _parse_headers(lines: Iterable[str]) -> dict[str, str]:
    pairs = [line.partition(":") for line in lines if line]
    return {name.lower(): value.strip() for name, _, value in pairs}
