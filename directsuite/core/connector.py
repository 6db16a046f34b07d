"""Connections on which nothing lies that nobody asked for.

A server, or a proxy, may send a second answer to one request, or a 408 to a connection that rests. aiohttp gives such a
connection out again, and takes what lies there for the answer to the next request: someone else's mail, or a success of
what was never sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakSet

import aiohttp

if TYPE_CHECKING:
    from aiohttp.client_proto import ResponseHandler
    from aiohttp.connector import Connection
    from aiohttp.tracing import Trace


class FreshConnector(aiohttp.TCPConnector):
    """A TCP connector that ends a kept-alive connection where it is no longer as it was left."""

    _given_out: WeakSet[ResponseHandler] | None = None

    async def connect(
        self, req: aiohttp.ClientRequest, traces: list[Trace], timeout: aiohttp.ClientTimeout
    ) -> Connection:
        """A new connection, or one that was kept alive and is as it was left."""
        if self._given_out is None:
            self._given_out = WeakSet()
        while True:
            connection = await super().connect(req, traces, timeout)
            protocol = connection.protocol
            if protocol is None or protocol not in self._given_out or not protocol.should_close:
                break
            connection.close()
        if protocol is not None:
            self._given_out.add(protocol)
        return connection
