"""HTTP responses: `ResponseStream` while the body is being received, `BufferedResponse` when it has been read.

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

MAX_ERROR_BODY_BYTES = 64 * 1024
"""Maximum number of bytes of a response that an error carries."""
_MAX_EXPANSION_RATIO = 20
"""Maximum ratio of decompressed to received bytes of base64 text. Only compression bombs exceed it."""
_MAX_UNCHECKED_BYTES = 2**20
"""Number of decompressed bytes that is allowed with any ratio."""


class ResponseStream:
    """The response to one request, created before the request is sent.

    `close` returns the connection to the pool, or closes it if the response was not read completely.
    """

    def __init__(self, open_responses: set[ResponseStream], limits: Limits | None, *, is_base64: bool = False) -> None:
        """Create a stream without a response.

        open_responses: the responses being read. This one adds and removes itself.
        limits: the limits to which `close` returns the connection slot. None: the request has no slot.
        is_base64: True if the body is base64 text, which is checked for compression bombs.
        """
        self._is_base64 = is_base64
        self._response: aiohttp.ClientResponse | None = None
        self._open_responses = open_responses
        self._limits = limits
        self._closed = False
        self.status = 0

    def begin(self, response: aiohttp.ClientResponse) -> None:
        """Set the response, whose status and headers have been received."""
        self._response = response
        self.status = response.status
        self._open_responses.add(self)

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of the response."""
        return self._http_response.headers

    @property
    def _http_response(self) -> aiohttp.ClientResponse:
        if self._response is None:
            raise RuntimeError("The response has not started.")
        return self._response

    async def read(self, limit: int) -> BufferedResponse:
        """Return the response with its complete body, or with the beginning of a body of more than `limit` bytes."""
        content = self._http_response.content
        pieces: list[bytes] = []
        size = 0
        piece = body = b""
        try:
            while size <= limit and (piece := await self.read_chunk()):
                pieces.append(piece)
                size += len(piece)
                if content.at_eof():
                    break
            kept = size
            while size > limit and kept - len(pieces[-1]) >= MAX_ERROR_BODY_BYTES:
                kept -= len(pieces.pop())
            body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            return BufferedResponse(self.status, self.headers, body, too_large=size > limit, size=size)
        finally:
            # Tracebacks can include local variables.
            pieces.clear()
            piece = body = b""

    async def read_chunk(self) -> bytes:
        """Return the next bytes of the body, or b"" at its end.

        Raises ResponseDecodeError if base64 text expands like a compression bomb.
        """
        content = self._http_response.content
        size = content.total_bytes if self._is_base64 else 0
        if size > _MAX_UNCHECKED_BYTES and size > _MAX_EXPANSION_RATIO * content.total_raw_bytes:
            text = (
                f"the compressed response expands to more than {_MAX_EXPANSION_RATIO} times its size, as no document "
                "should: configure the service, or its proxy, to send documents uncompressed"
            )
            raise ResponseDecodeError(text, too_large=True)
        return await content.readany()

    def close(self) -> None:
        """Release the connection and its slot. Further calls have no effect."""
        if self._closed:
            return
        self._closed = True
        self._open_responses.discard(self)
        if self._response is not None:
            content = self._response.content
            if not content.at_eof() and content.exception() is None:
                # Otherwise aiohttp raises one shared exception in all later reads, which retains their frames.
                content.set_exception(aiohttp.ClientConnectionError("the connection was closed"))
            self._response.close()
        if self._limits is not None:
            self._limits.release()

    def __repr__(self) -> str:
        return f"ResponseStream(status={self.status})"


@attrs.define(repr=False, eq=False)
class BufferedResponse:
    """A response that has been read."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    too_large: bool = False
    """True if the body is larger than the limit. `body` is then only its beginning."""
    size: int = attrs.field(default=attrs.Factory(lambda response: len(response.body), takes_self=True))
    """The number of bytes received. `body` may contain fewer if the response is too large."""

    def __repr__(self) -> str:
        return f"BufferedResponse(status={self.status}, bytes={self.size})"
