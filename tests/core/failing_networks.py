"""Networks that fail before a request is sent. Each returns the settings of a suite that uses it.

They use loopback only: no DNS request is made, and no packet leaves the machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import ssl
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.connector import Connection

from directsuite.core.session import FreshConnector

from . import responses
from .certificates import LOOPBACK, make_certificate, make_server_context
from .scripted_server import Responder, ScriptedServer
from .scripted_suite import make_session, respond_after_login

Network = Callable[[ScriptedServer, Path], AbstractAsyncContextManager[dict[str, Any]]]
"""Creates a network from the test's server and folder, and returns the settings that use it."""


def respond_with(play: Responder) -> Network:
    """Return a working network with a server that responds to each request except logins in the same way."""

    @contextlib.asynccontextmanager
    async def network(server: ScriptedServer, _: Path) -> AsyncGenerator[dict[str, Any]]:
        server.default_responder = respond_after_login(play)
        yield {}

    return network


def make_service_urls(url: str) -> dict[str, Any]:
    return {f"{name}_url": f"{url}/{name}" for name in ("signing", "fax", "message", "registration")}


class _FailingResolver(AbstractResolver):
    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        raise OSError(socket.EAI_NONAME, "Name or service not known")

    async def close(self) -> None:
        pass


class SilentResolver(_FailingResolver):
    """A resolver that never responds. asked: set when it was called."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        self.asked.set()
        await asyncio.Event().wait()
        raise AssertionError


@contextlib.asynccontextmanager
async def no_such_name(_: ScriptedServer, __: Path) -> AsyncGenerator[dict[str, Any]]:
    yield make_service_urls("https://nowhere.example.test") | {
        "session_factory": lambda: make_session(resolver=_FailingResolver())
    }


@contextlib.asynccontextmanager
async def silent_name_server(_: ScriptedServer, __: Path) -> AsyncGenerator[dict[str, Any]]:
    yield make_service_urls("https://nowhere.example.test") | {
        "session_factory": lambda: make_session(resolver=SilentResolver())
    }


class _UnroutableSocket(socket.socket):
    """A socket on a machine without a route."""

    def connect(self, address: object) -> None:
        raise OSError(errno.ENETUNREACH, "Network is unreachable")


def _make_unroutable_socket(address: Any) -> socket.socket:
    return _UnroutableSocket(*address[:3])


@contextlib.asynccontextmanager
async def no_route(_: ScriptedServer, __: Path) -> AsyncGenerator[dict[str, Any]]:
    yield {"session_factory": lambda: make_session(socket_factory=_make_unroutable_socket)}


@contextlib.asynccontextmanager
async def connection_refused(server: ScriptedServer, _: Path) -> AsyncGenerator[dict[str, Any]]:
    await server.stop()
    yield {}


class _ClosingConnector(FreshConnector):
    """Returns connections that are closed before a request is written."""

    async def connect(self, req: Any, traces: Any, timeout: Any) -> Connection:
        connection = await super().connect(req, traces, timeout)
        assert connection.transport is not None
        connection.transport.abort()
        return connection


@contextlib.asynccontextmanager
async def closed_before_request(_: ScriptedServer, __: Path) -> AsyncGenerator[dict[str, Any]]:
    yield {"session_factory": lambda: aiohttp.ClientSession(connector=_ClosingConnector())}


@contextlib.asynccontextmanager
async def dropped_packets(_: ScriptedServer, __: Path) -> AsyncGenerator[dict[str, Any]]:
    """Fill the queue of connections, so that the kernel drops new ones, like some firewalls."""
    with contextlib.ExitStack() as sockets:
        full = sockets.enter_context(socket.socket())
        full.bind((LOOPBACK, 0))
        full.listen(0)
        for _number in range(2):
            waiting = sockets.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        yield make_service_urls(f"http://{LOOPBACK}:{full.getsockname()[1]}")


@contextlib.asynccontextmanager
async def stalled_handshake(server: ScriptedServer, _: Path) -> AsyncGenerator[dict[str, Any]]:
    # the server waits for a line that a TLS client never sends
    yield make_service_urls(f"https://{LOOPBACK}:{server.port}")


def tls_server(
    *,
    address: str = LOOPBACK,
    days: tuple[int, int] = (-1, 1),
    newest: ssl.TLSVersion = ssl.TLSVersion.MAXIMUM_SUPPORTED,
    trusted: bool = True,
) -> Network:
    """Return a TLS server with this certificate that records its requests in the list of the test's server."""

    @contextlib.asynccontextmanager
    async def network(server: ScriptedServer, folder: Path) -> AsyncGenerator[dict[str, Any]]:
        pair = make_certificate(folder, address=address, days=days)
        async with ScriptedServer(server.default_responder, tls=make_server_context(pair, newest=newest)) as secure:
            secure.requests = server.requests
            trust = {"tls": ssl.create_default_context(cafile=pair[0])} if trusted else {}
            yield make_service_urls(f"https://{LOOPBACK}:{secure.port}") | trust

    return network


def _make_raw_server(answer: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Any], scheme: str) -> Network:
    @contextlib.asynccontextmanager
    async def network(_: ScriptedServer, __: Path) -> AsyncGenerator[dict[str, Any]]:
        async with await asyncio.start_server(answer, LOOPBACK, 0) as listening:
            yield make_service_urls(f"{scheme}://{LOOPBACK}:{listening.sockets[0].getsockname()[1]}")

    return network


async def _respond_400(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(responses.make_head(400, 0))
    writer.close()


async def _close_connection(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def _reset_in_handshake(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)
    writer.transport.abort()


plain_server = _make_raw_server(_respond_400, "https")
closed_before_handshake = _make_raw_server(_close_connection, "https")
reset_during_handshake = _make_raw_server(_reset_in_handshake, "https")


def proxy(play: Responder | None, *, scheme: str = "http") -> Network:
    """Return a proxy that responds to CONNECT in this way. None: no proxy is listening."""

    @contextlib.asynccontextmanager
    async def network(server: ScriptedServer, _: Path) -> AsyncGenerator[dict[str, Any]]:
        async with ScriptedServer(play or responses.hang_up) as between:
            port = between.port
            if play is None:
                await between.stop()
            yield make_service_urls(f"https://{LOOPBACK}:{server.port}") | {"proxy": f"{scheme}://{LOOPBACK}:{port}"}

    return network
