"""The calls that the sandbox has answered: which operation, how, and how fast. Nothing of what they carried."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import attrs
from aiohttp import web

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler, Middleware

_KEPT = 10_000


@attrs.frozen
class AnsweredCall:
    """One request, and how it ended."""

    number: int
    """They count from 1."""
    at: datetime
    """When it came, by the machine's clock."""
    operation: str
    """The specification's name of the operation; "no operation" where the URL or the method is wrong."""
    status: int | None
    """Of the answer; None where the connection ended without one."""
    milliseconds: float


class Calls:
    """The last 10,000 calls of the services and the OAuth 2.0 endpoints, and who is told of each."""

    def __init__(self) -> None:
        self.answered = deque[AnsweredCall](maxlen=_KEPT)
        self.listeners = list[Callable[[AnsweredCall], None]]()
        self._count = 0

    def recording(self) -> Middleware:
        """The outermost middleware."""

        @web.middleware
        async def record(request: web.Request, handler: Handler) -> web.StreamResponse:
            """The handler's answer, which is noted however it ends."""
            operation, at, began = request.match_info.route.name, datetime.now(UTC), time.perf_counter()
            if operation is None and request.match_info.http_exception is None:  # it is of no service
                return await handler(request)
            status: int | None = None
            try:
                response = await handler(request)
                gone = request.transport is None or request.transport.is_closing()
                status = None if gone else response.status
            finally:
                self._count += 1
                elapsed = 1000 * (time.perf_counter() - began)
                call = AnsweredCall(self._count, at, operation or "no operation", status, elapsed)
                self.answered.append(call)
                for listener in self.listeners:
                    listener(call)
            return response

        return record
