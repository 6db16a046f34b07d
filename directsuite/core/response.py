"""HTTP responses: `ResponseStream` while the body is being received, `Answer` when it has been read.

The `repr` of both omits headers and body, because tracebacks can include local variables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import aiohttp
import attrs

from directsuite.errors import ResponseDecodeError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from directsuite.core.limits import Limits

KEPT = 64 * 1024
"""Maximum number of bytes of a response that an error carries."""
_MOST_EXPANDED = 20
"""Maximum ratio of decompressed to received bytes of base64 text. Documents stay below it, compression bombs do not."""
_SMALL = 2**20
"""Number of decompressed bytes that is allowed whatever the ratio."""


class ResponseStream:
    """The response to one request, created before the request is sent.

    `close` returns the connection to the pool, or closes it if the response was not read completely.
    """

    def __init__(self, reading: set[ResponseStream], limits: Limits | None, *, is_base64: bool = False) -> None:
        """Create a stream without a response. `begin` sets the response.

        reading: the responses being read, which the suite closes when it is closed. This one adds and removes itself.
        limits: the limits to which `close` returns the connection slot. None: the request has no slot.
        is_base64: True if the body is base64 text, which is checked for compression bombs.
        """
        self._is_base64 = is_base64
        self._response: aiohttp.ClientResponse | None = None
        self._reading = reading
        self._limits = limits
        self._closed = False
        self.status = 0

    def begin(self, response: aiohttp.ClientResponse) -> None:
        """Set the response, whose status and headers have been received."""
        self._response = response
        self.status = response.status
        self._reading.add(self)

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of the response."""
        return self._started.headers

    @property
    def _started(self) -> aiohttp.ClientResponse:
        if self._response is None:
            raise RuntimeError("no answer has begun")
        return self._response

    async def read(self, limit: int) -> Answer:
        """Return the response with its complete body, or with the beginning of a body of more than `limit` bytes."""
        content = self._started.content
        pieces: list[bytes] = []
        size = 0
        piece = body = b""
        try:
            while size <= limit and (piece := await self.chunk()):
                pieces.append(piece)
                size += len(piece)
                if content.at_eof():
                    break
            kept = size
            while size > limit and kept - len(pieces[-1]) >= KEPT:
                kept -= len(pieces.pop())
            body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            return Answer(self.status, self.headers, body, too_large=size > limit, size=size)
        finally:
            # A traceback may include the local variables of this frame, which must not show the response.
            pieces.clear()
            piece = body = b""

    async def chunk(self) -> bytes:
        """Return the next bytes of the body, or b"" at its end.

        Raises ResponseDecodeError if base64 text expands like a compression bomb.
        """
        content = self._started.content
        size = content.total_bytes if self._is_base64 else 0
        if size > _SMALL and size > _MOST_EXPANDED * content.total_raw_bytes:
            text = (
                f"the compressed answer expands to more than {_MOST_EXPANDED} times its size, as no document should: "
                "have the service, or the proxy before it, send documents uncompressed"
            )
            raise ResponseDecodeError(text, too_large=True)
        return await content.readany()

    def close(self) -> None:
        """Release the connection and its slot. Further calls have no effect."""
        if self._closed:
            return
        self._closed = True
        self._reading.discard(self)
        if self._response is not None:
            content = self._response.content
            if not content.at_eof() and content.exception() is None:
                # Otherwise aiohttp raises one shared exception in all later reads, which keeps all their frames alive.
                content.set_exception(aiohttp.ClientConnectionError("the connection was closed"))
            self._response.close()
        if self._limits is not None:
            self._limits.release()

    def __repr__(self) -> str:
        return f"ResponseStream(status={self.status})"


@attrs.define(repr=False, eq=False)
class Answer:
    """A response that has been read."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    too_large: bool = False
    """True if the body is larger than the limit. Reading stopped there, and `body` is only its beginning."""
    size: int = attrs.field(default=attrs.Factory(lambda answer: len(answer.body), takes_self=True))
    """The number of bytes received. `body` may contain fewer if the response is too large."""

    def __repr__(self) -> str:
        return f"Answer(status={self.status}, bytes={self.size})"
