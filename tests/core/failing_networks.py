"""Networks that fail before a request is on its way: each gives the settings under which a suite meets it.

They end at loopback: no name is asked for, and no packet leaves the machine.
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

from . import plays
from .certificates import HERE, certificate, server_context
from .opened import LOGGED_IN
from .scripted_server import Exchange, Play, ScriptedServer

Network = Callable[[ScriptedServer, Path], AbstractAsyncContextManager[dict[str, Any]]]
"""Makes a network out of the test's server and folder, and gives the settings that lead there."""


def answering(play: Play) -> Network:
    """A good network with a server that plays the same for every request, logins excepted."""
    login = plays.answer(LOGGED_IN)

    @contextlib.asynccontextmanager
    async def network(server: ScriptedServer, _: Path) -> AsyncGenerator[dict[str, Any]]:
        async def answer(exchange: Exchange) -> None:
            await (login if exchange.request.path == "login" else play)(exchange)

        server.otherwise = answer
        yield {}

    return network


def everywhere(url: str) -> dict[str, Any]:
    """All four services below one URL."""
    return {f"{name}_url": f"{url}/{name}" for name in ("signing", "fax", "message", "registration")}


class _NoNames(AbstractResolver):
    """Knows no name."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        raise OSError(socket.EAI_NONAME, "Name or service not known")

    async def close(self) -> None:
        pass


@contextlib.asynccontextmanager
async def no_such_name(_: ScriptedServer, __: Path) -> AsyncGenerator[dict[str, Any]]:
    def factory() -> aiohttp.ClientSession:
        return aiohttp.ClientSession(connector=FreshConnector(resolver=_NoNames()))

    yield everywhere("https://nowhere.example.test") | {"session_factory": factory}


class _NoWay(socket.socket):
    """A socket on a machine without a route."""

    def connect(self, address: object) -> None:
        raise OSError(errno.ENETUNREACH, "Network is unreachable")


def _no_way(address: Any) -> socket.socket:
    return _NoWay(*address[:3])


@contextlib.asynccontextmanager
async def no_way(_: ScriptedServer, __: Path) -> AsyncGenerator[dict[str, Any]]:
    def factory() -> aiohttp.ClientSession:
        return aiohttp.ClientSession(connector=FreshConnector(socket_factory=_no_way))

    yield {"session_factory": factory}


@contextlib.asynccontextmanager
async def nobody_listens(server: ScriptedServer, _: Path) -> AsyncGenerator[dict[str, Any]]:
    await server.stop()
    yield {}


class _EndsConnections(FreshConnector):
    """Gives connections that end before anything is written to them."""

    async def connect(self, req: Any, traces: Any, timeout: Any) -> Connection:
        connection = await super().connect(req, traces, timeout)
        assert connection.transport is not None
        connection.transport.abort()
        return connection


@contextlib.asynccontextmanager
async def ends_before_the_request(_: ScriptedServer, __: Path) -> AsyncGenerator[dict[str, Any]]:
    yield {"session_factory": lambda: aiohttp.ClientSession(connector=_EndsConnections())}


@contextlib.asynccontextmanager
async def dropped_packets(_: ScriptedServer, __: Path) -> AsyncGenerator[dict[str, Any]]:
    """A queue of connections that is full: the kernel drops what else would connect, as some firewalls do."""
    with contextlib.ExitStack() as sockets:
        full = sockets.enter_context(socket.socket())
        full.bind((HERE, 0))
        full.listen(0)
        for _number in range(2):
            waiting = sockets.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        yield everywhere(f"http://{HERE}:{full.getsockname()[1]}")


@contextlib.asynccontextmanager
async def handshake_without_end(server: ScriptedServer, _: Path) -> AsyncGenerator[dict[str, Any]]:
    # The server waits for a line that a TLS client never sends.
    yield everywhere(f"https://{HERE}:{server.port}")


def secured(
    *,
    address: str = HERE,
    days: tuple[int, int] = (-1, 1),
    newest: ssl.TLSVersion = ssl.TLSVersion.MAXIMUM_SUPPORTED,
    trusted: bool = True,
) -> Network:
    """A server with such a certificate, whose requests are recorded by the test's server's list."""

    @contextlib.asynccontextmanager
    async def network(server: ScriptedServer, folder: Path) -> AsyncGenerator[dict[str, Any]]:
        pair = certificate(folder, address=address, days=days)
        async with ScriptedServer(server.otherwise, tls=server_context(pair, newest=newest)) as secure:
            secure.requests = server.requests
            trust = {"tls": ssl.create_default_context(cafile=pair[0])} if trusted else {}
            yield everywhere(f"https://{HERE}:{secure.port}") | trust

    return network


def _listening(answer: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Any], scheme: str) -> Network:
    @contextlib.asynccontextmanager
    async def network(_: ScriptedServer, __: Path) -> AsyncGenerator[dict[str, Any]]:
        async with await asyncio.start_server(answer, HERE, 0) as listening:
            yield everywhere(f"{scheme}://{HERE}:{listening.sockets[0].getsockname()[1]}")

    return network


async def _says_400(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(plays.head(400, 0))
    writer.close()


async def _closes(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def _closes_in_the_handshake(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)
    writer.transport.abort()


plain_server = _listening(_says_400, "https")
closes_instead_of_a_handshake = _listening(_closes, "https")
resets_in_the_handshake = _listening(_closes_in_the_handshake, "https")


def proxy(play: Play | None, *, scheme: str = "http") -> Network:
    """A proxy that plays this to CONNECT; None for one that isn't there."""

    @contextlib.asynccontextmanager
    async def network(server: ScriptedServer, _: Path) -> AsyncGenerator[dict[str, Any]]:
        async with ScriptedServer(play or plays.hang_up) as between:
            port = between.port
            if play is None:
                await between.stop()
            yield everywhere(f"https://{HERE}:{server.port}") | {"proxy": f"{scheme}://{HERE}:{port}"}

    return network
