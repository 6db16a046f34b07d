"""Limits for the number and speed of a server's connections, so that slow ones do not block others."""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from itertools import chain
from typing import Any

from aiohttp import StreamReader, web

HEAD_TIMEOUT = 30.0
"""The seconds for a request's head, and between requests. Longer than a client's idle timeout, so that the client
closes first.
"""
BODY_SECONDS = 60.0
"""The seconds in which MIN_BODY_BYTES of a body, or the rest of it, must arrive."""
MIN_BODY_BYTES = 2**16
_MAX_CONNECTIONS = 1_000


def find_max_connections() -> int:
    """Return the maximum number of connections: half of the process's file descriptors, from 1 to 1,000."""
    if sys.platform == "win32":
        return _MAX_CONNECTIONS
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MAX_CONNECTIONS if soft < 0 else max(1, min(_MAX_CONNECTIONS, soft // 2))


def limit_connections(server: web.Server, limit: int) -> None:
    """Make a server close one connection for each new one above the limit, and fail bodies that arrive too slowly.

    It closes the oldest connection that waits for the head of a request. If there is none, it closes the oldest one
    whose client has not sent the complete body or has not read the response, or otherwise the new connection.
    """
    admit, dismiss, make_request = server.connection_made, server.connection_lost, server.request_factory
    sending = set[web.RequestHandler]()

    def connection_made(handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        admit(handler, transport)
        if len(server.connections) <= limit:
            return
        handlers: list[Any] = [
            each for each in server.connections if each.transport and not each.transport.is_closing()
        ]
        waiting = (each for each in handlers if each._waiter is not None)
        blocked = (each for each in handlers if each in sending or each.transport.get_write_buffer_size() > 0)
        if (victim := next(chain(waiting, blocked), None)) is not None:
            victim.transport.abort()
        else:
            asyncio.get_running_loop().call_soon(transport.abort)  # later, because aiohttp first starts its task

    def connection_lost(handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        sending.discard(handler)
        dismiss(handler, exc)

    def begin_request(
        message: Any, payload: StreamReader, handler: web.RequestHandler, writer: Any, task: Any
    ) -> web.BaseRequest:
        if not payload.is_eof() and handler.transport is not None:
            sending.add(handler)
            payload.on_eof(partial(sending.discard, handler))
            _reject_slow_body(payload, 0)
        return make_request(message, payload, handler, writer, task)

    # aiohttp has no option for this.
    vars(server).update(connection_made=connection_made, connection_lost=connection_lost, request_factory=begin_request)


def _reject_slow_body(payload: StreamReader, received: int) -> None:
    """Fail reads of an incomplete body of which less than MIN_BODY_BYTES arrive in any BODY_SECONDS.

    received: the bytes that have arrived so far.
    """

    def check() -> None:
        if payload.is_eof() or payload.exception() is not None:
            return
        if payload.total_bytes - received < MIN_BODY_BYTES:
            payload.set_exception(web.RequestPayloadError("the request body arrives too slowly"))
        else:
            _reject_slow_body(payload, payload.total_bytes)

    asyncio.get_running_loop().call_later(BODY_SECONDS, check)
