"""The number of connections of a server, so that idle ones can't keep others out."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from aiohttp import web

HEAD_TIMEOUT = 30.0
"""Seconds that a connection may take to send the head of a request, and may be idle between two. Longer than clients
keep an idle connection, so that a client closes it first.
"""
_MAX_CONNECTIONS = 1_000


def find_max_connections() -> int:
    """Return the number of connections that the server accepts: at most half of the descriptors that it may open."""
    if sys.platform == "win32":
        return _MAX_CONNECTIONS
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MAX_CONNECTIONS if soft < 0 else max(1, min(_MAX_CONNECTIONS, soft // 2))


def limit_connections(server: web.Server, limit: int) -> None:
    """Have a server close a connection for each new one beyond the limit.

    It closes the oldest connection that has not yet sent the head of a request, and otherwise the new one.
    """
    admit, dismiss, make_request = server.connection_made, server.connection_lost, server.request_factory
    waiting = dict[web.RequestHandler, asyncio.Transport]()

    def connection_made(handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        waiting[handler] = transport
        admit(handler, transport)
        if len(server.connections) > limit:
            waiting.pop(next(iter(waiting))).abort()

    def connection_lost(handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        waiting.pop(handler, None)
        dismiss(handler, exc)

    def begin_request(
        message: Any, payload: Any, handler: web.RequestHandler, writer: Any, task: Any
    ) -> web.BaseRequest:
        waiting.pop(handler, None)
        return make_request(message, payload, handler, writer, task)

    # aiohttp has no option for it; a connection calls these members of its server.
    vars(server).update(connection_made=connection_made, connection_lost=connection_lost, request_factory=begin_request)
