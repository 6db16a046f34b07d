"""Connections on which nothing lies that nobody asked for.

A server, or a proxy, may send a second answer to one request, or a 408 to a connection that rests. aiohttp gives such a
connection out again, and takes what lies there for the answer to the next request: someone else's mail, or a success of
what was never sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import aiohttp

if TYPE_CHECKING:
    from aiohttp.connector import Connection
    from aiohttp.tracing import Trace


_GIVEN_OUT = "_directsuite_given_out"


class FreshConnector(aiohttp.TCPConnector):
    """A TCP connector that ends a kept-alive connection where it is no longer as it was left."""

    async def connect(
        self, req: aiohttp.ClientRequest, traces: list[Trace], timeout: aiohttp.ClientTimeout
    ) -> Connection:
        """A new connection, or one that was kept alive and is as it was left."""
        while True:
            connection = await super().connect(req, traces, timeout)
            protocol = connection.protocol
            if protocol is None or not (hasattr(protocol, _GIVEN_OUT) and protocol.should_close):
                break
            connection.close()
        if protocol is not None:
            setattr(protocol, _GIVEN_OUT, True)
        return connection
